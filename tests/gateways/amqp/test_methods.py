"""Cold methods, field tables and properties, with pika as the judge of every one."""
from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pika
import pytest
from pika import data as pika_data
from pika import spec

from gatehouse.gateways.amqp import properties
from gatehouse.gateways.amqp.errors import SyntaxFault
from gatehouse.gateways.amqp.methods import METHODS, decode_method, encode_method
from gatehouse.gateways.amqp.tables import DEPTH_MAX, Field, decode_table, encode_table, plain, typed

RENAMED = {"text": "reply_text", "code": "reply_code", "major": "version_major",
           "minor": "version_minor", "global": "global_qos", "no_wait": "nowait"}
VALUES: dict[str, Any] = {"o": 9, "h": 513, "l": 70_000, "q": 1 << 40, "s": "name", "S": b"long", "b": True,
                          "F": {"a": typed(1), "b": typed(True)}}
"""By type. pika wants some long strings as text."""

MISREAD = {(10, 70)}
"""connection.update-secret, which pika writes and cannot read."""


def test_pika_knows_no_method_that_is_missing() -> None:
    theirs = set(spec.methods)
    assert theirs == {class_id << 16 | method_id for class_id, method_id in METHODS}


@pytest.mark.parametrize("ids", sorted(METHODS.keys() - MISREAD), ids=lambda ids: METHODS[ids].name)
def test_pika_reads_what_is_written_and_writes_what_is_read(ids: tuple[int, int]) -> None:
    name, fields = METHODS[ids]
    arguments = {field: VALUES[kind] for field, kind in fields if field != "_"}
    payload = encode_method(name, **arguments)
    theirs = spec.methods[ids[0] << 16 | ids[1]]()
    theirs.decode(payload, 4)
    for field, value in arguments.items():
        shown = getattr(theirs, RENAMED.get(field, field))
        if isinstance(value, dict):
            value = {key: plain(one) for key, one in value.items()}
        if isinstance(value, bytes) and isinstance(shown, str):
            shown = shown.encode()
        assert shown == value, field
    again = payload[:4] + b"".join(theirs.encode())
    assert decode_method(again)[0] == name
    assert {key: value for key, value in decode_method(again)[1].items() if not isinstance(value, dict)} \
        == {key: value for key, value in decode_method(payload)[1].items() if not isinstance(value, dict)}


@pytest.mark.parametrize("ids", METHODS, ids=lambda ids: METHODS[ids].name)
def test_cut_off_anywhere_it_is_the_peers_fault(ids: tuple[int, int]) -> None:
    name, fields = METHODS[ids]
    payload = encode_method(name, **{field: VALUES[kind] for field, kind in fields if field != "_"})
    for size in range(len(payload)):
        with pytest.raises(SyntaxFault):
            decode_method(payload[:size])


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(SyntaxFault, match=r"60\.99") as caught:
        decode_method(struct.pack(">HH", 60, 99))
    assert caught.value.method == (60, 99)


def test_bits_share_octets() -> None:
    payload = encode_method("exchange.declare", passive=True, internal=True)
    assert payload[-5:] == b"\x09\0\0\0\0"
    assert decode_method(payload)[1]["internal"] is True


# ---- tables ---------------------------------------------------------------------------------------------------------

ALL_TYPES = {
    "t": Field("t", True), "b": Field("b", -5), "B": Field("B", 200), "s": Field("s", -300), "u": Field("u", 60_000),
    "I": Field("I", -70_000), "i": Field("i", 4_000_000_000), "l": Field("l", -1 << 40), "f": Field("f", 0.5),
    "d": Field("d", 1.25), "D": Field("D", (2, 314)), "S": Field("S", b"text"), "x": Field("x", b"\xff"),
    "A": Field("A", [Field("t", False), Field("V", None)]), "T": Field("T", 1_700_000_000),
    "F": Field("F", {"in": Field("S", b"side")}), "V": Field("V", None),
}


