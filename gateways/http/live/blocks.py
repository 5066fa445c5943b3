"""Some messages of one stream and the places before and after them; encoded once, whoever reads it.

As Server-Sent Events (WHATWG HTML, 9.2.6; JSON as orjson writes it has no line break, so one `data:` line holds it):

    event: message                       or lost: what cannot be given any more
    id: AgAAAAAB…                        the place after it, for Last-Event-ID
    data: {"id": "281474976710657", …}
                                         an empty line
"""
from __future__ import annotations

from typing import Final, NamedTuple

from gatehouse.gateways.http.exchange import chunk_of
from gatehouse.gateways.http.live.positions import Positions

MESSAGE: Final = b"message"
LOST: Final = b"lost"


class Entry(NamedTuple):
    """One event: a message, or what is told in the place of some."""

    partition_id: int
    next_offset: int                     # the reader's place in the partition after it
    name: bytes
    body: bytes                          # JSON


class Block:
    """Some messages of one stream, and the places before and after them. `before` and `after` are shared: copy them to
    go on from there."""

    __slots__ = ("_bodies", "_chunk", "_events", "_word", "after", "before", "entries", "plain")

    def __init__(self, entries: list[Entry], before: Positions, after: Positions) -> None:
        self.entries = entries
        self.before = before
        self.after = after
        self._events: bytes | None = None
        self._chunk: bytes | None = None
        self._bodies: bytes | None = None
        self._word: bytes | None = None
        self.plain = all(entry.name is MESSAGE for entry in entries)
        """Messages alone."""

    @property
    def events(self) -> bytes:
        """All entries of the block as Server-Sent Events."""
        if self._events is None:
            self._events = b"".join(self._each())
        return self._events

    @property
    def chunk(self) -> bytes:
        """All entries of the block as Server-Sent Events, in one HTTP chunk."""
        if self._chunk is None:
            self._chunk = chunk_of(self.events)
        return self._chunk

    @property
    def bodies(self) -> bytes:
        """The entries' JSON, with commas between them."""
        if self._bodies is None:
            self._bodies = b",".join([entry.body for entry in self.entries])
        return self._bodies

    @property
    def word(self) -> bytes:
        """The word of the place behind the block; "" where that place has no word."""
        if self._word is None:
            self._word = self.after.word()
        return self._word

    def _each(self) -> list[bytes]:
        running, parts = self.before.copy(), []
        for partition_id, next_offset, name, body in self.entries:
            running.move(partition_id, next_offset)
            word = running.word()
            parts.append(b"event: %b\n%bdata: %b\n\n" % (name, b"id: %b\n" % word if word else b"", body))
        return parts
