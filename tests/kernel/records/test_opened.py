"""A batch opened and cut: every sound record once, whatever the parts, and no work for what is only claimed."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.groups.handing_out import leased_of
from gatehouse.kernel.message import Piece
from gatehouse.kernel.records.batch import HEADER_BYTES, missing, records_of, sound_records
from gatehouse.kernel.records.opened import PART_RECORDS, UNLIMITED, Opened, opened_whole, parts_of
from tests.kernel import poison
from tests.kernel.batches import encode_record, wrap


def piece_of(batch: bytes, count: int, first_offset: int = 1_000, first_id: int = 50) -> Piece:
    return Piece(first_offset, count, True, batch, 7, 9, first_id)


def walked(piece: Piece, max_bytes: int, max_record_bytes: int = UNLIMITED) -> list[Piece]:
    """Its parts from its beginning to its end; each goes on where the one before it ended."""
    opened, parts = Opened(piece), []
    offset, end = piece.first_offset, piece.first_offset + piece.count
    while offset < end:
        part = opened.part(offset, max_bytes, max_record_bytes)
        assert part.first_offset == offset and part.count > 0
        assert part.first_id - piece.first_id == part.first_offset - piece.first_offset
        parts.append(part)
        offset += part.count
    assert offset == end
    return parts


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=700), st.integers(1, 5_000), st.booleans())
def test_parts_hold_every_record_once_and_keep_their_size(values: list[bytes], max_bytes: int, packs: bool) -> None:
    records = b"".join(encode_record(i, b"k", value, delta_ms=i) for i, value in enumerate(values))
    piece = piece_of(poison.packed(records, len(values)) if packs else wrap(records, len(values)), len(values))
    parts = walked(piece, max_bytes)
    assert [record for part in parts for record in sound_records(part)] == records_of(piece)
    assert all(len(part.data) - HEADER_BYTES <= max_bytes or part.count == 1 for part in parts)


@given(st.integers(1, 1_500), st.integers(0, 1_499))
def test_a_part_may_begin_anywhere(count: int, offset: int) -> None:
    piece = piece_of(poison.packed(poison.numbered(count), count), count, 0)
    opened = Opened(piece)
    opened.part(offset // 3, 100, UNLIMITED)
    first = min(offset, count - 1)
    assert sound_records(opened.part(first, 1, UNLIMITED)) == records_of(piece)[first:first + 1]


@pytest.mark.parametrize(("batch", "count", "sound"), [
    (poison.lying(), poison.CLAIMED, 10), (poison.lying(10, 4), 4, 4), (poison.garbage(), 5, 0),
    (poison.broken_in_the_middle(poison.SENSELESS), 7, 6), (poison.broken_in_the_middle(poison.ENDLESS), 7, 3),
    (poison.huge_in_the_middle(100_000), 7, 6), (wrap(poison.numbered(3), poison.CLAIMED), poison.CLAIMED, 3),
    (wrap(b"", poison.CLAIMED), poison.CLAIMED, 0)])
@pytest.mark.parametrize("max_bytes", [1, 20, 1 << 20])
def test_what_is_only_claimed_costs_one_part(batch: bytes, count: int, sound: int, max_bytes: int) -> None:
    piece = piece_of(batch, count)
    parts = walked(piece, max_bytes, 50_000)
    assert len(parts) <= sound + 2
    found = [record for part in parts for record in sound_records(part)]
    assert len(found) == sound and all(record[0] - 1_000 == record[6] - 50 for record in found)
    gaps = [gap for part in parts for gap in missing(part, [record[0] for record in sound_records(part)])]
    assert sum(stop - start for start, stop in gaps) == count - sound
    assert [one[1] for part in parts for one in leased_of(part, None)] == [record[0] for record in found]
    leased = leased_of(piece, None)
    for first, last in ((1_000, 1_000), (1_003, 1_005), (1_006, 9_999), (0, 999), (0, 1_001)):
        assert leased_of(piece, None, first, last) == [one for one in leased if first <= one[1] <= last]


def test_the_smallest_records_come_in_parts_of_so_many() -> None:
    count = 3 * PART_RECORDS + 1
    one = encode_record(0, None, None)
    parts = walked(piece_of(poison.packed(one * count, count), count), 1 << 30)
    assert [part.count for part in parts] == [PART_RECORDS] * 3 + [1]


def test_a_batch_that_opens_to_little_is_given_whole() -> None:
    piece = piece_of(poison.packed(poison.numbered(10), 10), 10)
    size = len(poison.numbered(10))
    assert opened_whole(piece, size - 1, UNLIMITED) is None
    assert opened_whole(piece, UNLIMITED, size - 1) is None             # one of its records may be too large
    opened = opened_whole(piece, size, size)
    assert opened is not None and records_of(opened) == records_of(piece)
    assert opened_whole(piece_of(poison.garbage(), 5), 1 << 20, UNLIMITED) is None


def test_what_is_opened_at_one_time_is_bounded() -> None:
    bomb = piece_of(poison.packed(bytes(80_000), 1), 1)
    part = Opened(bomb, 50_000).part(1_000, 1 << 20, UNLIMITED)
    assert (part.count, part.data) == (1, b"")


def test_times_beyond_reckoning_are_no_records() -> None:
    far = encode_record(1, b"k", b"far", delta_ms=(1 << 63) - 1)
    records = encode_record(0, b"k", b"0") + far + encode_record(2, b"k", b"2")
    piece = piece_of(wrap(records, 3, base_ms=(1 << 63) - 1), 3)
    assert sound_records(piece) == [] == leased_of(piece, None)
    piece = piece_of(wrap(records, 3, base_ms=5), 3)
    assert [record[3] for record in sound_records(piece)] == [b"0", b"2"] == [one[6] for one in leased_of(piece, None)]


def test_parts_of_bare_records_are_the_piece_itself() -> None:
    bare = Piece(0, 3, False, poison.numbered(3), 0, 0, 0)
    assert list(parts_of(bare)) == [bare]
