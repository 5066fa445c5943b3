"""One token bucket. Pure: time is an argument, and all arithmetic is of integers.

A level is counted in millionths of a token, and a rate in millionths for each millisecond: so 0.5 a second and 1e18 a
second are both exact, and a bucket that is asked ten thousand times a second loses nothing to rounding.

A bucket may be overdrawn by what was taken last. What it then owes is the time to wait: whoever takes from it while it
owes stands behind everybody who has taken before, so those who share a bucket take turns.
"""
from __future__ import annotations

from typing import Final

# decision 237
TOKEN: Final = 1_000_000
"""What one token is, in the units of a level."""

LONGEST_WAIT_MS: Final = 3_600_000
"""Nobody is told to wait longer: a limit may change meanwhile."""

QUANTUM_MS: Final = 20
"""What a bucket that is empty gives at once: so long of its rate. Smaller pieces would cost a wake-up each."""


class TokenBucket:  # decision 235
    """Fills at `per_s` tokens a second up to `burst` of them, and begins full. A rate of 0 never gives anything."""

    __slots__ = ("_at_ms", "_per_ms", "_full", "_level")

    def __init__(self, per_s: float, burst: int, now_ms: int) -> None:
        self._per_ms = _per_ms(per_s)
        self._full = burst * TOKEN if self._per_ms else 0
        self._level = self._full
        self._at_ms = now_ms

    def change(self, per_s: float, burst: int, now_ms: int) -> None:
        """Another rate from now on. What is there stays, as far as the bucket holds it; what is owed is owed."""
        self._fill(now_ms)
        self._per_ms = _per_ms(per_s)
        self._full = burst * TOKEN if self._per_ms else 0
        self._level = min(self._level, self._full)

    @property
    def is_closed(self) -> bool:
        """Whether it never gives anything."""
        return self._per_ms == 0

    def take(self, amount: int, now_ms: int) -> int:
        """Take `amount`, overdrawing if need be; returns for how many ms the bucket owes then."""
        if now_ms != self._at_ms:
            self._fill(now_ms)
        level = self._level = self._level - amount * TOKEN
        return 0 if level > 0 else self._owes_ms()

    def reserve(self, amount: int) -> None:
        """Take what is there, as `level` has just said; some of it may be given back."""
        self._level -= amount * TOKEN

    def give_back(self, amount: int) -> None:
        """Undo a part of `reserve`, as far as the bucket holds it."""
        level = self._level + amount * TOKEN
        self._level = level if level < self._full else self._full

    def worth_ms(self, amount: int) -> int:
        """How long it takes until so much has come; 0 where nothing ever does."""
        return amount * TOKEN // self._per_ms if self._per_ms else 0

    def wait_ms(self, now_ms: int) -> int:
        """For how many ms the bucket owes; 0: something may be taken."""
        self._fill(now_ms)
        return self._owes_ms()

    def room(self, now_ms: int) -> int:
        """How many tokens may be taken at once: what is there, and at least what comes in one quantum."""
        self._fill(now_ms)
        return max(self._level, self._per_ms * QUANTUM_MS) // TOKEN

    def level(self, now_ms: int) -> int:
        """Whole tokens that are there; below 0: that are owed."""
        self._fill(now_ms)
        return self._level // TOKEN

    def _fill(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self._at_ms
        self._at_ms = now_ms
        if elapsed_ms > 0:                   # a clock that is set back fills nothing
            level = self._level + elapsed_ms * self._per_ms
            self._level = level if level < self._full else self._full

    def _owes_ms(self) -> int:
        if self._level > 0:
            return 0
        if not self._per_ms:
            return LONGEST_WAIT_MS
        if self._level == 0:
            return 0
        return min(LONGEST_WAIT_MS, -(self._level // self._per_ms))


def _per_ms(per_s: float) -> int:
    """Above 0 for every rate above 0."""
    if isinstance(per_s, int):
        return per_s * (TOKEN // 1000)
    return max(1, round(per_s * (TOKEN // 1000))) if per_s > 0 else 0
