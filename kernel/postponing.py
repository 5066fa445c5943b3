"""A worker whose jobs can wait: under overload they have their turn one by one, a few in a second. See `shedding`."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.shedding import Rung, Shedding

T = TypeVar("T")

TURN_MS: Final = 100
"""Between two jobs then: who reads what only the disk has gets on, and takes little from anybody."""

Job = tuple[Callable[[], Any], Callable[[Any, "BaseException | None"], None]]


class PostponingWorker:
    """See `ports.Worker`. Jobs keep their order."""

    def __init__(self, worker: Worker, shedding: Shedding, loop: Loop) -> None:
        self._worker = worker
        self._shedding = shedding
        self._loop = loop
        self._waiting: deque[Job] = deque()
        self._is_stopped = False

    def submit(self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """See `ports.Worker`."""
        if self._is_stopped or not self._waiting and self._shedding.level < Rung.BULK_READS:
            self._worker.submit(job, done)
            return
        self._shedding.counts[Rung.BULK_READS] += 1
        self._waiting.append((job, done))
        if len(self._waiting) == 1:
            self._arm()

    def stop(self) -> None:
        """Nothing waits from here on."""
        self._is_stopped = True
        self._hand_on(len(self._waiting))

    def _arm(self) -> None:
        self._loop.call_at(self._loop.now_ms() + TURN_MS, self._on_turn)

    def _on_turn(self) -> None:
        self._hand_on(1 if self._shedding.level >= Rung.BULK_READS else len(self._waiting))
        if self._waiting:
            self._arm()

    def _hand_on(self, count: int) -> None:
        for _ in range(min(count, len(self._waiting))):
            self._worker.submit(*self._waiting.popleft())
