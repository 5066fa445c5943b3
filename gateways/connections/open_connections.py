"""Every connection that is open, of all doors: listed, shown and closed by its id.

An id is `EPOCH-NUMBER`: the hub's start, and a number that grows and says the hub's shard as all ids do (`kernel.ids`).
So an id of an earlier start names nothing.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, Protocol

from gatehouse.kernel.ids import first_id

ASKED_AT_ONCE: Final = 2_000
"""Connections: about half a millisecond."""


class OpenConnection(Protocol):
    """What a door's connection can tell and be told."""

    def describe(self) -> dict[str, Any]:
        """For people: door, peer, user, ... whatever the door knows."""

    @property
    def certificate_der(self) -> bytes | None:
        """The client's verified certificate; None where it showed none, or the connection is closing."""

    def held_bytes(self) -> int:
        """What has come of the peer and waits here: for the rest of it, or for a limit."""

    def end(self, reason: str) -> None:
        """Close it in the protocol's words; `reason` is what the peer is told where the protocol has room for it."""


def held_by(session: object) -> int:
    """What has come of a session's peer and waits there; a session of others' making need not say."""
    asked: Callable[[], int] | None = getattr(session, "held_bytes", None)
    return 0 if asked is None else asked()


class OpenConnections:  # decision 99
    """`epoch` is the number of this start of the hub, `shard` its shard."""

    def __init__(self, epoch: int = 0, shard: int = 0) -> None:
        self.epoch = epoch
        self._last = first_id(shard)
        self._open: dict[int, OpenConnection] = {}     # by number, so in the order in which they came
        self._asking: list[int] = []                   # those that are not asked yet what they hold
        self._held_bytes = self._asked_bytes = 0       # by all that were asked last, and so far by those of now
        self.encrypted_bytes = 0
        """What has come of peers that speak TLS, and waits for the rest of a record or of a handshake."""

    def note_encrypted(self, size_bytes: int) -> None:
        """So much more, or less, is held of what cannot be read yet."""
        self.encrypted_bytes += size_bytes

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: OpenConnection) -> str:
        """Add a connection to those that are open; returns its id."""
        self._last += 1
        self._open[self._last] = connection
        return f"{self.epoch}-{self._last}"

    def remove(self, connection_id: str) -> None:
        """Remove a connection that is closed. An id that is not known is ignored."""
        self._open.pop(self._number(connection_id), None)

    def held_bytes(self) -> int:
        """What has come of all peers and waits here. So many are asked with each call; the answer is of those that were
        asked last, so of many connections it is some calls old."""
        if not self._asking:
            self._asking = list(self._open)
        now, self._asking = self._asking[:ASKED_AT_ONCE], self._asking[ASKED_AT_ONCE:]
        self._asked_bytes += sum(self._open[number].held_bytes() for number in now if number in self._open)
        if not self._asking:
            self._held_bytes, self._asked_bytes = self._asked_bytes, 0
        return max(self._held_bytes, self._asked_bytes) + self.encrypted_bytes

    def certificates(self) -> dict[int, bytes]:
        """The clients' verified certificates, by the connections' numbers."""
        return {number: shown for number, connection in self._open.items()
                if (shown := connection.certificate_der) is not None}

    def end(self, numbers: Iterable[int], reason: str) -> None:
        """End those connections with these numbers that are still open."""
        for number in numbers:
            if number in self._open:
                self._open[number].end(reason)

    def find(self, connection_id: str) -> OpenConnection | None:
        """The connection with this id, while it is open."""
        return self._open.get(self._number(connection_id))

    def page(self, after: str = "", limit: int = 100) -> tuple[list[OpenConnection], str | None]:
        """Up to `limit` connections that came after the one with this id, oldest first, and the id to go on behind;
        None at the end."""
        number = self._number(after)
        entries = list(islice(((key, connection) for key, connection in self._open.items() if key > number), limit + 1))
        listed = entries[:limit]
        return ([connection for _, connection in listed],
                f"{self.epoch}-{listed[-1][0]}" if len(entries) > limit else None)

    def _number(self, connection_id: str) -> int:
        """The number in a connection's id; 0, which no connection has, for an id of another start or no id at all."""
        epoch, _, number = connection_id.partition("-")
        if epoch == str(self.epoch) and number.isascii() and number.isdigit():
            return int(number)
        return 0
