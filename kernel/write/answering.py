"""Owners are told what has become of what they appended, flush after flush, in slices: thousands of publishers that
wait for one flush do not hold up everybody else.

What is little is told before `tell` returns. What is more is told over the next turns of the loop, and later flushes
wait behind it, so every owner hears in the order of its calls.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from gatehouse.kernel.backpressure import Backpressure
from gatehouse.kernel.message import Owner, Stored
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.slices import Slices
from gatehouse.kernel.write.pending_frame import PendingFrame, answers

MAX_WAITING: Final = 2
"""Flushes behind the one whose owners are being told: more, and publishers wait."""

STEP_OWNERS: Final = 16
"""Told before the clock is read: 0.2 to 0.4 ms."""


class Answering:  # decision 122
    def __init__(self, loop: Loop, backpressure: Backpressure, on_error: Callable[[Exception], None]) -> None:
        self._backpressure = backpressure
        self.slices = Slices(loop, on_error)
        self._on_error = on_error
        self._waiting: deque[dict[Owner, list[Stored]]] = deque()
        self._on_idle: list[Callable[[], None]] = []

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call it once everybody has been told: now, or later."""
        self._on_idle.append(callback)
        self._go_on()

    def tell(self, pending_frame: PendingFrame, error: Exception | None) -> None:
        """Whoever appended to it is told: it is durable, or why not."""
        if pending_frame.submissions:
            self._waiting.append(answers(pending_frame.submissions, pending_frame.builder.now_ms, error))
            if len(self._waiting) > MAX_WAITING:
                self._backpressure.report(self, True)
            self._go_on()

    def _go_on(self) -> None:
        if self.slices.busy:
            return
        if self._waiting:
            self.slices.run(self._tell_all(), self._go_on)
        while self._on_idle and not self._waiting and not self.slices.busy:
            self._on_idle.pop(0)()

    def _tell_all(self) -> Iterator[None]:
        count = 0
        while self._waiting:
            flush = self._waiting.popleft()
            if len(self._waiting) == MAX_WAITING:
                self._backpressure.report(self, False)
            for owner, stored in flush.items():
                try:
                    steps = owner.on_stored(stored)
                    if steps is not None:
                        yield from steps
                except Exception as fault:       # one owner's bug must not cost the others their answers
                    self._on_error(fault)
                count += 1
                if count % STEP_OWNERS == 0:
                    yield
