"""Records of format v2: what is encoded is decoded, as other implementations do it, and garbage is refused as garbage.
What a door keeps of a message for itself is shown to nobody else.
"""
from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.util import encode_varint_py
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.errors import CorruptBatch
from gatehouse.kernel.message import Headers, Piece
from gatehouse.kernel.records.batch import (
    MARK,
    MAX_HEADERS,
    add_header,
    as_batch,
    decode_records,
    encode_headers,
    encode_key,
    has_private,
    public_headers,
    public_piece,
    public_record,
    read_headers,
    read_varint,
    sound_records,
    split_records,
    varint,
)
from gatehouse.kernel.records.batch import encode_record as encode_by_door
from tests.kernel.batches import encode_record, wrap

# --- records ------------------------------------------------------------------------------------------------------

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


# --- headers that only the hub sees -------------------------------------------------------------------------------

OWN = (MARK + b"amqp", b"\x00\x01")
USERS: Headers = ((b"unit", b"C"), (b"none", None))


def piece_of(*headers: Headers, value: bytes | None = b"21", whole: bool = False) -> Piece:
    records = [encode_by_door(3, at, encode_key(b"k"), value, encode_headers(pairs))
               for at, pairs in enumerate(headers)]
    return Piece(10, len(records), whole, b"".join(records), 1_000, 1_000 + len(records) - 1, 500)


def test_private_headers_are_taken_out_wherever_they_stand() -> None:
    assert public_headers(encode_headers([OWN, *USERS])) == USERS
    assert public_headers(encode_headers([USERS[0], OWN, USERS[1]])) == USERS
    assert public_headers(encode_headers([OWN])) == public_headers(encode_headers([])) == ()


def test_a_piece_without_them_is_the_same_piece() -> None:
    piece = piece_of(USERS, (), USERS)
    assert public_piece(piece) is piece


def test_a_piece_with_them_keeps_everything_else() -> None:
    piece = public_piece(piece_of(USERS, (OWN, *USERS), (OWN,), ()))
    assert not has_private(piece.data)
    assert [(record[0], record[1], record[2], record[3], record[4], record[5], record[6])
            for record in sound_records(piece)] == [
        (10 + at, 1_000 + at, b"k", b"21", headers, 3, 500 + at) for at, headers in enumerate((USERS, USERS, (), ()))]
    assert len(as_batch(piece, 0)) == 61 + len(piece.data)


@pytest.mark.parametrize("value", [MARK, b"\xf4", None])
def test_the_mark_in_a_value_or_a_header_s_value_is_nobody_s_own(value: bytes | None) -> None:
    headers = ((b"a", MARK),)
    piece = public_piece(piece_of(headers, (), value=value))
    assert [record[3:5] for record in sound_records(piece)] == [(value, headers), (value, ())]


def test_a_producer_s_batch_is_as_it_came() -> None:
    piece = piece_of((OWN,), whole=True)
    assert public_piece(piece) is piece


def test_a_record_that_is_read() -> None:
    clean = (1, 2, b"k", b"v", USERS, 3, 4)
    assert public_record(clean) == clean
    assert public_record((1, 2, b"k", b"v", (OWN, *USERS), 3, 4)) == clean


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(CorruptBatch):
        public_headers(b"\x04" + MARK)
