"""One timer that is set again and again: to when the first of many things is due."""
from __future__ import annotations

from collections.abc import Callable

from gatehouse.kernel.ports import Timer


class Alarm:
    """Calls `ring` once, at the time it is set to. `call_at` is the loop's, by one of its clocks."""

    def __init__(self, call_at: Callable[[int, Callable[[], None]], Timer], ring: Callable[[], None]) -> None:
        self._call_at = call_at
        self._on_time = ring
        self._timer: Timer | None = None
        self.when_ms: int | None = None
        """When it rings; None: it is not set."""

    def ring_at(self, when_ms: int) -> None:
        """At this time, and not at that it was set to before."""
        if when_ms != self.when_ms:
            self.cancel()
            self._timer = self._call_at(when_ms, self._ring)
            self.when_ms = when_ms

    def ring_by(self, when_ms: int) -> None:
        """At this time, or before where it is set so."""
        if self.when_ms is None or when_ms < self.when_ms:
            self.ring_at(when_ms)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self.when_ms = None

    def _ring(self) -> None:
        self._timer = self.when_ms = None
        self._on_time()
