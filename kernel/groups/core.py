"""What groups and their policies need of the kernel around them: its clocks, the pending frame, their turn, their time.

    a change of a cursor ─► touch: into the pending frame ─► sealed with it, see `kernel.groups.leasing.Cursors`
    something to hand out ─► soon: `serve` once in this turn
"""
from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from gatehouse.kernel.errors import KernelError, Stopping
from gatehouse.kernel.groups.circuits import GroupCircuits
from gatehouse.kernel.groups.cursor import Cursor, Lease
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.message import Owner
from gatehouse.kernel.ports import Loop, Timer
from gatehouse.kernel.receipts import Receipts
from gatehouse.kernel.recorder import Recorder
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.pending_frame import Participant, PendingFrame

if TYPE_CHECKING:
    from gatehouse.kernel.groups.group import LeasedGroup
    from gatehouse.kernel.groups.prefetcher import Prefetcher

LAZY_MS: Final = 20
"""Changes that nobody waits for (a member's leases, acks whose end nobody asked to hear of) get a frame of their own
after this, if no other has come. A crash before forgets them: those messages come again."""

STEP_MS: Final = 50
"""Leases end at multiples of this: those of one step are looked at together."""

HOLD_STEP_MS: Final = 1_000
"""Ends of what members hold too long are rounded up to this, to be few timers: half an hour of it is at most 1,800
timers."""

LOOKED_THROUGH: Final = 1_024
"""Times that are remembered, of leases or of what waits, before those are looked through that nobody waits for."""

Wait = tuple[int, int, "LeasedGroup", "Prefetcher", int]
"""When, a number that tells it from others, whose, and the offset that waits."""

_CHANCE = struct.Struct("<QQ")


