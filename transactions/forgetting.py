"""Decisions are forgotten after a time, and sooner where there are too many.

A clock decides, so the deletions are appended as state first and take effect then.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.ports import Loop
from gatehouse.transactions.book import Book
from gatehouse.transactions.plan import Plan
from gatehouse.transactions.settings import TransactionSettings

if TYPE_CHECKING:
    from gatehouse.kernel.halves.halves import Halves

LOOK_MS: Final = 10_000


class Forgetter:
    def __init__(self, loop: Loop, halves: Halves, book: Book, settings: TransactionSettings) -> None:
        self._loop = loop
        self._halves = halves
        self._book = book
        self.settings = settings
        self._stopped = False
        self._busy = False

    def start(self) -> None:
        self._loop.call_at(self._loop.now_ms() + LOOK_MS, self._on_time)
        self._book.listeners.append(self._ended)

    def stop(self) -> None:
        self._stopped = True

    def _on_time(self) -> None:
        if not self._stopped:
            self._loop.call_at(self._loop.now_ms() + LOOK_MS, self._on_time)
            self.look()

    def _ended(self, plan: Plan, stored: bool) -> None:
        if plan.forgotten:
            self._busy = False
        if stored and (plan.forgotten or self._book.outcomes.count > self.settings.max_remembered):
            self._loop.call_soon(self.look)

    def look(self) -> None:
        """Forget what is over, as much as one frame takes."""
        if self._stopped or self._busy or self._book.outcomes.is_loading:
            return
        too_many = self._book.outcomes.count - self.settings.max_remembered
        until_ms = self._loop.now_ms() - self.settings.remembered_ms
        plan: Plan | None = None
        count = 0
        for ended in self._book.outcomes:
            if count >= self.settings.slice or ended.decided_ms > until_ms and count >= too_many:
                break
            if ended.ids[-1] >= self._book.fresh.oldest:         # by it a start knows that it is decided; decision 48
                break
            if plan is None:
                try:
                    plan = self._book.plan_of(self._halves.open_frame())
                except Stopping:
                    return
                self._busy = True
            assert not plan.forgotten or plan.forgotten[-1].decided_ms <= ended.decided_ms, "the oldest first"
            plan.forgotten.append(ended)
            count += len(ended.ids)
