"""How much may pass in a second. Pure.

    Rate, Rates   a limit of bytes, or of bytes and messages: at a hub and at a meeting point
    Pacing        what a meeting point lets pass: bytes of each link, and of all of them together

What is too much for a meeting point waits here, in its order; the credit of the link's hubs bounds it to some MiB each
way. Links take turns. Messages are sealed: how many may pass is said at the hubs.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

# --- rates --------------------------------------------------------------------------------------------------------


class Rate:
    """A limit of so much a second; 0: none. What goes out is never cut, so it may be in debt afterwards, which is paid
    whether anybody asks meanwhile or not. What was not used lasts a second."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left = float(per_second)
        self._at_ms = 0

    def allows(self, now_ms: int) -> bool:
        """Whether something may go out."""
        if not self._per_second:
            return True
        passed_ms = max(now_ms - self._at_ms, 0) if self._at_ms else 0
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


# --- what a meeting point lets pass -------------------------------------------------------------------------------

LETTER_COST: Final = 256                # bytes of memory that a letter which waits costs beside itself

Pair = frozenset[str]
"""The names of two hubs."""


class Way(NamedTuple):
    """From one hub to another, by their addresses."""

    sender: bytes
    reader: bytes


class Waiting(NamedTuple):
    """A letter that waits."""

    pair: Pair
    size_bytes: int
    deliver: Callable[[], None]


class Pacing:
    """The letters of a meeting point that wait until they may pass, and the limits that decide."""

    def __init__(self, bytes_per_second: int) -> None:
        self._all: Final = Rate(bytes_per_second)
        self._limited = bytes_per_second > 0
        self._of: dict[Pair, Rate] = {}
        self._ways: dict[Way, deque[Waiting]] = {}
        self._bytes_of: dict[bytes, int] = {}                # that wait, by reader

    def configure(self, limits: dict[Pair, int]) -> None:
        """Bytes a second of each link, both ways together."""
        self._of = {pair: Rate(limit) for pair, limit in limits.items() if limit}

    def take(self, way: Way, letter: Waiting, now_ms: int) -> None:
        """Deliver it now, or when its turn comes."""
        if not self._limited and letter.pair not in self._of and way not in self._ways:
            letter.deliver()
            return
        self._ways.setdefault(way, deque()).append(letter)
        self._bytes_of[way.reader] = self.waiting_bytes(way.reader) + letter.size_bytes + LETTER_COST
        self.release(now_ms)

    def _count_off(self, reader: bytes, letters: Iterable[Waiting]) -> None:
        """These wait no more."""
        left = self.waiting_bytes(reader) - sum([letter.size_bytes + LETTER_COST for letter in letters])
        if left:
            self._bytes_of[reader] = left
        else:
            self._bytes_of.pop(reader, None)

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
                self._count_off(way.reader, (letter,))
                del self._ways[way]
                if waiting:
                    self._ways[way] = waiting            # behind the others
                self._all.spend(letter.size_bytes)
                if of is not None:
                    of.spend(letter.size_bytes)
                letter.deliver()
                moved = True

    def waiting_bytes(self, reader: bytes) -> int:
        """What waits here for one hub, and what that costs."""
        return self._bytes_of.get(reader, 0)

    def forget(self, address: bytes) -> None:
        """A hub is gone: what waits for it, and from it, is of a session that has ended."""
        for way in [way for way in self._ways if address in way]:
            self._count_off(way.reader, self._ways.pop(way))

    def __len__(self) -> int:
        """Letters that wait."""
        return sum([len(waiting) for waiting in self._ways.values()])
