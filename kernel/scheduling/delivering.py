"""What falls due is appended to where it goes, in due order, with the id it was given when it was accepted.

    timers before the horizon → their messages, read ahead on the reading thread → into the pending
    frame, which also says that they are delivered; no more than a batch into one frame

A batch that the disk refuses stays due and is tried again. Where a message goes is decided now: topics may have come
and gone.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.alarm import Alarm
from gatehouse.kernel.backpressure import Backpressure
from gatehouse.kernel.errors import KernelError, Stopping, UnknownPartition
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.message import Message, Placement
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.receipts import Receipts
from gatehouse.kernel.recorder import Recorder
from gatehouse.kernel.scheduling.book import RETRY_MS, Book
from gatehouse.kernel.scheduling.plan import Plan
from gatehouse.kernel.scheduling.schedule import parse_schedule
from gatehouse.kernel.scheduling.schedule_records import Fate, Pending, bound, due_of, id_of, is_by_wall, number_of
from gatehouse.kernel.scheduling.timers import Timers
from gatehouse.kernel.state.state import Clock, Kind, StateTable
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.pending_frame import PendingFrame

BATCH: Final = 1_000                      # messages appended at once,
BATCH_BYTES: Final = 1 << 20              # and not much more than this

AHEAD_MS: Final = 5_000                   # messages are read before they fall due: at most this,
LATEST_MS: Final = 2_000                  # and at the latest this; between them until there are
MANY: Final = 256                         # so many to read by one job
WINDOW: Final = 8_192                     # of the next timers' messages are at hand,
FEW: Final = 64                           # and some more where earlier ones come in
WINDOW_BYTES: Final = 16 << 20            # beyond this only the first of them is read, where it is not there
READ_BYTES: Final = 4 << 20               # by one job

PLACES: Final = 10_000                    # placements remembered

Name = tuple[str, str, bytes | None, int, bool, bool]


class Delivering:
    """Appends what is due by either clock. `worker` reads the index."""

    def __init__(self, *, loop: Loop, worker: Worker, index: Index, state: StateTable, clock: Clock,
                 committer: Committer, backpressure: Backpressure, destinations: Destinations, book: Book,
                 fatal: Callable[[str], None], receipts: Receipts, recorder: Recorder | None = None) -> None:
        self._loop = loop
        self._clock = clock
        self._committer = committer
        self._backpressure = backpressure
        self._destinations = destinations
        self._book = book
        self._receipts = receipts
        self._recorder = recorder
        lane = partial(Lane, loop=loop, worker=worker, index=index, state=state, turn=self.turn, fatal=fatal)
        self.lanes = lane(timers=book.timers), lane(timers=book.wall_timers)
        self._relief = False                             # asked to be told when the kernel is no longer congested
        self._resting = False                            # the disk was full: nothing goes out before a timer rings
        self._stopped = False
        book.listeners.append(self._ended)

    def stop(self) -> None:
        self._stopped = True
        self._disarm()

    def _ended(self, plan: Plan, stored: bool) -> None:
        """Some frame with schedules in it is durable or was refused."""
        for lane in self.lanes:
            by_wall = lane.timers.by_wall
            for key in plan.recalled:
                if is_by_wall(key) == by_wall:
                    lane.at_hand.pop(key)
            lane.at_hand.added([key for key in plan.begun if is_by_wall(key) == by_wall])
        if not stored and not self._resting:
            self._resting = True
            self._loop.call_at(self._loop.now_ms() + RETRY_MS, self._rested)
        self.turn()

    def _rested(self) -> None:
        self._resting = False
        self.turn()

    def turn(self) -> None:
        """Do what can be done now, and be woken for the rest."""
        if self._stopped:
            return
        for lane in self.lanes:
            lane.fill()
        self._deliver()
        self._arm()

    # ---- appending

    def _deliver(self) -> None:
        """Into the pending frame, as much as is left of its batch."""
        if self._relief or self._resting:
            return
        if self._backpressure.congested:
            self._relief = True
            self._backpressure.on_relief(self._relieved)
            return
        while taken := self._take(BATCH - self._book.taken()):
            batch = [(key, pending) for key, value in taken if (pending := self._waiting(key, value)) is not None]
            if batch:
                self._append(batch)
                break

    def _relieved(self) -> None:
        self._relief = False
        self.turn()

    def _take(self, limit: int) -> list[tuple[bytes, bytes]]:
        """What is due and at hand, in due order, taken off the timers."""
        hub, wall = self.lanes
        due = hub.due(max(0, limit)), wall.due(max(0, limit))
        keys = due[0] or due[1]
        if due[0] and due[1]:
            keys = sorted(due[0] + due[1], key=lambda key: (self._shown_ms(key), id_of(key)))[:limit]
        taken: list[tuple[bytes, bytes]] = []
        total = 0
        for key in keys:
            if total > BATCH_BYTES:
                break
            taken.append((key, (wall if is_by_wall(key) else hub).take(key)))
            total += len(taken[-1][1])
        for lane in self.lanes:
            lane.taken()
        return taken

    def _shown_ms(self, timer: bytes) -> int:
        """When it was due by the wall clock."""
        due_ms = due_of(timer)
        return due_ms if is_by_wall(timer) else self._clock.wall_of(due_ms)

    def _waiting(self, key: bytes, value: bytes) -> Pending | None:
        """None where nothing waits behind this timer any more, or soon nothing will."""
        return None if id_of(key) in self._book.settling else self._book.waiting(key, value or None)

    def _append(self, batch: list[tuple[bytes, Pending]]) -> None:
        try:
            pending_frame = self._committer.open_frame()
        except Stopping:                         # all of it is still due at the next start
            self.stop()
            return
        plan, builder, wall_ms = self._book.plan_of(pending_frame), pending_frame.builder, self._loop.wall_ms()
        messages: list[Message] = []
        ids: list[int] = []
        for key, pending in batch:
            # A frame bears the time at which it began to open_frame: that may be before this was due.
            timestamp_ms = pending.timestamp_ms or (wall_ms if self._shown_ms(key) > builder.now_ms else 0)
            message = self._destinations.choose(
                (self._destinations.of(pending), pending.value, pending.headers, pending.attributes, timestamp_ms))
            if pending.repeat:                   # each is a message of its own, in its place among the others
                self._add(pending_frame, messages, ids)
                messages, ids = [], []
                self._receipts.add(pending_frame, [message], [])
                plan.deliver(key, pending, self._next_ms(pending))
            else:
                messages.append(message)
                ids.append(number_of(id_of(key)))
                plan.deliver(key, pending, None)
        self._add(pending_frame, messages, ids)
        self._book.settling.update([(id_of(key), Fate.DELIVERED) for key, _ in batch])
        self._committer.note_size()

    def _add(self, pending_frame: PendingFrame, messages: list[Message], ids: list[int]) -> None:
        self._receipts.add_copies(pending_frame, messages, ids)
        if self._recorder is not None and ids:
            self._recorder.on_moved(messages, ids, 0, "")

    def _next_ms(self, pending: Pending) -> int | None:
        """When it falls due again, by its clock."""
        loop = self._loop
        now_ms = loop.wall_ms() if pending.by_wall else loop.now_ms()
        return parse_schedule(pending.repeat, pending.start_ms).next_after(
            max(now_ms, pending.due_ms), pending.times + 1, loop.wall_ms() - now_ms)

    # ---- waking up

    def _arm(self) -> None:
        if self._stopped or self._relief or self._resting or self._book.taken() >= BATCH:
            self._disarm()
        else:
            for lane in self.lanes:
                lane.arm()

    def _disarm(self) -> None:
        for lane in self.lanes:
            lane.disarm()


class Lane:
    """What falls due by one of the two clocks: its timers, their messages at hand, and the alarm for the next. `worker`
    reads the index; `turn` is called when more has come to hand, or something is due."""

    def __init__(self, *, loop: Loop, worker: Worker, index: Index, state: StateTable, timers: Timers,
                 turn: Callable[[], None], fatal: Callable[[str], None]) -> None:
        self._worker = worker
        self._index = index
        self._state = state
        self._fatal = fatal
        self._turn = turn
        self._taken = 0
        self._alarm = Alarm(loop.call_at_wall if timers.by_wall else loop.call_at, turn)
        self.now_ms = loop.wall_ms if timers.by_wall else loop.now_ms
        self.timers = timers
        self.at_hand = AtHand(state=state, index=index, worker=worker, timers=timers, on_read=turn, fatal=fatal)

    # ---- timers from the store, messages to hand

    def fill(self) -> None:
        """Have on its way what will be wanted soon."""
        timers, state = self.timers, self._state
        if timers.wants_more:
            timers.begin_extension(state.changes, state.frozen)
            self._worker.submit(partial(self._scan, timers.horizon, timers.quarter), self._scanned)
        self.at_hand.fill(self.now_ms())

    def _scan(self, horizon: bytes, limit: int) -> list[bytes]:
        """On the reading thread."""
        timers = self._index.scan_state(Kind.TIMER, horizon, self.timers.beyond)
        return [key for key, _ in islice(timers, limit)]

    def _scanned(self, keys: list[bytes] | None, error: BaseException | None) -> None:
        if keys is None:
            self._fatal(f"the index cannot be read: {error}")
            return
        self.timers.extend(keys)
        self._turn()

    # ---- what is due

    def due(self, limit: int) -> list[bytes]:
        """The first timers that are due, as far as their messages are at hand."""
        keys = self.timers.due(self.now_ms(), limit)
        return keys[:next((at for at, key in enumerate(keys) if key not in self.at_hand.values), len(keys))]

    def take(self, key: bytes) -> bytes:
        """What waits behind the next of these; `taken` follows."""
        self._taken += 1
        return self.at_hand.pop(key)

    def taken(self) -> None:
        """All that were taken leave the timers."""
        assert 0 <= self._taken <= len(self.timers.keys), "what is taken is among the timers"
        del self.timers.keys[:self._taken]
        self._taken = 0

    # ---- waking up

    def arm(self) -> None:
        """For the next that is due, or whose message has to be read by then; else woken by what is under way."""
        when_ms = self.at_hand.wake_ms() if self.timers.keys else None
        if when_ms is None:
            self._alarm.cancel()
        else:
            self._alarm.ring_at(when_ms)

    def disarm(self) -> None:
        self._alarm.cancel()


class AtHand:
    """The messages of the next timers, read from the store on another thread before they fall due. `worker` reads the
    index; `on_read` is called when more has come to hand."""

    def __init__(self, *, state: StateTable, index: Index, worker: Worker, timers: Timers,
                 on_read: Callable[[], None], fatal: Callable[[str], None]) -> None:
        self._state = state
        self._index = index
        self._worker = worker
        self._fatal = fatal
        self._timers = timers
        self._on_read = on_read
        self._checked = b""                           # timers before this are at hand, or being read
        self._reading = False
        self.values: dict[bytes, bytes] = {}          # by timer; empty: nothing waits behind it any more
        self.size_bytes = 0

    # ---- kept in step with the timers

    def added(self, keys: list[bytes]) -> None:
        if keys:
            self._checked = min(self._checked, min(keys))

    def pop(self, key: bytes) -> bytes:
        value = self.values.pop(key, b"")
        self.size_bytes -= len(value)
        assert self.size_bytes >= 0 and (self.values or not self.size_bytes), "bytes are those of the values"
        return value

    def wake_ms(self) -> int | None:
        """When something is to be done about the first timer; None: when what is being read has come."""
        first = self._timers.keys[0]
        if first in self.values:
            return due_of(first)
        return None if self._reading else due_of(first) - LATEST_MS

    # ---- reading

    def fill(self, now_ms: int) -> None:
        """Have what falls due soon at hand, or on its way."""
        keys = self._timers.keys
        if self._reading or not keys:
            return
        first_only = self.size_bytes >= WINDOW_BYTES
        if keys[0] not in self.values:                # whatever came between
            self._checked = keys[0]
        elif first_only:
            return
        at = bisect_left(keys, self._checked)
        soon = bisect_left(keys, bound(now_ms + AHEAD_MS, self._timers.by_wall))
        end = min(soon, at + (1 if first_only else max(FEW, WINDOW - len(self.values))))
        missing: list[bytes] = []
        for place in range(at, end):
            key = keys[place]
            if self.size_bytes >= WINDOW_BYTES and place > at:
                end = place
                break
            if key in self.values:
                continue
            recent = self._state.recent(Kind.SCHEDULED, id_of(key))
            if recent is None:
                missing.append(key)
            else:
                self._keep(key, recent[2] or b"")
        if not missing:
            self._checked = keys[end] if end < len(keys) else self._timers.horizon
        elif len(missing) >= MANY or due_of(missing[0]) <= now_ms + LATEST_MS:
            self._checked = keys[end - 1] + b"\0"
            self._reading = True
            self._worker.submit(partial(self._read, missing), partial(self._done, missing))

    def _read(self, keys: list[bytes]) -> list[bytes]:
        """On the reading thread: what waits behind each; as many of them as may be read at once."""
        values: list[bytes] = []
        total = 0
        for key in keys:
            held = self._index.held(Kind.SCHEDULED, id_of(key))
            values.append(b"" if held is None or held.value is None else held.value)
            total += len(values[-1])
            if total > READ_BYTES:
                break
        return values

    def _done(self, missing: list[bytes], values: list[bytes] | None, error: BaseException | None) -> None:
        self._reading = False
        if values is None:
            self._fatal(f"the index cannot be read: {error}")
            return
        for key, value in zip(missing, values, strict=False):
            if key in self._timers and key not in self.values:
                self._keep(key, value)
        self.added(missing[len(values):])
        self._on_read()

    def _keep(self, key: bytes, value: bytes) -> None:
        assert key not in self.values, "a message comes to hand once"
        self.values[key] = value
        self.size_bytes += len(value)


def _name(pending: Pending) -> Name:
    """What names a message's place: messages of one name go to one place while no topic changes."""
    to = pending.topic if pending.fixed_topic else pending.address
    return pending.tenant, to, pending.key, pending.partition, pending.fixed_topic, pending.may_create


