"""One WebSocket client as a member of a group that is asked what became of its transactions."""
from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.checks import describe_check

if TYPE_CHECKING:
    from gatehouse.gateways.http.websocket.connection import WebSocketConnection
    from gatehouse.transactions.coordinator import Check


class Listening:
    """One client's membership in a group, a `transactions.members.Member`. Checks are sent as far as its
    credit goes; every frame `checks` may give more credit."""

    def __init__(self, connection: WebSocketConnection, group: str, credit: int) -> None:
        self.group = group
        self._connection = connection
        self._membership = connection.guard.transactions.join_checks(
            group, self, f"{connection.principal.name} websocket", credit)

    def add_credit(self, count: int) -> None:
        """Let the client be sent so many checks more."""
        self._membership.add_credit(count)

    def allowed(self) -> bool:
        """Whether the client may still be asked."""
        return self._connection.guard.may_group(Operation.TRANSACT, self.group)

    def on_checks(self, checks: list[Check]) -> None:
        """Send checks to the client. Called by the coordinator."""
        names = self._connection.door.door_names
        self._connection.send(orjson.dumps({"type": "checks", "group": self.group,
                                            "checks": [describe_check(check, names) for check in checks]}))

    def end(self) -> None:
        """End the membership: the client is asked nothing more."""
        self._membership.leave()
