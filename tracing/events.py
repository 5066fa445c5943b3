"""What happened to a message, one event after the other, in a compact form; and its trace id. Pure. Hot.

The value of an event's record:

    kind      u8        see Kind
    fields    varint    which fields follow, bit by bit in the order of FIELDS
    each      varint for a number; varint length and bytes for a text (UTF-8) or bytes

Numbers are unsigned LEB128. A field that says nothing (0, "", b"") is left out. When it happened is the time of the
record. Numbers of kinds and fields are for ever: a later hub reads the events of an earlier one.

An event with `rows` tells of a run of messages: that of `message_id` and each `step`-th id behind it, so many in all.
Offsets run alike, and so do trace ids that the hub gave (`trace_at`), one after the other: who knows the first of a run
knows them all. Everything else is true of each.

    trace id = 8 bytes that are the hub's since its start, 8 bytes that are a number, scattered
    span id  = the second half

Numbers are scattered by a multiplication that can be taken back: whoever chooses traces by the bytes of their ids
chooses evenly, and a trace id that is looked for says which number it is.
"""
from __future__ import annotations

from binascii import hexlify
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np


class CorruptEvent(Exception):
    """These bytes are no event, or one of a later hub."""


class Kind(IntEnum):
    """What happened."""

    STORED = 1            # it is in its partition
    HANDED_OUT = 2        # to a member of a group, for the `attempt`th time; `until_ms`: the end of its lease
    ACKED = 3
    RELEASED = 4          # its lease ended without an ack; `until_ms`: when it may come again
    LEASE_OVER = 5        # its lease's time was up
    EXTENDED = 6          # its lease runs until `until_ms`
    GIVEN_UP = 7          # expired, rejected, handed out too often, or it gave way: `reason`
    REDRIVEN = 8          # a dead letter went back to `address`
    FELL_DUE = 9          # it waited, and was stored in a partition
    RECALLED = 10         # it waited, and was taken back before its time
    HELD = 11             # as a half message of the transaction `transaction`
    COMMITTED = 12        # it is stored in a partition now, or waits for its time (`until_ms`)
    ROLLED_BACK = 13
    CHECKED = 14          # `client`, one of its sender's `group`, was asked what became of it; "": nobody was there
    DELIVERED = 15        # to live subscribers of a door: `number` of them
    REFUSED = 16          # a publish was refused: `reason`
    ROUTED = 17           # it entered a queue besides, by reference
    CONNECTED = 18        # of a client, not of a message: it has logged in
    ENDED = 19            # its connection, or its session on the door
    SUBSCRIBED = 20       # it hears what goes to `address`, a filter
    UNSUBSCRIBED = 21
    ACCEPTED = 22         # it waits for its time, `until_ms`


OF_CLIENTS: Final = frozenset((Kind.REFUSED, Kind.CONNECTED, Kind.ENDED, Kind.SUBSCRIBED, Kind.UNSUBSCRIBED))
"""What is told of a client, and of no message that has an id: found by user, client id and address."""

BEGINNINGS: Final = frozenset((Kind.STORED, Kind.HELD, Kind.ACCEPTED))
"""The first step of a message that is followed from the start: who sent it, and where to."""

WITH_ADDRESS: Final = frozenset((*BEGINNINGS, Kind.FELL_DUE, Kind.COMMITTED, Kind.RECALLED))
"""Says whose the message is and where it goes, and perhaps its trace; the others leave that to these."""

NAMING: Final = frozenset((Kind.HANDED_OUT, Kind.GIVEN_UP))
"""Where a message is followed from an error on, the first of these that is told of it says its address, too: by that
and its key it is found from there on."""

WAITS: Final = frozenset((Kind.HELD, Kind.ACCEPTED, Kind.CHECKED, Kind.RECALLED, Kind.ROLLED_BACK))
"""Where one of these is the last step, the message is in no partition."""


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
    rows: int = 0                # messages of a run; 0: it tells of one
    step: int = 0                # from one id of a run to the next; 0: 1

    def nth(self, at: int) -> Event:
        """What it says of one message of its run."""
        if not self.rows:
            return self
        behind = at * (self.step or 1)
        return self._replace(
            message_id=self.message_id + behind, rows=0, step=0,
            offset=self.offset if self.kind == Kind.ROUTED else self.offset + behind,
            trace_id=trace_at(self.trace_id, at) if self.trace_id else b"")

    def of(self, message_id: int) -> Event | None:
        """What it says of this message; None where it tells of others."""
        if not self.rows:
            return self if self.message_id == message_id else None
        at, beside = divmod(message_id - self.message_id, self.step or 1)
        return self.nth(at) if not beside and 0 <= at < self.rows else None

    def of_trace(self, trace_id: bytes) -> Event | None:
        """What it says of the message with this trace id; None where it is of others."""
        if not self.rows or not self.trace_id:
            return self if self.trace_id == trace_id else None
        at = number_of(trace_id) - number_of(self.trace_id)
        return self.nth(at) if self.trace_id[:HALF] == trace_id[:HALF] and 0 <= at < self.rows else None

    @property
    def is_numbered(self) -> bool:
        """Whether its trace id is one that the hub gave when the message was stored, see `trace_at`."""
        return self.kind == Kind.STORED and bool(self.trace_id) and not self.span_id

    @property
    def last_id(self) -> int:
        """The id of the last message that it tells of."""
        return self.message_id + (self.rows - 1) * (self.step or 1) if self.rows else self.message_id


