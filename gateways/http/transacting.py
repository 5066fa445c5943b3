"""Half messages that come in, and decisions about transactions, by whichever call or frame they do. Hot."""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gatehouse.gateways.admission.audit import Author
from gatehouse.gateways.checks import describe_decided
from gatehouse.gateways.http.door import NAME
from gatehouse.gateways.http.mapping import describe_place
from gatehouse.transactions.coordinator import Decision, State

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.switchboard import Submitter
    from gatehouse.kernel.api import HalfMessage, ReceiptsByGroup
    from gatehouse.kernel.halves.halves import Offsets
    from gatehouse.kernel.message import Stored
    from gatehouse.transactions.deciding import Guarded
    from gatehouse.transactions.settings import CheckSettings


# --- half messages ------------------------------------------------------------------------------------------------

class Holding:
    """Half messages of one request, and what their sender is told once they are durable."""

    __slots__ = ("_door", "_guard", "_group", "_halves", "_places", "_size_bytes")

    def __init__(self, door: Door, guard: Guard, group: str, halves: list[HalfMessage]) -> None:
        self._door = door
        self._guard = guard
        self._group = group
        self._halves = halves
        self._places = [guard.look(half.message[0]) for half in halves]
        self._size_bytes = sum([len(half.message[2]) + len(half.message[1] or b"") for half in halves])

    def begin(self, checks: CheckSettings | None, name: str | None, owner: Any, token: object) -> None:
        """Ask for a transaction of them; `owner` is answered."""
        self._door.slow_down(self._guard, self._guard.transactions.begin(
            self._halves, self._group, checks, name, owner, token, self._size_bytes, refuses=True))

    def add(self, transaction_id: int, owner: Any, token: object) -> None:
        """Ask for them to be added to a transaction; `owner` is answered."""
        self._door.slow_down(self._guard, self._guard.transactions.add(
            transaction_id, self._halves, owner, token, self._size_bytes, refuses=True))

    def begun(self, stored: Stored) -> dict[str, Any]:
        """A transaction has begun with them."""
        return self.added(stored.positions[0][2], stored)

    def added(self, transaction_id: int, stored: Stored) -> dict[str, Any]:
        """The answer when these half messages are durable as part of this transaction."""
        messages: list[dict[str, Any]] = []
        for half, place, position in zip(self._halves, self._places, stored.positions, strict=True):
            messages.append(describe_place(place, position, half.message[4], 0))
        return {"id": str(transaction_id), "state": "open", "group": self._group, "messages": messages}


# --- decisions ----------------------------------------------------------------------------------------------------

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
