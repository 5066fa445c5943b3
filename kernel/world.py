"""A world of one thread for the kernel: a clock that is set by hand, and workers whose jobs run when they are told
to."""
from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any, Final

MAX_STEPS: Final = 20_000       # of loop and workers until nothing is left to do; more is an endless loop


class Restless(AssertionError):
    """The hub never comes to rest."""


class FakeTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeLoop:
    """`kernel.ports.Loop`; `run` does everything that is ready. It begins at a wall time."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.worked_ms = 0               # that callbacks took: added by those that pretend to be slow
        self._wall_ms = self._now_ms = wall_ms
        self._ready: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[int, int, FakeTimer]] = []
        self._wall_timers: list[tuple[int, int, FakeTimer]] = []
        self._listeners: list[Callable[[int], None]] = []
        self._count = 0

    def now_ms(self) -> int:
        return self._now_ms + self.worked_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def begin_at(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def on_step(self, callback: Callable[[int], None]) -> None:
        self._listeners.append(callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._ready.append(callback)

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> FakeTimer:
        return self._set(self._timers, when_ms, callback)

    def call_at_wall(self, when_ms: int, callback: Callable[[], None]) -> FakeTimer:
        return self._set(self._wall_timers, when_ms, callback)

    def _set(self, timers: list[tuple[int, int, FakeTimer]], when_ms: int, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(callback)
        self._count += 1
        heapq.heappush(timers, (when_ms, self._count, timer))
        return timer

    def step(self) -> bool:
        """Run one thing that is ready; False if nothing is."""
        if not self._ready:
            return False
        self._ready.popleft()()
        return True

    def advance(self, by_ms: int) -> None:
        """Time passes on both clocks; timers that fall due become ready, in order."""
        self._now_ms += by_ms
        self._wall_ms += by_ms
        self._ring()

    def step_wall(self, by_ms: int) -> None:
        """Somebody sets the wall clock: no time passes."""
        self._wall_ms += by_ms
        for listener in self._listeners:
            self._ready.append(partial(listener, by_ms))
        self._ring()

    def _ring(self) -> None:
        apart_ms = self._wall_ms - self._now_ms
        due = list(_due(self._timers, self._now_ms))
        due += [(when_ms - apart_ms, count, timer) for when_ms, count, timer in _due(self._wall_timers, self._wall_ms)]
        for _, _, timer in sorted(due, key=itemgetter(0, 1)):
            if timer.callback is not None:
                self._ready.append(timer.callback)


def _due(timers: list[tuple[int, int, FakeTimer]], by_ms: int) -> Iterator[tuple[int, int, FakeTimer]]:
    """Those that have fallen due, taken out."""
    while timers and timers[0][0] <= by_ms:
        yield heapq.heappop(timers)


class FakeWorker:
    """`kernel.ports.Worker`: jobs wait until `step`; answers go through the loop."""

    def __init__(self, loop: FakeLoop) -> None:
        self._loop = loop
        self.jobs: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()

    def submit(self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.jobs.append((job, done))

    def step(self) -> bool:
        """Run one job; False if there is none."""
        if not self.jobs:
            return False
        job, done = self.jobs.popleft()
        try:
            result, error = job(), None
        except AssertionError:
            raise                            # a promise of the kernel's own: no fault that it may contain
        except Exception as raised:
            result, error = None, raised
        self._loop.call_soon(lambda: done(result, error))
        return True


class InlineWorker:
    """`kernel.ports.Worker` for work that takes no time: a job is done before `submit` returns."""

    def submit(self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        try:
            result, error = job(), None
        except Exception as raised:
            result, error = None, raised
        done(result, error)


class World:
    """Loop and workers of one hub."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.loop = FakeLoop(wall_ms)
        self.log_worker = FakeWorker(self.loop)
        self.reader_worker = FakeWorker(self.loop)
        self.checkpoint_worker = FakeWorker(self.loop)
        self.validation_worker = FakeWorker(self.loop)

    @property
    def workers(self) -> tuple[FakeWorker, FakeWorker, FakeWorker, FakeWorker]:
        return self.log_worker, self.reader_worker, self.checkpoint_worker, self.validation_worker

    def run(self) -> None:
        """Until nothing is ready and no job waits."""
        for _ in range(MAX_STEPS):
            if not self.loop.step() and not self._step_workers():
                return
        raise Restless(f"still busy after {MAX_STEPS} steps")

    def _step_workers(self) -> bool:
        """One job of each; False if there is none."""
        return True in [worker.step() for worker in self.workers]

    def advance(self, by_ms: int) -> None:
        self.loop.advance(by_ms)
        self.run()

    def step_wall(self, by_ms: int) -> None:
        self.loop.step_wall(by_ms)
        self.run()
