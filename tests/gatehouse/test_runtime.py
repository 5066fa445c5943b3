"""Worker threads, stall meter and the real loop keep what `kernel.ports` promises, whatever the system's date is."""
from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from gatehouse.gateways import runtime
from gatehouse.gateways.runtime import LONG_S, WINDOW_S, ClockTimer, Completions, HubLoop, Longest, Stall, ThreadWorker

# --- threads ------------------------------------------------------------------------------------------------------

@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def aio(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    loop = request.param()
    yield loop
    loop.close()


@pytest.fixture
def worker(aio):
    worker = ThreadWorker("test", Completions(aio))
    yield worker
    worker.close()


def run_until(aio: asyncio.AbstractEventLoop, start: Callable[[Callable[[], None]], object]) -> None:
    """Run the loop until `finish`, which `start` is given, has been called."""
    ended = aio.create_future()
    aio.call_soon(start, lambda: ended.set_result(None))
    aio.run_until_complete(asyncio.wait_for(ended, 60))


def test_jobs_run_in_order_on_another_thread_and_complete_on_the_loop(aio, worker):
    ran: list[tuple[int, int]] = []
    completed: list[tuple[Any, int]] = []

    def start(finish: Callable[[], None]) -> None:
        def job(number: int) -> int:
            ran.append((number, threading.get_ident()))
            return number * 10

        def done(result: int | None, error: BaseException | None) -> None:
            assert error is None
            completed.append((result, threading.get_ident()))
            if len(completed) == 100:
                finish()

        for number in range(100):
            worker.submit(lambda number=number: job(number), done)

    run_until(aio, start)
    assert [number for number, _ in ran] == list(range(100))
    assert [result for result, _ in completed] == [number * 10 for number in range(100)]
    assert {thread for _, thread in completed} == {threading.get_ident()}
    assert {thread for _, thread in ran}.isdisjoint({threading.get_ident()})


def test_a_burst_of_completions_wakes_the_loop_once(aio):
    completions = Completions(aio)
    got: list[int] = []

    def start(finish: Callable[[], None]) -> None:
        for number in range(50):
            completions.post(lambda result, _error: got.append(result), number, None)
        completions.post(lambda _result, _error: finish(), None, None)

    run_until(aio, start)
    assert got == list(range(50))
    assert completions.wakeups == 1


@pytest.mark.parametrize("error", [OSError("disk"), SystemExit(3)])
def test_a_jobs_error_goes_to_done_and_the_worker_goes_on(aio, worker, error):
    seen: list[Any] = []

    def fail() -> None:
        raise error

    def start(finish: Callable[[], None]) -> None:
        worker.submit(fail, lambda result, fault: seen.append((result, fault)))
        worker.submit(lambda: "next", lambda result, fault: (seen.append((result, fault)), finish()))

    run_until(aio, start)
    assert seen == [(None, error), ("next", None)]


def test_a_failing_completion_is_reported_and_does_not_stop_the_next(aio):
    completions = Completions(aio)
    reported: list[dict[str, Any]] = []
    aio.set_exception_handler(lambda _loop, context: reported.append(context))

    def broken(_result: Any, _error: BaseException | None) -> None:
        raise ValueError("ours")

    def start(finish: Callable[[], None]) -> None:
        completions.post(broken, None, None)
        completions.post(lambda _result, _error: finish(), None, None)

    run_until(aio, start)
    assert [str(context["exception"]) for context in reported] == ["ours"]


def test_close_runs_what_was_submitted(aio):
    worker = ThreadWorker("test", Completions(aio))
    ran: list[int] = []
    for number in range(20):
        worker.submit(lambda number=number: ran.append(number), lambda _result, _error: None)
    worker.close()
    assert ran == list(range(20))


def test_a_completion_after_the_loop_is_closed_hurts_nobody():
    loop = asyncio.new_event_loop()
    worker = ThreadWorker("test", Completions(loop))
    loop.close()
    worker.submit(lambda: 1, lambda _result, _error: None)
    worker.close()


def test_the_stall_meter_sees_a_blocked_loop(aio):
    stall = Stall(aio)

    def start(finish: Callable[[], None]) -> None:
        stall.start()
        time.sleep(0.12)    # this is the stall
        aio.call_later(0.05, finish)

    run_until(aio, start)
    stall.stop()
    assert stall.worst_ms >= 60
    assert stall.recent_ms == stall.worst_ms


def test_the_longest_turn_is_that_of_the_kernels_own_work(aio):
    loop = HubLoop(aio)
    completions = Completions(aio, loop.turns)

    def start(finish: Callable[[], None]) -> None:
        time.sleep(2 * LONG_S)     # somebody else's
        loop.call_soon(lambda: time.sleep(0.02))
        aio.call_later(0.05, lambda: completions.post(lambda _result, _error: (time.sleep(0.03), finish()), None, None))

    run_until(aio, start)
    assert loop.turns.long == 2 and loop.turns.worst_s >= 0.03


def test_what_took_long_is_forgotten_after_a_while(monkeypatch):
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    longest = Longest()
    longest.note(3.0, now_s)
    now_s = WINDOW_S
    longest.note(1.0, now_s)
    assert longest.recent_s == 3.0, "one window is not recent enough"
    now_s = 2 * WINDOW_S
    assert longest.recent_s == 1.0
    now_s = 4 * WINDOW_S
    assert (longest.recent_s, longest.worst_s) == (0.0, 3.0)


# --- clocks -------------------------------------------------------------------------------------------------------

HOUR_MS = 3_600_000


class Date:
    """The system's date, which somebody sets."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def ns(self) -> int:
        return time.time_ns() + self.ahead_ms * 1_000_000


@pytest.fixture
def date() -> Date:
    return Date()


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
    monkeypatch.setattr(runtime, "LOOK_S", 0.05)
    hub_loop = HubLoop(aio, date.ns)
    steps: list[int] = []

    def start(finish: Callable[[], None]) -> None:
        hub_loop.on_step(steps.append)
        hub_loop.call_at_wall(hub_loop.wall_ms() + HOUR_MS - 1_000, finish)
        date.ahead_ms = step_ms

    run_until(aio, start)
    assert len(steps) == 1 and abs(steps[0] - step_ms) < runtime.STEP_MS


def test_a_point_in_time_waits_behind_a_step_back(aio: asyncio.AbstractEventLoop, date: Date,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "LOOK_S", 0.02)
    hub_loop = HubLoop(aio, date.ns)
    called: list[str] = []

    def start(finish: Callable[[], None]) -> None:
        hub_loop.on_step(lambda by_ms: hub_loop.call_at(hub_loop.now_ms() + 200, finish))
        hub_loop.call_at_wall(hub_loop.wall_ms() + 100, lambda: called.append("too early"))
        date.ahead_ms = -HOUR_MS

    run_until(aio, start)
    assert called == []
