"""What falls due is appended to where it goes, in due order, with the id it was given when it was accepted.

    timers before the horizon → their messages, read ahead on the reading thread → into the frame being
    gathered, which also says that they are delivered; no more than a batch into one frame

A batch that the disk refuses stays due and is tried again. Where a message goes is decided now: topics may have come
and gone.
"""
from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Final

from kernel.appending.committer import Committer
from kernel.errors import Stopping
from kernel.message import Message
from kernel.parts import Parts
from kernel.ports import Timer
from kernel.scheduling.at_hand import AtHand
from kernel.scheduling.book import Book
from kernel.scheduling.destinations import Destinations
from kernel.scheduling.plan import Plan
from kernel.scheduling.records import FIRST_FORGET, Fate, Pending, id_of, number_of
from kernel.scheduling.schedule import parse_schedule
from kernel.state.state import Kind

BATCH: Final = 1_000                      # messages appended at once,
BATCH_BYTES: Final = 1 << 20              # and not much more than this


class Delivering:
    def __init__(self, parts: Parts, committer: Committer, destinations: Destinations, book: Book) -> None:
        self._parts = parts
        self._committer = committer
        self._destinations = destinations
        self._book = book
        self._timers = book.timers
        self.at_hand = AtHand(parts, book.timers, self.turn)
        self._relief = False                             # asked to be told when the kernel is no longer congested
        self._alarm: tuple[int, Timer] | None = None
        self._stopped = False
        book.listeners.append(self._ended)

    def stop(self) -> None:
        self._stopped = True
        self._disarm()

    def _ended(self, plan: Plan, _: bool) -> None:
        """Some frame with schedules in it is durable or was refused."""
        for key in plan.recalled:
            self.at_hand.pop(key)
        self.at_hand.added(plan.begun)
        self.turn()

    def turn(self) -> None:
        """Do what can be done now, and be woken for the rest."""
        if self._stopped:
            return
        now_ms = self._parts.loop.now_ms()
        self._extend()
        self.at_hand.fill(now_ms)
        self._deliver(now_ms)
        self._arm()

    # ---- timers from the store

    def _extend(self) -> None:
        timers, state = self._timers, self._parts.state
        if timers.wants_more:
            timers.begin_extension(state.changes, state.frozen)
            self._parts.reader_worker.submit(partial(self._scan, timers.horizon, timers.quarter), self._scanned)

    def _scan(self, horizon: bytes, limit: int) -> list[bytes]:
        """On the reading thread."""
        found = self._parts.index.scan_state(Kind.TIMER, horizon, FIRST_FORGET)
        return [key for key, _ in islice(found, limit)]

    def _scanned(self, found: list[bytes] | None, error: BaseException | None) -> None:
        if found is None:
            self._parts.fatal(f"the index cannot be read: {error}")
            return
        self._timers.extend(found)
        self.turn()

    # ---- appending

    def _deliver(self, now_ms: int) -> None:
        """Into the frame being gathered, as much as is left of its batch."""
        if self._relief or now_ms < self._book.retry_at_ms:
            return
        if self._committer.congested:
            self._relief = True
            self._committer.on_relief(self._relieved)
            return
        while taken := self._take(now_ms, BATCH - self._book.taken()):
            batch = [(key, one) for key, value in taken if (one := self._waiting(key, value)) is not None]
            if batch:
                self._append(batch, now_ms)
                break

    def _relieved(self) -> None:
        self._relief = False
        self.turn()

    def _take(self, now_ms: int, limit: int) -> list[tuple[bytes, bytes]]:
        """What is due and at hand, taken off the timers."""
        taken: list[tuple[bytes, bytes]] = []
        total = 0
        for key in self._timers.due(now_ms, max(0, limit)):
            if key not in self.at_hand.values or total > BATCH_BYTES:
                break
            value = self.at_hand.pop(key)
            total += len(value)
            taken.append((key, value))
        del self._timers.keys[:len(taken)]
        return taken

    def _waiting(self, key: bytes, value: bytes) -> Pending | None:
        """None where nothing waits behind this timer any more, or soon nothing will."""
        return None if id_of(key) in self._book.settling else self._book.waiting(key, value or None)

    def _append(self, batch: list[tuple[bytes, Pending]], now_ms: int) -> None:
        try:
            gathering = self._committer.gather()
        except Stopping:                         # all of it is still due at the next start
            self.stop()
            return
        plan, burst = self._book.plan_of(gathering), gathering.burst
        messages: list[Message] = []
        ids: list[int] = []
        for key, one in batch:
            # A frame bears the time at which it began to gather: that may be before this was due.
            timestamp_ms = one.timestamp_ms or (now_ms if one.due_ms > burst.now_ms else 0)
            message = (self._destinations.of(one), one.value, one.headers, one.attributes, timestamp_ms)
            if one.repeat:                       # each is a message of its own, in its place among the others
                burst.add_copies(messages, ids, None)
                messages, ids = [], []
                burst.add([message], None)
                schedule = parse_schedule(one.repeat, one.start_ms)
                plan.deliver(key, one, schedule.next_after(max(now_ms, one.due_ms), one.times + 1))
            else:
                messages.append(message)
                ids.append(number_of(id_of(key)))
                plan.deliver(key, one, None)
        burst.add_copies(messages, ids, None)
        self._book.settling.update([(id_of(key), Fate.DELIVERED) for key, _ in batch])
        self._committer.note_size()

    # ---- waking up

    def _arm(self) -> None:
        """For the next that is due, or whose message has to be read by then."""
        idle = self._timers.keys and not (self._stopped or self._relief or self._book.taken() >= BATCH)
        when_ms = self.at_hand.wake_ms() if idle else None
        if when_ms is None:
            self._disarm()                       # woken by what is under way
            return
        when_ms = max(when_ms, self._book.retry_at_ms)
        if self._alarm is None or self._alarm[0] != when_ms:
            self._disarm()
            self._alarm = when_ms, self._parts.loop.call_at(when_ms, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.turn()

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm[1].cancel()
            self._alarm = None
