"""Half messages that come in, by whichever call or frame they do. Hot."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gatehouse.gateways.http.mapping import describe_place

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.http.door import Door
    from gatehouse.kernel.message import Stored
    from gatehouse.transactions.coordinator import Half


class Holding:
    """Half messages of one request, and what their sender is told once they are durable."""

    __slots__ = ("_door", "_principal", "_group", "_halves")

    def __init__(self, door: Door, principal: Principal, group: str, halves: list[Half]) -> None:
        self._door = door
        self._principal = principal
        self._group = group
        self._halves = halves

    def begun(self, stored: Stored) -> dict[str, Any]:
        """A transaction has begun with them."""
        return self.added(stored.positions[0][2], stored)

    def added(self, transaction_id: int, stored: Stored) -> dict[str, Any]:
        """The answer when these half messages are durable as part of this transaction."""
        self._door.charge(self._principal, [half.message for half in self._halves])
        messages: list[dict[str, Any]] = []
        for half, position in zip(self._halves, stored.positions, strict=True):
            messages.append(describe_place(half.message[0], position, half.message[4], 0))
        return {"id": str(transaction_id), "state": "open", "group": self._group, "messages": messages}
