"""A producer's batch as its readers get it: opened, and cut to the size they ask for.

A kilobyte can hold sixty megabytes, and a header can claim two milliards of records. So a batch is opened once for all
readers, each is given a part at a time, and nothing here costs more than the records that are really there: where their
bytes end, or a length makes no sense, the rest of the claimed offsets is one piece without bytes. So are records of a
compressed batch that are larger than their topic takes. `Unreadable` counts what nobody can be given: the hub's log is
whole there, so this is no damage of its own. Pure.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Final

from gatehouse.kernel.errors import CorruptBatch
from gatehouse.kernel.message import Piece
from gatehouse.kernel.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    MAX_OPENED_BYTES,
    opened,
    opened_header,
    read_header,
    skip_large,
    skip_records,
)
from gatehouse.kernel.records.compression import NONE

PART_RECORDS: Final = 5_000            # of one part: decoded, the smallest take a hundred times their bytes
MARK_EVERY: Final = 256                # records between two places that are remembered
UNLIMITED: Final = 1 << 60


class Opened:  # decision 115
    """One batch, which may be garbage. `part` gives what lies at an offset."""

    def __init__(self, piece: Piece, limit_bytes: int = MAX_OPENED_BYTES) -> None:
        """Opens it; what opens to more than `limit_bytes` has no records that anybody is given."""
        self._piece = piece
        self._header = read_header(piece.data)
        self._compressed = self._header.attributes & CODEC_MASK != NONE
        try:
            self._data, at = opened(piece.data, self._header, limit_bytes)
        except CorruptBatch:
            self._data, at = b"", 0
        self._first = at
        self._marks = array("q", (at,))          # where the records number 0, MARK_EVERY, ... begin
        self._end_index = -1                     # how many records can be found, once that is known

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def part(self, offset: int, max_bytes: int, max_record_bytes: int) -> Piece:
        """Records from this offset of the batch on: as many as go into `max_bytes`, one in any case.

        Where none can be given it is a piece without bytes, as long as that is so.
        """
        piece = self._piece
        limit = max_record_bytes if self._compressed else UNLIMITED
        if self._header.attributes & CONTROL:
            return piece
        index = min(max(0, offset - piece.first_offset), piece.count - 1)
        at = self._find(index)
        if at < 0:
            return self._without_bytes(self._end_index, piece.count)
        count, end = skip_records(self._data, at, min(PART_RECORDS, piece.count - index), max_bytes, limit)
        if count:
            data = opened_header(self._header) + self._data[at:end]
            return Piece(piece.first_offset + index, count, True, data, piece.append_ms, piece.max_timestamp_ms,
                         piece.first_id + index)
        count, end = skip_large(self._data, at, piece.count - index, limit)
        return self._without_bytes(index, piece.count if end == len(self._data) else index + count)

    def _without_bytes(self, start: int, stop: int) -> Piece:
        piece = self._piece
        return Piece(piece.first_offset + start, stop - start, False, b"", piece.append_ms, piece.max_timestamp_ms,
                     piece.first_id + start)

    def _find(self, index: int) -> int:
        """Where a record begins, by its number; -1 where there is none."""
        marks = self._marks
        mark = min(index // MARK_EVERY, len(marks) - 1)
        at, reached = marks[mark], mark * MARK_EVERY
        while reached < index and self._end_index < 0:
            count, at = skip_records(self._data, at, min(MARK_EVERY, index - reached), UNLIMITED, UNLIMITED)
            reached += count
            if reached == len(marks) * MARK_EVERY:
                marks.append(at)
            elif reached < index:
                self._end_index = reached
        if reached == index and at < len(self._data):
            return at
        if self._end_index < 0:
            self._end_index = reached
        return -1


def opened_whole(piece: Piece, max_bytes: int, max_record_bytes: int) -> Piece | None:
    """The whole batch opened, where that is no more than `max_bytes` and PART_RECORDS, and no record can be too large;
    else None, and where it cannot be opened."""
    header = read_header(piece.data)
    if header.attributes & CONTROL:
        return piece
    if piece.count > PART_RECORDS:
        return None
    if header.attributes & CODEC_MASK == NONE:
        return piece if len(piece.data) <= max_bytes + HEADER_BYTES else None
    try:
        data, _ = opened(piece.data, header, min(max_bytes, max_record_bytes))
    except CorruptBatch:
        return None
    return Piece(piece.first_offset, piece.count, True, opened_header(header) + data, piece.append_ms,
                 piece.max_timestamp_ms, piece.first_id)


def parts_of(piece: Piece, max_record_bytes: int = UNLIMITED) -> Iterator[Piece]:
    """The piece from its beginning to its end, a part at a time; for who is on a thread that may take its time."""
    if not piece.whole:
        yield piece
        return
    opened = Opened(piece)
    offset, end = piece.first_offset, piece.first_offset + piece.count
    while offset < end:
        part = opened.part(offset, MAX_OPENED_BYTES, max_record_bytes)
        assert part.count > 0 and part.first_offset >= piece.first_offset, "each part goes on in its batch"
        yield part
        offset = part.first_offset + part.count


MAX_MET: Final = 10_000                # stretches that are remembered, so that each counts once; more are not counted


class Unreadable:
    """Counts stretches of such offsets as readers meet them, and tells of the first in each partition.

    `on_first` gets partition id, first offset and how many offsets, as many as the batch claims.
    """

    def __init__(self, on_first: Callable[[int, int, int], None]) -> None:
        self._on_first = on_first
        self.count = 0
        self._met: set[tuple[int, int]] = set()
        self._partitions: set[int] = set()

    def note(self, partition_id: int, stretches: list[tuple[int, int]]) -> None:
        """These, (first, behind the last) each, cannot be given."""
        for start, stop in stretches:
            if (partition_id, start) in self._met or len(self._met) >= MAX_MET:
                continue
            self._met.add((partition_id, start))
            self.count += 1
            if partition_id not in self._partitions:
                self._partitions.add(partition_id)
                self._on_first(partition_id, start, stop - start)
