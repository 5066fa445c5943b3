"""After a flush: new messages go to live subscribers, in the order of the log, some milliseconds a turn of the loop.
Whoever waits for more in a partition is woken. Hot.

    deliver → waiting → [large batches are opened on another thread] → portions → every subscriber of each, in slices

Messages of most doors are still at hand as they were appended, and so are the records of a producer's batch that came
while a filter could match its topic. Another is opened here. What a turn may open is bounded: a batch that opens to
more is opened on another thread and handed over a part at a time, and what is behind it waits, so that order holds.
While more than `MAX_WAITING` flushes wait the deliveries are behind, and publishers are not read. What a subscriber is
told it hears in order; one that comes or goes while a flush is handed out may hear of the rest of it, or not. How long
messages took from the disk to the subscribers is counted for each door.

Watches are long polls: each is woken by the flush that brings what it waits for, without a subscription. They are kept
by pages of 256 partition ids, so that a flush asks only those that may care: a thousand waiting readers of other topics
cost nothing. Those of all partitions of a large topic are kept together, by its ids: each wait would else be put on
every page of it.
"""
from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterator
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.addresses.subscriptions import Subscriptions
from gatehouse.kernel.backpressure import Backpressure
from gatehouse.kernel.message import Delivery, NumberedMessage, Piece, Placement, Record, Subscriber
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.records.batch import encode_headers, missing, sound_records
from gatehouse.kernel.records.opened import Opened, Unreadable, opened_whole
from gatehouse.kernel.state.partition_ids import PartitionIds
from gatehouse.kernel.state.topics import Topic, Topics
from gatehouse.kernel.write.committer import Slices
from gatehouse.kernel.write.pending_frame import Heard, Run

# --- how long it took ---------------------------------------------------------------------------------------------

BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
"""Upper bounds of what is counted."""


