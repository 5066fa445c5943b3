"""Decisions about transactions, by whichever call or frame they come. Hot."""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gatehouse.gateways.admission.audit import Author
from gatehouse.gateways.checks import describe_decided, require_seen
from gatehouse.gateways.http.door import NAME
from gatehouse.transactions.coordinator import Decision, State

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.http.door import Door
    from gatehouse.kernel.halves.halves import Acks, Offsets
    from gatehouse.kernel.message import Owner, Stored
    from gatehouse.transactions.deciding import Guard, Guarded


async def decide(door: Door, principal: Principal, transaction_id: int, decision: Decision, acks: Acks = (),
                 offsets: Offsets | None = None, require: Guard | None = None) -> dict[str, Any]:
    """Carry out a decision; what its maker is told. Raises what `Transactions.decide` and `require` refuse."""
    deciding = HttpDeciding(door, principal, transaction_id, decision, require)
    return deciding.finish(await door.stored(partial(deciding.submit, acks, offsets)))


class HttpDeciding:
    """One decision. Where it is about somebody else's transaction the audit topic is told."""

    __slots__ = ("_door", "_principal", "_id", "_decision", "_require", "_others")

    def __init__(self, door: Door, principal: Principal, transaction_id: int, decision: Decision,
                 require: Guard | None = None) -> None:
        self._door = door
        self._principal = principal
        self._id = transaction_id
        self._decision = decision
        self._require = require
        self._others: Guarded | None = None

    def submit(self, acks: Acks, offsets: Offsets | None, owner: Owner, token: object) -> None:
        """Ask for it; `owner` is answered."""
        self._door.services.transactions.decide(
            self._id, self._decision, tenant=self._principal.tenant, by=self._principal.name, acks=acks,
            offsets=offsets, guard=self._check, owner=owner, token=token)

    def finish(self, stored: Stored) -> dict[str, Any]:
        """The answer to whoever made the decision, once it is durable."""
        if self._others is not None:
            self._door.admission.audit(Author(self._principal.name, NAME), f"transaction.{self._decision.value}", {
                "id": str(self._id), "group": self._others.group, "by": self._others.by})
        return describe_decided(self._id, self._decision, stored.append_ms)

    def _check(self, transaction: Guarded) -> None:
        require_seen(self._door.admission, self._principal, transaction)
        if self._require is not None:
            self._require(transaction)
        if transaction.by != self._principal.name and transaction.state is State.OPEN:
            self._others = transaction
