"""Messages that expire are settled, and dead letters: whoever takes finds out about them.

Those at the head of a queue expire in time while nobody takes them. The oldest ready message is looked at once when it
gets to the head of its partition; one timer wakes for the earliest time at which it expires. A topic's messages stay
where they are, so its groups settle what has expired when somebody takes.

Queues whose messages expire, or that have a place for dead letters, are watched for as long as they are there. Of the
others those that are in memory are, and after a start every one that holds something is looked at, in the background. A
message that expires by its own word in a queue that rests, and leaves no dead letter, is noticed when somebody asks.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.groups.group import READ_AGAIN_MS, LeasedGroup
from gatehouse.kernel.groups.group_settings import Queue
from gatehouse.kernel.groups.handing_out import Fetch, Prefetcher, Verdict
from gatehouse.kernel.groups.policy import EXPIRED, Policy
from gatehouse.kernel.message import Fetched, Leased
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.records import headers
from gatehouse.kernel.records.batch import read_headers
from gatehouse.kernel.records.headers import EXPIRES_HEADER
from gatehouse.kernel.state.state import Watermarks

if TYPE_CHECKING:
    from gatehouse.kernel.groups.leasing import Core

EXPIRED_AT_ONCE: Final = 100
EXPIRED_MAX: Final = 1_000               # in one turn, about: then others have theirs
LOOKED_AT_ONCE: Final = 200              # queues, after a start
LOOKED_BYTES: Final = 4 << 20
HANDED_MS: Final = 1_000
"""So soon after it entered a queue, a message that had expired by then goes to a member that waits. decision 288"""


def expires_at(headers_encoded: bytes) -> int:
    """When a message expires by its own word, in ms since 1970; 0: never, or no time."""
    if headers_encoded.find(EXPIRES_HEADER) < 0:
        return 0
    end_ms = headers.expires_at(read_headers(headers_encoded, 0)[0], 0, None)
    return 0 if end_ms == headers.NEVER else max(end_ms, 1)


class Expiry(Policy):
    """A group's: `ttl_ms()` is how long after it entered a queue, or after its timestamp, a message is worth anything;
    0: for ever. Asked when the group is configured."""

    judges_all = True

    def __init__(self, ttl_ms: Callable[[], int]) -> None:
        self._read_ttl_ms = ttl_ms
        self.on_configured()

    def on_configured(self) -> None:
        self._ttl_ms = self._read_ttl_ms()
        self.judges_plain = self._ttl_ms != 0

    def judge(self, prefetcher: Prefetcher, messages: list[Leased], verdict: Verdict) -> list[Leased]:
        if not prefetcher.mentions_expiry and not self._ttl_ms:
            return messages
        fresh: list[Leased] = []
        for message in messages:
            due_ms = self._due_ms(prefetcher, message)
            if due_ms and due_ms <= verdict.wall_ms and not self._is_awaited(prefetcher, message, due_ms, verdict):
                verdict.give_up(message, EXPIRED)
            else:
                fresh.append(message)
        return fresh

    def _due_ms(self, prefetcher: Prefetcher, message: Leased) -> int:
        """When a message expires, by its own word or by the group's; 0: never."""
        expires_ms, ttl_ms = expires_at(message[7]), self._ttl_ms
        if not ttl_ms:
            return expires_ms
        due_ms = prefetcher.entered_ms(message) + max(ttl_ms, 0)
        return min(expires_ms, due_ms) if expires_ms else due_ms

    def _is_awaited(self, prefetcher: Prefetcher, message: Leased, due_ms: int, verdict: Verdict) -> bool:
        """Whether a message that has expired goes to somebody who has waited for it."""
        return False


