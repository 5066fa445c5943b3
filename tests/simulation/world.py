"""A world of one thread for the kernel: a clock that is set by hand, and workers whose jobs run when they are told
to."""
from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
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
    """`kernel.ports.Loop`; `run` does everything that is ready."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._ready: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[int, int, FakeTimer]] = []
        self._count = 0

    def now_ms(self) -> int:
        return self._now_ms

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._ready.append(callback)

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(callback)
        self._count += 1
        heapq.heappush(self._timers, (when_ms, self._count, timer))
        return timer

    def step(self) -> bool:
        """Run one thing that is ready; False if nothing is."""
        if not self._ready:
            return False
        self._ready.popleft()()
        return True

    def advance(self, by_ms: int) -> None:
        """Move the clock; timers that fall due become ready, in order."""
        self._now_ms += by_ms
        while self._timers and self._timers[0][0] <= self._now_ms:
            timer = heapq.heappop(self._timers)[2]
            if timer.callback is not None:
                self._ready.append(timer.callback)


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
        except Exception as raised:
            result, error = None, raised
        self._loop.call_soon(lambda: done(result, error))
        return True


class World:
    """Loop and workers of one hub."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.loop = FakeLoop(now_ms)
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
