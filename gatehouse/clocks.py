"""`kernel.ports.Loop` over an asyncio or uvloop event loop: the hub's two clocks, and timers on each.

Hub time is the system's monotonic clock, from a beginning that the kernel sets. Wall time is the system's date. Once a
second the two are compared: where the date has moved by `STEP_MS` more or less than time has passed, it was stepped;
timers on wall time are set anew and who wants to know is told. Slower corrections are no steps: they are followed as
they come. While a machine sleeps hub time stands still.
"""
from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from gatehouse.runtime import Longest

MAX_TIMER_SLEEP_S: Final = 60.0
"""A timer is looked at again at least this often: over a long wait a clock that is being corrected drifts away."""

LOOK_S: Final = 1.0            # between two comparisons of the clocks,
STEP_MS: Final = 500           # and from where on a difference is a step: a clock that is slewed gains 0.5 ms a second


class ClockTimer:
    """One call at a time of one of the clocks."""

    __slots__ = ("_loop", "_clock", "_when_ms", "_callback", "_handle")

    def __init__(self, loop: HubLoop, clock: Callable[[], int], when_ms: int, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._when_ms = when_ms
        self._callback: Callable[[], None] | None = callback
        self._handle: asyncio.TimerHandle | None = None
        self._arm(when_ms - clock())

    def cancel(self) -> None:
        self._callback = None
        self._loop.wall_timers.discard(self)
        self._disarm()

    def look_again(self) -> None:
        """Set the timer anew: its clock was stepped."""
        self._disarm()
        self._arm(self._when_ms - self._clock())

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, wait_ms: int) -> None:
        wait_s = min(max(wait_ms, 0) / 1000, MAX_TIMER_SLEEP_S)
        self._handle = self._loop.aio.call_later(wait_s, self._check)

    def _check(self) -> None:
        """Call back, if the time has come. The event loop counts from when its turn began, so it may be early."""
        wait_ms = self._when_ms - self._clock()
        if wait_ms > 0:
            self._arm(wait_ms)
            return
        self._loop.wall_timers.discard(self)
        callback, self._callback, self._handle = self._callback, None, None
        if callback is not None:
            self._loop.timed(callback)


class HubLoop:
    """See the module's text. `wall_ns` is another clock in tests only."""

    def __init__(self, aio: asyncio.AbstractEventLoop, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self.aio = aio
        self.turns = Longest()
        """What the kernel did at one go: a flush with its answers, a slice of deliveries, a timer."""

        self.wall_timers: set[ClockTimer] = set()
        self._wall_ns = wall_ns
        self._zero_ns = 0                                    # what is added to the monotonic clock
        self._apart_ms = 0                                   # wall time - hub time, when last looked at
        self._listeners: list[Callable[[int], None]] = []
        self.begin_at(self.wall_ms())

    # ---- clocks

    def now_ms(self) -> int:
        return (time.monotonic_ns() + self._zero_ns) // 1_000_000

    def wall_ms(self) -> int:
        return self._wall_ns() // 1_000_000

    def begin_at(self, now_ms: int) -> None:
        self._zero_ns = now_ms * 1_000_000 - time.monotonic_ns()
        self._apart_ms = self.wall_ms() - now_ms

    # ---- steps

    def on_step(self, callback: Callable[[int], None]) -> None:
        self._listeners.append(callback)
        if len(self._listeners) == 1:
            self.aio.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self.aio.call_later(LOOK_S, self._look)
        apart_ms = self.wall_ms() - self.now_ms()
        by_ms, self._apart_ms = apart_ms - self._apart_ms, apart_ms
        if abs(by_ms) >= STEP_MS:
            for timer in list(self.wall_timers):
                timer.look_again()
            for callback in self._listeners:
                callback(by_ms)

    # ---- timers

    def timed(self, callback: Callable[[], None]) -> None:
        """Call it and note how long it took."""
        began_s = time.monotonic()
        try:
            callback()
        finally:
            self.turns.note(time.monotonic() - began_s)

    def call_soon(self, callback: Callable[[], None]) -> None:
        # Both loops run what is added while callbacks run in their next turn, after this turn's I/O has been handled.
        self.aio.call_soon(self.timed, callback)

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> ClockTimer:
        return ClockTimer(self, self.now_ms, when_ms, callback)

    def call_at_wall(self, when_ms: int, callback: Callable[[], None]) -> ClockTimer:
        timer = ClockTimer(self, self.wall_ms, when_ms, callback)
        self.wall_timers.add(timer)
        return timer
