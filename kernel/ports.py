"""What the kernel asks of the world around it, so that a simulator can be that world.

The kernel runs on one thread. It reads no clock, starts no thread and opens no socket by itself: it is handed a
`Loop` (its own thread's clock and timers) and `Worker`s (other threads that run one job at a time, in order).
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    """The kernel's own thread."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970."""

    def monotonic_ms(self) -> int:
        """Milliseconds of a clock that only goes ahead, at its own pace: differences mean something, values do not."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call after everything that is ready in this turn has run; never before `call_soon` returns."""

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> Timer:
        """Call once when `now_ms()` has reached `when_ms`."""


class Worker(Protocol):
    """Another thread with a queue: jobs run one after the other, in the order they were submitted."""

    def submit(self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `job` there; then call `done(result, None)` or `done(None, error)` on the kernel's thread."""