def test_every_type_comes_back_as_it_was() -> None:
    data = b"before" + encode_table(ALL_TYPES)
    assert decode_table(data + b"behind", 6) == (ALL_TYPES, len(data))


def test_pika_reads_every_type() -> None:
    theirs, _ = pika_data.decode_table(encode_table(ALL_TYPES), 0)
    theirs["T"] = int(theirs["T"].replace(tzinfo=UTC).timestamp())
    theirs["D"] = float(theirs["D"])
    ours = {name: plain(field) for name, field in ALL_TYPES.items()}
    assert theirs == {**ours, "f": 0, "d": 1}                   # it reads floats as whole numbers


def test_what_pika_writes_is_read() -> None:
    parts: list[bytes] = []
    written = {"int": 5, "long": 1 << 40, "text": "ü", "flag": False, "list": [1, "a"], "void": None,
               "table": {"x": b"\xff"}, "time": datetime.fromtimestamp(1_700_000_000, UTC)}
    pika_data.encode_table(parts, written)
    read, _ = decode_table(b"".join(parts), 0)
    assert {name: plain(field) for name, field in read.items()} == {**written, "time": 1_700_000_000}


@pytest.mark.parametrize("data", [
    b"", b"\0\0\0", b"\0\0\0\5a", b"\0\0\0\1\5", b"\0\0\0\3\1aS", b"\0\0\0\3\1aq", b"\0\0\0\x08\1aS\0\0\0\xffx",
    b"\0\0\0\3\1\xffV", b"\0\0\0\7\1aF\0\0\0\xff",
])
def test_a_table_that_lies(data: bytes) -> None:
    with pytest.raises(SyntaxFault):
        decode_table(data, 0)


def test_tables_within_each_other_are_bounded() -> None:
    deep = Field("V", None)
    for _ in range(DEPTH_MAX):
        deep = Field("A", [deep])
    assert decode_table(encode_table({"a": deep}), 0)[0] == {"a": deep}
    for kind in (lambda inner: Field("A", [inner]), lambda inner: Field("F", {"x": inner})):
        deeper = deep
        for _ in range(DEPTH_MAX):
            deeper = kind(deeper)
        with pytest.raises(SyntaxFault):
            decode_table(encode_table({"a": deeper}), 0)


# ---- properties -----------------------------------------------------------------------------------------------------

FULL = pika.BasicProperties(
    content_type="text/plain", content_encoding="gzip", headers={"a": 1}, delivery_mode=2, priority=3,
    correlation_id="c", reply_to="r", expiration="100", message_id="m", timestamp=1_700_000_000, type="t", user_id="u",
    app_id="app", cluster_id="cl")


def raw_of(sent: pika.BasicProperties) -> bytes:
    return b"".join(sent.encode())


@pytest.mark.parametrize("name", properties.NAMES)
def test_every_property_is_found_alone_and_among_all(name: str) -> None:
    alone = pika.BasicProperties(**{name: getattr(FULL, name)})
    for raw in (raw_of(alone), raw_of(FULL)):
        found = properties.read(raw)[name]
        assert (plain(found["a"]) if name == "headers" else found) == \
            (1 if name == "headers" else getattr(FULL, name))


def test_what_is_replaced_leaves_the_rest_alone() -> None:
    raw = properties.replaced(raw_of(FULL), {"b": typed(2)}, without="expiration")
    theirs = pika.BasicProperties()
    theirs.decode(raw)
    assert (theirs.headers, theirs.expiration, theirs.content_type, theirs.cluster_id) == ({"b": 2}, None, "text/plain",
                                                                                           "cl")
    assert properties.replaced(raw_of(FULL), None) == raw_of(FULL)
    assert properties.write(properties.read(raw_of(FULL))) == raw_of(FULL)


def test_properties_that_lie() -> None:
    raw = raw_of(FULL)
    for size in range(len(raw)):
        with pytest.raises(SyntaxFault):
            properties.read(raw[:size])
    with pytest.raises(SyntaxFault):
        properties.read(raw + b"x")
    with pytest.raises(SyntaxFault):
        properties.read(b"\0\1")
