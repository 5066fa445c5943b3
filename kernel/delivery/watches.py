"""Long polls: a watch is woken by the flush that brings what it waits for, without a subscription. Hot.

Watches are kept by pages of 256 partition ids, so that a flush asks only those that may care: a thousand waiting
readers of other topics cost nothing.
"""
from __future__ import annotations

from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from typing import Final

from gatehouse.kernel.state.partition_ids import PartitionIds

PAGE_SHIFT: Final = 8                      # of partition ids, to the page of watches that they are on


class Watch:
    """One wait; it wakes once and is gone then. The ids of a whole topic cost nothing to hold, however many."""

    __slots__ = ("partition_ids", "wake", "pages", "_watches")

    def __init__(self, watches: Watches, partition_ids: AbstractSet[int] | PartitionIds, wake: Callable[[], None]
                 ) -> None:
        self._watches = watches
        self.partition_ids = partition_ids
        self.wake = wake
        self.pages: Collection[int]
        if isinstance(partition_ids, PartitionIds):
            self.pages = {page for first, count in partition_ids.ranges
                          for page in range(first >> PAGE_SHIFT, (first + count - 1 >> PAGE_SHIFT) + 1)}
        else:
            self.pages = {partition_id >> PAGE_SHIFT for partition_id in partition_ids}

    def waits_for(self, partition_ids: AbstractSet[int]) -> bool:
        """Whether one of these is among the watched."""
        if isinstance(self.partition_ids, PartitionIds):
            watched = self.partition_ids
            for partition_id in partition_ids:
                if partition_id in watched:
                    return True
            return False
        return not partition_ids.isdisjoint(self.partition_ids)

    def cancel(self) -> None:
        self._watches.remove(self)


class Watches:
    def __init__(self) -> None:
        self.waiting: dict[int, dict[Watch, None]] = {}            # by page

    def add(self, partition_ids: Collection[int], wake: Callable[[], None]) -> Watch:
        watch = Watch(self, partition_ids if isinstance(partition_ids, (AbstractSet, PartitionIds))
                      else set(partition_ids), wake)
        for page in watch.pages:
            self.waiting.setdefault(page, {})[watch] = None
        return watch

    def remove(self, watch: Watch) -> None:
        for page in watch.pages:
            watches = self.waiting.get(page)
            if watches is not None:
                watches.pop(watch, None)
                if not watches:
                    del self.waiting[page]

    def follow(self, entered: AbstractSet[int]) -> None:
        """Records entered these partitions: see `kernel.write.pending_frame.Follower`."""
        woken: dict[Watch, None] = {}
        for page in {partition_id >> PAGE_SHIFT for partition_id in entered}:
            for watch in self.waiting.get(page, ()):
                if watch.waits_for(entered):
                    woken[watch] = None
        for watch in woken:
            self.remove(watch)
        for watch in woken:
            watch.wake()
