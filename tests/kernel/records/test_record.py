"""Records of format v2: what is encoded is decoded, as other implementations do it, and garbage is refused as
garbage."""
from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.util import encode_varint_py
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.errors import CorruptBatch
from gatehouse.kernel.records.record import (
    MAX_HEADERS,
    add_header,
    decode_records,
    encode_headers,
    encode_key,
    read_headers,
    read_varint,
    split_records,
    varint,
)
from tests.kernel.batches import encode_record, wrap

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.text(max_size=8).map(str.encode)
headers_of = st.lists(st.tuples(texts, st.none() | st.binary(max_size=20)), max_size=4).map(tuple)
messages = st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=100), headers_of,
                     st.integers(-10_000, 10_000), st.integers(0, 127))


@given(I64)
def test_varints_are_kafkas(value: int) -> None:
    written = bytearray()
    encode_varint_py(value, written.append)
    assert varint(value) == bytes(written)
    assert read_varint(b"x" + varint(value) + b"y", 1) == (value, 1 + len(written))


@given(headers_of, texts, st.binary(max_size=20))
def test_headers_are_read_as_they_were_written(headers: tuple[tuple[bytes, bytes | None], ...], name: bytes,
                                               value: bytes) -> None:
    encoded = encode_headers(headers)
    assert read_headers(encoded, 0) == (headers, len(encoded))
    more = add_header(encoded, varint(len(name)) + name + varint(len(value)) + value)
    assert read_headers(more, 0) == ((*headers, (name, value)), len(more))


@given(st.lists(messages, min_size=1, max_size=8))
def test_records_are_read_as_they_were_written(found: list[tuple]) -> None:  # type: ignore[type-arg]
    data = b"".join(encode_record(i, *message) for i, message in enumerate(found))
    expected = [(100 + i, 5_000 + delta, key, value, headers, attributes, 7 + i)
                for i, (key, value, headers, delta, attributes) in enumerate(found)]
    assert decode_records(data, 0, len(found), 100, 5_000, 7) == expected
    with pytest.raises(CorruptBatch):
        decode_records(data, 0, len(found) + 1, 100, 5_000, 7)


@given(st.lists(messages, min_size=1, max_size=8))
def test_another_implementation_reads_the_same(found: list[tuple]) -> None:  # type: ignore[type-arg]
    data = b"".join(encode_record(i, *message) for i, message in enumerate(found))
    theirs = list(DefaultRecordBatch(wrap(data, len(found), base_ms=50_000, max_ms=60_000)))
    ours = decode_records(data, 0, len(found), 0, 50_000, 0)
    assert [(r.offset, r.timestamp, r.key, r.value, tuple((name.encode(), value) for name, value in r.headers))
            for r in theirs] == [record[:5] for record in ours]


@given(st.binary(max_size=300), st.integers(0, 20))
def test_garbage_is_refused_as_garbage(data: bytes, count: int) -> None:
    try:
        assert len(decode_records(data, 0, count, 0, 0, 0)) == count
    except CorruptBatch:
        pass


@given(st.lists(messages, min_size=1, max_size=3), st.data())
def test_damaged_records_are_refused_as_garbage(found: list[tuple], data: st.DataObject) -> None:  # type: ignore[type-arg]
    good = bytearray(b"".join(encode_record(i, *message) for i, message in enumerate(found)))
    good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_records(bytes(good), 0, len(found), 0, 0, 0)
    except CorruptBatch:
        pass


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9, b"\xff" * 20])
def test_a_number_that_does_not_end_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        read_varint(data, 0)


def test_a_record_cannot_claim_any_number_of_headers() -> None:
    with pytest.raises(CorruptBatch):
        read_headers(varint(MAX_HEADERS + 1) + b"\0" * 100, 0)
    with pytest.raises(CorruptBatch):
        read_headers(varint(-1), 0)
    assert encode_key(None) == b"\x01" and encode_key(b"") == b"\0"


@given(st.lists(messages, min_size=1, max_size=4), st.data())
def test_what_is_handed_out_is_what_is_read(found: list[tuple], data: st.DataObject) -> None:  # type: ignore[type-arg]
    """Whatever bytes are wrong: the two ways of reading agree which records make sense, and headers can be read."""
    bad = bytearray(b"".join(encode_record(i, *message) for i, message in enumerate(found)))
    for _ in range(data.draw(st.integers(0, 3))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    read = decode_records(bytes(bad), 0, len(found), 100, 5_000, 7, passes_over=True)
    handed = split_records(None, bytes(bad), 0, len(found), 100, 5_000, 7, checks=True)
    assert [(one[1], one[4], one[5], one[6], read_headers(one[7], 0)[0], one[8], one[3]) for one in handed] == read
