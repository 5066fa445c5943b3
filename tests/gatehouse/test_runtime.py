"""Worker threads and stall meter keep what `kernel.ports` promises."""
from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from gatehouse.clocks import HubLoop
from gatehouse.runtime import WINDOW_S, Completions, Longest, Stall, ThreadWorker

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def aio(request: pytest.FixtureRequest):
    loop = request.param()
    yield loop
    loop.close()


@pytest.fixture
def worker(aio):
    worker = ThreadWorker("test", Completions(aio))
    yield worker
    worker.close()


def run_until(aio: asyncio.AbstractEventLoop, start: Callable[[Callable[[], None]], None]) -> None:
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
    noted: list[float] = []
    loop.turns.note = noted.append  # type: ignore[method-assign]

    def start(finish: Callable[[], None]) -> None:
        time.sleep(0.01)     # somebody else's
        loop.call_soon(lambda: time.sleep(0.02))
        aio.call_later(0.05, lambda: completions.post(lambda _result, _error: (time.sleep(0.03), finish()), None, None))

    run_until(aio, start)
    assert len(noted) == 2 and noted[0] >= 0.02 and noted[1] >= 0.03


def test_what_took_long_is_forgotten_after_a_while(monkeypatch):
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    longest = Longest()
    longest.note(3.0)
    now_s = WINDOW_S
    longest.note(1.0)
    assert longest.recent_s == 3.0, "one window is not recent enough"
    now_s = 2 * WINDOW_S
    assert longest.recent_s == 1.0
    now_s = 4 * WINDOW_S
    assert (longest.recent_s, longest.worst_s) == (0.0, 3.0)
