"""The index in the store: written at checkpoints, read where the memtable in memory does not reach.

    b"b" partition_id first_offset
                                  up to 256 entries of a partition as rows, see ROW; keys are big-endian, so they sort
    b"h" page                     a page of watermarks
    b"s" kind key                 the newest state record of a key, see `kernel.state.state`
    b"l" segment base             how many state records in the segment are the newest of their key
    b"m" name                     positions up to which all of this is complete, the next message id, the append time; a
                                  mark while what only this store knows still is to be written to the log

Everything here follows from the log. A checkpoint carries the log position it is complete to, written last; replay from
there repeats the same writes, because blocks are cut from a fixed start in the order of the log. Of a queue's
entries only those are written that nobody has consumed by then; blocks that are consumed whole are deleted.
"""
from __future__ import annotations

import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from gatehouse.kernel.index.kept import kept_key_of
from gatehouse.kernel.index.memtable import (
    ROW_BYTES,
    ROW_FIELDS,
    Checkpoint,
    Memtable,
    Positions,
    block_key,
    row_at,
    unpack_row,
)
from gatehouse.kernel.log.log import Segment
from gatehouse.kernel.message import WHOLE, StateRecord
from gatehouse.kernel.state.state import Held, Kind, StateChanges, decode_held, encode_held, store_key
from gatehouse.kernel.state.store import IndexStore

BLOCK_ENTRIES: Final = 256
ROW: Final = np.dtype([("first_offset", "<i8"), ("position", "<i8"), ("first_id", "<i8"), ("append_ms", "<i8"),
                       ("max_ms", "<i8"), ("byte_offset", "<u4"), ("byte_length", "<u4"), ("count", "<u4"),
                       ("crc", "<u4"), ("flags", "<u4")])
assert ROW.itemsize == ROW_BYTES

_U64 = struct.Struct(">Q")
_POSITIONS = struct.Struct(">QQQQ")
_META: Final = b"mpositions"
_LOST: Final = b"mlost"


class Entry(NamedTuple):
    """One row: `count` records of a partition and where they lie."""

    first_offset: int
    position: int
    first_id: int
    append_ms: int
    max_ms: int
    byte_offset: int
    byte_length: int
    record_count: int
    crc: int
    flags: int

    @property
    def whole(self) -> bool:
        return bool(self.flags & WHOLE)

    @property
    def end_offset(self) -> int:
        return self.first_offset + self.record_count


def memtable_entry(memtable: Memtable, number: int) -> Entry:
    """One entry of the memtable in memory, in the same shape as a row."""
    columns, frame = memtable.entries, memtable.frame[number]
    return Entry(columns.first_offset[number], memtable.position[frame], columns.message_id[number],
                 memtable.append_ms[frame], columns.max_ms[number], columns.byte_offset[number],
                 columns.byte_length[number], columns.count[number], columns.crc[number], columns.flags[number])


def pack_blocks(memtable: Memtable, consumed: dict[int, int]) -> list[tuple[bytes, bytes]]:  # decision 9
    """The memtable's entries as blocks, partition by partition, without those that were consumed since."""
    columns = memtable.entries
    partition_ids: npt.NDArray[np.int64] = np.array(columns.partition_id, dtype=np.int64)
    if not len(partition_ids):
        return []
    order = np.argsort(partition_ids, kind="stable")
    frame = np.array(memtable.frame, dtype=np.int64)[order]
    rows = np.empty(len(order), ROW)
    for name in ("first_offset", "max_ms", "byte_offset", "byte_length", "count", "crc", "flags"):
        rows[name] = np.array(getattr(columns, name))[order]
    rows["position"] = np.array(memtable.position)[frame]
    rows["append_ms"] = np.array(memtable.append_ms)[frame]
    rows["first_id"] = np.array(columns.message_id)[order]
    packed = rows.tobytes()
    sorted_ids = partition_ids[order]
    overlaps = (sorted_ids[1:] == sorted_ids[:-1]) & (
        rows["first_offset"][1:] < rows["first_offset"][:-1] + rows["count"][:-1])
    assert not overlaps.any(), "offsets of a partition rise, and none is given twice"
    starts = np.flatnonzero(np.diff(sorted_ids, prepend=sorted_ids[0] - 1)).tolist()
    blocks = []
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        partition_id = int(sorted_ids[start])
        if partition_id in consumed:
            ends = rows["first_offset"][start:stop] + rows["count"][start:stop]
            start += int(np.searchsorted(ends, consumed[partition_id], side="right"))
        for at in range(start, stop, BLOCK_ENTRIES):
            data = packed[at * ROW.itemsize:min(stop, at + BLOCK_ENTRIES) * ROW.itemsize]
            blocks.append((block_key(partition_id, int(rows[at]["first_offset"])), data))
    return blocks


