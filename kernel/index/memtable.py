"""The newest part of the index: in memory until a checkpoint writes it to the store, and what stays there after. Hot.

    Memtable       every entry since the last checkpoint
    Recent         bodies of the newest frames
    WrittenBlocks  blocks of the index as checkpoints wrote them lately, for as long as bodies of theirs are in memory:
                   who is some seconds behind needs no thread, no store and no disk
    Pages          what small reads found on the disk: many clients begin at the same place
    Memtables      all of these, and what a reader finds in them
    Checkpoints    what gathered in memory goes to the store, on another thread, and is let go of here

Entries lie in columns in the order of the log; per partition there is a list of their numbers, made when a reader first
asks: a flood that nobody reads back costs nothing here. A checkpoint takes a whole memtable away and writes it to the
store; reads then look in the memtable being filled, the one being written, and the store. What is kept for readers is
bounded in bytes, oldest out first. Offsets of a partition are given once and its pieces never change, so what is in
here is true until the partition is deleted; whether a reader may still have it is asked before (`Reader.fetch`).

A checkpoint is taken when something has changed for `checkpoint_ms` or `checkpoint_bytes` of log have come. The log is
durable up to what is written, always; the store then says how far it is complete, and the next start replays from
there. A projection (the SQL catalogue) is told of the same step after the store; it holds up nothing but the next
checkpoint. A checkpoint that finds the disk full stays in memory, where it is read, and is written again until it fits:
what comes meanwhile is bounded, since the log finds the disk full too.
"""
from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.kernel.backpressure import Backpressure
from gatehouse.kernel.ids import Identity
from gatehouse.kernel.log.disk_guard import DiskGuard
from gatehouse.kernel.log.log import Log
from gatehouse.kernel.message import WHOLE, Entries, Piece
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.projection import Projection, Step, changed_definitions, whole_definitions
from gatehouse.kernel.state.state import Clock, StateChanges, StateTable, Watermarks
from gatehouse.kernel.state.store import StoreFull

if TYPE_CHECKING:
    from gatehouse.kernel.index.index import Index

ENTRY_BYTES: Final = 100        # of memory an entry costs here, for the checkpoint's bound
WRITTEN_SHARE: Final = 8        # of the bytes for bodies, one part besides for blocks of the index,
PAGES_SHARE: Final = 16         # and one for pages that were read
MAX_ENTRIES: Final = 4_096         # of one partition in one fetch
AT_HAND: Final = 256               # entries of one partition that are taken from what checkpoints have written
NO_NUMBERS: Final[list[int]] = []
KEY: Final = struct.Struct(">cQQ")
PREFIX_BYTES: Final = 9             # of a block's key: all but the offset
BLOCK_BYTES: Final = 150            # of memory a block costs beside its rows: key, two objects, two places in lists
CHUNKS: Final = 16                  # small checkpoints are laid together until they are such a part of the limit
PIECE_BYTES: Final = 250            # of memory a piece costs beside its data

BEHIND_BYTES: Final = 64 << 20     # of changed state, beyond what a checkpoint is taken for: publishers wait
FULL_RETRY_MS: Final = 1_000       # the index does not fit on the disk: until it is tried again

Ranges = tuple[tuple[int, int], ...]
"""Partitions, as (first id, count)."""


