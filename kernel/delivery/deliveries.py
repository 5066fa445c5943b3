"""After a flush: new messages go to live subscribers, in the order of the log.

Messages of most doors are still at hand as they were appended. A producer's batch is opened only where a filter could
match its topic. What a turn may open is bounded: a batch that opens to more is opened on another thread and handed over
a part at a time, and what is behind it waits, so that order holds.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from kernel.addresses.placing import Places
from kernel.appending.burst import Run
from kernel.delivery.subscriptions import Outbox, Subscriptions
from kernel.message import Message, Piece, Placement, Record
from kernel.ports import Worker
from kernel.records.batch import missing, sound_records
from kernel.records.opened import Opened, opened_whole
from kernel.records.record import encode_headers
from kernel.records.unreadable import Unreadable
from kernel.state.topics import Topic, Topics

OPEN_HERE_BYTES: Final = 64 << 10          # of producers' batches, opened, in one turn: some milliseconds of records
PART_BYTES: Final = 1 << 20                # of a larger one, handed over in one turn

Heard = list[tuple["Placement | None", list[Message], Run, int]]


class Deliveries:
    def __init__(self, topics: Topics, places: Places, subscriptions: Subscriptions, worker: Worker,
                 on_error: Callable[[Exception], None], unreadable: Unreadable) -> None:
        self._topics = topics
        self._places = places
        self._subscriptions = subscriptions
        self._worker = worker
        self._on_error = on_error
        self._unreadable = unreadable
        self._waiting: deque[Heard] = deque()
        self._opening = False
        self._listened: dict[int, tuple[int, int, bool]] = {}     # topic id: (subscriptions', topics' version, answer)

    def listens(self, topic: Topic) -> bool:
        """Whether any live filter could match an address that is stored in this topic."""
        if not len(self._subscriptions):
            return False
        known = self._listened.get(topic.id)
        versions = (self._subscriptions.version, self._topics.version)
        if known is None or known[:2] != versions:
            known = self._listened[topic.id] = (
                *versions, self._subscriptions.may_match(self._places.first_levels_of(topic.name), topic.tenant))
        return known[2]

    @property
    def idle(self) -> bool:
        """Whether nothing waits for a batch that is being opened."""
        return not self._opening and not self._waiting

    def deliver(self, heard: Heard) -> None:
        """What one durable frame brought, in order of arrival."""
        if heard:
            self._waiting.append(heard)
            if not self._opening:
                self._drain()

    def _drain(self) -> None:
        """Hand over what waits, up to a batch that cannot be opened in this turn."""
        left = OPEN_HERE_BYTES
        while self._waiting:
            heard, outbox = self._waiting.popleft(), Outbox()
            for at, (placement, messages, run, index) in enumerate(heard):
                if placement is not None:
                    outbox.add(placement, messages, run.first_offset + index)
                    continue
                opened = self._opened_here(run, left)
                if opened is None:
                    self._waiting.appendleft(heard[at + 1:])
                    self._opening = True
                    self._cut(run, [], run.first_offset)
                    break
                left -= len(opened.data)
                self._add_part(outbox, run.queue_id, opened, sound_records(opened))
            outbox.send(self._on_error)
            if self._opening:
                return

    # ---- producers' batches

    def _opened_here(self, run: Run, max_bytes: int) -> Piece | None:
        limit = self._places.max_record_bytes(run.queue_id)
        return opened_whole(_piece_of(run), max_bytes, limit) if max_bytes > 0 else None

    def _cut(self, run: Run, opened: list[Opened], offset: int) -> None:
        """The records from an offset on, on the other thread; `opened` holds the batch from the second time on."""
        limit = self._places.max_record_bytes(run.queue_id)

        def part() -> tuple[Piece, list[Record]]:
            if not opened:
                opened.append(Opened(_piece_of(run)))
            piece = opened[0].part(offset, PART_BYTES, limit)
            return piece, sound_records(piece)

        self._worker.submit(part, partial(self._was_cut, run, opened))

    def _was_cut(self, run: Run, opened: list[Opened], part: tuple[Piece, list[Record]] | None,
                 error: BaseException | None) -> None:
        offset = end = run.first_offset + run.count
        if part is None:                     # our own fault: what waits behind it is delivered
            self._on_error(error if isinstance(error, Exception) else RuntimeError(f"not opened: {error!r}"))
        else:
            piece, records = part
            outbox = Outbox()
            self._add_part(outbox, run.queue_id, piece, records)
            outbox.send(self._on_error)
            offset = piece.first_offset + piece.count
        if offset < end:
            self._cut(run, opened, offset)
        else:
            self._opening = False
            self._drain()

    def _add_part(self, outbox: Outbox, queue_id: int, piece: Piece, records: list[Record]) -> None:
        if len(records) < piece.count:
            self._unreadable.note(queue_id, missing(piece, [record[0] for record in records]))
        self._add_records(outbox, queue_id, records)

    def open_piece(self, piece: Piece) -> list[Record]:
        """The sound records of a batch that is not a run yet."""
        return sound_records(piece)

    def _add_records(self, outbox: Outbox, queue_id: int, records: list[Record]) -> None:
        found = self._topics.of_queue(queue_id)
        if found is None:
            return
        topic, queue = found
        places: dict[bytes | None, Placement] = {}
        for offset, timestamp_ms, key, value, headers, attributes, _ in records:
            placement = places.get(key)
            if placement is None or headers:
                placement = self._places.for_record(topic, queue, key, headers)
                self._subscriptions.refresh(placement)
                if not headers:
                    places[key] = placement
            if placement.targets:
                message = (placement, value, encode_headers(headers), attributes, timestamp_ms)
                outbox.add(placement, [message], offset)


def _piece_of(run: Run) -> Piece:
    return Piece(run.first_offset, run.count, True, run.first, 0, run.max_ms, run.first_id)
