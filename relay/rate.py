"""How much may go out now: bytes and messages a second. Pure."""
from __future__ import annotations

BURST_MS = 1_000
"""What was not used lasts so long."""


class Rate:
    """One limit; 0: none. What goes out is never cut, so it may be in debt afterwards."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left = float(per_second)
        self._at_ms = 0

    def allows(self, now_ms: int) -> bool:
        """Whether something may go out."""
        if not self._per_second:
            return True
        passed_ms = min(max(now_ms - self._at_ms, 0), BURST_MS) if self._at_ms else 0
        self._at_ms = now_ms
        self._left = min(self._left + self._per_second * passed_ms / 1000, float(self._per_second))
        return self._left > 0

    def spend(self, amount: int) -> None:
        if self._per_second:
            self._left -= amount


class Rates:
    """Bytes and messages of something, `within` something larger that has limits of its own."""

    def __init__(self, bytes_per_second: int, messages_per_second: int, within: Rates | None = None) -> None:
        self._bytes = Rate(bytes_per_second)
        self._messages = Rate(messages_per_second)
        self._within = within

    def allow(self, now_ms: int) -> bool:
        """Whether something may go out."""
        return self._bytes.allows(now_ms) and self._messages.allows(now_ms) and (
            self._within is None or self._within.allow(now_ms))

    def spend(self, size_bytes: int, messages: int) -> None:
        self._bytes.spend(size_bytes)
        self._messages.spend(messages)
        if self._within is not None:
            self._within.spend(size_bytes, messages)