class Deadlines:
    """What happens to groups when a time has come: leases end, what waited is ready again.

    One timer per step of leases, and one for the earliest of what waits. What has ended before its time is let go of
    now and then: memory is that of what is there.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._steps: dict[int, dict[Lease, tuple[LeasedGroup, Prefetcher]]] = {}     # leases by the time that ends them
        self._step_timers: dict[int, Timer] = {}
        self._steps_most = LOOKED_THROUGH                # so many, and they are looked through
        self._waits: list[Wait] = []
        self._waits_most = LOOKED_THROUGH
        self._waits_timer: Timer | None = None
        self._numbers = 0
        self._not_before_ms = 0
        self._stopped = False

    def lease_until(self, group: LeasedGroup, prefetcher: Prefetcher, lease: Lease) -> None:
        """Call `group.on_lease_over` when the lease's time is up, unless it has ended by then."""
        self._end_at(group, prefetcher, lease, -(-max(lease.until_ms, self._not_before_ms) // STEP_MS) * STEP_MS)

    def hold_for(self, group: LeasedGroup, prefetcher: Prefetcher, lease: Lease, hold_ms: int) -> None:
        """Call `on_lease_over` so long after now for a lease that otherwise lasts as long as its holder."""
        self._end_at(group, prefetcher, lease, -(-(self._loop.now_ms() + hold_ms) // HOLD_STEP_MS) * HOLD_STEP_MS)

    def _end_at(self, group: LeasedGroup, prefetcher: Prefetcher, lease: Lease, step: int) -> None:
        leases = self._steps.get(step)
        if leases is None:
            if len(self._steps) >= self._steps_most:
                self._drop_steps()
            leases = self._steps[step] = {}
            self._step_timers[step] = self._loop.call_at(step, partial(self._on_step, step))
        leases[lease] = (group, prefetcher)
        lease.end_with(leases)

    def _drop_steps(self) -> None:
        """Those whose leases have all ended."""
        for step in [step for step, leases in self._steps.items() if not leases]:
            del self._steps[step]
            self._step_timers.pop(step).cancel()
        self._steps_most = 2 * len(self._steps) + LOOKED_THROUGH

    def _on_step(self, step: int) -> None:
        """At most one timer per step and 50 ms."""
        self._step_timers.pop(step, None)
        leases = self._steps.pop(step, {})
        for lease in sorted(leases, key=lambda candidate: (candidate.until_ms, candidate.offsets[:1])):
            if lease in leases:          # the end of one may be that of another: its member is let go of
                group, prefetcher = leases[lease]
                self.act(partial(group.on_lease_over, prefetcher, lease))

    def wait_until(self, group: LeasedGroup, prefetcher: Prefetcher, offset: int, when_ms: int) -> None:
        """Call `group.on_wait_over` then. An offset of -1 is the cursor as a whole."""
        if len(self._waits) >= self._waits_most:
            self._drop_waits()
        self._numbers += 1
        earliest = self._waits[0][0] if self._waits else None
        heappush(self._waits, (when_ms, self._numbers, group, prefetcher, offset))
        if earliest is None or when_ms < earliest:
            self._wait_for(max(when_ms, self._not_before_ms))

    def _wait_for(self, when_ms: int) -> None:
        if self._waits_timer is not None:
            self._waits_timer.cancel()
        self._waits_timer = self._loop.call_at(when_ms, self._on_wait)

    def _drop_waits(self) -> None:
        """What waits no longer, or is there twice, as its cursor was put back to what is stored."""
        there = {(when_ms, prefetcher, offset): (when_ms, number, group, prefetcher, offset)
                 for when_ms, number, group, prefetcher, offset in self._waits if not group.gone
                 and (offset < 0 or prefetcher.cursor.waits_until(offset) == when_ms)}
        self._waits = list(there.values())
        heapify(self._waits)
        self._waits_most = 2 * len(self._waits) + LOOKED_THROUGH

    def _on_wait(self) -> None:
        self._waits_timer = None
        now_ms = self._loop.now_ms()
        while self._waits and self._waits[0][0] <= now_ms:
            when_ms, _, group, prefetcher, offset = heappop(self._waits)
            self.act(partial(group.on_wait_over, prefetcher, offset, when_ms))
        if self._waits:
            self._wait_for(self._waits[0][0])

    def at(self, when_ms: int, action: Callable[[], None]) -> None:
        """Do this then, by hub time."""
        self._loop.call_at(max(when_ms, self._not_before_ms), partial(self.act, action))

    def soon(self, action: Callable[[], None]) -> None:
        """Do this in the loop's next turn: others have theirs before."""
        self._loop.call_soon(partial(self.act, action))

    def at_wall(self, when_ms: int, action: Callable[[], None]) -> None:
        """Do this when wall time has got there, which it may at once by a step."""
        self._loop.call_at_wall(when_ms, partial(self._on_wall, action))

    def _on_wall(self, action: Callable[[], None]) -> None:
        if self._loop.now_ms() < self._not_before_ms:
            self.at(0, action)
        else:
            self.act(action)

    def pause(self, for_ms: int) -> None:
        """What is asked for from now on happens after this time, even if it is due."""
        self._not_before_ms = self._loop.now_ms() + for_ms

    def stop(self) -> None:
        """Nothing happens any more."""
        self._stopped = True

    def act(self, action: Callable[[], object]) -> None:
        """Do what is due, unless the hub is stopping."""
        if not self._stopped:
            try:
                action()
            except Stopping:
                self._stopped = True

    @property
    def stopped(self) -> bool:
        return self._stopped


class Core:
    """What groups and their policies need of the kernel around them: clocks, the pending frame, their turn, their time.

    `participant` stands for all groups in a frame; `append_ms` says when a message (partition id, offset), or the first
    behind it, was appended, 0 where there is none; `on_error` is told of faults of our own that were contained;
    `recorder` of what becomes of messages, where journeys are recorded, and `receipts`, which tell their senders.
    """

    def __init__(self, loop: Loop, committer: Committer, participant: Participant,
                 append_ms: Callable[[int, int], int], on_error: Callable[[Exception], None],
                 recorder: Recorder | None = None, receipts: Receipts | None = None) -> None:
        self.deadlines = Deadlines(loop)
        self.circuits = GroupCircuits(self)
        self.append_ms = append_ms
        self.on_error = on_error
        self._lingering = 0                              # groups that keep what they have read though nobody takes
        self._unused: dict[LeasedGroup, None] = {}       # nobody takes from them, and they need not wait for who might
        self.recorder = recorder
        self.receipts = receipts
        self._committer = committer
        self._participant = participant
        self._loop = loop
        self._woken: dict[LeasedGroup, None] = {}
        self._chances = 0
        self._touched: dict[Cursor, None] = {}           # cursors that the pending frame writes
        self._on_way: dict[Cursor, None] = {}            # cursors that the frame on its way writes
        self._lazy: dict[Cursor, None] = {}              # cursors that the next frame takes along
        self._lazy_armed = False
        self._stopped = False

    def stop(self) -> None:
        """Hand out nothing more; what nobody waits for goes into the pending frame."""
        self._gather_lazy()
        self._stopped = True
        self.deadlines.stop()

    def begin_lingering(self, most: int) -> bool:
        """Whether one more group may keep what it has read though nobody takes: fewer than `most` do."""
        may = self._lingering < most
        self._lingering += may
        return may

    def end_lingering(self) -> None:
        """One keeps nothing any more."""
        self._lingering -= 1

    def note_unused(self, group: LeasedGroup) -> None:
        """The group may leave memory once what has changed of it is durable."""
        self._unused[group] = None

    def take_unused(self) -> list[LeasedGroup]:
        """Those that were noted since the last call."""
        unused, self._unused = self._unused, {}
        return list(unused)

    # ---- clocks

    def now_ms(self) -> int:
        """Hub time: leases and waits end in it."""
        return self._loop.now_ms()

    def wall_ms(self) -> int:
        """Wall time: messages expire by it."""
        return self._loop.wall_ms()

    def chance(self) -> float:
        """A number in [0, 1), for jitter: evenly spread and the same in every run of a simulation, a clock and a
        counter, mixed."""
        self._chances += 1
        return crc32c(_CHANCE.pack(self._chances, self._loop.now_ms())) / (1 << 32)

    # ---- the pending frame

    def open_frame(self) -> PendingFrame:
        """The pending frame, in which groups take part from here on. Raises Stopping."""
        pending_frame = self._committer.open_frame()
        pending_frame.join(self._participant)
        return pending_frame

    def touch(self, cursor: Cursor) -> None:
        """The cursor has changed: its pages go into the pending frame. Raises Stopping."""
        self.open_frame()
        self._touched[cursor] = None

    def touch_lazily(self, cursor: Cursor) -> None:  # decision 23
        """The cursor has changed in a way that nobody waits for: its pages go into the next frame, whoever's it is."""
        self._lazy[cursor] = None
        self.join_next()
        if not self._lazy_armed:
            self._lazy_armed = True
            self._loop.call_at(self._loop.now_ms() + LAZY_MS, self._on_lazy)

    def _on_lazy(self) -> None:
        self._lazy_armed = False
        if not self._stopped:
            self._gather_lazy()

    def when_settled(self, owner: Owner, token: object) -> None:
        """Tell the owner when what has changed so far is durable, lazily or not. Raises Stopping."""
        self._gather_lazy()
        self.answer(owner, token)

    def _gather_lazy(self) -> None:
        if self._lazy:
            self.open_frame()
            self._take_lazy()

    def _take_lazy(self) -> None:
        self._touched.update(self._lazy)
        self._lazy = {}

    def join_next(self) -> None:
        """Groups take part in the next frame, whoever's it is."""
        self._committer.join_next(self._participant)

    def seal(self) -> list[Cursor]:
        """The cursors that the pending frame writes: it is being sealed."""
        self._take_lazy()
        self._on_way, self._touched = self._touched, {}
        return list(self._on_way)

    def applied(self) -> None:
        """What was sealed is durable."""
        self._on_way = {}

    def failed(self) -> list[Cursor]:
        """The cursors that refused frames would have written, the pending frame's too."""
        refused = self.changing()
        self._on_way, self._touched = {}, {}
        return refused

    def changing(self) -> list[Cursor]:
        """The cursors that frames write which are not durable yet."""
        return list(self._on_way | self._touched)

    def is_changing(self, cursor: Cursor) -> bool:
        """Whether something of it is not durable yet."""
        return cursor in self._on_way or cursor in self._touched or cursor in self._lazy

    def untouch(self, cursor: Cursor) -> None:
        """What has changed of a cursor is not to be written: it is deleted, or another one takes its place. Raises
        Stopping."""
        self.open_frame()
        self._touched.pop(cursor, None)
        self.forget(cursor)

    def forget(self, cursor: Cursor) -> None:
        """The cursor is not in memory any more."""
        self._lazy.pop(cursor, None)

    def store(self, records: list[StateRecord]) -> None:
        """These go into the pending frame. Raises Stopping."""
        self.open_frame().state.extend(records)

    def answer(self, owner: Owner | None, token: object) -> None:
        """Tell the owner once the pending frame is durable. Raises Stopping."""
        if owner is not None:
            self._committer.open_frame().answer(owner, token)

    def put_state(self, records: list[StateRecord], owner: Owner | None, token: object) -> None:
        """These go into the pending frame; the owner is told once they are durable. Raises Stopping."""
        self.store(records)
        self.answer(owner, token)

    def when_stored(self, waiting: Participant) -> None:
        """It takes part in the pending frame. Raises Stopping."""
        self._committer.open_frame().join(waiting)

    def recorder_in(self, partition_id: int) -> Recorder | None:
        """Who is to be told what happens to messages there: nobody, where none of them is followed."""
        return self.recorder if self.recorder is not None and partition_id in self.recorder.followed_in else None

    def when_next_stored(self, waiting: Participant) -> None:
        """It takes part in the next frame, whoever's it is."""
        self._committer.join_next(waiting)

    def entering(self, partition_id: int) -> int:
        """How many messages are on their way into a partition: behind its end, and not durable yet."""
        return sum([pending_frame.builder.entering(partition_id) for pending_frame in self._committer.pending()])

    # ---- serving

    def soon(self, group: LeasedGroup) -> None:
        """Call `group.serve` in this turn, once."""
        if not self._woken:
            self._loop.call_soon(self._serve_woken)
        self._woken[group] = None

    def not_soon(self, group: LeasedGroup) -> None:
        """It is served now: whatever it was woken for is looked at."""
        self._woken.pop(group, None)

    def _serve_woken(self) -> None:
        woken, self._woken = self._woken, {}
        for group in woken:
            self._serve(group)

    def _serve(self, group: LeasedGroup) -> None:
        if self._stopped:
            return
        try:
            group.serve()
        except Stopping:
            self._stopped = True
        except KernelError as error:
            self.on_error(error)
