"""Retention: the oldest segment of the log goes when the log is too large or the segment too old, and not before what
is still owed in it lies elsewhere.

    scan       on the checkpoint's thread: what is in the segment, which of its state records are the newest of
               their key; then on the kernel's: who needs which of its records
    keep       the newest state records, and the needed records of partitions as KEPT, are written to the kept chain,
               synced, and known from there; in steps, with a checkpoint after each, so that memory stays bounded
    marks      the pages of its partitions, with their new starts, are appended as state: no partition forgets its next
               offset. With them the deletions of what was kept for nobody
    checkpoint with a sync: from here on nobody needs the segment
    drop       entries of the index and the file

A crash between any two of these repeats them at the next start. Segments of the kept chain go when nothing in them is
the newest of its key any more; while the kept chain is too large, the oldest of them is rewritten without what is dead.
Where that gains nothing, nothing new that would have to be kept is taken (`kept_full`).

A topic's own retention moves the start of its partitions forward by the same kind of state record; its bytes go with
their segment.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.ids import Identity
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.index.memtable import Checkpoints, Memtables
from gatehouse.kernel.log.disk_guard import NO_FILES, DiskGuard
from gatehouse.kernel.log.log import Log, LogFull, Segment
from gatehouse.kernel.message import Entries, StateRecord, Stored, decode_head, encode_head
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.retention.holders import joined
from gatehouse.kernel.retention.segment_scan import Name, Needed, SegmentScan, SegmentScanner
from gatehouse.kernel.retention.spill import Spill
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Ages, Clock, Kind, StateTable, Watermarks, heads_record
from gatehouse.kernel.state.topics import Topics, TopicSettings
from gatehouse.kernel.write.committer import Committer

CHECK_MS: Final = 10_000
KEPT_FRAME_RECORDS: Final = 10_000
KEPT_FRAME_BYTES: Final = 4 << 20
STEP_BYTES: Final = 32 << 20       # kept between two checkpoints: it is in memory until the second
LENT_SHARE: Final = 64             # of a segment: more is not kept of it where the last of the reserve is given up


Starts = dict[int, "int | None"]
"""Per partition the offset it will begin at; None where only the index in memory can say."""


class Kept(NamedTuple):
    """Frames that were written to the kept chain in one step."""

    frames: list[tuple[int, list[StateRecord]]]
    end: int
    more: bool               # another step follows
    starts: Starts           # of the last step: where the departure's partitions go on behind it
    gone: list[Name]         # of the last step: those of the departure that are still as they were scanned
    full: LogFull | None     # the disk took no more


class Departure(NamedTuple):
    """A segment on its way out."""

    scan: SegmentScan
    gone: list[Name]                         # newest state records that nobody needs
    records: Iterator[StateRecord]           # what is to be kept, cut as it is asked for
    moved: list[Name]                        # KEPT records that were made


class Hold(NamedTuple):
    """Somebody needs that nothing is dropped for now."""

    give_way: Callable[[], None]           # called where the disk is full and something would go


class _Told:
    """An owner that passes on whether it was stored."""

    def __init__(self, on_done: Callable[[bool], None]) -> None:
        self._on_done = on_done

    def on_stored(self, stored: list[Stored]) -> None:
        self._on_done(stored[0].error is None)


def frame_of(records: Iterator[StateRecord]) -> tuple[list[StateRecord], int]:
    """The next records for one frame, none at the end, and their size."""
    chosen: list[StateRecord] = []
    size_bytes = 0
    for record in islice(records, KEPT_FRAME_RECORDS):
        chosen.append(record)
        size_bytes += len(record.key) + len(record.value or b"")
        if size_bytes >= KEPT_FRAME_BYTES:
            break
    return chosen, size_bytes


def merged(needed: Needed, other: Needed) -> Needed:
    return {partition_id: joined([*needed.get(partition_id, ()), *other.get(partition_id, ())])
            for partition_id in {*needed, *other}}


class Retention:
    """What lets the oldest segments of the log go. `worker` does what blocks."""

    def __init__(self, *, loop: Loop, worker: Worker, clock: Clock, disk_guard: DiskGuard, log: Log, index: Index,
                 state: StateTable, topics: Topics, watermarks: Watermarks, memtables: Memtables,
                 committer: Committer, checkpoints: Checkpoints, scanner: SegmentScanner, spill: Spill,
                 settings: KernelSettings, identity: Identity, fatal: Callable[[str], None]) -> None:
        self._loop = loop
        self._worker = worker
        self._clock = clock
        self._disk_guard = disk_guard
        self._log = log
        self._index = index
        self._state = state
        self._topics = topics
        self._watermarks = watermarks
        self._memtables = memtables
        self._committer = committer
        self._checkpoints = checkpoints
        self._scanner = scanner
        self._spill = spill
        self._settings = settings
        self._identity = identity
        self._fatal = fatal
        self.busy = False
        self._stopped = False
        self._waits_for_index = False
        self._holds: list[Hold] = []
        self.dropped_segments = 0
        self.kept_over_limit = False

    def start(self) -> None:
        self._loop.call_at(self._loop.now_ms() + CHECK_MS, self._on_timer)

    def stop(self) -> None:
        self._stopped = True

    def configure(self, settings: KernelSettings) -> None:
        """These settings hold from now on."""
        self._settings = settings

    def hold(self, give_way: Callable[[], None]) -> Hold:
        """Nothing is dropped until `release`, but for what is on its way to the checkpoint's thread already. `give_way`
        is called where the disk is full and something would go now."""
        hold = Hold(give_way)
        self._holds.append(hold)
        return hold

    def release(self, hold: Hold) -> None:
        """What this hold was for has ended."""
        assert hold in self._holds, "what was held is let go of once"
        self._holds.remove(hold)
        if not self._holds:
            self.check()

    def _on_timer(self) -> None:
        if not self._stopped:
            self.check()
            self.start()

    # ---- one pass

    def check(self) -> None:
        """Look for something to drop, unless a pass is under way."""
        if not self.busy and not self._stopped:
            self.busy = True
            self._worker.submit(partial(self._look, self._clock.ages()), self._looked)

    def _look(self, ages: Ages) -> tuple[SegmentScan | None, Starts, dict[int, int]]:
        """On the checkpoint's thread: the segment to drop next, if any, and starts moved by topics' own retention.

        Only of what the index is complete to: it is asked what is still needed of a segment.
        """
        complete = self._index.positions()
        segment = self._due_main(ages, complete.main)
        scan = self._due_kept(complete.kept, ages) if segment is None else self._scanner.scan(segment, ages)
        return scan, self._topic_starts(ages), self._floors(ages)

    def _due_main(self, ages: Ages, complete: int) -> Segment | None:
        segments = self._log.segments()
        due = len(segments) > 1 and self._is_due(segments, ages)
        self._waits_for_index = due and segments[0].end > complete
        return segments[0] if due and not self._waits_for_index else None

    def _is_due(self, segments: list[Segment], ages: Ages) -> bool:
        if sum(segment.size_bytes for segment in segments) > self._settings.retention_bytes:
            return True
        newer = next(self._log.heads(segments[1]), None)
        return newer is not None and decode_head(newer.head).append_ms < ages.appended_by(self._settings.retention_ms)

    def _due_kept(self, complete: int, ages: Ages) -> SegmentScan | None:
        segments = self._log.kept_segments()
        finished = [segment for segment in segments[:-1] if segment.end <= complete]
        for segment in finished:
            if self._index.live(segment.base) == 0:
                return self._scanner.scan(segment, ages)
        self.kept_over_limit = sum(segment.size_bytes for segment in segments) > self._settings.kept_bytes
        if self.kept_over_limit:
            for segment in finished:
                scan = self._scanner.scan(segment, ages)
                if len(scan.newest) - len(scan.outlived) < len(scan.names):    # else nothing is gained, ever
                    return scan
        self._disk_guard.note_kept_full(self.kept_over_limit)
        return None

    def _topic_starts(self, ages: Ages) -> Starts:
        """Of topics that keep less than the hub."""
        starts: Starts = {}
        for topic in self._topics.all():
            if topic.settings.keeps_less and not topic.settings.compact:
                for partition_id in topic.partition_ids():
                    start, end = self._watermarks.log_start(partition_id), self._watermarks.next_offset(partition_id)
                    if start < end:
                        first = self._first_kept(topic.settings, partition_id, ages)
                        if first is None or first > start:
                            starts[partition_id] = first
        return starts

    def _first_kept(self, settings: TopicSettings, partition_id: int, ages: Ages) -> int | None:
        """Where a partition begins by its topic's own retention; None where only the index in memory can say."""
        first: int | None = 0
        if settings.retention_ms is not None:
            first = self._index.first_appended_since(partition_id, ages.appended_by(settings.retention_ms))
        if first is not None and settings.retention_bytes is not None:
            first = max(first, self._index.first_within(partition_id, settings.retention_bytes) or 0)
        return first

    # decision 178
    def _floors(self, ages: Ages) -> dict[int, int]:
        """Of compacted topics that keep less than the hub: what is behind a record that is too old is younger, wherever
        it lies by now; so the index is asked for the last one."""
        floors: dict[int, int] = {}
        for topic in self._topics.all():
            settings = topic.settings
            if settings.keeps_less and settings.compact:
                for partition_id in topic.partition_ids():
                    floor = 0
                    if settings.retention_ms is not None:
                        floor = self._index.end_appended_before(partition_id, ages.appended_by(settings.retention_ms))
                    if settings.retention_bytes is not None:
                        floor = max(floor, self._index.first_within(partition_id, settings.retention_bytes) or 0)
                    if floor:
                        floors[partition_id] = floor
        return floors

    def _looked(self, survey: tuple[SegmentScan | None, Starts, dict[int, int]] | None, error: BaseException | None
                ) -> None:
        if isinstance(error, OSError) and error.errno in NO_FILES:
            self._pass_over()            # a later pass opens what this one could not
            return
        if survey is None:
            self._fatal(f"the log cannot be surveyed for retention: {error}")
            return
        scan, by_topic, floors = survey
        self._watermarks.begin_at(floors)
        if scan is None and self._waits_for_index:
            # A checkpoint is what needs room first. It may take from memory what only memory could say.
            starts: Starts = {partition_id: start for partition_id, start in by_topic.items() if start is not None}
            self._disk_guard.make(partial(self._move_starts, starts))
        elif scan is None:
            self._move_starts(by_topic)
        elif self._holds:
            self._pass_over()
            if self._disk_guard.full or self._disk_guard.short:
                for hold in self._holds.copy():
                    hold.give_way()
        else:
            self._disk_guard.make(partial(self._keep_what_is_owed, scan))

    def _move_starts(self, by_topic: Starts) -> None:
        """Move the starts of partitions whose topics have a shorter retention than the hub."""
        starts = {partition_id: self._first_in_memory(partition_id, 0) if start is None else start
                  for partition_id, start in by_topic.items()}
        if any(start > self._watermarks.log_start(partition_id) for partition_id, start in starts.items()):
            self._write_pages(self._watermarks.pages_starting_at(starts), lambda stored: self._pass_over())
        else:
            self._pass_over()

    def _pass_over(self) -> None:
        self.busy = False

    # ---- a segment on its way out

    def _keep_what_is_owed(self, scan: SegmentScan) -> None:
        gone = [*scan.outlived, *self._spill.unneeded(scan.kept)]
        needed = scan.latest
        if not scan.segment.is_kept:
            needed = merged(needed, self._spill.needed(scan.spans))
        departure = Departure(scan, gone, self._scanner.cut(scan, needed, set(gone)), [])
        self._keep_next(departure)

    def _keep_next(self, departure: Departure) -> None:
        self._worker.submit(partial(self._keep, departure), partial(self._kept, departure))

    def _keep(self, departure: Departure) -> Kept:
        """On the checkpoint's thread: one step."""
        assert self.busy, "one pass at a time"
        newest = departure.scan.newest
        frames: list[tuple[int, list[StateRecord]]] = []
        full: LogFull | None = None
        size_bytes, more = 0, True
        while more and size_bytes < STEP_BYTES and full is None:
            chosen, frame_bytes = frame_of(departure.records)
            more = bool(chosen)
            try:
                if self._disk_guard.lent and frame_bytes > departure.scan.segment.size_bytes // LENT_SHARE:
                    full = LogFull("what room there is, is for what frees more than it takes")
                elif chosen:
                    head = encode_head(self._identity.epoch, 0, 0, 0, Entries(), chosen)
                    frames.append((self._log.keep(head, b""), chosen))
            except LogFull as error:
                full = error
            size_bytes += frame_bytes
        self._log.sync_kept()
        positions = [position for position, _ in frames]
        assert positions == sorted(set(positions)), "positions rise"
        gone = [] if more else [name for name in departure.gone if self._index.order(*name) == newest[name]]
        starts = {} if more else self._starts_behind(departure.scan)
        return Kept(frames, self._log.kept_end(), more, starts, gone, full)

    def _starts_behind(self, scan: SegmentScan) -> Starts:
        """Where the partitions of a segment go on, looked up in the last step before that is written down: what the
        index does not know by then is in memory still when `_append_watermarks` looks there."""
        return {partition_id: self._index.first_from_position(partition_id, scan.segment.end)
                for partition_id in scan.spans}

    def _kept(self, departure: Departure, kept: Kept | None, error: BaseException | None) -> None:
        if kept is None:
            self._fatal(f"what is owed cannot be moved: {error}")
            return
        for position, records in kept.frames:
            self._state.absorb_kept(position, records)
        self._checkpoints.note_kept(kept.end)
        moved = [(record.kind, record.key) for _, records in kept.frames for record in records
                 if record.kind == Kind.KEPT]
        self._spill.note(moved)
        departure.moved.extend(moved)
        if kept.full is not None:
            self._disk_guard.note_lack()
            self._pass_over()            # tried again at the next check; the segment stays until then
        elif kept.more:
            self._checkpoints.take(partial(self._keep_next, departure))
        else:
            self._append_watermarks(departure, kept)

    def _append_watermarks(self, departure: Departure, kept: Kept) -> None:  # decision 13
        end = departure.scan.segment.end
        starts = {partition_id: self._first_in_memory(partition_id, end) if start is None else start
                  for partition_id, start in kept.starts.items()}
        self._committer.delete_state([StateRecord(kind, key, None) for kind, key in kept.gone
                                      if self._state.recent(kind, key) is None])
        self._write_pages(self._watermarks.pages_starting_at(starts),
                          partial(self._watermarks_stored, departure, starts))

    def _write_pages(self, pages: dict[int, bytes], on_done: Callable[[bool], None]) -> None:
        """Append pages of watermarks as state; True once they are durable and applied."""
        try:
            self._committer.put_state([heads_record(number, page) for number, page in pages.items()], _Told(on_done))
        except Stopping:
            on_done(False)

    def _watermarks_stored(self, departure: Departure, starts: dict[int, int], stored: bool) -> None:
        if not stored:
            self._pass_over()
            return
        self._spill.forget_unneeded(departure.moved)       # what was settled while it was being moved
        self._checkpoints.take(partial(self._let_go, departure.scan, starts))

    def _let_go(self, scan: SegmentScan, starts: dict[int, int]) -> None:
        if self._holds:
            self._pass_over()            # kept, and counted once: a later pass finds nothing left to move
        else:
            self._worker.submit(partial(self._drop, scan, starts), self._dropped)

    def _first_in_memory(self, partition_id: int, position: int) -> int:
        """Where a partition goes on that has no entry in the store at or behind a position."""
        for memtable in self._memtables.oldest_first():
            for number in memtable.numbers_of(partition_id):
                if memtable.position[memtable.frame[number]] >= position:
                    return memtable.entries.first_offset[number]
        return self._watermarks.next_offset(partition_id)

    def _drop(self, scan: SegmentScan, starts: dict[int, int]) -> None:
        """On the checkpoint's thread."""
        assert scan.spans.keys() == starts.keys(), "where each partition of a segment goes on is known when it goes"
        if scan.segment.is_kept:
            # The file first: if a crash comes between, a copy too many is counted and a deletion kept for longer. The
            # other way round the copies would be taken off twice, and the deletion forgotten while an older record is
            # still there.
            self._log.drop(scan.segment)
            self._index.forget_copies(scan.names, scan.segment.base)
        else:
            self._index.forget_segment(scan.segment.base, starts)
            self._log.drop(scan.segment)

    def _dropped(self, _: None, error: BaseException | None) -> None:
        assert self.busy, "a pass ends once"
        self.busy = False
        if error is not None:
            self._fatal(f"a segment cannot be dropped: {error}")
            return
        self.dropped_segments += 1
        self.check()
