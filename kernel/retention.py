"""Retention: the oldest segment of the log goes when the log is too large or the segment too old, and not before what
is still owed in it lies elsewhere.

    survey     on the checkpoint's thread: which queues are in the segment and where they go on, which of its state
    records are
               still the newest of their key
    heads      the pages of those queues, with their new starts, are appended as state: no queue forgets its next offset
    keep       the newest state records are written to the kept chain, synced, and known from there
    checkpoint with a sync: from here on nobody needs the segment
    drop       entries of the index and the file

A crash between any two of these repeats them at the next start. Segments of the kept chain go when nothing in them is
the newest of its key any more; while the kept chain is too large, the oldest of them is rewritten without what is dead.

A topic's own retention moves the start of its queues forward by the same kind of state record; its bytes go with their
segment.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from kernel.frame import Entries, StateRecord, decode_head, encode_head
from kernel.log import KEPT_BASE, LogFull, Segment
from kernel.parts import Parts
from kernel.topics import Topic

CHECK_MS: Final = 10_000
KEPT_FRAME_RECORDS: Final = 10_000
_PAGE_SHIFT: Final = 8


Starts = dict[int, "int | None"]
"""Per queue the offset it will begin at; None where only the index in memory can say."""


class Survey(NamedTuple):
    """What a segment holds that somebody may still need."""

    segment: Segment
    starts: Starts                         # where its queues go on behind it
    newest: list[StateRecord]              # state records that are the newest of their key, with their order
    names: list[tuple[int, bytes]]         # keys of every state record in it


class Kept(NamedTuple):
    """Frames that were written to the kept chain."""

    frames: list[tuple[int, list[StateRecord]]]
    end: int


class Ledger(Protocol):
    """What retention needs of the kernel around it."""

    def append_heads(self, pages: dict[int, bytes], on_done: Callable[[bool], None]) -> None:
        """Append pages of queue heads as state; True once they are durable and applied."""

    def absorb_kept(self, kept: Kept) -> None:
        """These records are known from the kept chain now."""

    def checkpoint(self, on_done: Callable[[], None]) -> None: ...

    def topics(self) -> list[Topic]: ...


class Retention:
    def __init__(self, parts: Parts, ledger: Ledger) -> None:
        self._loop = parts.loop
        self._worker = parts.checkpoint_worker
        self._log = parts.log
        self._index = parts.index
        self._heads = parts.heads
        self._reader = parts.reader
        self.settings = parts.settings
        self._ledger = ledger
        self._epoch = parts.epoch
        self._fatal = parts.fatal
        self._busy = False
        self._stopped = False
        self.dropped_segments = 0
        self.kept_over_limit = False

    def start(self) -> None:
        self._loop.call_at(self._loop.now_ms() + CHECK_MS, self._on_timer)

    def stop(self) -> None:
        self._stopped = True

    def _on_timer(self) -> None:
        if not self._stopped:
            self.check()
            self.start()

    # ---- one pass

    def check(self) -> None:
        """Look for something to drop, unless a pass is under way."""
        if not self._busy and not self._stopped:
            self._busy = True
            now_ms = self._loop.now_ms()
            self._worker.submit(partial(self._look, now_ms), self._looked)

    def _look(self, now_ms: int) -> tuple[Survey | None, Starts]:
        """On the checkpoint's thread: the segment to drop next, if any, and starts moved by topics' own retention.

        Only of what the index is complete to: it is asked what is still needed of a segment.
        """
        complete = self._index.positions()
        segment = self._due_main(now_ms, complete.main)
        survey = self._due_kept(complete.kept) if segment is None else self._survey(segment)
        return survey, self._topic_starts(now_ms)

    def _due_main(self, now_ms: int, complete: int) -> Segment | None:
        segments = self._log.segments()
        if len(segments) > 1 and segments[0].end <= complete:
            if sum(segment.size_bytes for segment in segments) > self.settings.retention_bytes:
                return segments[0]
            newer = next(self._log.heads(segments[1]), None)
            if newer is not None and decode_head(newer.head).append_ms < now_ms - self.settings.retention_ms:
                return segments[0]
        return None

    def _due_kept(self, complete: int) -> Survey | None:
        segments = self._log.kept_segments()
        finished = [segment for segment in segments[:-1] if segment.end <= complete]
        for segment in finished:
            if self._index.live(segment.base) == 0:
                return self._survey(segment)
        self.kept_over_limit = sum(segment.size_bytes for segment in segments) > self.settings.kept_bytes
        if self.kept_over_limit:
            for segment in finished:
                survey = self._survey(segment)
                if len(survey.newest) < len(survey.names):       # else there is nothing to gain, ever
                    return survey
        return None

    def _survey(self, segment: Segment) -> Survey:
        queues: set[int] = set()
        newest: dict[tuple[int, bytes], StateRecord] = {}
        names: list[tuple[int, bytes]] = []
        for frame in self._log.heads(segment):
            head = decode_head(frame.head)
            queues.update(head.entries.queue_id)
            for record in head.state:
                name = (record.kind, record.key)
                names.append(name)
                held = self._index.held(*name)
                if held is not None and segment.base <= held.home < segment.end and held.home == frame.position:
                    newest[name] = StateRecord(record.kind, record.key, held.value, held.order)
        starts = {queue_id: self._index.first_from_position(queue_id, segment.end) for queue_id in queues}
        return Survey(segment, starts, list(newest.values()), names)

    def _topic_starts(self, now_ms: int) -> Starts:
        starts: Starts = {}
        for topic in self._ledger.topics():
            if topic.settings.retention_ms is not None:
                for queue_id in topic.queue_ids():
                    start, end = self._heads.log_start(queue_id), self._heads.next_offset(queue_id)
                    if start < end:
                        first = self._index.first_appended_since(queue_id, now_ms - topic.settings.retention_ms)
                        if first is None or first > start:
                            starts[queue_id] = first
        return starts

    def _looked(self, found: tuple[Survey | None, Starts] | None, error: BaseException | None) -> None:
        if found is None:
            self._fatal(f"the log cannot be surveyed for retention: {error}")
            return
        survey, by_topic = found
        starts: dict[int, int] = {}
        moves = [(by_topic, 0)] if survey is None else [(by_topic, 0), (survey.starts, survey.segment.end)]
        for by_what, behind in moves:
            for queue_id, start in by_what.items():
                known = self._first_in_memory(queue_id, behind) if start is None else start
                starts[queue_id] = max(starts.get(queue_id, 0), known)
        if any(start > self._heads.log_start(queue_id) for queue_id, start in starts.items()) or survey is not None:
            self._ledger.append_heads(self._heads.pages_starting_at(starts), partial(self._heads_stored, survey))
        else:
            self._heads_stored(survey, True)

    def _first_in_memory(self, queue_id: int, position: int) -> int:
        """Where a queue goes on that has no entry in the store at or behind a position."""
        for tail in (self._reader.frozen, self._reader.tail):
            for number in tail.numbers_of(queue_id) if tail is not None else ():
                if tail is not None and tail.position[tail.frame[number]] >= position:
                    return tail.entries.first_offset[number]
        return self._heads.next_offset(queue_id)

    def _heads_stored(self, survey: Survey | None, stored: bool) -> None:
        if survey is None or not stored:
            self._busy = False
            return
        self._worker.submit(partial(self._keep, survey.newest), partial(self._kept, survey))

    def _keep(self, newest: list[StateRecord]) -> Kept:
        """On the checkpoint's thread. What a checkpoint has replaced or deleted since the survey stays behind."""
        frames = []
        newest = [record for record in newest if self._index.order(record.kind, record.key) == record.order]
        for at in range(0, len(newest), KEPT_FRAME_RECORDS):
            records = newest[at:at + KEPT_FRAME_RECORDS]
            head = encode_head(self._epoch, 0, 0, 0, Entries(), records)
            frames.append((self._log.keep(head, b""), records))
        self._log.sync_kept()
        return Kept(frames, self._log.kept_end())

    def _kept(self, survey: Survey, kept: Kept | None, error: BaseException | None) -> None:
        if kept is None:
            if isinstance(error, LogFull):
                self._busy = False           # tried again at the next check; the segment stays until then
            else:
                self._fatal(f"what is owed cannot be moved: {error}")
            return
        self._ledger.absorb_kept(kept)
        self._ledger.checkpoint(partial(self._checkpointed, survey))

    def _checkpointed(self, survey: Survey) -> None:
        starts = {queue_id: self._heads.log_start(queue_id) for queue_id in survey.starts}
        self._worker.submit(partial(self._drop, survey, starts), self._dropped)

    def _drop(self, survey: Survey, starts: dict[int, int]) -> None:
        """On the checkpoint's thread."""
        if survey.segment.base >= KEPT_BASE:
            # The file first: if a crash comes between, a copy too many is counted and a deletion kept for longer. The
            # other way round the copies would be taken off twice, and the deletion forgotten while an older record is
            # still there.
            self._log.drop(survey.segment)
            self._index.forget_copies(survey.names, survey.segment.base)
        else:
            self._index.forget_segment(survey.segment.base, starts)
            self._log.drop(survey.segment)

    def _dropped(self, _: None, error: BaseException | None) -> None:
        self._busy = False
        if error is not None:
            self._fatal(f"a segment cannot be dropped: {error}")
            return
        self.dropped_segments += 1
        self.check()
