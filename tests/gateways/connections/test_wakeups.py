"""The one timer behind every connection's wish to be woken."""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from gatehouse.gateways.runtime import TICK_MS, TURN_MS, Wakeups


class FakeTimer:
    def __init__(self, due_ms: float, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """A loop whose time only tests move."""

    def __init__(self) -> None:
        self.clock_ms = 1_000_000
        self.timers: list[FakeTimer] = []
        self.armed = 0

    def now_ms(self) -> int:
        return self.clock_ms

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        self.armed += 1
        timer = FakeTimer(self.clock_ms + delay_s * 1000, callback)
        self.timers.append(timer)
        return timer

    def advance(self, ms: int) -> None:
        for _ in range(ms):
            self.clock_ms += 1
            due = [timer for timer in self.timers if timer.due_ms <= self.clock_ms and not timer.cancelled]
            self.timers = [timer for timer in self.timers if timer not in due and not timer.cancelled]
            for timer in due:
                timer.callback()


class Sleeper:
    def __init__(self) -> None:
        self.woken: list[int] = []

    def wake(self, now_ms: int) -> None:
        self.woken.append(now_ms)


def make() -> tuple[FakeLoop, Wakeups]:
    loop = FakeLoop()
    return loop, Wakeups(cast(asyncio.AbstractEventLoop, loop), loop.now_ms)


def test_nobody_is_woken_early_and_nobody_late_by_more_than_a_tick() -> None:
    loop, wakeups = make()
    sleepers = [(when, Sleeper()) for when in (1_000_001, 1_000_009, 1_000_010, 1_000_500, 1_000_333)]
    for when, sleeper in sleepers:
        wakeups.add(when, sleeper)
    loop.advance(1000)
    for when, sleeper in sleepers:
        assert len(sleeper.woken) == 1
        assert when <= sleeper.woken[0] <= when + TICK_MS


def test_ten_thousand_sleepers_arm_one_timer_per_tick_at_most() -> None:
    loop, wakeups = make()
    for n in range(10_000):
        wakeups.add(1_000_000 + 90_000 + n % 100, Sleeper())
    assert len(wakeups) == 10_000
    assert loop.armed == 1
    loop.advance(91_000)
    assert len(wakeups) == 0
    assert loop.armed <= 1 + 100 // TICK_MS + 1


def test_an_earlier_wish_moves_the_timer() -> None:
    loop, wakeups = make()
    late, early = Sleeper(), Sleeper()
    wakeups.add(1_000_500, late)
    wakeups.add(1_000_100, early)
    loop.advance(110)
    assert early.woken and not late.woken
    loop.advance(400)
    assert late.woken


def test_who_is_discarded_is_not_woken_and_not_kept() -> None:
    loop, wakeups = make()
    sleeper, other = Sleeper(), Sleeper()
    tick = wakeups.add(1_000_100, sleeper)
    wakeups.add(1_000_100, other)
    wakeups.discard(tick, sleeper)
    wakeups.discard(tick + 5, sleeper)
    assert len(wakeups) == 1
    loop.advance(200)
    assert not sleeper.woken and other.woken


def test_a_sleeper_may_ask_again_while_it_is_woken() -> None:
    loop, wakeups = make()

    class Again(Sleeper):
        def wake(self, now_ms: int) -> None:
            super().wake(now_ms)
            if len(self.woken) < 3:
                wakeups.add(now_ms + 50, self)

    again = Again()
    wakeups.add(1_000_050, again)
    loop.advance(500)
    assert again.woken == [1_000_050, 1_000_100, 1_000_150]


def test_who_asks_again_for_now_has_the_next_turn_not_this_one() -> None:
    loop, wakeups = make()

    class Greedy(Sleeper):
        def wake(self, now_ms: int) -> None:
            super().wake(now_ms)
            wakeups.add(now_ms, self)

    greedy = Greedy()
    wakeups.add(1_000_010, greedy)
    loop.advance(12)
    assert 1 <= len(greedy.woken) <= 3


class Busy(Sleeper):
    """Takes its time, and has more to do each time."""

    def __init__(self, loop: FakeLoop, wakeups: Wakeups) -> None:
        super().__init__()
        self._loop = loop
        self._wakeups = wakeups

    def wake(self, now_ms: int) -> None:
        super().wake(now_ms)
        self._loop.clock_ms += 20
        self._wakeups.add(self._loop.clock_ms, self)


def test_sleepers_that_are_busy_take_turns_and_leave_time_for_others() -> None:
    loop, wakeups = make()
    sleepers = [Busy(loop, wakeups) for _ in range(100)]
    for sleeper in sleepers:
        wakeups.add(1_000_010, sleeper)
    turns = 0
    while sum(bool(sleeper.woken) for sleeper in sleepers) < 100:
        before = loop.clock_ms
        loop.advance(1)
        assert loop.clock_ms - before <= 1 + TURN_MS + 20      # in one turn; the clock of a wake-up is not moved back
        turns += 1
        assert turns < 1000
    assert max(len(sleeper.woken) for sleeper in sleepers) <= 2