NUMBERS: Final = ("message_id", "partition_id", "offset", "attempt", "until_ms", "number", "transaction")
TEXTS: Final = ("group", "reason", "address", "tenant", "door", "user", "client", "peer")
BYTES: Final = ("trace_id", "span_id", "key", "correlation_id")
RUNS: Final = ("rows", "step")
FIELDS: Final = (*NUMBERS, *TEXTS, *BYTES, *RUNS)
"""By their bits; a new one comes last."""

MAX_TEXT_BYTES: Final = 512
"""What of one text or key an event keeps; addresses and names are shorter nearly always."""

MAX_ID: Final = (1 << 63) - 1
"""Nothing has a larger id; so nobody counts as far as an event says without this."""

_AT: Final = [Event._fields.index(name) for name in FIELDS]
_ROWS_BIT: Final = FIELDS.index("rows")
_IS_NUMBER: Final = [name in NUMBERS or name in RUNS for name in FIELDS]
_IS_TEXT: Final = [name in TEXTS for name in FIELDS]


def encode(event: Event) -> bytes:
    """The value of the event's record."""
    fields = 0
    parts: list[bytes] = []
    for bit, at in enumerate(_AT):
        value: Any = event[at]
        if not value:
            continue
        fields |= 1 << bit
        if _IS_NUMBER[bit]:
            parts.append(unsigned(value))
        else:
            parts.append(text(value.encode() if _IS_TEXT[bit] else value))
    return bytes((event.kind,)) + unsigned(fields) + b"".join(parts)


def may_tell(value: bytes, message_id: int) -> bool:
    """Whether an encoded event may tell of this message: most that do not are passed over without being decoded."""
    try:
        fields, at = _read(value, 1)
        return not fields & 1 or fields >> _ROWS_BIT != 0 or _read(value, at)[0] == message_id
    except CorruptEvent:
        return False


def text(raw: bytes) -> bytes:
    """A text or a key as it stands in an event."""
    raw = cut(raw)
    return unsigned(len(raw)) + raw


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
        if _IS_NUMBER[bit]:
            said[name] = number
            continue
        raw, at = value[at:at + number], at + number
        if at > len(value):
            raise CorruptEvent(f"{name} ends behind the event")
        said[name] = raw.decode(errors="replace") if _IS_TEXT[bit] else raw
    if at != len(value):
        raise CorruptEvent("something stands behind the event")
    event = Event(value[0], at_ms=at_ms, **said)
    if event.rows and event.last_id > MAX_ID:
        raise CorruptEvent("it tells of more messages than there are ids")
    return event


def unsigned(value: int) -> bytes:
    """A number as it stands in an event."""
    if value < 128:
        return _SMALL[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL: Final = [bytes((value,)) for value in range(128)]


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


HALF: Final = 8
FACTOR: Final = 0x9E3779B97F4A7C15        # odd: 2**64 over the golden ratio
MASK: Final = (1 << 64) - 1
BACK: Final = pow(FACTOR, -1, 1 << 64)
TEXT_BYTES: Final = 2 * HALF
MANY: Final = 16                          # from so many on columns cost less than numbers one by one


# decision 265
def scattered(number: int) -> int:
    """The second half of the trace id with this number."""
    return number * FACTOR & MASK


def scattered_texts(number: int, count: int) -> bytes:
    """The second halves of so many trace ids from this number on, in hex, TEXT_BYTES each."""
    half = scattered(number)
    if count < MANY:
        return b"".join([b"%016x" % (half + at * FACTOR & MASK) for at in range(count)])
    halves = np.arange(count, dtype=np.uint64) * np.uint64(FACTOR) + np.uint64(half)          # modulo 2**64
    return hexlify(halves.astype(">u8").tobytes())


def trace_of(own: bytes, number: int) -> bytes:
    """The trace id with this number, of a hub whose first half this is."""
    return own + scattered(number).to_bytes(HALF, "big")


def number_of(trace_id: bytes) -> int:
    """Which number a trace id has, if the hub gave it."""
    return int.from_bytes(trace_id[HALF:], "big") * BACK & MASK


def trace_at(first: bytes, at: int) -> bytes:
    """The trace id so many behind this one."""
    return trace_of(first[:HALF], number_of(first) + at)


def span_of(trace_id: bytes) -> bytes:
    """The span id that a message has with it, in the context that the hub gave."""
    return trace_id[HALF:]