class Memtable:  # decision 9
    """Columns over all entries since `start`; `frame` indexes the per-frame columns."""

    def __init__(self, start: int) -> None:
        self.start: int = start            # position from which on everything is in here
        self.end: int = start
        self.body_bytes: int = 0
        self.entries = Entries()
        self.frame = array("I")
        self.position = array("q")
        self.append_ms = array("q")
        self._by_partition: dict[int, list[int]] = {}
        self._numbered: int = 0            # entries that are in `_by_partition`
        self.blocks: list[tuple[bytes, bytes]] = []      # as a checkpoint has written it,
        self.chunk: Chunk | None = None                  # and as it stays in memory

    def absorb(self, position: int, end: int, append_ms: int, body_bytes: int, entries: Entries) -> None:
        """Take in a frame that is durable."""
        assert self.end <= position <= end, "frames are taken in in the order of the log"
        for column, more in zip(self.entries.columns(), entries.columns(), strict=True):
            column.extend(more)
        self.frame.extend(array("I", (len(self.position),)) * len(entries.partition_id))
        self.position.append(position)
        self.append_ms.append(append_ms)
        self.end = end
        self.body_bytes += body_bytes

    def note_blocks(self, blocks: list[tuple[bytes, bytes]]) -> None:
        """These are all entries, as a checkpoint writes them."""
        self.blocks = blocks

    def stay_as(self, chunk: Chunk) -> None:
        """What is to stay in memory once it is written."""
        self.chunk = chunk

    def numbers_of(self, partition_id: int) -> list[int]:
        """The numbers of the partition's entries, in their order."""
        by_partition = self._by_partition
        number = self._numbered
        if number < len(self.entries.partition_id):
            fresh: list[int] = self.entries.partition_id[number:].tolist()
            for entry_partition in fresh:
                numbers = by_partition.get(entry_partition)
                if numbers is None:
                    by_partition[entry_partition] = [number]
                else:
                    numbers.append(number)
                number += 1
            self._numbered = number
        return by_partition.get(partition_id, NO_NUMBERS)

    def first_offset_of(self, partition_id: int) -> int:
        """The first offset of the partition in this memtable, or -1."""
        numbers = self.numbers_of(partition_id)
        if not numbers:
            return -1
        offset: int = self.entries.first_offset[numbers[0]]
        return offset

    def find(self, partition_id: int, offset: int) -> tuple[list[int], int]:
        """The partition's entry numbers and the index among them of the last that begins at or before `offset` (or
        0)."""
        numbers = self.numbers_of(partition_id)
        if not numbers:
            return numbers, 0
        firsts = self.entries.first_offset
        if firsts[numbers[-1]] <= offset:
            return numbers, len(numbers) - 1
        return numbers, max(0, bisect_right(numbers, offset, key=firsts.__getitem__) - 1)

    def size_bytes(self) -> int:
        return self.body_bytes + len(self.entries.partition_id) * ENTRY_BYTES


class Recent:
    """Bodies of the newest frames, bounded in bytes; oldest out first."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes: int = limit_bytes
        self._size_bytes: int = 0
        self._bodies: OrderedDict[int, bytes] = OrderedDict()

    def add(self, position: int, body: bytes) -> None:
        if not body:
            return
        assert position not in self._bodies, "a position names one frame"
        self._bodies[position] = body
        self._size_bytes += len(body)
        while self._size_bytes > self._limit_bytes:
            self._size_bytes -= len(self._bodies.popitem(last=False)[1])
        assert self._size_bytes > 0 or not self._bodies, "bytes are those of the bodies"

    @property
    def size_bytes(self) -> int:
        """Of all bodies."""
        return self._size_bytes

    def oldest(self, end: int) -> int:
        """The position of the oldest body; `end` where there is none."""
        for position in self._bodies:
            return position
        return end

    def get(self, position: int) -> bytes | None:
        return self._bodies.get(position)


def block_key(partition_id: int, offset: int) -> bytes:
    """Under which a block that begins at this offset lies in the store."""
    return KEY.pack(b"b", partition_id, offset)


# A block holds rows, each of them an `index.Entry`; `index.ROW` names their fields.
ROW_FIELDS = struct.Struct("<qqqqqIIIII")
ROW_BYTES: Final = 60
assert ROW_FIELDS.size == ROW_BYTES
_FIRST_OFFSET = struct.Struct("<q")


def row_at(block: bytes, offset: int) -> int:
    """Where the last row of a block lies that begins at an offset or before it; else the first."""
    low, high = 0, len(block) // ROW_BYTES
    while high - low > 1:
        middle = (low + high) // 2
        if _FIRST_OFFSET.unpack_from(block, middle * ROW_BYTES)[0] <= offset:
            low = middle
        else:
            high = middle
    return low * ROW_BYTES


def unpack_row(block: bytes, at: int) -> tuple[int, int, int, int, int, int, int, int, int, int]:
    """The fields of an `Entry`, in their order."""
    row: tuple[int, int, int, int, int, int, int, int, int, int] = ROW_FIELDS.unpack_from(block, at)
    return row


class Chunk(NamedTuple):
    """Blocks of one checkpoint or several, by their sorted keys."""

    keys: list[bytes]
    blocks: list[bytes]
    end: int                        # of the log that they are about
    size_bytes: int
    joined: bool                    # what the newest one has is in here, too


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same partitions in order, neighbours as one range: ids are given one after the other."""
    rows: list[tuple[int, int]] = []
    for first, count in sorted(ranges):
        if rows and first <= rows[-1][0] + rows[-1][1]:
            begin, before = rows.pop()
            first, count = begin, max(before, first + count - begin)
        rows.append((first, count))
    return tuple(rows)


