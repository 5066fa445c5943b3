"""The schema-driven decoder against kafka-python's own, and against requests that lie."""
from __future__ import annotations

import uuid
from typing import Any

import pytest
from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.consumer import JoinGroupRequest, ListOffsetsRequest, OffsetFetchRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest

from gatehouse.gateways.kafka import cold
from gatehouse.gateways.kafka.codec import Malformed
from tests.gateways.kafka.steps import steps_of

REQUESTS: dict[str, tuple[Any, range, bool]] = {
    kind.__name__: (kind, range(first, kind.max_version + 1), ours) for kind, first, ours in (
        (ApiVersionsRequest, 0, True), (MetadataRequest, 0, True), (CreateTopicsRequest, 0, True),
        (ListOffsetsRequest, 1, True), (InitProducerIdRequest, 0, True),
        (JoinGroupRequest, 0, False), (OffsetFetchRequest, 1, False))}
CASES = [(name, version) for name, (_, versions, _) in REQUESTS.items() for version in versions]


def filled(schema: Any, version: int, depth: int = 0) -> Any:
    """A value for every field of a schema; two of everything there may be several of."""
    values = {}
    for field in schema.untagged_fields(version):
        if field.is_struct_array():
            values[field.name] = [filled(field, version, depth + i + 1) for i in range(2)]
        elif field.is_array():
            values[field.name] = [plain(field.array_of, depth + i) for i in range(2)]
        else:
            values[field.name] = plain(field, depth)
    return cold.Row(**values)


def plain(field: Any, seed: int) -> Any:
    kind = field.type_str
    if kind == "string":
        return f"{field.name}-{seed}\N{SNOWMAN}"
    if kind in ("bytes", "records"):
        return b"\0\xff" * seed
    if kind == "uuid":
        return uuid.UUID(int=seed + 1)
    return kind == "bool" or seed + 1


def encoded(name: str, version: int) -> tuple[bytes, Any]:
    kind = REQUESTS[name][0]
    values = filled(kind._struct, version)
    return bytes(kind(version=version, **values.__dict__).encode(version=version)), values


def without_defaults(row: Any, like: Any) -> Any:
    """The row with only the fields that `like` has."""
    if isinstance(like, cold.Row):
        return cold.Row(**{name: without_defaults(getattr(row, name), value) for name, value in like.__dict__.items()})
    if isinstance(like, list):
        return [without_defaults(one, other) for one, other in zip(row, like, strict=True)]
    return row


@pytest.mark.parametrize(("name", "version"), CASES)
def test_decodes_what_kafka_python_encodes(name: str, version: int) -> None:
    body, values = encoded(name, version)
    row = cold.decode(REQUESTS[name][0], version, b"??" + body + b"!", 2, 2 + len(body))
    assert without_defaults(row, values) == values


@pytest.mark.parametrize(("name", "version"), CASES)
def test_what_is_cut_is_malformed_and_what_follows_is_passed_over(name: str, version: int) -> None:
    body, values = encoded(name, version)
    for end in range(len(body)):
        with pytest.raises(Malformed):
            cold.decode(REQUESTS[name][0], version, body, 0, end)
    row = cold.decode(REQUESTS[name][0], version, body + b"\0\0", 0, len(body) + 2)
    assert without_defaults(row, values) == values


def test_fields_of_other_versions_have_their_defaults() -> None:
    row = cold.decode(MetadataRequest, 1, b"\xff\xff\xff\xff", 0, 4)
    assert row.topics is None
    assert row.allow_auto_topic_creation is True


@pytest.mark.parametrize(("kind", "version", "body"), [
    (MetadataRequest, 1, b"\0\0\0\1\xff\xff"),                            # a name may be null from version 10 on
    (MetadataRequest, 5, b"\0\0\0\1\0\2\xff\xff\1"),                      # not UTF-8
    (MetadataRequest, 9, b"\xff\xff\xff\xff\xff\xff\1\0\0\0"),            # a count that does not end
    (MetadataRequest, 9, b"\xfe\xff\xff\xff\x0f\1\0\0\0"),                # a count beyond the frame
    (MetadataRequest, 5, b"\x80\0\0\0\1"),                                # a negative count
    (CreateTopicsRequest, 1, b"\xff\xff\xff\xff\0\0\0\0\0"),              # an array may not be null
    (ListOffsetsRequest, 1, b"\xff\xff\xff\xff\x7f\xff\xff\xff"),
    (ApiVersionsRequest, 3, b"\2a\2b\xff\xff\xff\xff\x0f"),               # tagged fields without end
    (InitProducerIdRequest, 2, b"\xff\xff\xff\xff\x0f" + bytes(20))])
def test_what_lies_is_malformed(kind: Any, version: int, body: bytes) -> None:
    with pytest.raises(Malformed):
        cold.decode(kind, version, body, 0, len(body))


def test_a_large_request_of_nothing_but_continuation_bits_costs_nothing() -> None:
    """kafka-python's decoder would build a number of a million bits from it."""
    body = b"\xff" * cold.MAX_BYTES

    def decode() -> None:
        with pytest.raises(Malformed):
            cold.decode(MetadataRequest, 9, body, 0, len(body))
    assert steps_of(decode) < 1_000


def test_a_request_beyond_the_limit_is_malformed() -> None:
    with pytest.raises(Malformed, match="at most"):
        cold.decode(MetadataRequest, 9, bytes(cold.MAX_BYTES + 1), 0, cold.MAX_BYTES + 1)
