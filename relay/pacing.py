"""What a meeting point lets pass in a second: bytes of each link, and of all of them together. Pure.

What is too much waits here, in its order; the credit of the link's hubs bounds it to some MiB each way. Links take
turns. Messages are sealed: how many may pass is said at the hubs.
"""
# decision 275: what is too much waits, and no link starves
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from gatehouse.relay.rate import Rate

Pair = frozenset[str]
"""The names of two hubs."""


class Way(NamedTuple):
    """Addresses of two hubs: from one to the other."""

    sender: bytes
    reader: bytes


class Waiting(NamedTuple):
    """One letter."""

    pair: Pair
    size_bytes: int
    deliver: Callable[[], None]


class Pacing:
    """See the module's text."""

    def __init__(self, bytes_per_second: int) -> None:
        self._all: Final = Rate(bytes_per_second)
        self._limited = bytes_per_second > 0
        self._of: dict[Pair, Rate] = {}
        self._ways: dict[Way, deque[Waiting]] = {}

    def configure(self, limits: dict[Pair, int]) -> None:
        """Bytes a second of each link, both ways together."""
        self._of = {pair: Rate(limit) for pair, limit in limits.items() if limit}

    def take(self, way: Way, letter: Waiting, now_ms: int) -> None:
        """Deliver it now, or when its turn comes."""
        if not self._limited and letter.pair not in self._of and way not in self._ways:
            letter.deliver()
            return
        self._ways.setdefault(way, deque()).append(letter)
        self.release(now_ms)

    def release(self, now_ms: int) -> None:
        """Deliver what may pass by now, one letter of each way after another."""
        moved = True
        while moved:
            moved = False
            for way, waiting in list(self._ways.items()):
                letter, of = waiting[0], self._of.get(waiting[0].pair)
                if not self._all.allows(now_ms) or of is not None and not of.allows(now_ms):
                    continue
                waiting.popleft()
                del self._ways[way]
                if waiting:
                    self._ways[way] = waiting            # behind the others
                self._all.spend(letter.size_bytes)
                if of is not None:
                    of.spend(letter.size_bytes)
                letter.deliver()
                moved = True

    def waiting_bytes(self, reader: bytes) -> int:
        """What waits here for one hub."""
        return sum([letter.size_bytes for way, waiting in self._ways.items() if way.reader == reader
                    for letter in waiting])

    def forget(self, address: bytes) -> None:
        """A hub is gone: what waits for it, and from it, is of a session that has ended."""
        for way in [way for way in self._ways if address in way]:
            del self._ways[way]

    def __len__(self) -> int:
        """Letters that wait."""
        return sum([len(waiting) for waiting in self._ways.values()])
