"""Frame heads: packed and opened, and what is not one is refused."""
from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.message import BadHead, Entries, StateRecord, decode_head, encode_head

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
U32 = st.integers(0, (1 << 32) - 1)
U64 = st.integers(0, (1 << 64) - 1)
records = st.builds(StateRecord, st.integers(0, 255), st.binary(max_size=20), st.none() | st.binary(max_size=50), U64)
rows = st.tuples(I64, I64, I64, I64, U32, U32, U32, U32, U32)


def entries_of(found: list[tuple[int, ...]]) -> Entries:
    entries = Entries()
    for row in found:
        for column, value in zip(entries.columns(), row, strict=True):
            column.append(value)
    return entries


@given(U32, I64, U64, U32, st.lists(rows, max_size=5), st.lists(records, max_size=5))
def test_a_head_is_opened_as_it_was_packed(epoch: int, append_ms: int, first_id: int, count: int,
                                           found: list[tuple[int, ...]], state: list[StateRecord]) -> None:
    head = decode_head(encode_head(epoch, append_ms, first_id, count, entries_of(found), state))
    assert (head.epoch, head.append_ms, head.first_id, head.id_count) == (epoch, append_ms, first_id, count)
    assert list(zip(*head.entries.columns(), strict=True)) == found
    assert head.state == state


def test_a_head_of_version_1_is_read() -> None:
    """Two entries and a state record as the first version wrote them."""
    columns = [struct.pack("<2q", *pair) for pair in ((7, 8), (100, 200), (50, 60))]
    columns += [struct.pack("<2I", *pair) for pair in ((3, 4), (0, 3), (0, 40), (40, 50), (77, 78), (0, 1))]
    state = struct.pack("<BBHIQ", 5, 0, 1, 2, 0) + b"kvv"
    head = struct.pack("<HxxIqQIII4x", 1, 9, 1_000, 5_000, 7, 2, len(state)) + b"".join(columns) + state
    found = decode_head(head)
    assert (found.epoch, found.append_ms, found.first_id, found.id_count) == (9, 1_000, 5_000, 7)
    assert list(zip(*found.entries.columns(), strict=True)) == [(7, 100, 50, 5_000, 3, 0, 40, 77, 0),
                                                                (8, 200, 60, 5_003, 4, 40, 50, 78, 1)]
    assert found.state == [StateRecord(5, b"k", b"vv")]


@given(st.binary(max_size=200))
def test_garbage_is_a_bad_head(data: bytes) -> None:
    with pytest.raises(BadHead):
        decode_head(b"\xff" + data)


@given(st.lists(rows, max_size=3), st.lists(records, max_size=3), st.data())
def test_a_head_of_another_length_is_a_bad_head(found: list[tuple[int, ...]], state: list[StateRecord],
                                                data: st.DataObject) -> None:
    head = encode_head(1, 2, 3, 4, entries_of(found), state)
    with pytest.raises(BadHead):
        decode_head(head[:data.draw(st.integers(0, len(head) - 1))])
    with pytest.raises(BadHead):
        decode_head(head + b"\0")
