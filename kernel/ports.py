"""What the kernel asks of the world around it, so that a simulator can be that world.

The kernel runs on one thread. It reads no clock, starts no thread and opens no socket by itself: it is handed a
`Loop` (its own thread's clocks and timers) and `Worker`s (other threads that run one job at a time, in order).

There are two clocks. *Hub time* passes evenly and never falls: durations are counted in it, and what is stored with an
end counted in it (a lease, a delay) is too. *Wall time* is what people's clocks say: points in time that somebody
named, and what is shown, follow it wherever it is set. Both are milliseconds, and alike until somebody sets the wall
clock.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Notices:
    """What whoever runs the hub should hear of; nothing waits for an answer. A hub overrides what it passes on."""

    def on_refusing(self, refusing: bool) -> None:
        """Messages are refused from here on as the disk is full; or are taken again."""

    def on_reserve_failure(self, error: BaseException) -> None:
        """The reserve cannot be held or given up, and it is not that the disk is full."""

    def on_topics_short(self) -> None:
        """A tenth or less is left of the topics that users may make."""

    def on_unreadable(self, partition_id: int, offset: int, count: int) -> None:
        """A producer's batch in this partition, the first there, has a record at `offset` that makes no sense, and
        claims `count` offsets."""

    def on_step(self, by_ms: int) -> None:
        """The wall clock has been stepped; negative: back."""


class Timer(Protocol):
    """Something that will happen, unless it is cancelled."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """The kernel's own thread."""

    def now_ms(self) -> int:
        """Hub time in milliseconds; see `kernel.state.state` for what it is over a restart."""

    def wall_ms(self) -> int:
        """Wall time in milliseconds since 1970."""

    def begin_at(self, now_ms: int) -> None:
        """Hub time is this now. Called once at a start, before any timer is set."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call after everything that is ready in this turn has run; never before `call_soon` returns."""

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> Timer:
        """Call once when `now_ms()` has reached `when_ms`."""

    def call_at_wall(self, when_ms: int, callback: Callable[[], None]) -> Timer:
        """Call once when `wall_ms()` has reached `when_ms`, by itself or by a step: that is seen within a second."""

    def on_step(self, callback: Callable[[int], None]) -> None:
        """Call whenever the wall clock has been stepped, with by how many ms; negative: back."""


class Worker(Protocol):
    """Another thread with a partition: jobs run one after the other, in the order they were submitted."""

    def submit(self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `job` there; then call `done(result, None)` or `done(None, error)` on the kernel's thread."""
