"""What tells two histories of a partition apart, and what of a history is lost to one of two hubs. Pure.

A hub that was restored from an older copy goes on from there: its partitions have the same offsets once more, with
other messages. So the reader keeps, beside how far a partition is, which message came last, and says it with its
positions; the sender looks at what it has there. Where that is another message, the two have *parted*.

    mark    8 bytes of BLAKE2b over id i64 | timestamp i64 | key | value        of one message, as its hub stored it

    LOSSES  hub 16 | way u8   →  JSON: a list of what is lost, the newest last
"""
# decision 273: the reader says which message came last
from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.state.state import Kind

if TYPE_CHECKING:
    from gatehouse.kernel.api import LinkPort

MARK_BYTES: Final = 8
NO_MARK: Final = bytes(MARK_BYTES)
PARTED_MARK: Final = b"\xff" * MARK_BYTES
"""Of a partition whose sender is known to have another history: no message has it."""

MAX_LISTED: Final = 100                # of each way of a link; the oldest go

OUT: Final = 0
IN: Final = 1

DELETED: Final = "deleted"
"""Why something is lost: retention had deleted it before it was sent."""

TOO_LARGE: Final = "too_large"
"""The meeting point does not carry it."""

PARTED: Final = "parted"
"""One hub was restored from an older copy: the other has what it no longer knows."""

SENT_AGAIN: Final = "sent_again"
"""The other hub had this, and has it no longer: it is sent once more."""

TOPIC_GONE: Final = "topic_gone"
"""The topic was deleted; one that is made anew under its name begins at its own start."""

_HEAD: Final = struct.Struct(">qqi")


class Last(NamedTuple):
    """The newest message of a partition that the reader has."""

    offset: int
    mark: bytes


def mark_of(message_id: int, time_ms: int, key: bytes | None, value: bytes | None) -> bytes:
    """Tells one message from every other that could have its offset."""
    digest = blake2b(_HEAD.pack(message_id, time_ms, -1 if key is None else len(key)), digest_size=MARK_BYTES)
    digest.update(key or b"")
    digest.update(b"-" if value is None else b"+" + value)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class Loss:
    """A stretch of a partition, by the offsets of the hub that stored it first."""

    why: str
    topic: str
    partition: int
    first: int
    count: int
    at_ms: int


class Losses:
    """What is listed of one way of a link; kept in the log. `told`: (what happened, details)."""

    def __init__(self, kernel: LinkPort, hub: bytes, way: int, tell: Callable[[str, str], None]) -> None:
        self._key = hub + bytes((way,))
        self._tell = tell
        self._dirty = False
        value = kernel.link_state(Kind.LOSSES, self._key)
        self.listed = [] if value is None else [Loss(**entry) for entry in json.loads(value)]

    def note(self, loss: Loss) -> None:
        """List it, and tell people; once."""
        if any(replace(loss, at_ms=listed.at_ms) == listed for listed in self.listed):
            return
        self.listed = [*self.listed[1 - MAX_LISTED:], loss]
        self._dirty = True
        self._tell("history", f"{loss.why}: {loss.count} messages from offset {loss.first} on of partition "
                              f"{loss.partition} of {loss.topic}")

    def put_back(self) -> None:
        """What was taken may not have been stored."""
        self._dirty = bool(self.listed)

    def take_dirty(self) -> list[StateRecord]:
        """What is to be kept of it."""
        if not self._dirty:
            return []
        self._dirty = False
        return [StateRecord(Kind.LOSSES, self._key, json.dumps([asdict(loss) for loss in self.listed]).encode())]
