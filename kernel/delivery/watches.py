"""Waiting for new records: long polls are woken by the flush that brings what they wait for.

Watches are kept by pages of 256 queue ids, so that a flush asks only those that may care: a thousand waiting readers of
other topics cost nothing.
"""
from __future__ import annotations

from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from typing import Final

_PAGE_SHIFT: Final = 8


class Watch:
    """One wait; it wakes once and is gone then. A range of queue ids costs nothing to hold, however long."""

    __slots__ = ("queue_ids", "wake", "pages", "_watches")

    def __init__(self, watches: Watches, queue_ids: AbstractSet[int] | range, wake: Callable[[], None]) -> None:
        self._watches = watches
        self.queue_ids = queue_ids
        self.wake = wake
        self.pages: Collection[int]
        if isinstance(queue_ids, range):
            self.pages = range(queue_ids.start >> _PAGE_SHIFT, (queue_ids.stop - 1 >> _PAGE_SHIFT) + 1)
        else:
            self.pages = {queue_id >> _PAGE_SHIFT for queue_id in queue_ids}

    def waits_for(self, queue_ids: AbstractSet[int]) -> bool:
        """Whether one of these is among the watched."""
        if isinstance(self.queue_ids, range):
            return any(queue_id in self.queue_ids for queue_id in queue_ids)
        return not queue_ids.isdisjoint(self.queue_ids)

    def cancel(self) -> None:
        self._watches.remove(self)


class Watches:
    def __init__(self) -> None:
        self._by_page: dict[int, dict[Watch, None]] = {}

    def add(self, queue_ids: Collection[int], wake: Callable[[], None]) -> Watch:
        watch = Watch(self, queue_ids if isinstance(queue_ids, (AbstractSet, range)) else set(queue_ids), wake)
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

    def touch(self, queue_ids: AbstractSet[int]) -> None:
        """Records entered these queues."""
        if not self._by_page:
            return
        woken: dict[Watch, None] = {}
        for page in {queue_id >> _PAGE_SHIFT for queue_id in queue_ids}:
            for watch in self._by_page.get(page, ()):
                if watch.waits_for(queue_ids):
                    woken[watch] = None
        for watch in woken:
            self.remove(watch)
        for watch in woken:
            watch.wake()
