"""Transactions as doors see them: begin, add, decide, be asked, look.

    begin ─► half messages are stored ─► the sender's own transaction ─► decide ─► one frame: all of it, or nothing
                       └─► silence ─► check: a member of its group is asked ─► decide ... or expired

`transactions.states` is the specification. Refusals that can be known at once are raised, with nothing taken; all else
is answered by `owner.on_stored` when it is durable, or with the error; that may be before the call returns.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gatehouse.kernel.errors import Busy, ExpiredReceipt
from gatehouse.kernel.halves.half_records import Half
from gatehouse.kernel.message import Owner
from gatehouse.transactions.access import Access
from gatehouse.transactions.answering import refusal, refuse, refuse_settled
from gatehouse.transactions.book import Book
from gatehouse.transactions.checking import Checking
from gatehouse.transactions.deciding import Deciding, Decision, Decisions, Guard, Guarded
from gatehouse.transactions.forgetting import Forgetter
from gatehouse.transactions.holding import Holding
from gatehouse.transactions.loading import Loading
from gatehouse.transactions.members import Check, Member, Members, Membership
from gatehouse.transactions.moving import Moving
from gatehouse.transactions.records import Transaction
from gatehouse.transactions.registry import Page, Query, Registry
from gatehouse.transactions.settings import CheckSettings, TransactionSettings
from gatehouse.transactions.states import Answer, State

if TYPE_CHECKING:
    from gatehouse.kernel.api import DoorSide, KernelPort, ReceiptsByGroup
    from gatehouse.kernel.halves.halves import Acks, Offsets
    from gatehouse.kernel.kernel import Kernel

__all__ = ["Check", "CheckSettings", "Decision", "Half", "Member", "Membership", "Query", "State", "Transaction",
           "TransactionSettings", "Transactions"]


class Transactions:
    """`open` it when the kernel is open; `stop` it before the kernel is closed."""

    def __init__(self, kernel: Kernel, settings: TransactionSettings | None = None) -> None:
        self._kernel = kernel
        self._settings = settings or TransactionSettings()

    def open(self) -> None:
        """Go on asking about what is undecided, which is read meanwhile: see `transactions.loading`."""
        kernel, halves = self._kernel, self._kernel.halves
        self._book = Book(halves, self._settings.slice)
        self._loading = Loading(halves, self._book, self._settings.slice)
        self._members = Members(self._on_room)
        access = self._access = Access(halves, self._book, self._loading)
        self._holding = Holding(halves, self._book, access, self._settings)
        self._decisions = Decisions(halves, self._book, access)
        self._checking = Checking(kernel, halves, self._book, access, self._members, self._settings.slice)
        self._registry = Registry(halves.loop, halves, self._book, access, self._loading)
        self._forgetter = Forgetter(halves.loop, halves, self._book, self._settings)
        self._moving = Moving(halves.loop, halves, self._book, access, self._settings.slice)
        self._loading.start(self._checking.come_to, self._on_all_known)
        self._moving.start()
        self._forgetter.start()

    def _on_room(self, tenant: str, group: str) -> None:
        self._checking.on_room(tenant, group)

    def _on_all_known(self) -> None:
        self._access.all_known()
        self._moving.turn()

    def port(self, door: DoorSide) -> KernelPort:
        """A port of a door's own, see `kernel.api`."""
        return self._kernel.port(door, self)

    def stop(self) -> None:
        """Ask and forget nothing more."""
        self._loading.stop()
        self._checking.stop()
        self._moving.stop()
        self._forgetter.stop()

    # ---- half messages

    @property
    def held_bytes(self) -> int:
        """Of half messages that are in memory: those that began lately."""
        return self._book.fresh.size_bytes

    def begin(self, halves: list[Half], *, group: str = "", tenant: str = "/", by: str = "",
              settings: CheckSettings | None = None, owner: Owner | None = None, token: object = None,
              name: str | None = None) -> None:
        """Store half messages, of which nobody sees anything until a decision. Members of `group` are asked for one.

        A `name` makes it repeatable: the same user's in the same group begins one transaction, for as long as
        idempotency keys are remembered, whatever became of it; with other messages it is an IdempotencyConflict.

        Answered with (0, -1, message id) of each, in order; the first id is the transaction's. A transaction without a
        group has a time instead, and expires then. Raises TransactionTooLarge, TooManyTransactions, InvalidGroup,
        InvalidCheckBack, InvalidDelay, InvalidSchedule, KeptFull and what `Kernel.append` raises.
        """
        origin = self._holding.origin(tenant, group, by, settings or self.checks_for(halves, group))
        self._holding.begin(origin, halves, owner, token, name)

    def checks_for(self, halves: list[Half], group: str) -> CheckSettings:
        """What is configured for a transaction of these; a caller may change some of it."""
        if not group:
            return CheckSettings(self._settings.timeout_ms, self._settings.timeout_ms, 0)
        topic = halves[0].message[0].topic if halves else ""
        return self._settings.topics.get(topic, self._settings.checks)

    def add(self, transaction_id: int, halves: list[Half], *, tenant: str = "/", owner: Owner | None = None,
            token: object = None) -> None:
        """More half messages for an open transaction. Answered as `begin`, or with UnknownTransaction, AlreadyDecided,
        or what `begin` raises."""
        self._moving.find(transaction_id, tenant,
                          partial(self._holding.add, transaction_id, halves, tenant, owner, token),
                          partial(refuse, owner, token))

    # ---- decisions

    def decide(self, transaction_id: int, decision: Decision, *, tenant: str = "/", by: str = "", acks: Acks = (),
               offsets: Offsets | None = None, guard: Guard | None = None, owner: Owner | None = None,
               token: object = None, receipts: ReceiptsByGroup = ()) -> None:
        """Commit or roll back, all of it in one frame, a commit with a consumer's acks and offsets.

        Answered when that is durable, with the time of the decision as `append_ms`; the same decision again is answered
        alike and does nothing. Refused with UnknownTransaction, AlreadyDecided, what `guard` raises for this
        transaction, and, with nothing decided, ExpiredReceipt, UnknownReceipt, GroupIsLeased. `receipts` are acks as
        texts, by the group's name.
        """
        if receipts:
            acks, all_held = self._kernel.groups.held(tenant, receipts)
            if not all_held:
                guard = partial(_refuse_open, guard)
        self._decisions.decide(Deciding(transaction_id, decision, tenant, by, acks, offsets or {}, guard, owner, token))

    # ---- check-back

    def join(self, group: str, tenant: str, member: Member, *, name: str = "", credit: int | None = None
             ) -> Membership:
        """Be asked about the group's transactions: in turn with others, and at once about what nobody was there for.

        `name` is kept with each check; `credit` is how many checks may come before `add_credit`, None: any number.
        """
        return self._members.join(tenant, group, member, name, credit)

    def check_now(self, transaction_id: int, *, tenant: str = "/", guard: Guard | None = None,
                  owner: Owner | None = None, token: object = None) -> None:
        """Ask a member now, whatever the time. Answered when the check is durable, or with UnknownTransaction,
        AlreadyDecided, what `guard` raises."""
        self._find(transaction_id, owner, token,
                   partial(self._check_now, transaction_id, tenant, guard, owner, token))

    def _check_now(self, transaction_id: int, tenant: str, guard: Guard | None, owner: Owner | None, token: object,
                   candidate: Transaction | None) -> None:
        transaction = candidate if candidate is not None and candidate.tenant == tenant else None
        is_open = transaction is not None and transaction.state is State.OPEN
        error: Exception | None = None if is_open else refusal(self._book, Answer.REFUSED, transaction_id, transaction)
        try:
            if transaction is not None and guard is not None:
                guard(transaction)
        except Exception as denied:                  # the caller's own
            error = denied
        if error is not None:
            refuse_settled(self._book, transaction_id, owner, token, error)
        else:
            self._moving.find(transaction_id, tenant,
                              lambda _: self._checking.ask_now(transaction_id, owner, token),
                              partial(refuse, owner, token))

    # ---- looking

    def show(self, transaction_id: int, tenant: str, on_done: Callable[[Transaction | None], None]) -> None:
        """One transaction with every check and decision; None where nothing is known of it."""
        if not self._registry.show(transaction_id, tenant, on_done):
            on_done(None)

    def page(self, query: Query, on_done: Callable[[Page], None]) -> None:
        """Open ones oldest first, decided ones by their decision, newest first; and where the next page begins.

        After a start a page may wait until what it shows is known. Raises ValueError for an `after` that no page has
        given, Busy where too many wait.
        """
        self._registry.page(query, on_done)

    def _find(self, transaction_id: int, owner: Owner | None, token: object,
              step: Callable[[Transaction | None], None]) -> None:
        if not self._access.find(transaction_id, step):
            refuse(owner, token, Busy(f"too many requests wait for transaction {transaction_id}"))

    # ---- what the metrics show

    def statistics(self) -> dict[str, int]:
        """Counters and gauges, by metric name without its prefix."""
        book, ended = self._book, self._book.ended_totals
        return {
            "transactions_open": book.open_count,
            "transactions_open_bytes": book.open_bytes,
            "transactions_loading": 0 if self._loading.done else 1,
            "transactions_remembered": book.outcomes.count,
            "transaction_members": self._members.count,
            "transactions_begun_total": book.begun_total,
            "transactions_committed_total": ended[State.COMMITTED],
            "transactions_rolled_back_total": ended[State.ROLLED_BACK],
            "transactions_expired_total": ended[State.EXPIRED],
            "transaction_checks_total": self._checking.made,
            "transaction_checks_unheard_total": self._checking.reached_nobody,
        }


def _refuse_open(guard: Guard | None, transaction: Guarded) -> None:
    """A guard where a lease has ended: what is decided is answered again, what is open stays so."""
    if guard is not None:
        guard(transaction)
    if transaction.state is State.OPEN:
        raise ExpiredReceipt("the lease has ended")
