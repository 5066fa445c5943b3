"""How much of a link is on its way at once: as much as keeps the way full, or what is urgent waits behind it. Pure.

The time from a letter to its STORED is that of the way and of the reader's disk, and of what was on its way before it.
So where it grows beyond the shortest that was seen, less is sent, and where it does not, more. Where as little as may
be is on its way and letters take long all the same, nothing waits before them: a disk, a processor or the way itself
takes now less, now more. What they usually take then is not late. What was sent while the window held nothing back says
nothing about how wide it may be: it does not grow then. Now and then nothing is said until all is stored: what the next
letter takes is the shortest time, by the way as it is then.
"""
# decision 274: a bulk topic fills the way, and not what lies before it; 311: what letters usually take is not late
from __future__ import annotations

from typing import Final

LEAST_BYTES: Final = 256 << 10         # two letters: one is stored while the other travels
LATE_MS: Final = 2                     # so much later than the shortest time is aimed at, or half as much again as that
USUAL: Final = 16                      # letters that make what is usual
DRAIN_MS: Final = 10_000               # between two looks at the shortest time


class Window:
    """Of one session; `most` is what the reader said."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.bytes = self._least = min(LEAST_BYTES, most)
        self._shortest_ms: int | None = None
        self._usual_ms = 0.0                 # of letters while the window is as small as may be
        self._drain_at_ms = 0
        self._draining = False
        self._held_back = False              # something, since the way was last empty

    def allows(self, on_their_way: int) -> bool:
        """Whether more may be said, beside so many bytes that are not stored yet."""
        if self._draining:
            if on_their_way:
                return False
            self._draining, self._shortest_ms = False, None
            self._usual_ms /= 2              # where it is not so any more, the window finds out
        if not on_their_way:
            self._held_back = False
        if on_their_way < self.bytes:
            return True
        self._held_back = True
        return False

    def on_stored(self, size_bytes: int, took_ms: int, now_ms: int) -> None:
        """A letter is stored, so long after it was said."""
        if self._shortest_ms is None or took_ms < self._shortest_ms:
            if self._shortest_ms is None:
                self._drain_at_ms = now_ms + DRAIN_MS
            self._shortest_ms = took_ms
        if self.bytes == self._least:
            self._usual_ms += (took_ms - self._usual_ms) / USUAL
        if took_ms > max(self._shortest_ms + max(LATE_MS, self._shortest_ms * 3 // 2), self._usual_ms):
            self.bytes = max(self.bytes - size_bytes // 8, self._least)
        elif self._held_back:
            self.bytes = min(self.bytes + size_bytes // 8, self._most)
        if now_ms >= self._drain_at_ms:
            self._draining = True