def without(chunk: Chunk, ranges: Ranges) -> Chunk:
    """The chunk without the blocks of these partitions, which are `merged`; its lists are left as they are."""
    keys: list[bytes] = []
    blocks: list[bytes] = []
    size_bytes, at = chunk.size_bytes, 0
    for first, count in ranges:
        begin = bisect_left(chunk.keys, block_key(first, 0), at)
        end = bisect_left(chunk.keys, block_key(first + count, 0), begin)
        if begin < end:
            size_bytes -= sum([len(block) + BLOCK_BYTES for block in chunk.blocks[begin:end]])
            keys += chunk.keys[at:begin]
            blocks += chunk.blocks[at:begin]
            at = end
    if not at:
        return chunk
    return Chunk(keys + chunk.keys[at:], blocks + chunk.blocks[at:], chunk.end, size_bytes, chunk.joined)


class WrittenBlocks:  # decision 350
    """Blocks of the index as checkpoints wrote them lately. `prepare` may be called on another thread, one call at a
    time, each followed by `take`."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes: int = limit_bytes
        self._chunks: list[Chunk] = []
        self._deleted: list[Ranges] = []         # since the checkpoint before the last one
        self._deleted_before: int = 0            # how many of them before the last one
        self._gone: set[int] = set()             # partitions that were deleted since the last one
        self.size_bytes: int = 0

    def prepare(self, blocks: list[tuple[bytes, bytes]], end: int) -> Chunk:
        """What `take` takes: these blocks, in the order of their keys, laid together with those before if both are
        few."""
        size_bytes = 0
        for _, block in blocks:
            size_bytes += len(block) + BLOCK_BYTES
        last = self._chunks[-1] if self._chunks else None
        joined = last is not None and last.size_bytes + size_bytes <= self._limit_bytes // CHUNKS
        if last is not None and joined:
            blocks = sorted([*zip(last.keys, last.blocks, strict=True), *blocks])
            size_bytes += last.size_bytes
        return Chunk([key for key, _ in blocks], [block for _, block in blocks], end, size_bytes, joined)

    def take(self, chunk: Chunk, oldest: int) -> None:
        """These are in the store now; bodies before the position `oldest` are not in memory any more."""
        chunks = self._chunks
        if chunk.joined:
            self.size_bytes -= chunks.pop().size_bytes
        chunks.append(chunk)
        self.size_bytes += chunk.size_bytes
        if self._deleted:                                # which the checkpoint may have had to write
            ranges = merged([each for deleted in self._deleted for each in deleted])
            chunks = self._chunks = [without(each, ranges) for each in chunks]
            self.size_bytes = sum([each.size_bytes for each in chunks])
        del self._deleted[:self._deleted_before]
        self._deleted_before = len(self._deleted)
        self._gone.clear()
        while chunks and (chunks[0].end <= oldest or self.size_bytes > self._limit_bytes):
            self.size_bytes -= chunks.pop(0).size_bytes

    def forget_partitions(self, ranges: Ranges) -> None:
        """Nobody is given blocks of deleted partitions. Their memory goes with the next checkpoint: where thousands are
        deleted at once, that goes through all blocks once."""
        self._deleted.append(ranges)
        for first, count in ranges:
            self._gone.update(range(first, first + count))

    def block_of(self, partition_id: int, offset: int) -> bytes | None:
        """The only block in here that may hold an offset."""
        if partition_id in self._gone:
            return None
        key = block_key(partition_id, offset)
        prefix = key[:PREFIX_BYTES]
        for chunk in reversed(self._chunks):
            at = bisect_right(chunk.keys, key) - 1
            if at >= 0 and chunk.keys[at].startswith(prefix):
                return chunk.blocks[at]
        return None


class Pages:  # decision 351
    """What small reads found on the disk: by partition, offset and how many records were asked for, the pieces."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes: int = limit_bytes
        self._pages: OrderedDict[tuple[int, int, int], list[Piece]] = OrderedDict()
        self.size_bytes: int = 0

    def get(self, partition_id: int, offset: int, max_records: int) -> list[Piece] | None:
        """What was read there, as it may be given away."""
        key = (partition_id, offset, max_records)
        pieces = self._pages.get(key)
        if pieces is None:
            return None
        self._pages.move_to_end(key)
        return pieces.copy()

    def clear(self) -> None:
        """Some partition is deleted: which pages are its own is not looked for."""
        self._pages.clear()
        self.size_bytes = 0

    def add(self, partition_id: int, offset: int, max_records: int, pieces: list[Piece]) -> None:
        """These were read, if they have as many records from that offset on, and none is missing between."""
        at, size_bytes = offset, 0
        for piece in pieces:
            if piece.first_offset > at:
                return
            at = piece.first_offset + piece.count
            size_bytes += len(piece.data) + PIECE_BYTES
        if at - offset < max_records or size_bytes > self._limit_bytes // CHUNKS:
            return
        key = (partition_id, offset, max_records)
        before = self._pages.pop(key, None)
        if before is not None:
            self.size_bytes -= size_of(before)
        self._pages[key] = pieces.copy()
        self.size_bytes += size_bytes
        while self.size_bytes > self._limit_bytes:
            self.size_bytes -= size_of(self._pages.popitem(last=False)[1])


