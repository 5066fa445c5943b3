"""How much a queue holds at most, in messages and in bytes of their values, and what gives way.

What nobody has leased counts: ready, waiting, gathered for the next frame, and on its way to the disk. A queue that
drops its head does so when messages have entered it, before anybody is served; one that refuses does so before anything
of a call is taken. What the hub itself moves (dead letters, deliveries that fall due) enters a queue that refuses all
the same: it has nowhere else to be.

After a start, or once it has other limits, a queue is held to its bytes when its messages have been looked at, see
`ByteCount`. What is far too much goes over several turns of the loop.
"""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.errors import QueueFull
from gatehouse.kernel.groups.group_settings import Queue
from gatehouse.kernel.groups.handing_out import FETCH_BYTES, Prefetcher
from gatehouse.kernel.groups.policy import EXPIRED, OVERFLOW, Policy
from gatehouse.kernel.message import Fetched, Message

if TYPE_CHECKING:
    from gatehouse.kernel.groups.group import LeasedGroup
    from gatehouse.kernel.groups.leasing import Core
    from gatehouse.kernel.write.pending_frame import PendingFrame

UNLIMITED: Final = 1 << 62
DROPPED_AT_ONCE: Final = 1_000         # before others have a turn: some ms
FORGOTTEN_AT_ONCE: Final = 1_000
REJECT: Final = "reject"

Room = list[int]
"""How many messages, and how many bytes of values, have room still."""


def most(limit: int) -> int:
    """What a limit in a queue's settings means."""
    return UNLIMITED if limit == 0 else max(limit, 0)


class MaxLength(Policy):
    """The policy that holds one queue to its limits."""

    def __init__(self, core: Core, group: LeasedGroup, queue: Queue) -> None:
        self._core = core
        self._group = group
        self.queue = queue
        self._max_length = most(queue.settings.max_length)
        self._max_bytes = most(queue.settings.max_bytes)
        self._byte_counts: list[ByteCount] = []
        self._enforcing = False
        self._goes_on = False                          # in the next turn
        self._is_behind = True                         # the queue has not been within these limits yet

    @property
    def rejects(self) -> bool:
        return self.queue.settings.overflow == REJECT

    @property
    def is_watching(self) -> bool:
        return True

    def on_start(self) -> None:
        if self._max_bytes != UNLIMITED:
            self._byte_counts = [ByteCount(prefetcher, self._core.deadlines.soon)
                                 for prefetcher in self._group.prefetchers.values()]
        self.room()                                    # begins to learn what its messages weigh
        self.on_ready()

    def room(self) -> Room:
        """What has room now; less than nothing where there is too much already."""
        waiting = sum([prefetcher.cursor.waiting_count for prefetcher in self._group.prefetchers.values()])
        held = sum([byte_count.free_bytes(self.on_ready) for byte_count in self._byte_counts])
        return [self._max_length - self._group.ready - waiting, self._max_bytes - held]

    def room_behind(self, pending: list[PendingFrame]) -> Room:
        """What has room behind what is on its way into the queue."""
        messages, size = self.room()
        first = self.queue.first_partition_id
        entering_bytes = sum([pending_frame.entering_bytes.get(first, 0) for pending_frame in pending])
        return [messages - self._group.entering, size - entering_bytes]

    def on_ready(self) -> None:
        """Let the oldest go that are too much."""
        if self._enforcing or self._group.gone or self.rejects or self not in self._group.policies:
            return                                     # of no more policies: the queue has other limits by now
        self._enforcing = True
        try:
            self._core.deadlines.act(self._drop)
        finally:
            self._enforcing = False

    def _drop(self) -> None:
        messages, size = self.room()
        left = DROPPED_AT_ONCE
        while messages < 0 or size < 0:
            if left <= 0 and self._is_behind:
                self._go_on_later()
                return
            prefetcher = next((candidate for candidate in self._group.prefetchers.values() if candidate.has_more),
                              None)    # lowest priority
            if prefetcher is None:
                return
            count = min(-messages, DROPPED_AT_ONCE) if messages < 0 else 1
            verdict = self._group.verdict_of_all()
            dropped = prefetcher.take(count, verdict)
            expired = verdict.given_up.get(EXPIRED, [])
            self._group.carry_out(prefetcher, verdict)
            if dropped:
                self._group.give_up(prefetcher, dropped, OVERFLOW)
            for message in dropped + expired:
                left -= 1
                messages += 1
                size += len(message[6] or b"")
            if not dropped and not expired and not self._read(prefetcher):
                return
        self._is_behind = self._is_behind and any(byte_count.is_behind for byte_count in self._byte_counts)

    def _go_on_later(self) -> None:
        if not self._goes_on:
            self._goes_on = True
            self._core.deadlines.soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        self.on_ready()

    def _read(self, prefetcher: Prefetcher) -> bool:
        """True where there is something to take now. A read that takes its time comes back to `on_ready`."""
        if not prefetcher.fetching and prefetcher.has_more:
            self._group.read(prefetcher)
        return not prefetcher.fetching and prefetcher.has_more


