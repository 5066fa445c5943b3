"""The ids of a topic's partitions, by partition number, without a list of them. Pure and hot.

A topic that has grown has a range of ids for each time it was made larger; ten thousand partitions are a few numbers.
"""
from __future__ import annotations

from collections.abc import Iterator
from itertools import chain


class PartitionIds:
    """A collection of ids that is also asked by partition number."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: tuple[tuple[int, int], ...]) -> None:
        self.ranges = ranges                         # (first partition id, count), in the order of partition numbers

    def __len__(self) -> int:
        return sum([count for _, count in self.ranges])

    def __getitem__(self, partition: int) -> int:
        """Raises IndexError."""
        rest = partition
        if rest >= 0:
            for first, count in self.ranges:
                if rest < count:
                    return first + rest
                rest -= count
        raise IndexError(partition)

    def number_of(self, partition_id: int) -> int:
        """The partition number of an id. Raises ValueError."""
        before = 0
        for first, count in self.ranges:
            if first <= partition_id < first + count:
                return before + partition_id - first
            before += count
        raise ValueError(f"{partition_id} is of another topic")

    def __contains__(self, partition_id: object) -> bool:
        if not isinstance(partition_id, int):
            return False
        for first, count in self.ranges:
            if first <= partition_id < first + count:
                return True
        return False

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable([range(first, first + count) for first, count in self.ranges])
