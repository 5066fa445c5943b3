"""What falls due is appended to where it goes, in due order, with the id it was given when it was accepted.

    timers before the horizon → their messages, read ahead on the reading thread → into the pending
    frame, which also says that they are delivered; no more than a batch into one frame

A batch that the disk refuses stays due and is tried again. Where a message goes is decided now: topics may have come
and gone.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from gatehouse.kernel.backpressure import Backpressure
from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.message import Message
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.receipts import Receipts
from gatehouse.kernel.recorder import Recorder
from gatehouse.kernel.scheduling.book import RETRY_MS, Book
from gatehouse.kernel.scheduling.destinations import Destinations
from gatehouse.kernel.scheduling.lane import Lane
from gatehouse.kernel.scheduling.plan import Plan
from gatehouse.kernel.scheduling.schedule import parse_schedule
from gatehouse.kernel.scheduling.schedule_records import Fate, Pending, due_of, id_of, is_by_wall, number_of
from gatehouse.kernel.state.clock import Clock
from gatehouse.kernel.state.state import StateTable
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.pending_frame import PendingFrame

BATCH: Final = 1_000                      # messages appended at once,
BATCH_BYTES: Final = 1 << 20              # and not much more than this


class Delivering:
    """`worker` reads the index."""

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
