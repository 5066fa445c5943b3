"""Decisions about transactions, by whichever call or frame they come. Hot."""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gatehouse.gateways.admission.audit import Author
from gatehouse.gateways.checks import describe_decided
from gatehouse.gateways.http.door import NAME
from gatehouse.transactions.coordinator import Decision, State

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.switchboard import Submitter
    from gatehouse.kernel.api import ReceiptsByGroup
    from gatehouse.kernel.halves.halves import Offsets
    from gatehouse.kernel.message import Stored
    from gatehouse.transactions.deciding import Guarded


async def decide(door: Door, guard: Guard, transaction_id: int, decision: Decision, receipts: ReceiptsByGroup = (),
                 offsets: Offsets | None = None) -> dict[str, Any]:
    """Carry out a decision; what its maker is told. Raises what `Guard.decide` refuses."""
    deciding = HttpDeciding(door, guard, transaction_id, decision)
    return deciding.finish(await door.stored(partial(deciding.submit, receipts, offsets)))


class HttpDeciding:
    """One decision. Where it is about somebody else's transaction the audit topic is told."""

    __slots__ = ("_door", "_guard", "_id", "_decision", "_others")

    def __init__(self, door: Door, guard: Guard, transaction_id: int, decision: Decision) -> None:
        self._door = door
        self._guard = guard
        self._id = transaction_id
        self._decision = decision
        self._others: Guarded | None = None

    def submit(self, receipts: ReceiptsByGroup, offsets: Offsets | None, owner: Submitter, token: object) -> None:
        """Ask for it; `owner` is answered."""
        self._guard.transactions.decide(self._id, self._decision, owner, token, receipts, offsets, self._look)

    def finish(self, stored: Stored) -> dict[str, Any]:
        """The answer to whoever made the decision, once it is durable."""
        if self._others is not None:
            self._door.admission.audit(Author(self._guard.logged_in.name, NAME),
                                       f"transaction.{self._decision.value}",
                                       {"id": str(self._id), "group": self._others.group, "by": self._others.by})
        return describe_decided(self._id, self._decision, stored.append_ms)

    def _look(self, transaction: Guarded) -> None:
        if transaction.by != self._guard.logged_in.name and transaction.state is State.OPEN:
            self._others = transaction
