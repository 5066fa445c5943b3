"""How much a queue holds at most, in messages and in bytes of their values, and what gives way.

What nobody has leased counts: ready, waiting, gathered for the next frame, and on its way to the disk. A queue that
drops its head does so when messages have entered it, before anybody is served; one that refuses does so before anything
of a call is taken. What the hub itself moves (dead letters, deliveries that fall due) enters a queue that refuses all
the same: it has nowhere else to be.

After a start a queue is held to its bytes once its messages have been looked at, see `kernel.groups.byte_count`.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.errors import QueueFull
from gatehouse.kernel.groups.byte_count import ByteCount
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.prefetcher import Prefetcher, Rules
from gatehouse.kernel.groups.reasons import OVERFLOW
from gatehouse.kernel.groups.settings import Queue
from gatehouse.kernel.message import Message

if TYPE_CHECKING:
    from gatehouse.kernel.groups.leasing import Leasing
    from gatehouse.kernel.write.pending_frame import PendingFrame

UNLIMITED: Final = 1 << 62
ANYTHING: Final = Rules(None, 0, False, 0)
DROPPED_AT_ONCE: Final = 1_000
REJECT: Final = "reject"

Room = list[int]
"""How many messages, and how many bytes of values, have room still."""


def most(limit: int) -> int:
    """What a limit in a queue's settings means."""
    return UNLIMITED if limit == 0 else max(limit, 0)


class MaxLength:
    """One queue's."""

    def __init__(self, leasing: Leasing, group: LeasedGroup, queue: Queue) -> None:
        self._leasing = leasing
        self._group = group
        self.queue = queue
        self._max_length = most(queue.settings.max_length)
        self._max_bytes = most(queue.settings.max_bytes)
        weighs = self._max_bytes != UNLIMITED
        self._weights = [ByteCount(prefetcher) for prefetcher in group.prefetchers.values()] if weighs else []
        self._enforcing = False

    @property
    def rejects(self) -> bool:
        return self.queue.settings.overflow == REJECT

    def room(self) -> Room:
        """What has room now; less than nothing where there is too much already."""
        waiting = sum([prefetcher.cursor.waiting_count for prefetcher in self._group.prefetchers.values()])
        held = sum([byte_count.free_bytes(self.enforce) for byte_count in self._weights])
        return [self._max_length - self._group.ready - waiting, self._max_bytes - held]

    def room_behind(self, pending: list[PendingFrame]) -> Room:
        """What has room behind what is on its way into the queue."""
        messages, size = self.room()
        for pending_frame in pending:
            for partition_id in self.queue.partition_ids():
                messages -= pending_frame.builder.entering(partition_id)
            size -= pending_frame.entering_bytes.get(self.queue.first_partition_id, 0)
        return [messages, size]

    def enforce(self) -> None:
        """Let the oldest go that are too much."""
        if self._enforcing or self._group.gone or self.rejects:
            return
        self._enforcing = True
        try:
            self._leasing.deadlines.act(self._drop)
        finally:
            self._enforcing = False

    def _drop(self) -> None:
        messages, size = self.room()
        while messages < 0 or size < 0:
            prefetcher = next((candidate for candidate in self._group.prefetchers.values() if candidate.has_more),
                              None)    # lowest priority
            if prefetcher is None:
                return
            count = min(-messages, DROPPED_AT_ONCE) if messages < 0 else 1
            taken = prefetcher.take(count, self._leasing.wall_ms(), ANYTHING)
            if taken.expired:
                self._group.expire(prefetcher, taken.expired)
            if taken.leased:
                self._leasing.dead_letter(self._group, prefetcher, taken.leased, OVERFLOW)
            for message in taken.leased + taken.expired:
                messages += 1
                size += len(message[6] or b"")
            if not taken.leased and not taken.expired and not self._read(prefetcher):
                return

    def _read(self, prefetcher: Prefetcher) -> bool:
        """True where there is something to take now. A read that takes its time comes back to `enforce`."""
        if not prefetcher.fetching and prefetcher.has_more:
            prefetcher.read(partial(self._group.on_read, prefetcher))
        return not prefetcher.fetching and prefetcher.has_more


class MaxLengths:
    """The limits of all queues that have one. They are in memory for as long as they are there."""

    def __init__(self, leasing: Leasing, refusing: set[int], pending: Callable[[], list[PendingFrame]]) -> None:
        self._leasing = leasing
        self._refusing = refusing
        self._pending = pending
        self._by_partition: dict[int, MaxLength] = {}          # those that refuse, by each of their partition ids

    def add(self, group: LeasedGroup, queue: Queue) -> MaxLength:
        limit = MaxLength(self._leasing, group, queue)
        if limit.rejects:
            self._by_partition.update(dict.fromkeys(queue.partition_ids(), limit))
            self._refusing.update(queue.partition_ids())
        return limit

    def forget(self, queue: Queue) -> None:
        for partition_id in queue.partition_ids():
            self._by_partition.pop(partition_id, None)
            self._refusing.discard(partition_id)

    def refuse_full(self, messages: list[Message]) -> None:
        """Raises QueueFull where one of these has no room in a queue that it would enter; else they are counted."""
        entering = self.require_room(messages)
        for first, size in entering.items():
            counted = self._pending()[-1].entering_bytes
            counted[first] = counted.get(first, 0) + size

    def require_room(self, messages: list[Message]) -> dict[int, int]:  # decision 33
        """Raises QueueFull where one of these would have no room in a queue. Nothing is counted: answers the bytes by
        the first partition id of each queue that they would enter."""
        pending = self._pending()
        rooms: dict[MaxLength, Room] = {}
        entering: dict[int, int] = {}
        for index, (placement, value, _, _, _) in enumerate(messages):
            if not placement.limited:
                continue
            for partition_id in (placement.partition_id, *placement.also):
                limit = self._by_partition.get(partition_id)
                if limit is None:
                    continue
                room = rooms.get(limit) or rooms.setdefault(limit, limit.room_behind(pending))
                size = len(value or b"")
                if room[0] < 1 or room[1] < size:
                    raise QueueFull(f"queue {limit.queue.name!r} is full", index)
                room[0] -= 1
                room[1] -= size
                first = limit.queue.first_partition_id
                entering[first] = entering.get(first, 0) + size
        return entering