class Index:
    """The store, in the index's words. Reading and writing may happen on different threads."""

    def __init__(self, store: IndexStore) -> None:
        self._store = store
        self._leftovers = True                # a checkpoint may have been cut off before the start

    # ---- checkpoints

    def positions(self) -> Positions:
        stored = self._store.get(_META)
        if stored is None:
            return Positions(0, 0, 1)
        return Positions(*_POSITIONS.unpack(stored.ljust(_POSITIONS.size, b"\0")))

    def head_pages(self) -> list[tuple[int, bytes]]:
        return [(_U64.unpack(key[1:])[0], page) for key, page in self._store.scan(b"h", b"i")]

    def write(self, checkpoint: Checkpoint, segments: list[Segment], *, sync: bool = False) -> list[bytes]:
        """Write a checkpoint. The log must be durable up to its positions.

        Returns the keys of KEPT records whose LATEST record was replaced: nothing but that may have needed them.
        """
        blocks = pack_blocks(checkpoint.memtable, checkpoint.consumed)
        checkpoint.memtable.note_blocks(blocks)
        puts = blocks.copy()
        left = self._left_over(checkpoint.memtable, {key for key, _ in puts}) if self._leftovers else []
        puts += [(b"h" + _U64.pack(number), page) for number, page in checkpoint.pages.items()]
        superseded = self._superseded(checkpoint.changes)
        states, gone = self._state_puts(checkpoint.changes, segments)
        puts += states
        gone += left
        for partition_id, start in checkpoint.consumed.items():
            below = self._first_block_needed(partition_id, start)
            gone += [key for key, _ in self._store.scan(block_key(partition_id, 0), below)]
        puts.append((_META, _POSITIONS.pack(*checkpoint.positions)))
        self._leftovers = True                # until all of it is written
        self._store.write(puts, gone, sync=sync)
        self._leftovers = False
        return superseded

    def _left_over(self, memtable: Memtable, replaced: set[bytes]) -> list[bytes]:  # decision 10
        """Blocks of a checkpoint that a crash cut off: what they hold has been replayed and is in the memtable. They
        may begin elsewhere than the memtable's own, as less was consumed then, and would hide what those have."""
        first: dict[int, int] = {}
        for partition_id, offset in zip(memtable.entries.partition_id, memtable.entries.first_offset, strict=True):
            first[partition_id] = min(offset, first.get(partition_id, offset))
        return [key for partition_id, offset in first.items()
                for key, _ in self._store.scan(block_key(partition_id, offset), block_key(partition_id + 1, 0))
                if key not in replaced]

    def _superseded(self, changes: StateChanges) -> list[bytes]:
        kept_keys: list[bytes] = []
        for kind, key in changes.newest:
            held = self.held(kind, key) if kind == Kind.LATEST else None
            if held is not None and held.value is not None:
                kept = kept_key_of(key, held.value)
                before = self.held(Kind.KEPT, kept)
                if before is not None and before.value is not None or (Kind.KEPT, kept) in changes.newest:
                    kept_keys.append(kept)
        return kept_keys

    def _state_puts(self, changes: StateChanges, segments: list[Segment]
                    ) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        puts: list[tuple[bytes, bytes]] = []
        gone: list[bytes] = []
        bases = sorted(segment.base for segment in segments)
        assert bases, "a log has a segment that is being written"
        live: dict[int, int] = {}

        def count(home: int, by: int) -> None:
            base = bases[max(0, bisect_right(bases, home) - 1)]
            live[base] = live.get(base, 0) + by

        for (kind, key), (order, home, value) in changes.newest.items():
            name = store_key(kind, key)
            stored = self._store.get(name)
            held = None if stored is None else decode_held(stored)
            copies = (held.copies if held else 0) + changes.copied.get((kind, key), 0)
            if held is not None:
                if held.order > order:
                    order, home, value = held.order, held.home, held.value
                count(held.home, -1)
            if value is None and not copies:
                if stored is not None:        # else it came and went between two checkpoints
                    gone.append(name)
                continue
            assert 0 <= order <= home, "a record lies where it was written, or where it was moved to"
            count(home, 1)
            puts.append((name, encode_held(Held(order, home, copies, value))))
        for base, by in live.items():
            puts.append((b"l" + _U64.pack(base), _U64.pack(max(0, self.live(base) + by))))
        return puts, gone

    # ---- live counters and retention

    def live(self, base: int) -> int:
        """State records in the segment that are the newest of their key."""
        stored = self._store.get(b"l" + _U64.pack(base))
        return 0 if stored is None else int(_U64.unpack(stored)[0])

    def held(self, kind: int, key: bytes) -> Held | None:
        stored = self._store.get(store_key(kind, key))
        return None if stored is None else decode_held(stored)

    def order(self, kind: int, key: bytes) -> int:
        """The order of the key's newest record; -1 where there is none."""
        held = self.held(kind, key)
        return -1 if held is None else held.order

    def scan_state(self, kind: int, lowest: bytes = b"", below: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Every live key of a kind (lowest <= key < below) and its value, in order, as of the last checkpoint."""
        end = store_key(kind + 1, b"") if below is None else store_key(kind, below)
        for stored_key, stored in self._store.scan(store_key(kind, lowest), end):
            value = decode_held(stored).value
            if value is not None:
                yield stored_key[2:], value

    def state_range(self, kind: int, lowest: bytes, below: bytes) -> Iterator[tuple[bytes, bytes | None]]:
        """Keys of a kind in a range, in order, with their values; None where a deletion is remembered."""
        for stored_key, stored in self._store.scan(store_key(kind, lowest), store_key(kind, below)):
            yield stored_key[2:], decode_held(stored).value

    def last_kept_keys(self) -> list[bytes]:
        """The last KEPT record of every partition that has one."""
        base, below = store_key(Kind.KEPT, b""), store_key(Kind.KEPT + 1, b"")
        keys: list[bytes] = []
        cursor = self._store.cursor()
        key = cursor.seek(base)
        while key is not None and key < below:
            partition_id = _U64.unpack_from(key, len(base))[0]
            last = self._store.floor(base + _U64.pack(partition_id) + b"\xff" * 8, key)
            assert last is not None, "there is this one"
            keys.append(last[0][len(base):])
            key = cursor.seek(base + _U64.pack(partition_id + 1))
        return keys

    def forget_copies(self, records: list[tuple[int, bytes]], base: int) -> None:
        """A kept segment is about to go: its records are one copy less, and deletions nobody needs any more go too."""
        puts, gone = [], []
        for (kind, key), count in Counter(records).items():
            held = self.held(kind, key)
            if held is None:
                continue
            copies = max(0, held.copies - count)
            if held.value is None and not copies:
                gone.append(store_key(kind, key))
            else:
                puts.append((store_key(kind, key), encode_held(held._replace(copies=copies))))
        gone.append(b"l" + _U64.pack(base))
        self._store.write(puts, gone, sync=True)

    def forget_segment(self, base: int, starts: dict[int, int]) -> None:
        """A main segment is about to go: entries of these partitions before these offsets, and its counter."""
        ranges = [(block_key(partition_id, 0), self._first_block_needed(partition_id, start))
                  for partition_id, start in starts.items()]
        self._store.write([], [b"l" + _U64.pack(base)], ranges, sync=True)

    def _first_block_needed(self, partition_id: int, start: int) -> bytes:
        """The key of the first block with entries from `start` on: a block goes only when all of it does."""
        block = self._store.floor(block_key(partition_id, start), block_key(partition_id, 0))
        if block is not None and Entry._make(unpack_row(block[1], len(block[1]) - ROW_BYTES)).end_offset > start:
            return block[0]
        return block_key(partition_id, start)

    def forget_partitions(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """All entries of deleted partitions, as (first partition id, count)."""
        self._store.write([], (), [(block_key(first, 0), block_key(first + count, 0)) for first, count in ranges])

    def first_appended_since(self, partition_id: int, append_ms: int) -> int | None:
        """The first offset of the partition that was appended at or after a time."""
        for _, block in self._store.scan(block_key(partition_id, 0), block_key(partition_id + 1, 0)):
            rows = np.frombuffer(block, ROW)
            since = np.flatnonzero(rows["append_ms"] >= append_ms)
            if len(since):
                return int(rows[int(since[0])]["first_offset"])
        return None

    def end_appended_before(self, partition_id: int, append_ms: int) -> int:
        """The offset behind the last entry of the partition that was appended before a time; 0 where there is none."""
        end = 0
        for _, block in self._store.scan(block_key(partition_id, 0), block_key(partition_id + 1, 0)):
            rows = np.frombuffer(block, ROW)
            before = np.flatnonzero(rows["append_ms"] < append_ms)
            if not len(before):
                break
            last = rows[int(before[-1])]
            end = int(last["first_offset"]) + int(last["count"])
        return end

    def first_within(self, partition_id: int, size_bytes: int) -> int | None:
        """The last offset of the partition from which on at least so many bytes are stored; None: there are fewer."""
        blocks = [np.frombuffer(block, ROW) for _, block
                  in self._store.scan(block_key(partition_id, 0), block_key(partition_id + 1, 0))]
        for rows in reversed(blocks):
            behind = np.cumsum(rows["byte_length"][::-1].astype(np.int64))
            enough = np.flatnonzero(behind >= size_bytes)
            if len(enough):
                return int(rows[len(rows) - 1 - int(enough[0])]["first_offset"])
            size_bytes -= int(behind[-1])
        return None

    # ---- reading

    def entries_from(self, partition_id: int, offset: int, max_bytes: int, stop_offset: int,
                     from_position: int = 0, max_records: int = 0) -> list[Entry]:
        """The partition's entries from the one that holds `offset` on, until `max_bytes` of records, `max_records` from
        that offset on unless it is 0, or `stop_offset`.

        Blocks go whole, so there may be entries of segments that have gone: `from_position` leaves them out.
        """
        entries: list[Entry] = []
        total = records = 0
        for block in self._store.scan_from(block_key(partition_id, offset), block_key(partition_id, 0),
                                           block_key(partition_id + 1, 0)):
            for row in ROW_FIELDS.iter_unpack(memoryview(block)[row_at(block, offset):]):
                entry = Entry._make(row)
                if entry.end_offset <= offset or entry.position < from_position:
                    continue
                if entry.first_offset >= stop_offset or (entries and total + entry.byte_length > max_bytes) \
                        or 0 < max_records <= records:
                    return entries
                assert entry.end_offset > offset, "each entry goes on behind the one before"
                entries.append(entry)
                total += entry.byte_length
                records += min(entry.record_count, entry.end_offset - offset)
                offset = entry.end_offset      # a checkpoint that a crash cut off may have left the same entries twice
        return entries

    def entry_of_id(self, partition_id: int, message_id: int, start: int, end: int) -> Entry | None:
        """The entry of a partition that holds a message, looked for by halves between two offsets: ids rise with
        offsets there, but for copies, which may not be found."""
        lowest = block_key(partition_id, 0)
        while start < end:
            middle = (start + end) // 2
            at = self._store.floor(block_key(partition_id, middle), lowest)
            if at is None:
                start = middle + 1
                continue
            rows = np.frombuffer(at[1], ROW)
            hits = np.flatnonzero((rows["first_id"] <= message_id) & (rows["first_id"] + rows["count"] > message_id))
            if len(hits):
                return Entry._make(unpack_row(at[1], int(hits[0]) * ROW_BYTES))
            if int(rows["first_id"][0]) > message_id:
                end = min(middle, int(rows["first_offset"][0]))
            else:
                start = max(middle + 1, int(rows["first_offset"][-1] + rows["count"][-1]))
        return None

    def first_at_or_after(self, partition_id: int, timestamp_ms: int, start_offset: int) -> Entry | None:
        """The first entry from `start_offset` on with a record at or after a time."""
        for _, block in self._store.scan(block_key(partition_id, 0), block_key(partition_id + 1, 0)):
            rows = np.frombuffer(block, ROW)
            kept = rows["first_offset"] + rows["count"] > start_offset
            late = np.flatnonzero((rows["max_ms"] >= timestamp_ms) & kept)
            if len(late):
                return Entry._make(unpack_row(block, int(late[0]) * ROW_BYTES))
        return None

    def with_largest_timestamp(self, partition_id: int, start_offset: int) -> Entry | None:
        """The first entry from `start_offset` on whose largest timestamp no other one exceeds."""
        latest: Entry | None = None
        for _, block in self._store.scan(block_key(partition_id, 0), block_key(partition_id + 1, 0)):
            rows = np.frombuffer(block, ROW)
            rows_in_reach = np.flatnonzero(rows["first_offset"] + rows["count"] > start_offset)
            if not len(rows_in_reach):
                continue
            number = int(rows_in_reach[int(np.argmax(rows["max_ms"][rows_in_reach]))])
            if latest is None or int(rows["max_ms"][number]) > latest.max_ms:
                latest = Entry._make(unpack_row(block, number * ROW_BYTES))
        return latest

    def first_from_position(self, partition_id: int, position: int) -> int | None:
        """The first offset of the partition that lies at or after a position."""
        for _, block in self._store.scan(block_key(partition_id, 0), block_key(partition_id + 1, 0)):
            rows = np.frombuffer(block, ROW)
            later = np.flatnonzero(rows["position"] >= position)
            if len(later):
                return int(rows[int(later[0])]["first_offset"])
        return None

    def size_of(self, partition_id: int, start: int) -> int:
        """The bytes of the partition's entries from an offset on."""
        size_bytes = 0
        for _, block in self._store.scan(block_key(partition_id, 0), block_key(partition_id + 1, 0)):
            rows = np.frombuffer(block, ROW)
            size_bytes += int(rows["byte_length"][rows["first_offset"] + rows["count"] > start].sum())
        return size_bytes

    # ---- what the log has lost

    def mark_lost(self) -> None:
        """The log ends before this store does: what only it knows must be written to the log, until `forget_lost`."""
        self._store.write([(_LOST, b"")], sync=True)

    def is_marked_lost(self) -> bool:
        return self._store.get(_LOST) is not None

    def forget_lost(self) -> None:
        if self.is_marked_lost():
            self._store.write([], [_LOST])

    def homeless(self, segments: list[Segment]) -> Iterator[StateRecord]:
        """State records, deletions that are remembered included, whose frame lies in none of these segments."""
        bases = [segment.base for segment in segments]
        for stored_key, stored in self._store.scan(b"s", b"t"):
            held = decode_held(stored)
            at = bisect_right(bases, held.home) - 1
            if at < 0 or held.home >= segments[at].end:
                yield StateRecord(stored_key[1], stored_key[2:], held.value)

    def close(self) -> None:
        self._store.close()
