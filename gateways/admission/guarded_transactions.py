"""What one principal may do with half messages and their transactions. Made by a guard.

Who may transact in a group may know of its transactions, decide them and be asked about them.
"""
# decision 148: half messages stand on the kernel's side of the port, and are asked for through the same guard
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.kernel.message import NOBODY
from gatehouse.transactions.answering import unknown

if TYPE_CHECKING:
    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.door_side import Submitter, Switchboard
    from gatehouse.kernel.api import HalfMessage, ReceiptsByGroup
    from gatehouse.kernel.halves.halves import Offsets
    from gatehouse.transactions.coordinator import Decision, Member, Membership
    from gatehouse.transactions.deciding import Guarded
    from gatehouse.transactions.records import Transaction
    from gatehouse.transactions.registry import Query
    from gatehouse.transactions.settings import CheckSettings

GROUPS_MAX: Final = 1_000                # of which is remembered whether the principal may transact in them


class GuardedTransactions:
    """Half messages within one principal's rights; `Transactions` says what each call does and raises."""

    def __init__(self, guard: Guard, admission: Admission, switchboard: Switchboard) -> None:
        self._guard = guard
        self._admission = admission
        self._port = switchboard.port
        self._switchboard = switchboard
        self._version: object = None                           # of the rights by which these are allowed
        self._allowed: dict[str, bool] = {}

    # decision 51: a right is judged once, as that to a place is
    def may(self, group: str) -> bool:
        """Whether the principal may transact in a group."""
        if self._version is not self._admission.version or len(self._allowed) >= GROUPS_MAX:
            self._version, self._allowed = self._admission.version, {}
        allowed = self._allowed.get(group)
        if allowed is None:
            allowed = self._allowed[group] = self._guard.may_group(Operation.TRANSACT, group)
        return allowed

    def begin(self, halves: list[HalfMessage], group: str, checks: CheckSettings | None, name: str | None,
              owner: Submitter, token: object, size_bytes: int | None, *, refuses: bool = False) -> int:
        """Hold half messages as a transaction of a group; otherwise as `Guard.append`. `size_bytes` None: they were
        counted with what they came in. Raises Denied and what `Transactions.begin` raises."""
        guard = self._guard
        if not self.may(group):
            guard.require_group(Operation.TRANSACT, group)
        charges = None if size_bytes is None else guard.weigh([half.message for half in halves], size_bytes, refuses)
        guard.settle()
        number = self._switchboard.submit(owner, token)
        if guard.tells:
            self._port.speaks(guard.origin)
        try:
            self._port.begin(guard.number, halves, group, guard.tenant, guard.principal.name, checks, number, name)
        except Exception:
            self._switchboard.take_back(number)
            raise
        finally:
            if guard.tells:                                    # decision 321
                self._port.speaks(NOBODY)
        return 0 if size_bytes is None else guard.charge(charges, len(halves), size_bytes)

    def add(self, transaction_id: int, halves: list[HalfMessage], owner: Submitter, token: object, size_bytes: int, *,
            refuses: bool = False) -> int:
        """Hold more half messages of an open transaction; otherwise as `Guard.append`. Who may add to it was asked
        when it was looked up. Raises what `Transactions.add` raises."""
        guard = self._guard
        number = guard.number
        charges = guard.weigh([half.message for half in halves], size_bytes, refuses)
        with guard.submission(owner, token) as submitted:
            self._port.add(number, transaction_id, halves, guard.tenant, submitted)
        return guard.charge(charges, len(halves), size_bytes)

    def checks_for(self, place: int, group: str) -> CheckSettings:
        """How a transaction is checked whose first message goes to a place; a caller may change some of it."""
        checks: CheckSettings = self._port.checks_for(self._guard.number, place, group)
        return checks

    def decide(self, transaction_id: int, decision: Decision, owner: Submitter, token: object,
               receipts: ReceiptsByGroup = (), offsets: Offsets | None = None,
               look: Callable[[Guarded], None] | None = None) -> None:
        """Commit or roll back, if the principal may know of the transaction. `look` is shown it first. Raises Denied
        for a group of the receipts or offsets."""
        guard = self._guard
        if receipts or offsets:
            for group in (*[name for name, _ in receipts], *(offsets or ())):
                guard.require_group(Operation.CONSUME, group)
        self._switchboard.transactions.decide(
            transaction_id, decision, tenant=guard.tenant, by=guard.principal.name, receipts=receipts, offsets=offsets,
            guard=self._require_seen if look is None else partial(self._shown_first, look), owner=owner, token=token)

    def _shown_first(self, look: Callable[[Guarded], None], transaction: Guarded) -> None:
        self._require_seen(transaction)
        look(transaction)

    def _require_seen(self, transaction: Guarded) -> None:
        """Before anything is done about a transaction, or told of it. Raises UnknownTransaction: to who has no right to
        its group it does not exist."""
        if not self.may(transaction.group):
            raise unknown(transaction.id)

    def check_now(self, transaction_id: int, owner: Submitter, token: object) -> None:
        """Have a member asked now, if the principal may know of the transaction."""
        self._switchboard.transactions.check_now(transaction_id, tenant=self._guard.tenant, guard=self._require_seen,
                                                owner=owner, token=token)

    def show(self, transaction_id: int, on_done: Callable[[Transaction | None], None]) -> None:
        """A transaction; None where the principal may not know of it, or nothing is known."""
        def on_shown(transaction: Transaction | None) -> None:
            seen = transaction is not None and self._guard.may_group(Operation.TRANSACT, transaction.group)
            on_done(transaction if seen else None)

        self._switchboard.transactions.show(transaction_id, self._guard.tenant, on_shown)

    def page(self, asked: Query, on_done: Callable[[tuple[list[Transaction], str | None]], None]) -> None:
        """A page of the tenant's transactions, without those that the principal may not know of. Raises as
        `Transactions.page`."""
        def on_page(page: tuple[list[Transaction], str | None]) -> None:
            transactions, after = page
            on_done(([transaction for transaction in transactions
                      if self._guard.may_group(Operation.TRANSACT, transaction.group)], after))

        self._switchboard.transactions.page(asked._replace(tenant=self._guard.tenant), on_page)

    def join_checks(self, group: str, member: Member, name: str, credit: int) -> Membership:
        """Be asked what became of the group's transactions. Raises Denied, InvalidGroup."""
        self._guard.require_group(Operation.TRANSACT, group)
        return self._switchboard.transactions.join(group, self._guard.tenant, member, name=name, credit=credit)
