"""Half messages that come in, by whichever call or frame they do. Hot."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gatehouse.gateways.http.mapping import describe_place

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.http.door import Door
    from gatehouse.kernel.api import HalfMessage
    from gatehouse.kernel.message import Stored
    from gatehouse.transactions.settings import CheckSettings


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
