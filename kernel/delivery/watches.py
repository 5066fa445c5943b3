"""Waiting for new records: long polls are woken by the flush that brings what they wait for.

Watches are kept by pages of 256 partition ids, so that a flush asks only those that may care: a thousand waiting
readers of other topics cost nothing.
"""
from __future__ import annotations

from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from typing import Final

from gatehouse.kernel.write.pending_frame import Ranges

_PAGE_SHIFT: Final = 8


class Watch:
    """One wait; it wakes once and is gone then. A range of partition ids costs nothing to hold, however long."""

    __slots__ = ("partition_ids", "wake", "pages", "_watches")

    def __init__(self, watches: Watches, partition_ids: AbstractSet[int] | range, wake: Callable[[], None]) -> None:
        self._watches = watches
        self.partition_ids = partition_ids
        self.wake = wake
        self.pages: Collection[int]
        if isinstance(partition_ids, range):
            self.pages = range(partition_ids.start >> _PAGE_SHIFT, (partition_ids.stop - 1 >> _PAGE_SHIFT) + 1)
        else:
            self.pages = {partition_id >> _PAGE_SHIFT for partition_id in partition_ids}

    def waits_for(self, partition_ids: AbstractSet[int]) -> bool:
        """Whether one of these is among the watched."""
        if isinstance(self.partition_ids, range):
            return any(partition_id in self.partition_ids for partition_id in partition_ids)
        return not partition_ids.isdisjoint(self.partition_ids)

    def cancel(self) -> None:
        self._watches.remove(self)


class Watches:
    def __init__(self) -> None:
        self._by_page: dict[int, dict[Watch, None]] = {}

    def add(self, partition_ids: Collection[int], wake: Callable[[], None]) -> Watch:
        watch = Watch(self, partition_ids if isinstance(partition_ids, (AbstractSet, range)) else set(partition_ids),
                      wake)
        assert not isinstance(watch.partition_ids, range) or watch.partition_ids.step == 1, "neighbours"
        for page in watch.pages:
            self._by_page.setdefault(page, {})[watch] = None
        return watch

    def remove(self, watch: Watch) -> None:
        for page in watch.pages:
            watches = self._by_page.get(page)
            if watches is not None:
                watches.pop(watch, None)
                if not watches:
                    del self._by_page[page]

    def follow(self, entered: AbstractSet[int], deleted: Ranges) -> None:
        """See `kernel.write.pending_frame.Follower`."""
        self.touch(entered)

    def touch(self, partition_ids: AbstractSet[int]) -> None:
        """Records entered these partitions."""
        if not self._by_page:
            return
        woken: dict[Watch, None] = {}
        for page in {partition_id >> _PAGE_SHIFT for partition_id in partition_ids}:
            for watch in self._by_page.get(page, ()):
                if watch.waits_for(partition_ids):
                    woken[watch] = None
        for watch in woken:
            self.remove(watch)
        for watch in woken:
            watch.wake()
