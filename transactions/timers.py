"""When transactions are due, in buckets of a tenth of a second, and wider ones for longer waits. Pure. Hot.

An id is in one bucket, that of the time and the wait it was added with; whoever takes it out says both again. There are
about a thousand buckets for each wait that is in use, however many transactions there are and whenever they began.
"""
from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from gatehouse.transactions.id_set import IdSet

BUCKET_MS: Final = 100             # a check comes so much too late at most, and never too early;
LATE_PART: Final = 512             # where it is waited for longer, this part of the wait


def due_at(when_ms: int, wait_ms: int = 0) -> int:
    """When a bucket is due: at a time or shortly after."""
    # decision 44: wider buckets for longer waits
    width_ms = max(1, wait_ms // (LATE_PART * BUCKET_MS)) * BUCKET_MS
    return -(-when_ms // width_ms) * width_ms


class Timers:
    def __init__(self) -> None:
        self._buckets: dict[int, IdSet] = {}         # by the time at which all of it is due
        self._order: list[int] = []                  # a heap of those times; those of empty buckets among them

    def add(self, when_ms: int, transaction_id: int, wait_ms: int = 0) -> None:
        due_ms = due_at(when_ms, wait_ms)
        bucket = self._buckets.get(due_ms)
        if bucket is None:
            bucket = self._buckets[due_ms] = IdSet()
            heappush(self._order, due_ms)
        bucket.add(transaction_id)

    def put_back(self, now_ms: int, transaction_id: int) -> None:
        """It was taken, and is due still."""
        self.add(now_ms // BUCKET_MS * BUCKET_MS, transaction_id)

    def discard(self, when_ms: int, transaction_id: int, wait_ms: int = 0) -> None:
        bucket = self._buckets.get(due_at(when_ms, wait_ms))
        if bucket is not None:
            bucket.discard(transaction_id)

    def next_ms(self) -> int | None:
        """When something is due; None: nothing ever."""
        while self._order and not self._buckets[self._order[0]]:
            del self._buckets[heappop(self._order)]
        return self._order[0] if self._order else None

    def take(self, now_ms: int, limit: int) -> list[int]:
        """Up to `limit` ids that are due, taken out, the longest due first."""
        taken: list[int] = []
        while len(taken) < limit and (due_ms := self.next_ms()) is not None and due_ms <= now_ms:
            taken += self._buckets[due_ms].take(limit - len(taken))
        return taken
