"""The partitions that a guard's principal has asked for by their topics' names. Pure."""
from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gatehouse.gateways.admission.errors import Denied

if TYPE_CHECKING:
    from gatehouse.kernel.state.topics import Topic


class Partitions:
    """Partitions of topics that were asked for by their names, with the right to them."""

    def __init__(self) -> None:
        self._firsts: list[int] = NO_FIRSTS
        self._stops: dict[int, int] = NO_STOPS

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, topic: Topic) -> None:
        if self._firsts is NO_FIRSTS:
            self._firsts, self._stops = [], {}
        for first, count in topic.ranges:
            if first not in self._stops:
                insort(self._firsts, first)
            self._stops[first] = first + count

    def require(self, partition_ids: Iterable[int]) -> None:
        """Raises Denied for one that is not among them."""
        first = stop = 0
        for partition_id in partition_ids:
            if not first <= partition_id < stop:
                at = bisect_right(self._firsts, partition_id)
                first = self._firsts[at - 1] if at else 0
                stop = self._stops.get(first, 0)
                if partition_id >= stop:
                    raise Denied("a partition of a topic that was not asked for")
