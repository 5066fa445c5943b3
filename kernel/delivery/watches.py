"""Long polls: a watch is woken by the flush that brings what it waits for, without a subscription. Hot.

Watches are kept by pages of 256 partition ids, so that a flush asks only those that may care: a thousand waiting
readers of other topics cost nothing. Those of all partitions of a large topic are kept together, by its ids: each wait
would else be put on every page of it.
"""
from __future__ import annotations

from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from typing import Final

from gatehouse.kernel.state.partition_ids import PartitionIds

PAGE_SHIFT: Final = 8                      # of partition ids, to the page of watches that they are on
MANY_PAGES: Final = 4                      # a topic with more is large


Ranges = tuple[tuple[int, int], ...]


class Watch:
    """One wait; it wakes once and is gone then. The ids of a whole topic cost nothing to hold, however many."""

    __slots__ = ("partition_ids", "wake", "pages", "ranges", "_watches")

    def __init__(self, watches: Watches, partition_ids: AbstractSet[int] | PartitionIds, wake: Callable[[], None]
                 ) -> None:
        self._watches = watches
        self.partition_ids = partition_ids
        self.wake = wake
        self.pages: Collection[int] = ()
        self.ranges: Ranges = ()                 # of a large topic; it is on no page then
        if not isinstance(partition_ids, PartitionIds):
            self.pages = {partition_id >> PAGE_SHIFT for partition_id in partition_ids}
        elif len(partition_ids) > MANY_PAGES << PAGE_SHIFT:
            self.ranges = partition_ids.ranges
        else:
            self.pages = {page for first, count in partition_ids.ranges
                          for page in range(first >> PAGE_SHIFT, (first + count - 1 >> PAGE_SHIFT) + 1)}

    def waits_for(self, partition_ids: AbstractSet[int]) -> bool:
        """Whether one of these is among the watched."""
        if isinstance(self.partition_ids, PartitionIds):
            return _has_one(self.partition_ids, partition_ids)
        return not partition_ids.isdisjoint(self.partition_ids)

    def cancel(self) -> None:
        self._watches.remove(self)


def _has_one(watched: PartitionIds, partition_ids: AbstractSet[int]) -> bool:
    for partition_id in partition_ids:
        if partition_id in watched:
            return True
    return False


class Watches:
    def __init__(self) -> None:
        self.waiting: dict[Watch, None] = {}
        self._by_page: dict[int, dict[Watch, None]] = {}
        self._of_large: dict[Ranges, dict[Watch, None]] = {}           # by the ids of the topic

    def add(self, partition_ids: Collection[int], wake: Callable[[], None]) -> Watch:
        watch = Watch(self, partition_ids if isinstance(partition_ids, (AbstractSet, PartitionIds))
                      else set(partition_ids), wake)
        self.waiting[watch] = None
        if watch.ranges:                                                # decision 316
            self._of_large.setdefault(watch.ranges, {})[watch] = None
        for page in watch.pages:
            self._by_page.setdefault(page, {})[watch] = None
        return watch

    def remove(self, watch: Watch) -> None:
        self.waiting.pop(watch, None)
        if watch.ranges:
            of_large = self._of_large.get(watch.ranges)
            if of_large is not None:
                of_large.pop(watch, None)
                if not of_large:
                    del self._of_large[watch.ranges]
        for page in watch.pages:
            watches = self._by_page.get(page)
            if watches is not None:
                watches.pop(watch, None)
                if not watches:
                    del self._by_page[page]

    def follow(self, entered: AbstractSet[int]) -> None:
        """Records entered these partitions: see `kernel.write.pending_frame.Follower`."""
        woken: dict[Watch, None] = {}
        if self._by_page:
            for page in {partition_id >> PAGE_SHIFT for partition_id in entered}:
                for watch in self._by_page.get(page, ()):
                    if watch.waits_for(entered):
                        woken[watch] = None
        if self._of_large and entered:
            lowest, highest = min(entered), max(entered)
            for ranges, watches in self._of_large.items():
                if ranges[0][0] <= highest and ranges[-1][0] + ranges[-1][1] > lowest \
                        and _has_one(PartitionIds(ranges), entered):
                    woken.update(watches)
        for watch in woken:
            self.remove(watch)
        for watch in woken:
            watch.wake()
