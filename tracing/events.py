"""What happened to a message, one event after the other, in a compact form. Pure.

The value of an event's record:

    kind      u8        see Kind
    fields    varint    which fields follow, bit by bit in the order of FIELDS
    each      varint for a number; varint length and bytes for a text (UTF-8) or bytes

Numbers are unsigned LEB128. A field that says nothing (0, "", b"") is left out. When it happened is the time of the
record. Numbers of kinds and fields are for ever: a later hub reads the events of an earlier one.
"""
from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple


class CorruptEvent(Exception):
    """These bytes are no event, or one of a later hub."""


class Kind(IntEnum):
    """What happened."""

    STORED = 1            # it is in its partition, or waits for its time (`until_ms`) or a decision
    HANDED_OUT = 2        # to a member of a group, for the `attempt`th time; `until_ms`: the end of its lease
    ACKED = 3
    RELEASED = 4          # its lease ended without an ack; `until_ms`: when it may come again
    LEASE_OVER = 5        # its lease's time was up
    EXTENDED = 6          # its lease runs until `until_ms`
    GIVEN_UP = 7          # expired, rejected, handed out too often, or it gave way: `reason`
    REDRIVEN = 8          # a dead letter went back to `address`
    FELL_DUE = 9          # it waited, and was stored in a partition
    RECALLED = 10
    HELD = 11             # as a half message of the transaction `transaction`
    COMMITTED = 12
    ROLLED_BACK = 13
    CHECKED = 14          # its sender was asked what became of it
    DELIVERED = 15        # to live subscribers of a door: `number` of them
    REFUSED = 16          # a publish was refused: `reason`
    ROUTED = 17           # it entered a queue besides, by reference
    CONNECTED = 18        # of a client, not of a message: it has logged in
    ENDED = 19            # its connection, or its session on the door
    SUBSCRIBED = 20       # it hears what goes to `address`, a filter
    UNSUBSCRIBED = 21


OF_CLIENTS: Final = frozenset((Kind.REFUSED, Kind.CONNECTED, Kind.ENDED, Kind.SUBSCRIBED, Kind.UNSUBSCRIBED))
"""What is told of a client, and of no message that has an id: found by user, client id and address."""


class Event(NamedTuple):
    """One event. Only what says something is stored."""

    kind: int
    message_id: int = 0
    at_ms: int = 0               # of the record, not of its value
    partition_id: int = 0
    offset: int = 0
    attempt: int = 0
    until_ms: int = 0
    number: int = 0              # of events that were not recorded before this one; of subscribers
    group: str = ""              # the group, or `queue:NAME`
    reason: str = ""
    address: str = ""
    tenant: str = ""
    door: str = ""
    user: str = ""
    client: str = ""
    peer: str = ""
    trace_id: bytes = b""
    span_id: bytes = b""
    key: bytes = b""
    correlation_id: bytes = b""
    transaction: int = 0


NUMBERS: Final = ("message_id", "partition_id", "offset", "attempt", "until_ms", "number", "transaction")
TEXTS: Final = ("group", "reason", "address", "tenant", "door", "user", "client", "peer")
BYTES: Final = ("trace_id", "span_id", "key", "correlation_id")
FIELDS: Final = (*NUMBERS, *TEXTS, *BYTES)
"""By their bits; a new one comes last."""

MAX_TEXT_BYTES: Final = 512
"""What of one text or key an event keeps; addresses and names are shorter nearly always."""

_AT: Final = [Event._fields.index(name) for name in FIELDS]
_NUMBERS: Final = len(NUMBERS)
_TEXTS: Final = len(NUMBERS) + len(TEXTS)


def encode(event: Event) -> bytes:
    """The value of the event's record."""
    fields = 0
    parts: list[bytes] = []
    for bit, at in enumerate(_AT):
        value: Any = event[at]
        if not value:
            continue
        fields |= 1 << bit
        if bit < _NUMBERS:
            parts.append(_unsigned(value))
        else:
            raw = cut(value.encode() if bit < _TEXTS else value)
            parts.append(_unsigned(len(raw)) + raw)
    return bytes((event.kind,)) + _unsigned(fields) + b"".join(parts)


def cut(raw: bytes) -> bytes:
    """What an event keeps of a text or a key."""
    return raw if len(raw) <= MAX_TEXT_BYTES else raw[:MAX_TEXT_BYTES]


def decode(value: bytes, at_ms: int) -> Event:
    """Raises CorruptEvent."""
    if not value:
        raise CorruptEvent("an event has a kind")
    fields, at = _read(value, 1)
    if fields >> len(FIELDS):
        raise CorruptEvent("an event of a later hub")
    said: dict[str, Any] = {}
    for bit, name in enumerate(FIELDS):
        if not fields >> bit & 1:
            continue
        number, at = _read(value, at)
        if bit < _NUMBERS:
            said[name] = number
            continue
        raw, at = value[at:at + number], at + number
        if at > len(value):
            raise CorruptEvent(f"{name} ends behind the event")
        said[name] = raw.decode(errors="replace") if bit < _TEXTS else raw
    if at != len(value):
        raise CorruptEvent("something stands behind the event")
    return Event(value[0], at_ms=at_ms, **said)


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read(data: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends."""
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise CorruptEvent("a number does not end")
