"""After a flush: new messages go to live subscribers, in the order of the log.

Messages of most doors are still at hand as they were appended, and so are the records of a producer's batch that came
while a filter could match its topic. Another is opened here, a large one on another thread; deliveries behind it wait,
so that order holds.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from kernel.addresses.placing import Places
from kernel.appending.burst import Run
from kernel.delivery.subscriptions import Outbox, Subscriptions
from kernel.errors import CorruptBatch
from kernel.message import Message, Piece, Placement, Record
from kernel.ports import Worker
from kernel.records.batch import records_of
from kernel.records.record import encode_headers
from kernel.state.topics import Topic, Topics

OPEN_HERE_BYTES: Final = 64 << 10          # larger batches are opened on another thread

Heard = list[tuple["Placement | None", list[Message], Run, int]]


class Deliveries:
    def __init__(self, topics: Topics, places: Places, subscriptions: Subscriptions, worker: Worker,
                 on_error: Callable[[Exception], None]) -> None:
        self._topics = topics
        self._places = places
        self._subscriptions = subscriptions
        self._worker = worker
        self._on_error = on_error
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
        while self._waiting:
            heard = self._waiting.popleft()
            large = [run for placement, _, run, _ in heard
                     if placement is None and run.records is None and len(run.first) > OPEN_HERE_BYTES]
            if large:
                self._opening = True
                self._worker.submit(partial(self._open_all, large), partial(self._opened, heard, large))
                return
            self._send(heard, {})

    def _opened(self, heard: Heard, large: list[Run], opened: list[list[Record]] | None,
                error: BaseException | None) -> None:
        self._opening = False
        if opened is None:
            raise error or RuntimeError("no records and no error")
        self._send(heard, {id(run): records for run, records in zip(large, opened, strict=True)})
        self._drain()

    def _send(self, heard: Heard, opened: dict[int, list[Record]]) -> None:
        outbox = Outbox()
        for placement, messages, run, index in heard:
            if placement is not None:
                outbox.add(placement, messages, run.first_offset + index)
            elif run.records is not None:
                self._add_records(outbox, run.queue_id, run.records, run.first_offset)
                run.records = None
            else:
                records = opened[id(run)] if id(run) in opened else self.open(run)
                self._add_records(outbox, run.queue_id, records, 0)
        outbox.send(self._on_error)

    def _open_all(self, runs: list[Run]) -> list[list[Record]]:
        return [self.open(run) for run in runs]

    def open(self, run: Run) -> list[Record]:
        """A producer's records."""
        try:
            return records_of(Piece(run.first_offset, run.count, True, run.first, 0, run.max_ms, run.first_id))
        except CorruptBatch as error:        # its CRC is right: the producer wrote records that make no sense
            self._on_error(error)
            return []

    def _add_records(self, outbox: Outbox, queue_id: int, records: list[Record], first_offset: int) -> None:
        """Their offsets count from the first one's."""
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
                outbox.add(placement, [message], first_offset + offset)
