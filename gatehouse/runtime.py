"""The real world behind `kernel.ports`: the loop with its clocks, and threads that do what blocks. Hot.

    HubLoop        `kernel.ports.Loop` over an asyncio or uvloop event loop: the hub's two clocks, timers on each
    Completions    the way back from all worker threads: one wake-up of the loop per batch, not per job
    ThreadWorker   one thread with a queue of jobs, run in order
    Longest        the longest of some times, lately and since the start, for the metrics
    Stall          how long the loop was kept from running
    broken_promise what the kernel says must hold, and does not

Hub time is the system's monotonic clock, from a beginning that the kernel sets. Wall time is the system's date. Once a
second the two are compared: where the date has moved by `STEP_MS` more or less than time has passed, it was stepped;
timers on wall time are set anew and who wants to know is told. Slower corrections are no steps: they are followed as
they come. While a machine sleeps hub time stands still.

Nothing here swallows an error. A job's error goes to its `done`; an error raised by a callback is our own fault and
goes to the loop's exception handler, and the callbacks after it still run.
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

# --- threads, and their way back to the loop ----------------------------------------------------------------------

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

    def note(self, took_s: float, now_s: float) -> None:
        """So long was taken until now."""
        if now_s >= self._window_end_s:
            self._turn_window(now_s)
        if took_s > self._this_window_s:
            self._this_window_s = took_s
            self.worst_s = max(self.worst_s, took_s)
        self.long += took_s > LONG_S

    @property
    def recent_s(self) -> float:
        """The longest time, in seconds, of the last one to two minutes."""
        now_s = time.monotonic()
        if now_s >= self._window_end_s:
            self._turn_window(now_s)
        return max(self._this_window_s, self._last_window_s)

    def _turn_window(self, now_s: float) -> None:
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
        now_s = time.monotonic()
        self._turns.note(now_s - began_s, now_s)


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
        self._longest.note(max(self._aio.time() - self._due_s, 0.0), time.monotonic())
        self._arm()


# --- the loop -----------------------------------------------------------------------------------------------------

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
    """The kernel's loop over an event loop. `wall_ns` is another clock in tests only."""

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
            now_s = time.monotonic()
            self.turns.note(now_s - began_s, now_s)

    def call_soon(self, callback: Callable[[], None]) -> None:
        # Both loops run what is added while callbacks run in their next turn, after this turn's I/O has been handled.
        self.aio.call_soon(self.timed, callback)

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> ClockTimer:
        return ClockTimer(self, self.now_ms, when_ms, callback)

    def call_at_wall(self, when_ms: int, callback: Callable[[], None]) -> ClockTimer:
        timer = ClockTimer(self, self.wall_ms, when_ms, callback)
        self.wall_timers.add(timer)
        return timer