def bytes_of(pieces: list[Piece]) -> int:
    """How many bytes their records have, as they are stored."""
    return sum([len(piece.data) for piece in pieces])


def size_of(pieces: list[Piece]) -> int:
    """The memory that they take."""
    return bytes_of(pieces) + PIECE_BYTES * len(pieces)


class Memtables:
    """What is in memory of the newest frames: entries that no checkpoint has written, and bodies."""

    def __init__(self, recent_bytes: int) -> None:
        self.recent = Recent(recent_bytes)
        self.newest = Memtable(0)
        self.frozen: Memtable | None = None         # being written by a checkpoint
        self.written = WrittenBlocks(recent_bytes // WRITTEN_SHARE)
        self.pages = Pages(recent_bytes // PAGES_SHARE)

    @property
    def cached_bytes(self) -> int:
        """Of what is in memory for readers alone."""
        return self.recent.size_bytes + self.written.size_bytes + self.pages.size_bytes

    def begin(self, position: int) -> None:
        """Everything before this position is in the store."""
        self.newest = Memtable(position)

    def absorb(self, position: int, end: int, append_ms: int, body: bytes, entries: Entries) -> None:
        """Take in a frame that is durable."""
        self.newest.absorb(position, end, append_ms, len(body), entries)
        self.recent.add(position, body)

    def oldest_first(self) -> list[Memtable]:
        """The one that is being written, if there is, and the one that is being filled."""
        return [self.newest] if self.frozen is None else [self.frozen, self.newest]

    def freeze(self) -> Memtable:
        """Begin a new one; the one before is read until `thaw`."""
        frozen = self.frozen = self.newest
        self.newest = Memtable(frozen.end)
        return frozen

    def thaw(self) -> None:
        """What was frozen is in the store."""
        frozen, self.frozen = self.frozen, None
        if frozen is not None and frozen.chunk is not None:
            self.written.take(frozen.chunk, self.recent.oldest(frozen.end))

    # ---- what readers find here

    def pieces(self, partition_id: int, offset: int, next_offset: int, max_bytes: int, max_records: int = 0,
               read_before: bool = False) -> list[Piece] | None:
        """The pieces from the offset on, if index and bodies are all in memory; `next_offset` is the partition's,
        `max_records` 0: as many as there are, `read_before`: what was read from the disk lately may be given again."""
        if max_records and read_before:
            pages = self.pages.get(partition_id, offset, max_records)
            if pages is not None and (len(pages) == 1 or bytes_of(pages) <= max_bytes):
                return pages
        if self._is_cold(partition_id, offset):
            return self._written_pieces(partition_id, offset, next_offset, max_bytes, max_records)
        return self._unwritten_pieces(partition_id, offset, max_bytes, max_records)

    def newest_pieces(self, partition_id: int, offset: int, max_bytes: int) -> list[Piece] | None:
        """What came a moment ago; None where it is not all here, or has to be opened."""
        if self._is_cold(partition_id, offset):
            return None
        pieces = self._unwritten_pieces(partition_id, offset, max_bytes, 0)
        return None if pieces is None or any(piece.whole for piece in pieces) else pieces

    def _unwritten_pieces(self, partition_id: int, offset: int, max_bytes: int, max_records: int) -> list[Piece] | None:
        """Of the entries that no checkpoint has written; None where there is none, or the bytes of one are not here."""
        pieces: list[Piece] = []
        for memtable, number in self.rows(partition_id, offset, max_bytes, max_records):
            frame, entries = memtable.frame[number], memtable.entries
            position = memtable.position[frame]
            body = self.recent.get(position)
            if body is None:
                return None
            at = entries.byte_offset[number]
            pieces.append(Piece(entries.first_offset[number], entries.count[number],
                                bool(entries.flags[number] & WHOLE), body[at:at + entries.byte_length[number]],
                                memtable.append_ms[frame], entries.max_ms[number], entries.message_id[number],
                                position))
        return pieces or None

    def _written_pieces(self, partition_id: int, offset: int, next_offset: int, max_bytes: int, max_records: int
                        ) -> list[Piece] | None:  # decision 350
        """The pieces from the offset on as late checkpoints have written them, and those behind them; None where these
        are too many for the kernel's thread, or where one that is wanted is not in memory."""
        pieces: list[Piece] = []
        recent, written = self.recent, self.written
        left_bytes, left_records = max_bytes, next_offset - offset
        if max_records:
            left_records = min(left_records, max_records)
        before = -1
        while offset != before:
            before = offset
            block = written.block_of(partition_id, offset)
            if block is None:
                break
            for at in range(row_at(block, offset), len(block), ROW_BYTES):
                (first_offset, position, first_id, append_ms, max_ms, start, byte_length, count, _,
                 flags) = unpack_row(block, at)
                if first_offset + count <= offset:
                    continue
                if pieces and byte_length > left_bytes or left_records <= 0:
                    return pieces
                body = recent.get(position)
                if body is None or first_offset > offset or len(pieces) == AT_HAND or not pieces and AT_HAND < min(
                        left_bytes // max(1, byte_length), left_records // max(1, count)):
                    return None
                pieces.append(Piece(first_offset, count, flags & WHOLE != 0, body[start:start + byte_length], append_ms,
                                    max_ms, first_id, position))
                left_bytes -= byte_length
                left_records -= first_offset + count - offset
                offset = first_offset + count
        if not pieces or left_bytes <= 0 or left_records <= 0:
            return pieces or None
        in_tail = None if self._is_cold(partition_id, offset) else self._unwritten_pieces(
            partition_id, offset, left_bytes, min(left_records, max_records))
        if in_tail is None or in_tail[0].first_offset > offset:
            return None
        return pieces if len(in_tail[0].data) > left_bytes else pieces + in_tail

    def _is_cold(self, partition_id: int, offset: int) -> bool:
        """Whether the store may hold the offset: it lies before the first one in memory."""
        for memtable in self.oldest_first():
            first = memtable.first_offset_of(partition_id)
            if first >= 0:
                return offset < first
        return True

    def rows(self, partition_id: int, offset: int, max_bytes: int, max_records: int) -> list[tuple[Memtable, int]]:
        """The entries in memory from the offset on, within the limits, by their numbers; the first one whatever its
        size."""
        rows: list[tuple[Memtable, int]] = []
        total = records = 0
        for memtable in self.oldest_first():
            numbers, at = memtable.find(partition_id, offset)
            entries = memtable.entries
            for number in numbers[at:at + MAX_ENTRIES]:
                first, count, size = entries.first_offset[number], entries.count[number], entries.byte_length[number]
                if first + count <= offset:
                    continue
                if rows and total + size > max_bytes or 0 < max_records <= records:
                    return rows
                rows.append((memtable, number))
                total += size
                records += min(count, first + count - offset)
        return rows


class Positions(NamedTuple):
    """How far the store is complete."""

    main: int
    kept: int
    next_id: int
    append_ms: int = 0           # of the newest frame


class Checkpoint(NamedTuple):
    """Everything one checkpoint writes; taken on the kernel's thread, written on another."""

    memtable: Memtable
    changes: StateChanges
    pages: dict[int, bytes]
    positions: Positions
    consumed: dict[int, int]           # partitions of which nothing before this offset is needed any more


class Checkpoints:
    """`log_worker` syncs the log, `worker` writes the index; `next_id` gives the next message id."""

    def __init__(self, *, loop: Loop, log_worker: Worker, worker: Worker, log: Log, index: Index, memtables: Memtables,
                 watermarks: Watermarks, state: StateTable, clock: Clock, disk_guard: DiskGuard,
                 backpressure: Backpressure, settings: KernelSettings, identity: Identity,
                 projection: Projection | None, next_id: Callable[[], int],
                 on_superseded: Callable[[list[bytes]], None], fatal: Callable[[str], None]) -> None:
        """`on_superseded` is told the keys of KEPT records whose LATEST record a checkpoint has replaced."""
        self._loop = loop
        self._log_worker = log_worker
        self._worker = worker
        self._log = log
        self._index = index
        self._memtables = memtables
        self._watermarks = watermarks
        self._state = state
        self._clock = clock
        self._disk_guard = disk_guard
        self._backpressure = backpressure
        self._settings = settings
        self._identity = identity
        self._projection = projection
        self._next_id = next_id
        self._on_superseded = on_superseded
        self._fatal = fatal
        self._frozen_at = Positions(0, 0, 0)               # what the newest checkpoint is complete to
        self._projected = 0                                # up to where a projection can be that missed nothing
        self._timer_set = False
        self._busy = False
        self.full = False                                # the last try did not fit, and there will be another one
        self._waiting: list[Callable[[], None]] = []       # wanted another one, after the one under way
        self._on_end: Callable[[], None] | None = None
        self.kept_end = 0
        self.behind_bytes = BEHIND_BYTES
        self.taken = 0
        self.taken_ms = 0                                  # when the last one was there; 0: none since the start
        self.postponed = 0

    def begin(self, kept_end: int) -> None:
        """Recovery has ended; the kept chain ends there. What it brought is written in time."""
        self.kept_end = kept_end
        self._frozen_at = self._index.positions()
        self._projected = self._frozen_at.main
        self.note()

    def note_kept(self, kept_end: int) -> None:
        """The kept chain ends here now, and its records are in the state's memory."""
        assert kept_end >= self.kept_end, "the kept chain grows"
        self.kept_end = kept_end

    def forget_partitions(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """See `kernel.write.pending_frame.Forgetter`."""
        self._memtables.written.forget_partitions(ranges)
        self._memtables.pages.clear()
        self._worker.submit(partial(self._index.forget_partitions, ranges), self._forgotten)

    def _forgotten(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._fatal(f"the index cannot be written: {error}")

    def note(self) -> None:
        """Something was applied: take a checkpoint in time."""
        size_bytes = self._memtables.newest.size_bytes() + self._state.changes.size_bytes
        if size_bytes >= self._settings.checkpoint_bytes and not self._busy:
            self._start(sync=False, on_done=None)
        elif not self._timer_set:
            self._timer_set = True
            self._loop.call_at(self._loop.now_ms() + self._settings.checkpoint_ms, self._on_timer)
        # decision 18: more has changed since the one under way was begun than memory should hold
        if self._busy and self._state.changes.size_bytes > self._settings.checkpoint_bytes + self.behind_bytes:
            self._backpressure.report(self, True)

    @property
    def is_late(self) -> bool:
        """Whether the next one is due before the one under way is written."""
        return self._busy and self._state.changes.size_bytes > self._settings.checkpoint_bytes

    def _on_timer(self) -> None:
        self._timer_set = False
        if self._busy:
            self.note()
        elif self._changed():
            self._start(sync=False, on_done=None)

    def unwritten_bytes(self) -> int:
        """Index and state in memory that no checkpoint holds yet, about."""
        frozen, changes = self._memtables.frozen, self._state.frozen
        gathered = self._memtables.newest.size_bytes() + self._state.changes.size_bytes
        return gathered + (frozen.size_bytes() if frozen else 0) + (changes.size_bytes if changes else 0)

    def take(self, on_done: Callable[[], None]) -> None:
        """Take one now and make it survive a power cut; `on_done` when it does."""
        if self._busy:
            self._waiting.append(partial(self.take, on_done))
        else:
            self._start(sync=True, on_done=on_done)

    def end(self, on_done: Callable[[], None]) -> None:
        """The last one. A disk that is full is not waited for: the next start replays what could not be written."""
        if self.full:
            on_done()
            return
        self._on_end = on_done
        self.take(self._ended)

    def _ended(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    def _changed(self) -> bool:
        return bool(len(self._memtables.newest.position) or self._state.changes.newest or self._watermarks.dirty)

    def _start(self, *, sync: bool, on_done: Callable[[], None] | None) -> None:
        assert not self._busy, "one checkpoint at a time"
        self._busy = True
        checkpoint = self.freeze()
        write = partial(self._write, checkpoint, sync)
        done = partial(self._written, write, on_done)
        if self._settings.fsync == "commit":
            self._worker.submit(write, done)
        else:
            self._log_worker.submit(self._log.sync, lambda _, error: self._synced(write, done, error))

    def _synced(self, write: Callable[[], list[bytes]],
                done: Callable[[list[bytes] | None, BaseException | None], None],
                error: BaseException | None) -> None:
        if error is not None:
            self._fatal(f"the log failed, nothing more can be promised: {error}")
            return
        self._worker.submit(write, done)

    def freeze(self) -> Checkpoint:
        """Take what has gathered away; reads look at it until it is written."""
        assert self._memtables.frozen is None and self._state.frozen is None, "what was frozen before is written"
        memtable, changes = self._memtables.freeze(), self._state.freeze()
        pages, consumed = self._watermarks.take_changes()
        positions = Positions(memtable.end, self.kept_end, self._next_id(), self._clock.append_ms)
        assert all(now >= then for now, then in zip(positions, self._frozen_at, strict=True)), "all of these rise"
        self._frozen_at = positions
        return Checkpoint(memtable, changes, pages, positions, consumed)

    def thaw(self) -> None:
        """What was frozen is in the store."""
        self._memtables.thaw()
        self._state.thaw()

    def _write(self, checkpoint: Checkpoint, sync: bool) -> list[bytes]:
        superseded = self._index.write(checkpoint, [*self._log.segments(), *self._log.kept_segments()], sync=sync)
        memtable = checkpoint.memtable
        memtable.stay_as(self._memtables.written.prepare(memtable.blocks, memtable.end))
        if self._projection is not None:
            start, self._projected = self._projected, checkpoint.positions.main
            self._projection.take(Step(self._identity.hub, self._identity.epoch, start, self._projected,
                                       changed_definitions(checkpoint.changes),
                                       lambda: whole_definitions(self._index.scan_state)))
        return superseded

    def _written(self, write: Callable[[], list[bytes]], on_done: Callable[[], None] | None,
                 superseded: list[bytes] | None, error: BaseException | None) -> None:
        if isinstance(error, StoreFull):
            self.postponed += 1
            self._disk_guard.note_lack()
            self.full = True
            self._loop.call_at(self._loop.now_ms() + FULL_RETRY_MS,
                               lambda: self._worker.submit(write, partial(self._written, write, on_done)))
            self._ended()
            return
        if superseded is None:
            self._fatal(f"the index cannot be written: {error}")
            return
        assert self._busy and self._memtables.frozen is not None, "a checkpoint ends once"
        self._busy = self.full = False
        self.taken += 1
        self.taken_ms = self._loop.now_ms()
        self.thaw()
        self._backpressure.report(self, False)
        self._on_superseded(superseded)
        if on_done is not None:
            on_done()
        if self._waiting and not self._busy:
            self._waiting.pop(0)()
