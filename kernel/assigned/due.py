"""What is looked at next: every entry once in one heap, at the earliest time at which something of it may fall due."""
from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

from gatehouse.kernel.ports import Loop, Timer

MAX_STALE: Final = 1_000
"""Times in the heap at which nothing is looked at any more, beside one for each entry."""


class Watched(Protocol):
    """`due_ms` is when it is looked at next; 0: never."""

    due_ms: int


T = TypeVar("T", bound=Watched)


# decision 161: one entry in one heap
class DueHeap(Generic[T]):
    """Calls `look` with an entry and the time; too early does no harm, so that heartbeats need not say anything."""

    def __init__(self, loop: Loop, look: Callable[[T, int], None], count: Callable[[], int]) -> None:
        self._loop = loop
        self._look = look
        self._count = count                    # how many entries there are
        self._heap: list[tuple[int, int, T]] = []
        self._numbers = 0
        self._timer: Timer | None = None
        self._timer_ms = 0                     # when it comes
        self._stopped = False

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, entry: T, when_ms: int | None) -> None:
        """Look at the entry then, if not before; None: never, as far as this goes."""
        if when_ms is None or entry.due_ms and entry.due_ms <= when_ms:
            return
        entry.due_ms = when_ms
        self._numbers += 1
        heappush(self._heap, (when_ms, self._numbers, entry))
        if len(self._heap) > 2 * self._count() + MAX_STALE:
            self._heap = list({id(row[2]): row for row in self._heap if row[2].due_ms == row[0]}.values())
            heapify(self._heap)
        self._set_timer()

    def stop(self) -> None:
        self._stopped = True

    def _set_timer(self) -> None:
        if self._heap and (self._timer is None or self._heap[0][0] < self._timer_ms):
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ms = self._heap[0][0]
            self._timer = self._loop.call_at(self._timer_ms, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        now_ms = self._loop.now_ms()
        while self._heap and self._heap[0][0] <= now_ms and not self._stopped:
            when_ms, _, entry = heappop(self._heap)
            if entry.due_ms == when_ms:            # else it was looked at earlier
                entry.due_ms = 0
                self._look(entry, now_ms)
        self._set_timer()
