"""After a flush: new messages go to live subscribers, in the order of the log, some milliseconds a turn of the loop.

    deliver → waiting → [large batches are opened on another thread] → portions → every subscriber of each, in slices

Messages of most doors are still at hand as they were appended. A producer's batch is opened only where a filter could
match its topic, and a large one on another thread; deliveries behind it wait, so that order holds. While more than
`MAX_WAITING` flushes wait the deliveries are behind, and publishers are not read. What a subscriber is told it hears in
order; one that comes or goes while a flush is handed out may hear of the rest of it, or not.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from kernel.addresses.placing import Places
from kernel.appending.burst import Run
from kernel.delivery.slices import Slices
from kernel.delivery.subscriptions import Outbox, Subscriptions
from kernel.errors import CorruptBatch
from kernel.message import Message, Piece, Placement, Record
from kernel.ports import Loop, Worker
from kernel.records.batch import records_of
from kernel.records.record import encode_headers
from kernel.state.topics import Topic, Topics

OPEN_HERE_BYTES: Final = 64 << 10          # larger batches are opened on another thread

MAX_WAITING: Final = 2                     # flushes behind the one that is handed out: more, and publishers wait
STEP_RECORDS: Final = 64                   # of a producer's batch are placed before the clock is read
PORTION: Final = 256                       # stretches of messages that subscribers get in one call
STEP_PAIRS: Final = 1024                   # of stretch and subscriber are made before the clock is read: 0.2 ms

Heard = list[tuple["Placement | None", list[Message], Run, int]]


class Deliveries:
    def __init__(self, topics: Topics, places: Places, subscriptions: Subscriptions, worker: Worker,
                 loop: Loop, on_error: Callable[[Exception], None]) -> None:
        self.slices = Slices(loop, on_error)
        self.on_caught_up: Callable[[], None] = lambda: None      # set by the kernel: publishers may be read again
        self._topics = topics
        self._places = places
        self._subscriptions = subscriptions
        self._worker = worker
        self._on_error = on_error
        self._waiting: deque[Heard] = deque()
        self._opening = False
        self._opened: dict[int, list[Record]] | None = None      # the large batches of the flush that waits first
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
        """Whether everybody has been told of everything that is durable."""
        return not self._opening and not self._waiting and not self.slices.busy

    def is_behind(self) -> bool:
        """Whether publishers should wait until those who listen have been told."""
        return len(self._waiting) > MAX_WAITING

    def deliver(self, heard: Heard) -> None:
        """What one durable frame brought, in order of arrival."""
        if heard:
            self._waiting.append(heard)
            self._go_on()

    def _go_on(self) -> None:
        if self._waiting and not self._opening and not self.slices.busy:
            self.slices.run(self._hand_out(), self._go_on)

    def _hand_out(self) -> Iterator[None]:
        """All that waits, up to the first flush with a batch that must be opened elsewhere."""
        outbox = Outbox(self._on_error)
        while self._waiting:
            heard = self._waiting.popleft()
            if len(self._waiting) == MAX_WAITING:
                self.on_caught_up()
            large = [run for placement, _, run, _ in heard if placement is None and len(run.first) > OPEN_HERE_BYTES]
            if large and self._opened is None:
                yield from outbox.send()
                self._open_elsewhere(heard, large)
                return
            opened, self._opened = self._opened or {}, None
            yield from self._add(heard, opened, outbox)
        yield from outbox.send()

    def _open_elsewhere(self, heard: Heard, large: list[Run]) -> None:
        self._waiting.appendleft(heard)
        self._opening = True
        self._worker.submit(partial(self._open_all, large), partial(self._on_opened, large))

    def _on_opened(self, large: list[Run], opened: list[list[Record]] | None, error: BaseException | None) -> None:
        self._opening = False
        if opened is None:                   # our own fault: the others are told what comes behind it
            self._waiting.popleft()
            self._on_error(error if isinstance(error, Exception) else RuntimeError(f"not opened: {error!r}"))
        else:
            self._opened = {id(run): records for run, records in zip(large, opened, strict=True)}
        self._go_on()

    def _add(self, heard: Heard, opened: dict[int, list[Record]], outbox: Outbox) -> Iterator[None]:
        for placement, messages, run, index in heard:
            if placement is not None:
                outbox.add(placement, messages, run.first_offset + index)
                yield from self._pause(outbox)
            else:
                records = opened[id(run)] if id(run) in opened else self.open(run)
                yield from self._add_records(outbox, run.queue_id, records)

    @staticmethod
    def _pause(outbox: Outbox) -> Iterator[None]:
        """After an entry: hand over a full portion, look at the clock where that is worth it."""
        if outbox.entries >= PORTION:
            yield from outbox.send()
        elif outbox.sorted >= STEP_PAIRS:
            outbox.sorted = 0
            yield

    def _open_all(self, runs: list[Run]) -> list[list[Record]]:
        return [self.open(run) for run in runs]

    def open(self, run: Run) -> list[Record]:
        """A producer's records."""
        return self.open_piece(Piece(run.first_offset, run.count, True, run.first, 0, run.max_ms, run.first_id))

    def open_piece(self, piece: Piece) -> list[Record]:
        """The same for what is not a run yet."""
        try:
            return records_of(piece)
        except CorruptBatch as error:        # its CRC is right: the producer wrote records that make no sense
            self._on_error(error)
            return []

    def _add_records(self, outbox: Outbox, queue_id: int, records: list[Record]) -> Iterator[None]:
        found = self._topics.of_queue(queue_id)
        if found is None:
            return
        topic, queue = found
        places: dict[bytes | None, Placement] = {}
        for number, (offset, timestamp_ms, key, value, headers, attributes, _) in enumerate(records, 1):
            placement = places.get(key)
            if placement is None or headers:
                placement = self._places.for_record(topic, queue, key, headers)
                self._subscriptions.refresh(placement)
                if not headers:
                    places[key] = placement
            if placement.targets:
                message = (placement, value, encode_headers(headers), attributes, timestamp_ms)
                outbox.add(placement, [message], offset)
                yield from self._pause(outbox)
            if not number % STEP_RECORDS:
                yield
