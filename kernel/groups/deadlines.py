"""What happens to groups when a time has come: leases end, what waited is ready again."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.groups.cursor import Lease
from gatehouse.kernel.ports import Loop

if TYPE_CHECKING:
    from gatehouse.kernel.groups.group import LeasedGroup
    from gatehouse.kernel.groups.prefetcher import Prefetcher

STEP_MS: Final = 50
"""Leases end at multiples of this: those of one step are looked at together."""

HOLD_STEP_MS: Final = 1_000
"""Ends of what members hold too long are rounded up to this, to be few timers: half an hour of it is at most 1,800
timers."""


class Deadlines:
    """One timer per step of leases, and one for the earliest of what waits."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._steps: dict[int, dict[Lease, tuple[LeasedGroup, Prefetcher]]] = {}     # leases by the time that ends them
        self._waits: list[tuple[int, int, LeasedGroup, Prefetcher, int]] = []
        self._numbers = 0
        self._not_before_ms = 0
        self.stopped = False

    def lease_until(self, group: LeasedGroup, prefetcher: Prefetcher, lease: Lease) -> None:
        """Call `group.on_lease_over` then, unless the lease has ended by then."""
        self._end_at(group, prefetcher, lease, -(-max(lease.until_ms, self._not_before_ms) // STEP_MS) * STEP_MS)

    def hold_for(self, group: LeasedGroup, prefetcher: Prefetcher, lease: Lease, hold_ms: int) -> None:
        """Call `on_lease_over` so long after now for a lease that otherwise lasts as long as its holder."""
        self._end_at(group, prefetcher, lease, -(-(self._loop.now_ms() + hold_ms) // HOLD_STEP_MS) * HOLD_STEP_MS)

    def _end_at(self, group: LeasedGroup, prefetcher: Prefetcher, lease: Lease, step: int) -> None:
        leases = self._steps.get(step)
        if leases is None:
            leases = self._steps[step] = {}
            self._loop.call_at(step, partial(self._on_step, step))
        leases[lease] = (group, prefetcher)
        lease.end_with(leases)

    def _on_step(self, step: int) -> None:
        """At most one timer per step and 50 ms: a step whose leases have all ended costs nothing more."""
        leases = self._steps.pop(step, {})
        for lease in sorted(leases, key=lambda candidate: (candidate.until_ms, candidate.offsets[:1])):
            if lease in leases:          # the end of one may be that of another: its member is let go of
                group, prefetcher = leases[lease]
                self.act(partial(group.on_lease_over, prefetcher, lease))

    def wait_until(self, group: LeasedGroup, prefetcher: Prefetcher, offset: int, when_ms: int) -> None:
        """Call `group.on_wait_over` then."""
        self._numbers += 1
        earliest = self._waits[0][0] if self._waits else None
        heappush(self._waits, (when_ms, self._numbers, group, prefetcher, offset))
        if earliest is None or when_ms < earliest:
            self._loop.call_at(max(when_ms, self._not_before_ms), self._on_wait)

    def _on_wait(self) -> None:
        now_ms = self._loop.now_ms()
        while self._waits and self._waits[0][0] <= now_ms:
            when_ms, _, group, prefetcher, offset = heappop(self._waits)
            self.act(partial(group.on_wait_over, prefetcher, offset, when_ms))
        if self._waits:
            self._loop.call_at(self._waits[0][0], self._on_wait)

    def at(self, when_ms: int, action: Callable[[], None]) -> None:
        """Do this then, by hub time."""
        self._loop.call_at(max(when_ms, self._not_before_ms), partial(self.act, action))

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

    def act(self, action: Callable[[], object]) -> None:
        """Do what is due, unless the hub is stopping."""
        if not self.stopped:
            try:
                action()
            except Stopping:
                self.stopped = True
