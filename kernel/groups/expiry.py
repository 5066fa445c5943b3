"""Messages of a queue that expire at its head while nobody takes them: settled, and dead letters, in time.

The oldest ready message is looked at once when it gets to the head of its partition; one timer wakes for the earliest
time at which it expires. Whoever takes finds out about all others. A topic's messages stay where they are, so its
groups settle what has expired when somebody takes.

Queues whose messages expire, or that have a place for dead letters, are watched for as long as they are there. Of the
others those that are in memory are, and after a start every one that holds something is looked at, in the background. A
message that expires by its own word in a queue that rests, and leaves no dead letter, is noticed when somebody asks.
"""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.groups.group import READ_AGAIN_MS, LeasedGroup
from gatehouse.kernel.groups.prefetcher import EXPIRES, Prefetcher, Rules
from gatehouse.kernel.groups.settings import Queue
from gatehouse.kernel.message import Fetched, Leased
from gatehouse.kernel.parts import Parts

if TYPE_CHECKING:
    from gatehouse.kernel.groups.leasing import Leasing

EXPIRED_AT_ONCE: Final = 100
LOOKED_AT_ONCE: Final = 200              # queues, after a start
LOOKED_BYTES: Final = 4 << 20


class Expiry:
    """One queue's."""

    def __init__(self, leasing: Leasing, group: LeasedGroup) -> None:
        self._leasing = leasing
        self._group = group
        self._known: dict[Prefetcher, int] = {}        # offset at the head that was looked at
        self._alarms: dict[Prefetcher, int] = {}       # when a timer wakes for it
        self._expiring: set[Prefetcher] = set()

    @property
    def watches(self) -> bool:
        """Whether a message is known that will expire."""
        return bool(self._alarms)

    def look(self) -> None:  # decision 34
        """What is at the head may be another message, and nobody takes it."""
        for prefetcher in self._group.prefetchers.values():
            self._leasing.deadlines.act(partial(self._look, prefetcher))

    def _look(self, prefetcher: Prefetcher) -> None:
        head = prefetcher.head
        if head < 0 or self._known.get(prefetcher) == head:
            return
        self._known[prefetcher] = head
        message = prefetcher.peek(head)
        if message is not None:
            self._judge(prefetcher, message)
        else:
            moved = prefetcher.cursor.moved
            prefetcher.fetch([(prefetcher.cursor.partition_id, head, 1)], 1,
                         lambda answers: self._read(prefetcher, head, moved, answers[0]))

    def _read(self, prefetcher: Prefetcher, head: int, moved: int, answer: Fetched) -> None:
        if self._group.gone or moved != prefetcher.cursor.moved or self._known.get(prefetcher) != head:
            return
        message = next((candidate for piece in answer.pieces for candidate in prefetcher.open(piece)
                        if candidate[1] == head), None)
        if message is None:
            self._known.pop(prefetcher)                # looked at again when something happens
        else:
            self._leasing.deadlines.act(partial(self._judge, prefetcher, message))

    def _judge(self, prefetcher: Prefetcher, message: Leased) -> None:
        due_ms = prefetcher.due_ms(message, self._group.ttl_ms)
        if not due_ms:
            return
        if due_ms <= self._leasing.wall_ms():
            self._expire(prefetcher)
        elif self._alarms.get(prefetcher, due_ms + 1) > due_ms:
            self._alarms[prefetcher] = due_ms
            self._leasing.deadlines.at_wall(due_ms, partial(self._ring, prefetcher, due_ms))

    def _ring(self, prefetcher: Prefetcher, due_ms: int) -> None:
        if self._alarms.get(prefetcher) == due_ms:
            del self._alarms[prefetcher]
        if not self._group.gone:
            self._known.pop(prefetcher, None)
            self._look(prefetcher)

    def _expire(self, prefetcher: Prefetcher) -> None:
        """Everything that has, from the head on."""
        if prefetcher in self._expiring:
            return
        self._expiring.add(prefetcher)
        self._let_go(prefetcher)
        self._expiring.discard(prefetcher)
        if prefetcher.failed:                          # nothing can be done about it for a while
            again_ms = self._leasing.now_ms() + READ_AGAIN_MS
            self._leasing.deadlines.at(again_ms, partial(self._ring, prefetcher, 0))
            return
        self._known.pop(prefetcher, None)
        if not prefetcher.fetching:
            if not self._group.taken_from:
                prefetcher.forget()
            self._look(prefetcher)

    def _let_go(self, prefetcher: Prefetcher) -> None:
        rules = Rules(None, self._group.ttl_ms, False, 0)
        while prefetcher.has_more and not prefetcher.fetching:
            taken = prefetcher.take(EXPIRED_AT_ONCE, self._leasing.wall_ms(), rules)
            prefetcher.front[:0] = taken.leased                     # these have not
            if taken.expired:
                self._group.expire(prefetcher, taken.expired)
            if taken.leased:
                return
            if not taken.expired:
                prefetcher.read(partial(self._go_on, prefetcher))

    def _go_on(self, prefetcher: Prefetcher) -> None:
        """A read is done; one that took its time comes back for the rest."""
        self._group.on_read(prefetcher)
        if not self._group.gone:
            self._leasing.deadlines.act(partial(self._expire, prefetcher))


class Sweep:
    """After a start: looks at the head of every queue that holds something, some at a time."""

    def __init__(self, parts: Parts, leasing: Leasing) -> None:
        self._parts = parts
        self._leasing = leasing
        self._left: list[tuple[int, Queue]] = []          # partition, and of which queue

    def begin(self, queues: list[Queue]) -> None:
        watermarks = self._parts.watermarks
        self._left = [(partition_id, queue) for queue in queues for partition_id in queue.partition_ids()
                      if watermarks.log_start(partition_id) < watermarks.next_offset(partition_id)]
        self._next()

    def _next(self) -> None:
        some, self._left = self._left[-LOOKED_AT_ONCE:], self._left[:-LOOKED_AT_ONCE]
        if some and not self._leasing.deadlines.stopped:
            wants = [(partition_id, self._parts.watermarks.log_start(partition_id), 1) for partition_id, _ in some]
            self._parts.reader.fetch_kept(wants, LOOKED_BYTES, partial(self._looked, some))

    def _looked(self, some: list[tuple[int, Queue]], answers: list[Fetched]) -> None:
        for (partition_id, queue), answer in zip(some, answers, strict=True):
            if any(EXPIRES in piece.data for piece in answer.pieces) \
                    and self._leasing.queues.definitions.get(queue.tenant, queue.name) == queue:
                self._leasing.deadlines.act(partial(self._leasing.queues.group_of, queue))
            elif not answer.pieces and answer.error is None and answer.next_offset < 0 and len(some) > 1:
                self._left.append((partition_id, queue))           # too much at once; else nothing can be read there
        self._parts.loop.call_soon(self._next)
