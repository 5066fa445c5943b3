"""Who needs records beyond retention, and stretches of offsets. Pure."""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from operator import itemgetter
from typing import Final, Protocol

Stretch = tuple[int, int]
"""Consecutive offsets: the first, and the one behind the last."""


NONE_NEEDED: Final = 1 << 62


class Holder(Protocol):  # decision 14
    """Whoever needs records beyond retention."""

    def needed(self, partition_id: int, start: int, stop: int) -> Iterable[Stretch]:
        """Which offsets from `start` until before `stop` are still needed, in any order.

        Asked on the kernel's thread, once per partition of a segment that is about to go.
        """

    def first_needed(self, partition_id: int) -> int:
        """No offset before this one is needed of what was kept of a partition; NONE_NEEDED where none at all is."""


def joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    """All offsets of these stretches, as sorted stretches that do not touch."""
    union: list[Stretch] = []
    for start, stop in sorted(stretches):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], stop))
        elif start < stop:
            union.append((start, stop))
    assert all(before[1] < after[0] for before, after in pairwise(union)), "stretches do not touch"
    return union


def within(stretches: list[Stretch], start: int, stop: int) -> list[Stretch]:
    """What of joined stretches lies from `start` until before `stop`."""
    i = bisect_right(stretches, start, key=itemgetter(1))
    overlaps: list[Stretch] = []
    while i < len(stretches) and stretches[i][0] < stop:
        overlaps.append((max(start, stretches[i][0]), min(stop, stretches[i][1])))
        i += 1
    return overlaps
