"""What everything about schedules shares: counts and timers as they are durable, and what waits to become durable."""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gatehouse.kernel.message import Owner
from gatehouse.kernel.scheduling.plan import Plan
from gatehouse.kernel.scheduling.schedule_records import (
    COUNTS_KEY,
    FIRST_FORGET,
    Fate,
    Pending,
    ScheduleCounts,
    decode,
    decode_counts,
    id_of,
    is_by_wall,
    number_of,
    timer_of,
)
from gatehouse.kernel.scheduling.timers import Timers
from gatehouse.kernel.state.state import Kind, StateChanges, StateTable
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.pending_frame import PendingFrame

RETRY_MS: Final = 1_000           # after the disk refused what is due


class Book:
    """Told of every plan's end; `listeners` are told after it, with the plan and whether it was stored."""

    def __init__(self, state: StateTable, committer: Committer, wall_of: Callable[[int], int]) -> None:
        """`wall_of`: the wall time of a hub time."""
        self._committer = committer
        self._state = state
        self.timers = Timers()                   # by hub time,
        self.wall_timers = Timers(by_wall=True)  # by the wall clock
        self.counts = ScheduleCounts(0, 0)
        self.settling: dict[bytes, Fate] = {}    # by id, what is in a frame that is not durable yet
        self.delivered = 0
        self.swept_to = FIRST_FORGET
        self.listeners: list[Callable[[Plan, bool], None]] = []
        self._wall_of = wall_of
        self._plan: tuple[PendingFrame, Plan] | None = None

    def load(self) -> None:
        """What replay has brought; the rest of the timers is read from the store in time."""
        self.counts = decode_counts(self._state.get(Kind.SCHEDULED, COUNTS_KEY))
        frozen = self._state.frozen              # a checkpoint may be on its way already
        if frozen is not None:
            self._add(_timers_in(frozen), frozen, None)
        self._add(_timers_in(self._state.changes), self._state.changes, frozen)

    def _add(self, keys: list[bytes], changes: object, frozen: object) -> None:
        self.timers.add([key for key in keys if not is_by_wall(key)], changes, frozen)
        self.wall_timers.add([key for key in keys if is_by_wall(key)], changes, frozen)

    def timers_for(self, key: bytes) -> Timers:
        """The timers, of the one clock or the other, that hold this key or would."""
        return self.wall_timers if is_by_wall(key) else self.timers

    # ---- plans

    def plan(self) -> Plan:
        """What the pending frame does to schedules. Raises Stopping."""
        return self.plan_of(self._committer.open_frame())

    def plan_of(self, pending_frame: PendingFrame) -> Plan:
        if self._plan is None or self._plan[0] is not pending_frame:
            self._plan = pending_frame, Plan(pending_frame.builder.now_ms, pending_frame.now_ms, self._wall_of,
                                             lambda: self.counts,
                                         self._ended)
            pending_frame.join_to_give_ids(self._plan[1])
        return self._plan[1]

    def taken(self) -> int:
        """Messages that go out with the pending frame."""
        return len(self._plan[1].taken) if self._plan is not None and self._plan[1].open else 0

    def answer(self, owner: Owner, token: object) -> None:
        """Once the pending frame is durable. Raises Stopping."""
        self._committer.open_frame().answer(owner, token)

    def _ended(self, plan: Plan, stored: bool) -> None:
        changes, frozen = self._state.changes, self._state.frozen
        for key in (*plan.taken, *plan.recalled):
            self.settling.pop(id_of(key), None)
        assert stored or not plan.open, "a frame that was refused takes nothing more"
        if stored:
            self.counts = plan.counts()
            self.delivered += plan.delivered
            self.swept_to = max(self.swept_to, plan.swept_to)
            for key in plan.recalled:
                self.timers_for(key).discard(key)
            self._add(plan.begun, changes, frozen)
        else:
            lost = [key for key in (*plan.taken, *plan.recalled) if key not in self.timers_for(key)]
            self._add(lost, changes, frozen)
        for listener in self.listeners:
            listener(plan, stored)

    # ---- what waits

    def waiting(self, timer: bytes, value: bytes | None) -> Pending | None:
        """The message of a timer if that still says the truth; `value` is what the store said of it."""
        recent = self._state.recent(Kind.SCHEDULED, id_of(timer))
        if recent is not None:
            value = recent[2]
        record = None if value is None else decode(value)
        return record if isinstance(record, Pending) and timer_of(record, number_of(id_of(timer))) == timer else None


def _timers_in(changes: StateChanges) -> list[bytes]:
    return [key for (kind, key), (_, _, value) in changes.newest.items()
            if kind == Kind.TIMER and value is not None and key < FIRST_FORGET]