class Latency:
    """How long the messages of one door took: `counts` by the bounds, and one more behind them."""

    __slots__ = ("counts", "total_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.total_ms = 0

    def add(self, count: int, took_ms: int) -> None:
        """So many messages took so long."""
        self.counts[bisect_left(BOUNDS_MS, took_ms)] += count
        self.total_ms += count * took_ms


class Latencies:
    """How long messages took, by door."""

    def __init__(self) -> None:
        self._by_door: dict[str, Latency] = {}

    def note(self, door: str, count: int, took_ms: int) -> None:
        """So many messages were given to the subscribers of a door."""
        latency = self._by_door.get(door)
        if latency is None:
            latency = self._by_door[door] = Latency()
        latency.add(count, max(0, took_ms))

    def by_door(self) -> Iterator[tuple[str, list[tuple[int, int]], int, int]]:
        """For each door: how many messages took at most so many ms (upper bound, count), how many there are, and the
        sum of what they took."""
        for door, latency in self._by_door.items():
            below, bounds = 0, []
            for bound_ms, count in zip(BOUNDS_MS, latency.counts, strict=False):
                below += count
                bounds.append((bound_ms, below))
            yield door, bounds, below + latency.counts[-1], latency.total_ms


# --- deliveries ---------------------------------------------------------------------------------------------------

OPEN_HERE_BYTES: Final = 64 << 10          # of a producer's batch, opened on this thread: some milliseconds of records
PART_BYTES: Final = 1 << 20                # of a larger one, opened and handed out at a time
MAX_WAITING: Final = 2                     # flushes behind the one that is handed out: more, and publishers wait
STEP_RECORDS: Final = 64                   # of a producer's batch are placed before the clock is read
STEP_MESSAGES: Final = 64                  # are handed over before the clock is read, counted for each who gets them:
                                           # about a tenth of a slice
PORTION: Final = 256                       # stretches of messages that subscribers get in one call
STEP_PAIRS: Final = 1024                   # of stretch and subscriber are made before the clock is read: 0.2 ms


# decision 56: live subscribers hear from memory
class Deliveries:
    def __init__(self, *, topics: Topics, places: Places, subscriptions: Subscriptions, worker: Worker,
                 loop: Loop, on_error: Callable[[Exception], None], unreadable: Unreadable,
                 backpressure: Backpressure) -> None:
        self.slices = Slices(loop, on_error)
        self._loop = loop
        self.latencies = Latencies()
        self._backpressure = backpressure
        self._topics = topics
        self._places = places
        self._subscriptions = subscriptions
        self._worker = worker
        self._on_error = on_error
        self._unreadable = unreadable
        self._waiting: deque[tuple[int, Heard]] = deque()      # since when it is durable
        self.durable_ms = 0                                    # of what is handed out now
        self._opening = False
        self._listened: dict[int, tuple[int, int, bool]] = {}     # topic id: (subscriptions', topics' version, answer)

    def listens(self, topic: Topic) -> bool:
        """Whether any live filter could match an address that is stored in this topic."""
        if not self._subscriptions.count:
            return False
        cached = self._listened.get(topic.id)
        versions = (self._subscriptions.version, self._topics.version)
        if cached is None or cached[:2] != versions:
            cached = self._listened[topic.id] = (
                *versions, self._subscriptions.may_match(self._places.first_levels_of(topic.name), topic.tenant))
        return cached[2]

    @property
    def idle(self) -> bool:
        """Whether everybody has been told of everything that is durable."""
        return not self._opening and not self._waiting and not self.slices.busy

    def note_delivered(self, door: str, count: int) -> None:
        """So many messages of what is handed out now are with the subscribers of a door."""
        self.latencies.note(door, count, self._loop.now_ms() - self.durable_ms)

    def deliver(self, heard: Heard) -> None:
        """What one durable frame brought, in order of arrival."""
        if heard:
            self._wait(self._waiting.append, (self._loop.now_ms(), heard))
            self._go_on()

    def _wait(self, put: Callable[[tuple[int, Heard]], None], waiting: tuple[int, Heard]) -> None:
        """Have a flush wait behind the others, or before them, as `put` does."""
        put(waiting)
        if len(self._waiting) > MAX_WAITING:
            self._backpressure.report(self, True)

    def _go_on(self) -> None:
        if self._waiting and not self._opening and not self.slices.busy:
            self.slices.run(self._hand_out(), self._go_on)

    def _hand_out(self) -> Iterator[None]:
        """All that waits, up to a batch that must be opened elsewhere."""
        outbox = Outbox(self._on_error)
        while self._waiting:
            durable_ms, heard = self._waiting.popleft()
            if not outbox.entries:
                self.durable_ms = durable_ms
            if len(self._waiting) == MAX_WAITING:
                self._backpressure.report(self, False)
            for at, (placement, messages, run, index) in enumerate(heard):
                if placement is not None:
                    outbox.add(placement, messages, run.first_offset + index)
                    yield from self._pause(outbox)
                    continue
                if run.records is not None:
                    records, run.records = run.records, None
                    yield from self._add_records(outbox, run.partition_id, records, run.first_offset)
                    continue
                opened = self._opened_here(run)
                if opened is None:
                    yield from outbox.send()
                    self._wait(self._waiting.appendleft, (durable_ms, heard[at + 1:]))
                    self._opening = True
                    self._cut(run, [], run.first_offset)
                    return
                yield from self._add_part(outbox, run.partition_id, opened, sound_records(opened))
        yield from outbox.send()

    @staticmethod
    def _pause(outbox: Outbox) -> Iterator[None]:
        """After an entry: hand over a full portion, look at the clock where that is worth it."""
        if outbox.entries >= PORTION:
            yield from outbox.send()
        elif outbox.sorted >= STEP_PAIRS:
            outbox.sorted = 0
            yield

    # ---- producers' batches

    def _opened_here(self, run: Run) -> Piece | None:
        """None: it opens to more than a turn has time for."""
        return opened_whole(_piece_of(run), OPEN_HERE_BYTES, self._places.max_record_bytes(run.partition_id))

    def _cut(self, run: Run, opened: list[Opened], offset: int) -> None:
        """The records from an offset on, on the other thread; `opened` holds the batch from the second time on."""
        limit = self._places.max_record_bytes(run.partition_id)

        def part() -> tuple[Piece, list[Record]]:
            if not opened:
                opened.append(Opened(_piece_of(run)))
            piece = opened[0].part(offset, PART_BYTES, limit)
            return piece, sound_records(piece)

        self._worker.submit(part, partial(self._was_cut, run, opened))

    def _was_cut(self, run: Run, opened: list[Opened], part: tuple[Piece, list[Record]] | None,
                 error: BaseException | None) -> None:
        if part is None:                     # our own fault: what waits behind it is delivered
            self._on_error(error if isinstance(error, Exception) else RuntimeError(f"not opened: {error!r}"))
            self._after_part(run, opened, run.first_offset + run.count)
        else:
            piece, records = part
            self.slices.run(self._hand_out_part(run.partition_id, piece, records),
                            partial(self._after_part, run, opened, piece.first_offset + piece.count))

    def _hand_out_part(self, partition_id: int, piece: Piece, records: list[Record]) -> Iterator[None]:
        outbox = Outbox(self._on_error)
        yield from self._add_part(outbox, partition_id, piece, records)
        yield from outbox.send()

    def _after_part(self, run: Run, opened: list[Opened], offset: int) -> None:
        """Everything of a large batch before this offset has been handed out."""
        if offset < run.first_offset + run.count:
            self._cut(run, opened, offset)
        else:
            self._opening = False
            self._go_on()

    def _add_part(self, outbox: Outbox, partition_id: int, piece: Piece, records: list[Record]) -> Iterator[None]:
        if len(records) < piece.count:
            self._unreadable.note(partition_id, missing(piece, [record[0] for record in records]))
        yield from self._add_records(outbox, partition_id, records, 0)

    def _add_records(self, outbox: Outbox, partition_id: int, records: list[Record],
                     first_offset: int) -> Iterator[None]:
        """Hand these records over; their offsets count from `first_offset`."""
        topic_partition = self._topics.of_partition(partition_id)
        if topic_partition is None:
            return
        topic, partition = topic_partition
        places: dict[bytes | None, Placement] = {}
        for number, (offset, timestamp_ms, key, value, headers, attributes, _) in enumerate(records, 1):
            placement = places.get(key)
            if placement is None or headers:
                placement = self._places.for_record(topic, partition, key, headers)
                self._subscriptions.refresh(placement)
                if not headers:
                    places[key] = placement
            if placement.targets:
                message = (0, value, encode_headers(headers), attributes, timestamp_ms)
                outbox.add(placement, [message], first_offset + offset)
                yield from self._pause(outbox)
            if not number % STEP_RECORDS:
                yield


def _piece_of(run: Run) -> Piece:
    return Piece(run.first_offset, run.count, True, run.batch, 0, run.max_ms, run.first_id)


# decision 55: one list for each subscriber
class Outbox:
    """Collects what is delivered, so that each subscriber is called once for all of it; sent portion by portion."""

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self.entries = 0                     # stretches of messages in here
        self.sorted = 0                      # pairs of stretch and subscriber made since somebody set this to 0
        self._messages = 0
        self._on_error = on_error
        self._by_subscriber: dict[Subscriber, list[Delivery]] = {}

    def add(self, placement: Placement, messages: list[NumberedMessage], first_offset: int) -> None:
        self.entries += 1
        self.sorted += 1 + len(placement.targets)
        self._messages += len(messages)
        by_subscriber = self._by_subscriber
        delivery: Delivery | None = None
        for subscriber, options in placement.targets:
            if delivery is None or delivery[3] != options:
                delivery = (placement, messages, first_offset, options)
            mine = by_subscriber.get(subscriber)
            if mine is None:
                by_subscriber[subscriber] = [delivery]
            else:
                mine.append(delivery)

    def send(self) -> Iterator[None]:
        """Hand over what is in here; may be interrupted after each `STEP_MESSAGES`."""
        by_subscriber, self._by_subscriber = self._by_subscriber, {}
        step = max(1, STEP_MESSAGES // max(1, self._messages))
        self.entries = self._messages = 0
        for number, (subscriber, deliveries) in enumerate(by_subscriber.items()):
            if number and not number % step:
                yield
            try:
                steps = subscriber.on_delivery(deliveries)
                if steps is not None:
                    yield from steps
            except Exception as error:      # one subscriber's bug must not cost the others their messages
                self._on_error(error)


# --- long polls ---------------------------------------------------------------------------------------------------

PAGE_SHIFT: Final = 8                      # of partition ids, to the page of watches that they are on
MANY_PAGES: Final = 4                      # a topic with more is large


Ranges = tuple[tuple[int, int], ...]


class Watch:
    """One wait; it wakes once and is gone then. The ids of a whole topic cost nothing to hold, however many."""

    __slots__ = ("partition_ids", "wake", "pages", "ranges", "_watches")

    def __init__(self, watches: Watches, partition_ids: AbstractSet[int] | PartitionIds, wake: Callable[[], None]
                 ) -> None:
        self._watches = watches
        self.partition_ids = partition_ids
        self.wake = wake
        self.pages: Collection[int] = ()
        self.ranges: Ranges = ()                 # of a large topic; it is on no page then
        if not isinstance(partition_ids, PartitionIds):
            self.pages = {partition_id >> PAGE_SHIFT for partition_id in partition_ids}
        elif len(partition_ids) > MANY_PAGES << PAGE_SHIFT:
            self.ranges = partition_ids.ranges
        else:
            self.pages = {page for first, count in partition_ids.ranges
                          for page in range(first >> PAGE_SHIFT, (first + count - 1 >> PAGE_SHIFT) + 1)}

    def waits_for(self, partition_ids: AbstractSet[int]) -> bool:
        """Whether one of these is among the watched."""
        if isinstance(self.partition_ids, PartitionIds):
            return _has_one(self.partition_ids, partition_ids)
        return not partition_ids.isdisjoint(self.partition_ids)

    def cancel(self) -> None:
        self._watches.remove(self)


def _has_one(watched: PartitionIds, partition_ids: AbstractSet[int]) -> bool:
    for partition_id in partition_ids:
        if partition_id in watched:
            return True
    return False


class Watches:
    def __init__(self) -> None:
        self.waiting: dict[Watch, None] = {}
        self._by_page: dict[int, dict[Watch, None]] = {}
        self._of_large: dict[Ranges, dict[Watch, None]] = {}           # by the ids of the topic

    def add(self, partition_ids: Collection[int], wake: Callable[[], None]) -> Watch:
        watch = Watch(self, partition_ids if isinstance(partition_ids, (AbstractSet, PartitionIds))
                      else set(partition_ids), wake)
        self.waiting[watch] = None
        if watch.ranges:                                                # decision 316
            self._of_large.setdefault(watch.ranges, {})[watch] = None
        for page in watch.pages:
            self._by_page.setdefault(page, {})[watch] = None
        return watch

    def remove(self, watch: Watch) -> None:
        self.waiting.pop(watch, None)
        if watch.ranges:
            of_large = self._of_large.get(watch.ranges)
            if of_large is not None:
                of_large.pop(watch, None)
                if not of_large:
                    del self._of_large[watch.ranges]
        for page in watch.pages:
            watches = self._by_page.get(page)
            if watches is not None:
                watches.pop(watch, None)
                if not watches:
                    del self._by_page[page]

    def follow(self, entered: AbstractSet[int]) -> None:
        """Records entered these partitions: see `kernel.write.pending_frame.Follower`."""
        woken: dict[Watch, None] = {}
        if self._by_page:
            for page in {partition_id >> PAGE_SHIFT for partition_id in entered}:
                for watch in self._by_page.get(page, ()):
                    if watch.waits_for(entered):
                        woken[watch] = None
        if self._of_large and entered:
            lowest, highest = min(entered), max(entered)
            for ranges, watches in self._of_large.items():
                if ranges[0][0] <= highest and ranges[-1][0] + ranges[-1][1] > lowest \
                        and _has_one(PartitionIds(ranges), entered):
                    woken.update(watches)
        for watch in woken:
            self.remove(watch)
        for watch in woken:
            watch.wake()
