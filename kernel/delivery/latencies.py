"""How long messages took from the disk to the live subscribers of each door."""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
"""Upper bounds of what is counted."""


class Latency:
    """Of one door: `counts` by the bounds, and one more behind them."""

    __slots__ = ("counts", "total_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.total_ms = 0

    def add(self, count: int, took_ms: int) -> None:
        """So many messages took so long."""
        self.counts[bisect_left(BOUNDS_MS, took_ms)] += count
        self.total_ms += count * took_ms


class Latencies:
    """Of all doors."""

    def __init__(self) -> None:
        self._by_door: dict[str, Latency] = {}

    def note(self, door: str, count: int, took_ms: int) -> None:
        """So many messages were given to the subscribers of a door."""
        latency = self._by_door.get(door)
        if latency is None:
            latency = self._by_door[door] = Latency()
        latency.add(count, max(0, took_ms))

    def by_door(self) -> Iterator[tuple[str, list[tuple[int, int]], int, int]]:
        """Of each door: how many took at most so many ms (upper bound, count), how many there are, and the sum of what
        they took."""
        for door, latency in self._by_door.items():
            below, bounds = 0, []
            for bound_ms, count in zip(BOUNDS_MS, latency.counts, strict=False):
                below += count
                bounds.append((bound_ms, below))
            yield door, bounds, below + latency.counts[-1], latency.total_ms
