"""The bytes of what one cursor of a queue holds: the sizes of its values, in runs of consecutive offsets.

A gap between two runs costs nothing, however wide it is.
"""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Final

from gatehouse.kernel.groups.prefetcher import FETCH_BYTES, Prefetcher
from gatehouse.kernel.message import Fetched

FORGOTTEN_AT_ONCE: Final = 1_000


class ByteCount:
    """Learns sizes by looking at every message once, on entering or after a start."""

    def __init__(self, prefetcher: Prefetcher) -> None:
        self._prefetcher = prefetcher
        self._cursor = prefetcher.cursor
        self._reading = False
        self._at_once = False
        self._begin()

    def _begin(self) -> None:
        self._moved = self._cursor.moved
        self._end = self._cursor.committed                  # everything below it is settled, or has been looked at
        self._runs: list[tuple[int, list[int]]] = []  # first offset, and the sizes from there on
        self._done = 0                                # sizes below the committed, at the beginning of the first run
        self._total = 0                               # of the others

    def free_bytes(self, on_more: Callable[[], None]) -> int:
        """The bytes of what nobody has leased, as far as they are known; `on_more` is called later where more gets
        known."""
        if self._moved != self._cursor.moved:           # the cursor was read back
            self._begin()
        self._learn(on_more)
        self._forget_settled()
        out = sum([self._size_within(offset, offset + 1) for offset in self._cursor.leased_offsets()])
        return self._total - out - self._settled_ahead()

    def _learn(self, on_more: Callable[[], None]) -> None:
        end, before = self._prefetcher.end(), -1
        while not self._reading and before < self._end < end:
            before = self._end
            self._reading = self._at_once = True
            wants = [(self._cursor.partition_id, self._end, FETCH_BYTES)]
            self._prefetcher.fetch(wants, FETCH_BYTES, partial(self._read, self._moved, on_more))
            self._at_once = False

    def _read(self, moved: int, on_more: Callable[[], None], answers: list[Fetched]) -> None:
        self._reading = False
        if moved != self._moved or not answers[0].pieces:
            return
        for piece in answers[0].pieces:
            for message in self._prefetcher.open(piece):
                if message[1] >= self._end:
                    self._add(message[1], len(message[6] or b""))
            self._end = max(self._end, piece.first_offset + piece.count)
        if not self._at_once:
            on_more()

    def _add(self, offset: int, size: int) -> None:
        runs = self._runs
        if not runs or runs[-1][0] + len(runs[-1][1]) != offset:
            runs.append((offset, []))
        runs[-1][1].append(size)
        self._total += size

    def _forget_settled(self) -> None:
        committed, runs = self._cursor.committed, self._runs
        while runs:
            first, sizes = runs[0]
            below = max(self._done, min(committed - first, len(sizes)))
            self._total -= sum(sizes[self._done:below])
            self._done = below
            if below == len(sizes):
                del runs[0]
                self._done = 0
                continue
            if below > FORGOTTEN_AT_ONCE and 2 * below > len(sizes):
                runs[0] = (first + below, sizes[below:])
                self._done = 0
            break

    def _size_within(self, start: int, stop: int) -> int:
        """The bytes known of all offsets from one until before another."""
        at = max(0, bisect_right(self._runs, start, key=itemgetter(0)) - 1)
        total = 0
        while at < len(self._runs) and self._runs[at][0] < stop:
            first, sizes = self._runs[at]
            total += sum(sizes[max(0, start - first):stop - first])
            at += 1
        return total

    def _settled_ahead(self) -> int:
        """Bytes of what is settled above the committed."""
        if not self._cursor.settled_ahead:
            return 0
        return sum([self._size_within(first, behind) for first, behind in self._cursor.settled_stretches()])
