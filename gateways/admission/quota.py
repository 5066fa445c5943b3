"""How much a principal may send: token buckets in messages and bytes per second. Pure: time is an argument.

A bucket may be overdrawn once, by the burst that empties it; what it then owes is the time to slow down. So a burst is
never split, and over any long time the rate holds.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BURST_S: Final = 1.0      # a bucket holds one second of its rate


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of one principal, summed over all its connections on all doors. 0: no limit."""

    messages_per_s: float = 0.0
    bytes_per_s: float = 0.0


class TokenBucket:
    """Fills at `rate_per_s` up to one second of it."""

    __slots__ = ("_at_ms", "_rate_per_ms", "_tokens", "_tokens_max")

    def __init__(self, rate_per_s: float, now_ms: int) -> None:
        if rate_per_s <= 0:
            raise ValueError("a rate must be above 0")
        self._rate_per_ms = rate_per_s / 1000
        self._tokens_max = rate_per_s * BURST_S
        self._tokens = self._tokens_max
        self._at_ms = now_ms

    def take(self, amount: int, now_ms: int) -> int:
        """Take `amount`, overdrawing if need be; returns the ms until the bucket is no longer overdrawn."""
        elapsed_ms = max(0, now_ms - self._at_ms)
        self._at_ms = now_ms
        self._tokens = min(self._tokens_max, self._tokens + elapsed_ms * self._rate_per_ms) - amount
        if self._tokens >= 0:
            return 0
        return int(-self._tokens / self._rate_per_ms) + 1


class Meter:
    """The two buckets of one principal."""

    __slots__ = ("_bytes", "_messages")

    def __init__(self, quota: Quota, now_ms: int) -> None:
        self._messages = TokenBucket(quota.messages_per_s, now_ms) if quota.messages_per_s else None
        self._bytes = TokenBucket(quota.bytes_per_s, now_ms) if quota.bytes_per_s else None

    def charge(self, messages: int, size_bytes: int, now_ms: int) -> int:
        """Take a burst from both buckets. Returns the ms to slow down: the longer of what the two ask for."""
        wait_ms = self._messages.take(messages, now_ms) if self._messages is not None else 0
        if self._bytes is not None:
            wait_ms = max(wait_ms, self._bytes.take(size_bytes, now_ms))
        return wait_ms
