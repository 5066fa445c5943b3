"""The real loop keeps what `kernel.ports` promises of its clocks, whatever the system's date is set to."""
from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
import uvloop

from gatehouse import clocks
from gatehouse.clocks import ClockTimer, HubLoop

HOUR_MS = 3_600_000


class Date:
    """The system's date, which somebody sets."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def ns(self) -> int:
        return time.time_ns() + self.ahead_ms * 1_000_000


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def aio(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    loop = request.param()
    yield loop
    loop.close()


@pytest.fixture
def date() -> Date:
    return Date()


def run_until(aio: asyncio.AbstractEventLoop, start: Callable[[Callable[[], None]], object]) -> None:
    """Run the loop until `finish`, which `start` is given, has been called."""
    ended = aio.create_future()
    aio.call_soon(start, lambda: ended.set_result(None))
    aio.run_until_complete(asyncio.wait_for(ended, 60))


def test_call_soon_runs_after_the_turn_and_never_at_once(aio: asyncio.AbstractEventLoop) -> None:
    seen: list[str] = []

    def start(finish: Callable[[], None]) -> None:
        HubLoop(aio).call_soon(lambda: (seen.append("later"), finish())[0])
        seen.append("now")

    run_until(aio, start)
    assert seen == ["now", "later"]


def test_call_at_waits_for_its_time(aio: asyncio.AbstractEventLoop) -> None:
    hub_loop = HubLoop(aio)
    when_ms = hub_loop.now_ms() + 20
    run_until(aio, lambda finish: hub_loop.call_at(when_ms, finish))
    assert hub_loop.now_ms() >= when_ms


def test_a_timer_asks_its_clock_again_when_it_is_early(aio: asyncio.AbstractEventLoop) -> None:
    hub_loop = HubLoop(aio)
    times = iter([990, 999, 1000])
    run_until(aio, lambda finish: ClockTimer(hub_loop, lambda: next(times), 1000, finish))
    assert next(times, -1) == -1, "all asked"


def test_a_cancelled_timer_does_not_call(aio: asyncio.AbstractEventLoop) -> None:
    hub_loop = HubLoop(aio)
    called: list[int] = []
    hub_loop.call_at(0, lambda: called.append(1)).cancel()
    hub_loop.call_at_wall(0, lambda: called.append(2)).cancel()
    run_until(aio, lambda finish: hub_loop.call_at(hub_loop.now_ms() + 5, finish))
    assert called == [] and not hub_loop.wall_timers


def test_hub_time_begins_where_it_is_told(aio: asyncio.AbstractEventLoop) -> None:
    hub_loop = HubLoop(aio)
    hub_loop.begin_at(5_000)
    assert 5_000 <= hub_loop.now_ms() < 65_000


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS, -1_700_000_000_000])
def test_a_duration_ends_in_its_time_whatever_the_date_is(aio: asyncio.AbstractEventLoop, date: Date, step_ms: int
                                                          ) -> None:
    hub_loop = HubLoop(aio, date.ns)
    before_ms, began_s = hub_loop.now_ms(), time.monotonic()

    def start(finish: Callable[[], None]) -> None:
        hub_loop.call_at(before_ms + 300, finish)
        date.ahead_ms = step_ms

    run_until(aio, start)
    assert 0.3 <= time.monotonic() - began_s < 30 and 300 <= hub_loop.now_ms() - before_ms < 30_000


@pytest.mark.parametrize("step_ms", [HOUR_MS, 50 * 366 * 24 * HOUR_MS])
def test_a_point_in_time_comes_with_a_step_ahead(aio: asyncio.AbstractEventLoop, date: Date, step_ms: int,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "LOOK_S", 0.05)
    hub_loop = HubLoop(aio, date.ns)
    steps: list[int] = []

    def start(finish: Callable[[], None]) -> None:
        hub_loop.on_step(steps.append)
        hub_loop.call_at_wall(hub_loop.wall_ms() + HOUR_MS - 1_000, finish)
        date.ahead_ms = step_ms

    run_until(aio, start)
    assert len(steps) == 1 and abs(steps[0] - step_ms) < clocks.STEP_MS


def test_a_point_in_time_waits_behind_a_step_back(aio: asyncio.AbstractEventLoop, date: Date,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "LOOK_S", 0.02)
    hub_loop = HubLoop(aio, date.ns)
    called: list[str] = []

    def start(finish: Callable[[], None]) -> None:
        hub_loop.on_step(lambda by_ms: hub_loop.call_at(hub_loop.now_ms() + 200, finish))
        hub_loop.call_at_wall(hub_loop.wall_ms() + 100, lambda: called.append("too early"))
        date.ahead_ms = -HOUR_MS

    run_until(aio, start)
    assert called == []
