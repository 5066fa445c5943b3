"""What doors ask of half messages beside their ports: all that they know of the coordinator."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gatehouse.kernel.api import ReceiptsByGroup
    from gatehouse.kernel.halves.halves import Acks, Offsets
    from gatehouse.kernel.message import Owner
    from gatehouse.transactions.deciding import Decision, Guard
    from gatehouse.transactions.members import Member, Membership
    from gatehouse.transactions.records import Transaction
    from gatehouse.transactions.registry import Page, Query


class HalfMessages(Protocol):
    """See `transactions.coordinator.Transactions` for what each call does and raises."""

    def decide(self, transaction_id: int, decision: Decision, *, tenant: str = "/", by: str = "", acks: Acks = (),
               offsets: Offsets | None = None, guard: Guard | None = None, owner: Owner | None = None,
               token: object = None, receipts: ReceiptsByGroup = ()) -> None: ...

    def join(self, group: str, tenant: str, member: Member, *, name: str = "", credit: int | None = None
             ) -> Membership: ...

    def check_now(self, transaction_id: int, *, tenant: str = "/", guard: Guard | None = None,
                  owner: Owner | None = None, token: object = None) -> None: ...

    def show(self, transaction_id: int, tenant: str, on_done: Callable[[Transaction | None], None]) -> None: ...

    def page(self, query: Query, on_done: Callable[[Page], None]) -> None: ...
