"""What became of schedules is forgotten after a day, and sooner where it is more than a million.

A clock decides, so the deletions are appended as state first and take effect then.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.scheduling.book import Book
from gatehouse.kernel.scheduling.plan import Plan
from gatehouse.kernel.scheduling.schedule_records import BEYOND, forget_bound, split_ids
from gatehouse.kernel.state.state import Kind, StateTable

LOOK_MS: Final = 60_000
AGAIN_MS: Final = 100             # where one look did not reach the end
IDS_PER_LOOK: Final = 10_000      # bounds one frame
MAX_SETTLED: Final = 1_000_000

Found = list[tuple[bytes, bytes]]


class Sweeping:
    """`worker` reads the index."""

    def __init__(self, *, loop: Loop, worker: Worker, index: Index, state: StateTable, book: Book,
                 fatal: Callable[[str], None]) -> None:
        self._loop = loop
        self._worker = worker
        self._index = index
        self._state = state
        self._book = book
        self._fatal = fatal
        self._stopped = False
        self.max_settled = MAX_SETTLED
        book.listeners.append(self._ended)

    def start(self) -> None:
        self._look_in(LOOK_MS)

    def stop(self) -> None:
        self._stopped = True

    def _look_in(self, wait_ms: int) -> None:
        self._loop.call_at(self._loop.now_ms() + wait_ms, self._look)

    def _look(self) -> None:
        if not self._stopped:
            too_many = max(0, self._book.counts.settled - self.max_settled)
            job = partial(self._scan, self._book.swept_to, forget_bound(self._loop.now_ms()), too_many)
            self._worker.submit(job, self._scanned)

    def _scan(self, start: bytes, over: bytes, too_many: int) -> Found:
        """On the reading thread: what is over, or beyond what is kept; as much as one frame takes."""
        rows: Found = []
        ids = 0
        for key, value in self._index.scan_state(Kind.TIMER, start, BEYOND):
            if key >= over and ids >= too_many or ids >= IDS_PER_LOOK:
                break
            rows.append((key, value))
            ids += len(split_ids(value))
        return rows

    def _scanned(self, rows: Found | None, error: BaseException | None) -> None:
        if rows is None:
            self._fatal(f"the index cannot be read: {error}")
            return
        # A store that lags behind, as the disk is full, may still list what is forgotten already.
        fresh = [row for row in rows if self._state.recent(Kind.TIMER, row[0]) is None]
        if not fresh or self._stopped:
            self._look_in(LOOK_MS)
            return
        try:
            plan = self._book.plan()
        except Stopping:
            return
        for key, value in fresh:
            plan.forget(key, split_ids(value))

    def _ended(self, plan: Plan, stored: bool) -> None:
        if plan.swept_to:
            self._look_in(AGAIN_MS if stored else LOOK_MS)
