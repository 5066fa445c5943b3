"""What everything about schedules shares: counts and timers as they are durable, and what waits to become durable. And
what is forgotten of them after a day."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.message import Owner
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.scheduling.plan import Plan
from gatehouse.kernel.scheduling.schedule_records import (
    BEYOND,
    COUNTS_KEY,
    FIRST_FORGET,
    Fate,
    Pending,
    ScheduleCounts,
    decode,
    decode_counts,
    forget_bound,
    id_of,
    is_by_wall,
    number_of,
    split_ids,
    timer_of,
)
from gatehouse.kernel.scheduling.timers import Timers
from gatehouse.kernel.state.state import Kind, StateChanges, StateTable
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.pending_frame import PendingFrame

RETRY_MS: Final = 1_000           # after the disk refused what is due

LOOK_MS: Final = 60_000
AGAIN_MS: Final = 100             # where one look did not reach the end
IDS_PER_LOOK: Final = 10_000      # bounds one frame
MAX_SETTLED: Final = 1_000_000

Found = list[tuple[bytes, bytes]]


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


class Sweeping:
    """Forgets what became of schedules after a day, and sooner where it is more than a million.

    A clock decides, so the deletions are appended as state first and take effect then. `worker` reads the index.
    """

    def __init__(self, *, loop: Loop, worker: Worker, index: Index, state: StateTable, book: Book,
                 fatal: Callable[[str], None]) -> None:
        self._loop = loop
        self._worker = worker
        self._index = index
        self._state = state
        self._book = book
        self._fatal = fatal
        self._stopped = False
        self.max_settled = MAX_SETTLED
        book.listeners.append(self._ended)

    def start(self) -> None:
        self._look_in(LOOK_MS)

    def stop(self) -> None:
        self._stopped = True

    def _look_in(self, wait_ms: int) -> None:
        self._loop.call_at(self._loop.now_ms() + wait_ms, self._look)

    def _look(self) -> None:
        if not self._stopped:
            too_many = max(0, self._book.counts.settled - self.max_settled)
            job = partial(self._scan, self._book.swept_to, forget_bound(self._loop.now_ms()), too_many)
            self._worker.submit(job, self._scanned)

    def _scan(self, start: bytes, over: bytes, too_many: int) -> Found:
        """On the reading thread: what is over, or beyond what is kept; as much as one frame takes."""
        rows: Found = []
        ids = 0
        for key, value in self._index.scan_state(Kind.TIMER, start, BEYOND):
            if key >= over and ids >= too_many or ids >= IDS_PER_LOOK:
                break
            rows.append((key, value))
            ids += len(split_ids(value))
        return rows

    def _scanned(self, rows: Found | None, error: BaseException | None) -> None:
        if rows is None:
            self._fatal(f"the index cannot be read: {error}")
            return
        # A store that lags behind, as the disk is full, may still list what is forgotten already.
        fresh = [row for row in rows if self._state.recent(Kind.TIMER, row[0]) is None]
        if not fresh or self._stopped:
            self._look_in(LOOK_MS)
            return
        try:
            plan = self._book.plan()
        except Stopping:
            return
        for key, value in fresh:
            plan.forget(key, split_ids(value))

    def _ended(self, plan: Plan, stored: bool) -> None:
        if plan.swept_to:
            self._look_in(AGAIN_MS if stored else LOOK_MS)
