"""Reading partitions: from memory at the memtable, else from the index and the log, on another thread.

A fetch looks for entries in the newest part of the index first. What the cache of recent bodies holds is answered at
once; for anything else one job reads index and log, so a reader far behind never holds up the kernel's thread. An entry
that does not match its checksum is reported and left out: the rest is served, with a gap in the offsets.

Reads from the disk that wait for one worker are handed to it together: many small ones cost one change of threads.

    submit ─► the worker has nothing to do: at once, alone
           └► else: with those that wait, `BATCH` of them and `BATCH_BYTES` at most

What a batch has no room for waits for the next. An error is that of the read which has it.
"""
from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np
from crc32c import crc32c

from gatehouse.kernel.errors import KernelError, OffsetOutOfRange, StorageFailed
from gatehouse.kernel.index.index import Entry, Index, memtable_entry
from gatehouse.kernel.index.kept import kept_pieces
from gatehouse.kernel.index.memtable import MAX_ENTRIES, Memtables, bytes_of
from gatehouse.kernel.index.opening import Opening
from gatehouse.kernel.log.log import Damage, Log
from gatehouse.kernel.message import COLD_BYTES, Fetched, Piece
from gatehouse.kernel.ports import Worker
from gatehouse.kernel.records.batch import give_public, sound_records
from gatehouse.kernel.records.opened import Unreadable, parts_of
from gatehouse.kernel.state.state import Changed, Kind, StateTable, Watermarks
from gatehouse.kernel.state.topics import Topic, Topics

# --- small reads, together ----------------------------------------------------------------------------------------

Plan = TypeVar("Plan")
Read = TypeVar("Read")

BATCH: Final = 64
BATCH_BYTES: Final = 128 << 10         # after so much the worker belongs to others, see `background.SLICE_BYTES`
UNDER_WAY: Final = 2                   # batches: one is read while the answers of another are taken


class ColdReads(Generic[Plan, Read]):  # decision 268
    """`read` reads on the worker's thread; `size_of` says how many bytes that was."""

    def __init__(self, worker: Worker, read: Callable[[Plan], Read], size_of: Callable[[Read], int]) -> None:
        self._worker = worker
        self._read = read
        self._size_of = size_of
        self._waiting: deque[tuple[Plan, Callable[[Read | None, BaseException | None], None]]] = deque()
        self._under_way = 0

    def submit(self, plan: Plan, done: Callable[[Read | None, BaseException | None], None]) -> None:
        """Read it; then call `done`, as a `Worker` does."""
        self._waiting.append((plan, done))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._under_way < UNDER_WAY:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._under_way += 1
            self._worker.submit(partial(self._read_batch, [plan for plan, _ in batch]), partial(self._done, batch))

    def _read_batch(self, plans: list[Plan]) -> list[Read]:
        """On the reading thread: the first of these, as far as there is room."""
        reads: list[Read] = []
        size_bytes = 0
        for plan in plans:
            if size_bytes >= BATCH_BYTES:
                break
            try:
                read = self._read(plan)
            except Exception:
                if not reads:
                    raise
                break                          # it is the first of the next batch, and fails there
            reads.append(read)
            size_bytes += self._size_of(read)
        return reads

    def _done(self, batch: list[tuple[Plan, Callable[[Read | None, BaseException | None], None]]],
              reads: list[Read] | None, error: BaseException | None) -> None:
        self._under_way -= 1
        answers: list[Read | None] = [None] if reads is None else [*reads]
        self._waiting.extendleft(reversed(batch[len(answers):]))
        self._go_on()
        fault: Exception | None = None
        for (_, done), answer in zip(batch, answers, strict=False):
            try:
                done(answer, error)
            except Exception as raised:        # the others are answered all the same
                fault = fault or raised
        if fault is not None:
            raise fault


# --- the reader ---------------------------------------------------------------------------------------------------

LOOK_BYTES: Final = 8 << 10        # to find a partition in the index takes as long as to read so much of it
RETRIES: Final = 3                 # of a read of what is kept, whose segment went meanwhile
END: Final = 1 << 62               # above every offset


class Want(NamedTuple):
    """One partition's part of a fetch."""

    partition_id: int
    offset: int
    max_bytes: int
    kept: bool               # records that are only kept are wanted too
    max_records: int = 0     # nothing is read behind the piece with the last of them; 0: as many as there are


