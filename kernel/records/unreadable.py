"""Offsets inside stored batches that nobody can be given, because their producer wrote records that make no sense.

The hub's log is whole there, so this is no damage of its own. Pure.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

MAX_MET: Final = 10_000                # stretches that are remembered, so that each counts once; more are not counted


class Unreadable:
    """Counts stretches of such offsets as readers meet them, and tells of the first in each partition.

    `on_first` gets partition id, first offset and how many offsets, as many as the batch claims.
    """

    def __init__(self, on_first: Callable[[int, int, int], None]) -> None:
        self._on_first = on_first
        self.count = 0
        self._met: set[tuple[int, int]] = set()
        self._partitions: set[int] = set()

    def note(self, partition_id: int, stretches: list[tuple[int, int]]) -> None:
        """These, (first, behind the last) each, cannot be given."""
        for start, stop in stretches:
            if (partition_id, start) in self._met or len(self._met) >= MAX_MET:
                continue
            self._met.add((partition_id, start))
            self.count += 1
            if partition_id not in self._partitions:
                self._partitions.add(partition_id)
                self._on_first(partition_id, start, stop - start)
