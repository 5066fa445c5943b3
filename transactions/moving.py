"""Fresh transactions that stay undecided move into records of their own: after a time, or when there are too many.

Whoever has to change one that stays undecided, by more half messages or a check, has it moved first.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.alarm import Alarm
from gatehouse.kernel.errors import Busy, KernelError, StorageFull
from gatehouse.kernel.ports import Loop
from gatehouse.transactions.access import Access, Step
from gatehouse.transactions.book import Book
from gatehouse.transactions.fresh import Begun
from gatehouse.transactions.plan import Plan
from gatehouse.transactions.records import Transaction

if TYPE_CHECKING:
    from gatehouse.kernel.halves.halves import Halves

RETRY_MS: Final = 1_000           # after the disk refused some
BUSY_MS: Final = 100


class Moving:
    def __init__(self, loop: Loop, halves: Halves, book: Book, access: Access, slice_: int) -> None:
        self._loop = loop
        self._halves = halves
        self._book = book
        self._access = access
        self._slice = slice_                      # that move with one frame, about
        self._alarm = Alarm(loop.call_at, self.turn)
        self._not_before_ms = 0
        self._round = False                       # some are on their way
        self._stopped = False

    def start(self) -> None:
        self._book.listeners.append(self._plan_ended)
        self.turn()

    def stop(self) -> None:
        self._stopped = True
        self._alarm.cancel()

    def find(self, transaction_id: int, tenant: str, step: Step, refused: Callable[[KernelError], None]) -> None:
        """As `Access.find`, for who changes one of the tenant that stays undecided: it is fresh no more."""
        def found(transaction: Transaction | None) -> None:
            fresh = self._book.fresh.get(transaction_id)
            if fresh is None or fresh.origin.tenant != tenant:
                step(transaction)
                return
            try:
                self._move([fresh], lambda _: None)
            except KernelError as error:
                refused(error)
            else:
                self._access.find(transaction_id, moved)

        def moved(transaction: Transaction | None) -> None:
            if self._book.fresh.get(transaction_id) is None:
                step(transaction)
            else:
                refused(StorageFull("the disk is full: nothing has become of it"))
        if not self._access.find(transaction_id, found):
            refused(Busy(f"too many requests wait for transaction {transaction_id}"))

    def _move(self, transactions: list[Begun], tell: Callable[[bool], None]) -> None:
        plan = self._book.plan_of(self._halves.open_frame())
        for transaction in transactions:
            self._book.move(plan, transaction)
            self._access.hold(transaction.id)

        def ended(stored: bool) -> None:
            for transaction in transactions:
                self._access.free_again(transaction.id)
            tell(stored)
        plan.told.append(ended)

    # ---- in time

    def _plan_ended(self, plan: Plan, _: bool) -> None:
        if plan.batches or plan.emptied:
            self.turn()

    def turn(self) -> None:
        """Move what should, or be woken when it should."""
        when_ms = self._book.fresh.next_ms()
        if self._stopped or self._round or when_ms is None:
            return
        now_ms = self._loop.now_ms()
        when_ms = max(when_ms, self._not_before_ms)
        transactions = self._book.fresh.to_move(now_ms, self._slice) if when_ms <= now_ms else []
        if not transactions:                      # those that should may be decided in a frame that is on its way
            self._alarm.ring_by(when_ms if when_ms > now_ms else now_ms + BUSY_MS)
            return
        try:
            self._move(transactions, self._ended)
            self._round = True
        except KernelError:                       # the hub stops: they are there at the next start
            self._stopped = True

    def _ended(self, stored: bool) -> None:
        assert self._round, "a round ends once"
        self._round = False
        if not stored:
            self._not_before_ms = self._loop.now_ms() + RETRY_MS
        self._loop.call_soon(self.turn)