class ReadPlan(NamedTuple):
    """What the reading thread is to find."""

    want: Want
    in_tail: list[Entry]
    changed: Changed | None  # where kept records are wanted: those that the store may not have yet


class ColdRead(NamedTuple):
    """What the reading thread is to find for one fetch: so much of all of it, the first in any case."""

    max_bytes: int
    exactly: bool            # others need the disk: nothing is read ahead
    plans: list[ReadPlan]


Reads = list[tuple[list[Piece], int]]
"""The pieces of each want, and the offset behind all that was tried; -1: it was not that one's turn."""


def _size_of(reads: Reads) -> int:
    return sum([bytes_of(pieces) for pieces, _ in reads])


def piece(entry: Entry, data: bytes) -> Piece:
    return Piece(entry.first_offset, entry.record_count, entry.whole, data, entry.append_ms, entry.max_ms,
                 entry.first_id, entry.position)


def entries_within(entries: list[Entry], max_bytes: int, at_least_one: bool) -> list[Entry]:
    """The first entries that go into a size; the first in any case where `at_least_one` is set."""
    first_entries: list[Entry] = []
    for entry in entries:
        max_bytes -= entry.byte_length
        if max_bytes < 0 and not (at_least_one and not first_entries):
            break
        first_entries.append(entry)
    return first_entries


