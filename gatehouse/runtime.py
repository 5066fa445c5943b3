"""The real world behind `kernel.ports`: threads that do what blocks, and their way back to the loop's thread. The loop
itself is in `gatehouse/clocks.py`.

    Completions    the way back from all worker threads: one wake-up of the loop per batch, not per job
    ThreadWorker   one thread with a queue of jobs, run in order
    Longest        the longest of some times, lately and since the start, for the metrics
    Stall          how long the loop was kept from running
    broken_promise what the kernel says must hold, and does not

Rules: nothing here swallows an error. A job's error goes to its `done`; an error raised by a callback is our own fault
and goes to the loop's exception handler, and the callbacks after it still run.
"""
from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")

STORING: Final = ("gatehouse.kernel.", "gatehouse.transactions.")
"""Who promises something about what is stored."""

LONG_S: Final = 0.01             # a turn of the loop that others notice
STALL_TICK_S: Final = 0.05       # a stall longer than this is always seen, a shorter one when a tick falls into it
WINDOW_S: Final = 60.0           # what is called recent covers between one and two of these


class Longest:
    """The longest of the times that were noted, in seconds."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        """Since the start."""

        self.long = 0
        """How many were longer than `LONG_S`."""

        self._window_end_s = 0.0
        self._this_window_s = 0.0
        self._last_window_s = 0.0

    def note(self, took_s: float) -> None:
        self._turn_window()
        self._this_window_s = max(self._this_window_s, took_s)
        self.worst_s = max(self.worst_s, took_s)
        self.long += took_s > LONG_S

    @property
    def recent_s(self) -> float:
        """The longest time, in seconds, of the last one to two minutes."""
        self._turn_window()
        return max(self._this_window_s, self._last_window_s)

    def _turn_window(self) -> None:
        now_s = time.monotonic()
        if now_s < self._window_end_s:
            return
        over = now_s >= self._window_end_s + WINDOW_S        # nothing was noted for a whole window
        self._last_window_s, self._this_window_s = 0.0 if over else self._this_window_s, 0.0
        self._window_end_s = now_s + WINDOW_S


Done = Callable[[Any, "BaseException | None"], None]


class Completions:
    """Finished jobs of every worker on their way to the loop's thread.

    A thread adds to the queue first and looks at `_signalled` second; the loop clears `_signalled` first and empties
    the queue second. So a finished job is never left behind, and a burst of them wakes the loop once.
    """

    def __init__(self, aio: asyncio.AbstractEventLoop, turns: Longest | None = None) -> None:
        self._aio = aio
        self._turns = turns or Longest()
        self._finished: deque[tuple[Done, Any, BaseException | None]] = deque()
        self._signalled = False
        self.wakeups = 0

    def post(self, done: Done, result: Any, error: BaseException | None) -> None:
        """Called from a worker thread."""
        self._finished.append((done, result, error))
        if self._signalled:
            return
        self._signalled = True
        try:
            self._aio.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            # The loop has been closed: whoever waited for this result is gone with it.
            if not self._aio.is_closed():
                raise

    def _deliver(self) -> None:
        self.wakeups += 1
        self._signalled = False
        finished = self._finished
        began_s = time.monotonic()
        while finished:
            done, result, error = finished.popleft()
            try:
                done(result, error)
            except Exception as fault:
                self._aio.call_exception_handler({"message": "a completion failed", "exception": fault})
        self._turns.note(time.monotonic() - began_s)


class ThreadWorker:
    """`kernel.ports.Worker`: one thread that runs its jobs in order. With several `threads` jobs begin in order, and
    end as they may."""

    def __init__(self, name: str, completions: Completions, threads: int = 1) -> None:
        self.name = name
        self._completions = completions
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Done] | None] = SimpleQueue()
        # A daemon: a job stuck on a dead disk cannot keep a failing hub alive. `close` waits for the normal end.
        self._threads = [threading.Thread(target=self._run, name=f"gatehouse-{name}", daemon=True)
                         for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        self._jobs.put((job, done))

    def close(self, abandon: bool = False) -> None:
        """Run what has been submitted, unless it is abandoned, then end the threads; returns when they have ended."""
        while abandon and not self._jobs.empty():
            with contextlib.suppress(Empty):
                self._jobs.get_nowait()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        jobs, post = self._jobs, self._completions.post
        while True:
            item = jobs.get()
            if item is None:
                return
            job, done = item
            try:
                result = job()
            except BaseException as error:    # even SystemExit belongs to whoever submitted the job
                post(done, None, error)
            else:
                post(done, result, None)
            del item, job, done    # an idle worker keeps nothing alive


def broken_promise(fault: BaseException | None) -> str | None:
    """What must hold by an assertion of the kernel's, or of transactions, that failed with `fault`; None for any other
    fault, such as an assertion of a library's that a peer may have brought about."""
    traceback = fault.__traceback__ if isinstance(fault, AssertionError) else None
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = "" if traceback is None else str(traceback.tb_frame.f_globals.get("__name__"))
    return str(fault) if module.startswith(STORING) else None


class Stall:
    """How late the loop runs its timers, which is how long something kept it from running."""

    def __init__(self, aio: asyncio.AbstractEventLoop) -> None:
        self._aio = aio
        self._handle: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._longest = Longest()

    @property
    def recent_ms(self) -> float:
        """The longest stall of the last one to two minutes."""
        return self._longest.recent_s * 1000

    @property
    def worst_ms(self) -> float:
        """The longest stall since the start."""
        return self._longest.worst_s * 1000

    @property
    def long(self) -> int:
        """How many stalls were longer than `LONG_S`, of those that a tick fell into."""
        return self._longest.long

    def start(self) -> None:
        self._arm()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        self._due_s = self._aio.time() + STALL_TICK_S
        self._handle = self._aio.call_later(STALL_TICK_S, self._tick)

    def _tick(self) -> None:
        self._longest.note(max(self._aio.time() - self._due_s, 0.0))
        self._arm()