class Destinations:  # decision 38
    """Where a message goes that was taken earlier and enters a partition now: topics may have come and gone in between.

    What has nowhere to go, as its topic is gone and may not be made by use or by its sender, goes to `unrouted`: it was
    acknowledged and must not be lost.
    """

    def __init__(self, places: Places, topics: Topics) -> None:
        self._places = places
        self._topics = topics
        self._placements: dict[Name, Placement] = {}
        self._placed_by = -1                             # version of the topics

    def of(self, pending: Pending) -> Placement:
        """Where it goes as things are now, or to `unrouted`. Raises Stopping."""
        try:
            placement = self._remembered(pending)
            if placement.version != placement.first_level.version:
                self._places.refresh(placement)
        except Stopping:
            raise
        except KernelError:
            placement = self._places.place_unrouted(pending.address, pending.tenant)
            self._places.refresh(placement)
        return placement

    def choose(self, message: Message) -> Message:
        """The message with the placement of just the queues that it enters, where that depends on it."""
        return self._places.choose([message])[0] if message[0].choosing else message

    def _remembered(self, pending: Pending) -> Placement:
        if pending.to_queue or pending.routed is not None:  # other messages to its address may go elsewhere
            return self._place(pending)
        version = self._topics.version
        if version != self._placed_by or len(self._placements) >= PLACES:
            self._placements.clear()
            self._placed_by = version
        placement = self._placements.get(_name(pending))
        if placement is None:
            placement = self._placements[_name(pending)] = self._place(pending)
        return placement

    def _place(self, pending: Pending) -> Placement:
        places = self._places
        if pending.to_queue:
            return places.place_again(pending.tenant, pending.topic, pending.partition, pending.key)
        if pending.routed is not None:
            return places.place_routed(pending.address, pending.routed, pending.tenant, pending.may_create)
        if not pending.fixed_topic:
            return places.place(pending.address, pending.tenant, pending.may_create)
        partition = pending.partition if pending.partition >= 0 else None
        try:
            return places.place_in(pending.topic, pending.key, partition, pending.tenant, pending.may_create)
        except UnknownPartition:                     # the topic was made anew, with fewer partitions
            return places.place_in(pending.topic, pending.key, None, pending.tenant, pending.may_create)