class Reader:
    """Answers fetches. `worker` looks into the index, `replay_worker` reads index and log, `group_worker` does for
    groups, whose members wait for what they have room for, `bulk_worker` for who takes it as it is stored.
    `slice_bytes` says how much of some bytes is read from the disk at once, `limit_of` how large a record of a
    partition may be."""

    def __init__(self, *, watermarks: Watermarks, memtables: Memtables, index: Index, state: StateTable,
                 topics: Topics, log: Log, worker: Worker, replay_worker: Worker, group_worker: Worker,
                 bulk_worker: Worker, slice_bytes: Callable[[int], int], unreadable: Unreadable,
                 on_damage: Callable[[Damage], None], limit_of: Callable[[int], int]) -> None:
        self._watermarks = watermarks
        self._memtables = memtables
        self._state = state
        self._topics = topics
        self._index = index
        self._log = log
        self._worker = worker
        self._replays: ColdReads[ColdRead, Reads] = ColdReads(replay_worker, self._read_cold, _size_of)
        self._of_groups: ColdReads[ColdRead, Reads] = ColdReads(group_worker, self._read_cold, _size_of)
        self._bulk: ColdReads[ColdRead, Reads] = ColdReads(bulk_worker, self._read_cold, _size_of)
        self._slice_bytes = slice_bytes
        self._on_damage = on_damage
        self._opening = Opening(worker, limit_of)
        self.unreadable = unreadable
        self.cold_reads = 0
        self._begun: list[tuple[int, int]] = []

    # ---- fetch

    def start_of(self, partition_id: int) -> int:
        """Where readers may begin: a compacted partition has its newest records from the first offset on, or from where
        its topic's own retention says."""
        start = self._watermarks.log_start(partition_id)
        if self._watermarks.floors and partition_id in self._watermarks.floors:
            return self._watermarks.floors[partition_id]
        return 0 if start and self._topics.is_compacted(partition_id) else start

    def bounds(self, partition_id: int) -> tuple[int, int]:
        """Where readers may begin, and where the partition ends."""
        return self.start_of(partition_id), self._watermarks.next_offset(partition_id)

    def bounds_of(self, topic: Topic) -> array[int]:
        """Where readers of each partition of a topic may begin, and where it ends, one after the other."""
        (first, count), *grown = topic.ranges
        bounds = self._watermarks.bounds_of(first, count)
        for first, count in grown:
            bounds.extend(self._watermarks.bounds_of(first, count))
        if topic.settings.compact:
            floors = self._watermarks.floors
            bounds[::2] = array("q", [floors.get(partition_id, 0) for partition_id in topic.partition_ids()])
        return bounds

    def fetch_public(self, wants: list[tuple[int, int, int]], max_bytes: int,
                     on_done: Callable[[list[Fetched]], None], kept: bool, stored: bool, max_records: int) -> None:
        """See `Kernel.fetch`: without headers that are the hub's own."""
        self.fetch(wants, max_bytes, partial(give_public, on_done), kept, stored, max_records)

    def fetch(self, wants: list[tuple[int, int, int]], max_bytes: int,
              on_done: Callable[[list[Fetched]], None], kept: bool = False, stored: bool = False,
              max_records: int = 0) -> None:
        """As `fetch_public`, with the headers that are the hub's own."""
        if not stored:
            on_done = partial(self._open, wants, max_bytes, on_done)
        answers: list[Fetched] = []
        cold: list[tuple[Fetched, Want]] = []
        left, cold_bytes, exactly = max_bytes, 0, False
        for partition_id, offset, partition_max_bytes in wants:
            start, high = self._watermarks.log_start(partition_id), self._watermarks.next_offset(partition_id)
            first = self.start_of(partition_id)
            answer = Fetched(partition_id, None, first, high, [])
            answers.append(answer)
            if offset == high:
                continue
            if not (0 if kept else first) <= offset < high:
                answer.error = OffsetOutOfRange(f"offset {offset} is outside {start} to {high}")
                continue
            with_kept = kept or first < start
            if left <= 0:              # decision 314: it is not looked for where it has no room
                if len(cold) * LOOK_BYTES < cold_bytes and (
                        offset < start or self._memtables.pieces(partition_id, offset, high, 1) is None):
                    cold.append((answer, Want(partition_id, offset, partition_max_bytes, with_kept, max_records)))
                continue
            pieces = None if offset < start else self._memtables.pieces(
                partition_id, offset, high, min(partition_max_bytes, left), max_records, read_before=not with_kept)
            if pieces is not None:
                answer.pieces = pieces
                left -= bytes_of(pieces)
                continue
            if not cold:               # all that must be read shares this much, as it turns out how large it is
                most_bytes = self._slice_bytes(COLD_BYTES)
                cold_bytes, exactly = min(left, most_bytes), most_bytes < COLD_BYTES
                left -= cold_bytes
            if len(cold) * LOOK_BYTES < cold_bytes:
                cold.append((answer, Want(partition_id, offset, partition_max_bytes, with_kept, max_records)))
        if cold:
            self.cold_reads += 1
            through = self._bulk if stored else self._of_groups if kept else self._replays     # decision 289
            self._submit_cold(through, cold_bytes, exactly, answers, cold, on_done)
        else:
            on_done(answers)

    def _open(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None],
              answers: list[Fetched]) -> None:
        """Producers' batches among the answers are opened."""
        for answer in answers:
            for stored_piece in answer.pieces:
                if stored_piece.whole:
                    self._opening.open(wants, max_bytes, on_done, answers)
                    return
        on_done(answers)

    def fetch_kept(self, wants: list[tuple[int, int, int]], max_bytes: int,
                   on_done: Callable[[list[Fetched]], None]) -> None:
        """As `fetch` for a group, with what is kept below the start of a partition."""
        self.fetch(wants, max_bytes, on_done, kept=True)

    def _submit_cold(self, through: ColdReads[ColdRead, Reads], max_bytes: int, exactly: bool, answers: list[Fetched],
                     cold: list[tuple[Fetched, Want]], on_done: Callable[[list[Fetched]], None]) -> None:
        plans = []
        tail_bytes = max_bytes             # all may be for the first: of the others memory is asked for little
        for _, want in cold:
            in_tail = self._memtable_entries(want.partition_id, want.offset, min(want.max_bytes, tail_bytes),
                                             want.max_records)
            plans.append(ReadPlan(want, in_tail, self._state.changed(Kind.KEPT) if want.kept else None))
            tail_bytes = LOOK_BYTES
        through.submit(ColdRead(max_bytes, exactly, plans),
                       partial(self._cold_done, through, max_bytes, exactly, answers, cold, on_done))

    def _memtable_entries(self, partition_id: int, offset: int, max_bytes: int, max_records: int) -> list[Entry]:
        """The entries in memory from the offset on, within the limits, as the store would have them."""
        return [memtable_entry(memtable, number)
                for memtable, number in self._memtables.rows(partition_id, offset, max_bytes, max_records)]

    # decision 283
    def _read_cold(self, cold: ColdRead) -> Reads:
        """On the reading thread: one partition after the other, while there is room."""
        reads: Reads = []
        left = cold.max_bytes
        for plan in cold.plans:
            if left <= 0 and reads:
                reads.append(([], -1))
                continue
            if plan.want.max_bytes > left:
                plan = plan._replace(want=plan.want._replace(max_bytes=left))
            read = self._read_plan(plan, cold.exactly) if plan.changed is None \
                else self._read_kept(plan, plan.changed, cold.exactly)
            reads.append(read)
            left -= max(LOOK_BYTES, bytes_of(read[0]))
        return reads

    def _read_plan(self, plan: ReadPlan, exactly: bool) -> tuple[list[Piece], int]:
        entries = self._entries_of(plan)
        return self._read(entries, exactly), entries[-1].end_offset if entries else END

    def _entries_of(self, plan: ReadPlan, from_position: int = 0) -> list[Entry]:
        """Where the log has what is wanted: first as the store knows it, then as memory does."""
        want, in_tail = plan.want, plan.in_tail
        stop = in_tail[0].first_offset if in_tail else END
        entries = self._index.entries_from(want.partition_id, want.offset, want.max_bytes, stop, from_position,
                                           want.max_records) if want.offset < stop else []
        total = sum([entry.byte_length for entry in entries])
        for entry in in_tail:
            too_much = total + entry.byte_length > want.max_bytes
            if entries and (too_much or entry.first_offset != entries[-1].end_offset):
                break
            entries.append(entry)
            total += entry.byte_length
        del entries[MAX_ENTRIES:]
        return entries

    def _read_kept(self, plan: ReadPlan, changed: Changed, exactly: bool) -> tuple[list[Piece], int]:
        """What is kept before what the log has, then that.

        A segment may go between the look at the index and the read. Then the index knows of it by now, and the store
        has what was kept of it.
        """
        want = plan.want
        for _ in range(RETRIES):
            first = self._log.segments()[0].base
            if plan.in_tail:
                plan = plan._replace(in_tail=[entry for entry in plan.in_tail if entry.position >= first])
            entries = self._entries_of(plan, first)
            stop = entries[0].first_offset if entries else END
            pieces, reached = kept_pieces(self._index.state_range, changed, want.partition_id, want.offset, stop,
                                          want.max_bytes) if want.offset < stop else ([], stop)
            if reached == stop and entries:
                within = entries_within(
                    entries, want.max_bytes - bytes_of(pieces), not pieces)
                pieces += self._read(within, exactly)
                reached = within[-1].end_offset if within else reached
            if first == self._log.segments()[0].base:
                break
        return pieces, reached

    def _read(self, entries: list[Entry], exactly: bool = False) -> list[Piece]:
        """The pieces of these entries, without those that are damaged, or gone since they were looked up."""
        spans = [(entry.position, entry.byte_offset, entry.byte_length) for entry in entries]
        if exactly:                            # decision 307
            self._log.ask(spans)
        bodies = self._log.read(spans)
        pieces: list[Piece] = []
        for entry, data in zip(entries, bodies, strict=True):
            if len(data) != entry.byte_length or crc32c(data) != entry.crc:
                if not data and entry.position < self._log.segments()[0].base:
                    continue
                offsets = f"offsets {entry.first_offset} to {entry.end_offset - 1}"
                self._on_damage(Damage.of_body(entry.position, entry.byte_offset, entry.byte_length,
                                               f"{offsets} do not match their checksum"))
                continue
            pieces.append(piece(entry, data))
        return pieces

    def _cold_done(self, through: ColdReads[ColdRead, Reads], max_bytes: int, exactly: bool, answers: list[Fetched],
                   cold: list[tuple[Fetched, Want]], on_done: Callable[[list[Fetched]], None], reads: Reads | None,
                   error: BaseException | None) -> None:
        assert reads is None or len(reads) == len(cold), "an answer for each that was asked"
        damaged: list[tuple[Fetched, Want]] = []
        for i, (answer, want) in enumerate(cold):
            if reads is None:
                answer.error = StorageFailed(f"the log cannot be read: {error}")
                continue
            answer.pieces, next_offset = reads[i]
            answer.log_start_offset = self.start_of(answer.partition_id)     # retention may have gone on meanwhile
            answer.next_offset = min(next_offset, answer.high_watermark)
            if want.max_records and not want.kept:
                self._memtables.pages.add(want.partition_id, want.offset, want.max_records, answer.pieces)
            if not answer.pieces and want.offset < next_offset < answer.high_watermark:
                damaged.append((answer, want._replace(offset=next_offset)))
        if damaged:
            self._submit_cold(through, max_bytes, exactly, answers, damaged, on_done)   # else it is asked for for ever
        else:
            on_done(answers)

    # ---- by time

    def append_ms_of(self, partition_id: int, offset: int) -> int:
        """When the record at this offset, or the first behind it, was appended; 0 where there is none. May look into
        the index, at one block."""
        entries = self._memtable_entries(partition_id, offset, 1, 0)
        if not entries or entries[0].first_offset > offset:
            entries = self._index.entries_from(partition_id, offset, 1, 1 << 62) or entries
        return entries[0].append_ms if entries else 0

    def id_of(self, partition_id: int, offset: int) -> int:
        """Which message lies at an offset; -1 where that is not known. May look into the index, at one block."""
        entry = self._entry_at(partition_id, offset)
        return -1 if entry is None else entry.first_id + offset - entry.first_offset

    def position_of(self, partition_id: int, offset: int) -> int:
        """The position of the frame with which the record at an offset was stored; -1 where that is not known. May look
        into the index, at one block."""
        entry = self._entry_at(partition_id, offset)
        return -1 if entry is None else entry.position

    def _entry_at(self, partition_id: int, offset: int) -> Entry | None:
        entries = self._memtable_entries(partition_id, offset, 1, 0)
        if not entries or entries[0].first_offset > offset:
            entries = self._index.entries_from(partition_id, offset, 1, END)
        return entries[0] if entries and entries[0].first_offset <= offset < entries[0].end_offset else None

    def find_id(self, partition_ids: list[int], message_id: int, on_done: Callable[[tuple[int, int] | None], None]
                ) -> None:
        """Where a message lies among these partitions: (partition id, offset) of the first where it does, None where it
        is in none."""
        wanted = set(partition_ids)
        for memtable in self._memtables.oldest_first():
            columns = memtable.entries
            firsts, counts = np.array(columns.message_id), np.array(columns.count)
            for number in np.flatnonzero((firsts <= message_id) & (firsts + counts > message_id)).tolist():
                if columns.partition_id[number] in wanted:
                    offset = columns.first_offset[number] + message_id - columns.message_id[number]
                    on_done((columns.partition_id[number], offset))
                    return
        spans = [(partition_id, self._watermarks.log_start(partition_id), self._watermarks.next_offset(partition_id))
                 for partition_id in partition_ids]
        self._worker.submit(partial(self._id_in_store, spans, message_id),
                            lambda where, error: on_done(where if error is None else None))

    def _id_in_store(self, spans: list[tuple[int, int, int]], message_id: int) -> tuple[int, int] | None:
        """On the reading thread."""
        for partition_id, start, end in spans:
            entry = self._index.entry_of_id(partition_id, message_id, start, end)
            if entry is not None:
                return partition_id, entry.first_offset + message_id - entry.first_id
        return None

    def offset_for_time(self, partition_id: int, timestamp_ms: int, on_done: Callable[[int | None, int], None]) -> None:
        """See `Kernel.offset_for_time`."""
        start = self.start_of(partition_id)
        in_memory = self._first_in_memory(partition_id, timestamp_ms, start)
        self._worker.submit(partial(self._find_time, partition_id, timestamp_ms, start, in_memory),
                            partial(self._time_found, on_done))

    def _first_in_memory(self, partition_id: int, timestamp_ms: int, start: int) -> list[Entry]:
        """The first entry from `start` on with a record at or after a time; where it begins before, the next, too."""
        entries: list[Entry] = []
        for memtable in self._memtables.oldest_first():
            for number in memtable.numbers_of(partition_id):
                if memtable.entries.max_ms[number] >= timestamp_ms:
                    entry = memtable_entry(memtable, number)
                    if entry.end_offset > start:
                        entries.append(entry)
                        if entry.first_offset >= start:
                            return entries
        return entries

    def _find_time(self, partition_id: int, timestamp_ms: int, start: int,
                   in_memory: list[Entry]) -> tuple[int, int] | None:
        """On the reading thread."""
        entry = self._index.first_at_or_after(partition_id, timestamp_ms, start)
        if entry is None:
            entry = next((entry for entry in in_memory if entry.end_offset > start), None)
        if entry is None:
            return None
        for stored_piece in self._read([entry]):
            for part in parts_of(stored_piece):
                for record in sound_records(part):
                    if record[1] >= timestamp_ms and record[0] >= start:
                        return record[0], record[1]
        if entry.first_offset < start:              # its largest time may be that of a record that is deleted
            return self._find_time(partition_id, timestamp_ms, entry.end_offset, in_memory)
        return entry.first_offset, entry.max_ms

    def offset_of_largest_timestamp(self, partition_id: int, on_done: Callable[[int | None, int], None]) -> None:
        """See `KernelPort.offset_of_largest_timestamp`."""
        start = self.start_of(partition_id)
        in_memory = self._latest_in_memory(partition_id, start)
        self._worker.submit(partial(self._find_latest, partition_id, start, in_memory),
                            partial(self._time_found, on_done))

    def _latest_in_memory(self, partition_id: int, start: int) -> Entry | None:
        """The first entry of the partition in memory, from `start` on, whose largest timestamp no other one exceeds."""
        latest: Entry | None = None
        for memtable in self._memtables.oldest_first():
            columns = memtable.entries
            if (numbers := [number for number in memtable.numbers_of(partition_id)
                            if columns.first_offset[number] + columns.count[number] > start]):
                number = max(numbers, key=memtable.entries.max_ms.__getitem__)
                if latest is None or memtable.entries.max_ms[number] > latest.max_ms:
                    latest = memtable_entry(memtable, number)
        return latest

    def _find_latest(self, partition_id: int, start: int, in_memory: Entry | None) -> tuple[int, int] | None:
        """On the reading thread."""
        entry = self._index.with_largest_timestamp(partition_id, start)
        if entry is None or in_memory is not None and in_memory.max_ms > entry.max_ms:
            entry = in_memory
        if entry is None:
            return None
        latest: tuple[int, int] | None = None
        for stored in self._read([entry]):
            for part in parts_of(stored):
                for record in sound_records(part):
                    if record[0] >= start and (latest is None or record[1] > latest[1]):
                        latest = record[0], record[1]
        return latest

    # ---- by epoch

    def begin(self, begun: list[tuple[int, int]]) -> None:
        """(epoch, position in the log at which it began), as far as that is known, the current one too."""
        self._begun = sorted(begun)

    def end_of_epoch(self, partition_id: int, epoch: int, on_done: Callable[[int], None]) -> None:
        """See `KernelPort.end_of_epoch`."""
        at = bisect_right(self._begun, (epoch, END))
        if at == len(self._begun):
            on_done(self._watermarks.next_offset(partition_id) if self._begun and self._begun[-1][0] == epoch else -1)
            return
        position = self._begun[at][1]
        start, end = self.start_of(partition_id), self._watermarks.next_offset(partition_id)
        for memtable in reversed(self._memtables.oldest_first()):
            for number in memtable.numbers_of(partition_id):
                if memtable.position[memtable.frame[number]] >= position:
                    end = min(end, memtable.entries.first_offset[number])
                    break

        def found(first: int | None, error: BaseException | None) -> None:
            on_done(max(start, end if first is None else min(first, end)))

        self._worker.submit(partial(self._index.first_from_position, partition_id, position), found)

    # ---- sizes

    def sizes(self, partition_ids: list[int], on_done: Callable[[list[int]], None]) -> None:
        """See `Kernel.sizes`."""
        starts = [self.start_of(partition_id) for partition_id in partition_ids]
        in_memory = [self._bytes_in_memory(partition_id, start)
                     for partition_id, start in zip(partition_ids, starts, strict=True)]

        def read() -> list[int]:
            return [self._index.size_of(partition_id, start) + size
                    for partition_id, start, size in zip(partition_ids, starts, in_memory, strict=True)]

        self._worker.submit(read, lambda sizes, error: on_done(in_memory if sizes is None else sizes))

    def bytes_in_memory(self, partition_id: int, offset: int) -> tuple[int, int]:
        """The bytes from an offset on, as far as memory has them, and from which offset on it does (`END`: it has
        none)."""
        first, size = END, 0
        for memtable in self._memtables.oldest_first():
            entries = memtable.entries
            numbers, at = memtable.find(partition_id, offset)
            for number in numbers[at:]:
                begin, behind = entries.first_offset[number], entries.first_offset[number] + entries.count[number]
                if behind > offset:
                    first = min(first, begin)
                    size += entries.byte_length[number] * (behind - max(begin, offset)) // (behind - begin)
        return first, size

    def _bytes_in_memory(self, partition_id: int, start: int) -> int:
        return sum([memtable.entries.byte_length[number] for memtable in self._memtables.oldest_first()
                    for number in memtable.numbers_of(partition_id)
                    if memtable.entries.first_offset[number] + memtable.entries.count[number] > start])

    @staticmethod
    def _time_found(on_done: Callable[[int | None, int], None], position: tuple[int, int] | None,
                    error: BaseException | None) -> None:
        if isinstance(error, KernelError) or position is None:
            on_done(None, -1)
        else:
            on_done(*position)