class ByteCount:
    """The bytes of what one cursor of a queue holds: the sizes of its values, in runs of consecutive offsets. A gap
    between two runs costs nothing, however wide it is.

    Learns sizes by looking at every message once, on entering or after a start; and who is leased, or settled above the
    committed, by what the cursor notes, so that it costs the same however many those are.
    """

    def __init__(self, prefetcher: Prefetcher, soon: Callable[[Callable[[], None]], None]) -> None:
        """`soon` calls something in the loop's next turn."""
        self._prefetcher = prefetcher
        self._soon = soon
        self._cursor = prefetcher.cursor
        self._follower = self._cursor.follow()
        self._reading = False
        self._at_once = False
        self._goes_on = False                         # in the next turn
        self._begin()

    def _begin(self) -> None:
        self._moved = self._cursor.moved
        self._end = self._cursor.committed                  # everything below it is settled, or has been looked at
        self._runs: list[tuple[int, list[int]]] = []  # first offset, and the sizes from there on
        self._done = 0                                # sizes below the committed, at the beginning of the first run
        self._total = 0                               # of the others
        self._away: dict[int, int] = {}               # sizes of those of them that are leased, or settled
        self._away_total = 0
        self.is_behind = True                        # has not yet looked at all that there is

    def free_bytes(self, on_more: Callable[[], None]) -> int:
        """The bytes of what nobody has leased, as far as they are known; `on_more` is called later where more gets
        known."""
        if self._moved != self._cursor.moved:           # the cursor was read back
            self._begin()
        self._follow()
        self._learn(on_more)
        self._forget_settled()
        assert 0 <= self._away_total <= self._total, "what is away is part of what is held"
        return self._total - self._away_total

    # ---- what is leased, or settled

    def _follow(self) -> None:
        changes = self._cursor.changes(self._follower)
        if changes is None:
            self._away, self._away_total = {}, 0
            changes = self._cursor.leased_offsets() + [
                offset for first, behind in self._cursor.settled_stretches() for offset in self._known(first, behind)]
        for offset in changes:
            if self._cursor.committed <= offset < self._end:
                self._look(offset)

    def _look(self, offset: int) -> None:
        """At one whose size is known, if there is one."""
        is_away = self._cursor.is_leased(offset) or self._cursor.is_settled(offset)
        if not is_away:
            self._away_total -= self._away.pop(offset, 0)
        elif offset not in self._away and (size := self._size_of(offset)):
            self._away[offset] = size
            self._away_total += size

    def _known(self, start: int, stop: int) -> Iterator[int]:
        """The offsets from one until before another whose sizes are known."""
        at = max(0, bisect_right(self._runs, start, key=itemgetter(0)) - 1)
        while at < len(self._runs) and self._runs[at][0] < stop:
            first, sizes = self._runs[at]
            yield from range(max(start, first), min(stop, first + len(sizes)))
            at += 1

    def _size_of(self, offset: int) -> int:
        at = bisect_right(self._runs, offset, key=itemgetter(0)) - 1
        if at < 0 or offset - self._runs[at][0] >= len(self._runs[at][1]):
            return 0
        return self._runs[at][1][offset - self._runs[at][0]]

    # ---- sizes

    def _learn(self, on_more: Callable[[], None]) -> None:
        end, before = self._prefetcher.end(), -1
        while not self._reading and not self._goes_on and before < self._end < end:
            before = self._end
            self._reading = self._at_once = True
            wants = [(self._cursor.partition_id, self._end, FETCH_BYTES)]
            self._prefetcher.fetch(wants, FETCH_BYTES, partial(self._read, self._moved, on_more))
            self._at_once = False
            if self.is_behind and before < self._end < end:
                self._goes_on = True                  # others have a turn; what enters later is looked at whole
                self._soon(partial(self._go_on, on_more))
        self.is_behind = self.is_behind and self._end < end

    def _go_on(self, on_more: Callable[[], None]) -> None:
        self._goes_on = False
        on_more()

    def _read(self, moved: int, on_more: Callable[[], None], answers: list[Fetched]) -> None:
        self._reading = False
        if moved != self._moved or not answers[0].pieces:
            return
        for piece in answers[0].pieces:
            for message in self._prefetcher.open(piece):
                if message[1] >= self._end:
                    self._add(message[1], len(message[6] or b""))
                    self._look(message[1])
            self._end = max(self._end, piece.first_offset + piece.count)
        if not self._at_once:
            on_more()

    def _add(self, offset: int, size: int) -> None:
        runs = self._runs
        assert not runs or offset >= runs[-1][0] + len(runs[-1][1]), "messages are looked at once, in order"
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
            assert self._total >= 0, "bytes are those of what is held"
            for offset in range(first + self._done, first + below) if self._away else ():
                self._away_total -= self._away.pop(offset, 0)
            self._done = below
            if below == len(sizes):
                del runs[0]
                self._done = 0
                continue
            if below > FORGOTTEN_AT_ONCE and 2 * below > len(sizes):
                runs[0] = (first + below, sizes[below:])
                self._done = 0
            break


class MaxLengths:
    """The limits of all queues that refuse what is too much, while these are there. `refusing` has their partition
    ids."""

    def __init__(self, refusing: set[int], pending: Callable[[], list[PendingFrame]]) -> None:
        self._refusing = refusing
        self._pending = pending
        self._by_partition: dict[int, MaxLength] = {}          # by each of their partition ids

    def limit(self, core: Core, group: LeasedGroup, queue: Queue) -> MaxLength:
        """The limits of one more queue."""
        max_length = MaxLength(core, group, queue)
        if max_length.rejects:
            self._by_partition.update(dict.fromkeys(queue.partition_ids(), max_length))
            self._refusing.update(queue.partition_ids())
        return max_length

    def forget(self, queue: Queue) -> None:
        """The queue is not there any more."""
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
                    raise QueueFull(f"queue {limit.queue.name!r} is full", index, limit.queue.name)
                room[0] -= 1
                room[1] -= size
                first = limit.queue.first_partition_id
                entering[first] = entering.get(first, 0) + size
        return entering