class QueueExpiry(Expiry):
    """A queue's: it looks at the heads of its partitions, too."""

    def __init__(self, core: Core, group: LeasedGroup, queue: Queue) -> None:
        self._core = core
        self._group = group
        self._known: dict[Prefetcher, int] = {}        # offset at the head that was looked at
        self._alarms: dict[Prefetcher, int] = {}       # when a timer wakes for it
        self._expiring: set[Prefetcher] = set()
        super().__init__(lambda: (group.queue or queue).settings.ttl_ms)

    def _is_awaited(self, prefetcher: Prefetcher, message: Leased, due_ms: int, verdict: Verdict) -> bool:
        """One that had no time to live at all was sent to whoever waits, and to nobody else."""
        if not verdict.for_waiting or message[2] > 1:
            return False
        entered_ms = prefetcher.entered_ms(message)
        return due_ms <= entered_ms and verdict.wall_ms - entered_ms < HANDED_MS

    def on_configured(self) -> None:
        """What is at the head may expire at another time."""
        super().on_configured()
        self._known.clear()

    @property
    def is_watching(self) -> bool:
        """Whether a message is known that will expire."""
        return bool(self._alarms)

    def on_start(self) -> None:
        """A group often comes into memory since somebody is about to take: then he finds out, and nothing is read for
        it before."""
        self._core.soon(self._group)

    def on_idle(self) -> None:  # decision 34
        """What is at the head may be another message, and nobody takes it."""
        for prefetcher in self._group.prefetchers.values():
            self._core.deadlines.act(partial(self._look, prefetcher))

    def _look(self, prefetcher: Prefetcher) -> None:
        head = prefetcher.head
        if head < 0 or self._known.get(prefetcher) == head:
            return
        self._known[prefetcher] = head
        message = prefetcher.peek(head)
        if message is not None:
            self._judge_head(prefetcher, message)
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
            self._core.deadlines.act(partial(self._judge_head, prefetcher, message))

    def _judge_head(self, prefetcher: Prefetcher, message: Leased) -> None:
        due_ms = self._due_ms(prefetcher, message)
        if not due_ms:
            return
        if due_ms <= self._core.wall_ms():
            self._expire(prefetcher)
        elif self._alarms.get(prefetcher, due_ms + 1) > due_ms:
            self._alarms[prefetcher] = due_ms
            self._core.deadlines.at_wall(due_ms, partial(self._ring, prefetcher, due_ms))

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
        gives_way = self._let_go(prefetcher)
        self._expiring.discard(prefetcher)
        if gives_way:
            self._alarms[prefetcher] = 0
            self._core.deadlines.soon(partial(self._ring, prefetcher, 0))
            return
        if prefetcher.failed:                          # nothing can be done about it for a while
            again_ms = self._core.now_ms() + READ_AGAIN_MS
            self._core.deadlines.at(again_ms, partial(self._ring, prefetcher, 0))
            return
        self._known.pop(prefetcher, None)
        if not prefetcher.fetching:
            if not self._group.taken_from:
                self._group.put_back(prefetcher)
            self._look(prefetcher)

    def _let_go(self, prefetcher: Prefetcher) -> bool:
        """Whether there may be more, after others have had their turn."""
        count = 0
        while prefetcher.has_more and not prefetcher.fetching:
            if count >= EXPIRED_MAX:
                return True
            verdict = self._group.verdict_of_all()
            fresh = prefetcher.take(EXPIRED_AT_ONCE, verdict)
            prefetcher.give_back(fresh)
            count += verdict.count
            self._group.carry_out(prefetcher, verdict)
            if fresh:
                break
            if not verdict.given_up:
                prefetcher.read(partial(self._go_on, prefetcher))
        return False

    def _go_on(self, prefetcher: Prefetcher) -> None:
        """A read is done; one that took its time comes back for the rest."""
        self._group.on_read(prefetcher)
        if not self._group.gone:
            self._core.deadlines.act(partial(self._expire, prefetcher))


class Sweep:
    """After a start: looks at the head of every queue that holds something, some at a time.

    `find` gives a queue as it is now, `wake` brings its group into memory.
    """

    def __init__(self, core: Core, loop: Loop, watermarks: Watermarks, fetch: Fetch,
                 find: Callable[[str, str], Queue | None], wake: Callable[[Queue], object]) -> None:
        self._core = core
        self._loop = loop
        self._watermarks = watermarks
        self._fetch = fetch
        self._find = find
        self._wake = wake
        self._left: list[tuple[int, Queue]] = []          # partition, and of which queue

    def begin(self, queues: list[Queue]) -> None:
        watermarks = self._watermarks
        self._left = [(partition_id, queue) for queue in queues for partition_id in queue.partition_ids()
                      if watermarks.log_start(partition_id) < watermarks.next_offset(partition_id)]
        self._next()

    def _next(self) -> None:
        some, self._left = self._left[-LOOKED_AT_ONCE:], self._left[:-LOOKED_AT_ONCE]
        if some and not self._core.deadlines.stopped:
            wants = [(partition_id, self._watermarks.log_start(partition_id), 1) for partition_id, _ in some]
            self._fetch(wants, LOOKED_BYTES, partial(self._looked, some))

    def _looked(self, some: list[tuple[int, Queue]], answers: list[Fetched]) -> None:
        for (partition_id, queue), answer in zip(some, answers, strict=True):
            if any(piece.data.find(EXPIRES_HEADER) >= 0 for piece in answer.pieces) \
                    and self._find(queue.tenant, queue.name) == queue:
                self._core.deadlines.act(partial(self._wake, queue))
            elif not answer.pieces and answer.error is None and answer.next_offset < 0 and len(some) > 1:
                self._left.append((partition_id, queue))           # too much at once; else nothing can be read there
        self._loop.call_soon(self._next)
