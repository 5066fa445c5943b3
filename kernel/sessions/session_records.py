"""How sessions lie in the state: five kinds of records, and TERMS, which is shown below; more are in `entrusted`. Pure.

    SESSION        key     tenant, NUL, client id
                   value   partition id u64 | created i64 | expiry i64 | until i64 | user
    SUBSCRIPTION   key     partition id u64 | filter
                   value   stints, each: since u64 | until i64 (-1: still) | options u8 | identifier u32
    FLIGHT         key     partition id u64
                   value   following u64 | dropped, by reason u32 each | runs, each:
                           first packet id u16 | first offset u64 | step u8 | count u16
                           (before there was the reason `age`: one count less, which the length tells)
    RECEIVED       key     partition id u64
                   value   packet ids, u16 each
    WILL           key     tenant, NUL, client id
                   value   delay i64 | due i64 | expiry i64 | timestamp i64 | attributes u8
                           | user, address, headers, value: length u32 and bytes

Times are hub time in ms, but for `created`, which is the wall's. `until` 0 of a session: its client is connected; `due`
0 of a will likewise. Options: bits 0 and 1 QoS, 2 no-local, 3 retain-as-published, 4 and 5 retain handling.
"""
from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from gatehouse.kernel.message import Headers
from gatehouse.kernel.selectors.selector import Selector
from gatehouse.kernel.sessions.session_values import Owed, Subscribed, Will

DROPPED: Final = ("limit", "expired", "denied", "lost", "age")
"""Why a session was not given a message."""

SENT_1: Final = 1            # QoS 1: sent, not acknowledged
SENT_2: Final = 2            # QoS 2: sent, PUBREC has not come
RELEASED_2: Final = 3        # QoS 2: PUBREC has come, PUBCOMP has not
ENTRUSTED_1: Final = 4       # as SENT_1 and SENT_2, of a message that is none of the session's partition: see
ENTRUSTED_2: Final = 5       # `entrusted`; the offset is where the session was when it came

ENTRUSTED_STEPS: Final = {ENTRUSTED_1: 1, ENTRUSTED_2: 2}
"""The QoS of what was entrusted."""

OPEN: Final = -1             # of a stint: it goes on

_PARTITION = struct.Struct(">Q")
_SESSION = struct.Struct(">Qqqq")
_STINT = struct.Struct(">QqBI")
_FLIGHT = struct.Struct(">Q5I")
_FLIGHT_OF_BEFORE = struct.Struct(">Q4I")
_RUN = struct.Struct(">HQBH")
_WILL = struct.Struct(">qqqqB")
_LENGTH = struct.Struct(">I")
_MOST: Final = 0xFFFFFFFF


class SessionRecord(NamedTuple):
    """Whose a session is, and until when it waits."""

    partition_id: int
    created_ms: int
    expiry_ms: int
    until_ms: int
    user: str


class Stint(NamedTuple):
    """A filter of a session with its options, from one offset until before another."""

    filter: str
    since: int
    until: int
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    identifier: int

    @property
    def subscribed(self) -> Subscribed:
        """As its client asked for it."""
        return Subscribed(self.filter, self.qos, self.no_local, self.retain_as_published, self.retain_handling,
                          self.identifier)


Flight = dict[int, tuple[int, int]]
"""Packet ids in flight, in the order of sending: offset and step of each."""


def named_key(tenant: str, client_id: str) -> bytes:
    return tenant.encode() + b"\0" + client_id.encode()


def split_named(key: bytes) -> tuple[str, str]:
    tenant, _, client_id = key.partition(b"\0")
    return tenant.decode(), client_id.decode()


def partition_key(partition_id: int) -> bytes:
    return _PARTITION.pack(partition_id)


def partition_of(key: bytes) -> int:
    return int(_PARTITION.unpack_from(key)[0])


def subscription_key(partition_id: int, filter_text: str) -> bytes:
    return _PARTITION.pack(partition_id) + filter_text.encode()


def filter_of(key: bytes) -> str:
    return key[_PARTITION.size:].decode()


def encode_session(record: SessionRecord) -> bytes:
    return _SESSION.pack(*record[:4]) + record.user.encode()


def decode_session(value: bytes) -> SessionRecord:
    partition_id, created_ms, expiry_ms, until_ms = _SESSION.unpack_from(value)
    return SessionRecord(partition_id, created_ms, expiry_ms, until_ms, value[_SESSION.size:].decode())


def encode_stints(stints: Iterable[Stint]) -> bytes | None:
    """None where there are none."""
    encoded = b"".join([_STINT.pack(stint.since, stint.until,
                                    stint.qos | stint.no_local << 2 | stint.retain_as_published << 3
                                    | stint.retain_handling << 4, stint.identifier) for stint in stints])
    return encoded or None


def decode_stints(filter_text: str, value: bytes) -> list[Stint]:
    return [Stint(filter_text, since, until, options & 3, bool(options & 4), bool(options & 8), options >> 4 & 3,
                  identifier) for since, until, options, identifier in _STINT.iter_unpack(value)]


def encode_flight(following: int, dropped: list[int], flight: Flight) -> bytes:
    """Neighbours are one run: what a client acknowledges in order is a record of some bytes."""
    parts = [_FLIGHT.pack(following, *[min(count, _MOST) for count in dropped])]
    first_id = first_offset = step = count = 0
    for packet_id, (offset, its_step) in flight.items():
        if count and packet_id == first_id + count and offset == first_offset + count and its_step == step:
            count += 1
            continue
        if count:
            parts.append(_RUN.pack(first_id, first_offset, step, count))
        first_id, first_offset, step, count = packet_id, offset, its_step, 1
    if count:
        parts.append(_RUN.pack(first_id, first_offset, step, count))
    return b"".join(parts)


def decode_flight(value: bytes) -> tuple[int, list[int], Flight]:
    head = _FLIGHT if (len(value) - _FLIGHT.size) % _RUN.size == 0 else _FLIGHT_OF_BEFORE
    following, *dropped = head.unpack_from(value)
    dropped += [0] * (len(DROPPED) - len(dropped))
    flight: Flight = {}
    for first_id, first_offset, step, count in _RUN.iter_unpack(value[head.size:]):
        for at in range(count):
            flight[first_id + at] = first_offset + at, step
    return following, dropped, flight


def encode_received(packet_ids: Iterable[int]) -> bytes | None:
    """None where there are none."""
    numbers = array("H", packet_ids)
    return numbers.tobytes() or None


def decode_received(value: bytes) -> dict[int, None]:
    numbers = array("H")
    numbers.frombytes(value)
    return dict.fromkeys(numbers)


def encode_will(will: Will, due_ms: int) -> bytes:
    parts = [_WILL.pack(will.delay_ms, due_ms, will.expiry_ms, will.timestamp_ms, will.attributes)]
    for part in (will.user.encode(), will.address.encode(), will.headers, will.value):
        parts += [_LENGTH.pack(len(part)), part]
    return b"".join(parts)


def decode_will(key: bytes, value: bytes) -> tuple[Will, int]:
    """The will, and when it is due."""
    delay_ms, due_ms, expiry_ms, timestamp_ms, attributes = _WILL.unpack_from(value)
    at = _WILL.size
    parts: list[bytes] = []
    for _ in range(4):
        length = _LENGTH.unpack_from(value, at)[0]
        at += _LENGTH.size
        parts.append(value[at:at + length])
        at += length
    user, address, headers, payload = parts
    tenant, client_id = split_named(key)
    return Will(tenant, client_id, user.decode(), address.decode(), payload, headers, attributes, delay_ms, expiry_ms,
                timestamp_ms), due_ms


def will_is_due(value: bytes) -> int:
    """When a will is due, by its record."""
    return int(_WILL.unpack_from(value)[1])


# --- terms of a filter --------------------------------------------------------------------------------------------

# What is said of a session's filter beyond its options: what of it is wanted, and what is still owed of before it was
# there.
#
#     TERMS   key     partition id u64 | filter
#             value   since u64 | partitions u32, each: partition id u64 | next offset u64 | stop u64 | selector
#                     (next offset: from `BY_TIME` on a time, of which the offset was not found yet)
#
# The history of a filter is what topics hold from where its client asked for up to where messages begin to wait for the
# session: fixed when the filter comes, partition by partition. A door reads it and says how far it is; what is newer
# (`since`, in the session's own partition) is handed out behind it.

_HEAD: Final = struct.Struct(">QI")
_OWED: Final = struct.Struct(">QQQ")

class Terms:
    """The terms of one filter."""

    __slots__ = ("owed", "selector", "since", "waits")

    def __init__(self, selector: Selector | None, since: int, owed: Owed) -> None:
        self.selector = selector
        self.since = since
        self.owed = owed
        self.waits = bool(owed)              # what is newer waits until the history has been sent

    @property
    def text(self) -> str:
        return "" if self.selector is None else self.selector.text

    def is_wanted(self, headers: Headers, key: bytes | None, address: str, timestamp_ms: int, value: bytes | None
                  ) -> bool:
        """Whether the selector takes a message."""
        return self.selector is None or self.selector.matches(headers, key, address, "", timestamp_ms, value)

    def move(self, reached: dict[int, int]) -> None:
        """The history is done with before these offsets; a partition that is done with altogether is forgotten."""
        for partition_id, offset in reached.items():
            _, stop = self.owed.get(partition_id, (0, 0))
            if offset < stop:
                self.owed[partition_id] = offset, stop
            else:
                self.owed.pop(partition_id, None)


def encode_terms(terms: Terms | None) -> bytes | None:
    """None where there is nothing to say."""
    if terms is None or not terms.owed and terms.selector is None:
        return None
    return _HEAD.pack(terms.since, len(terms.owed)) + b"".join(
        [_OWED.pack(partition_id, begin, stop) for partition_id, (begin, stop) in terms.owed.items()]) \
        + terms.text.encode()


def decode_terms(value: bytes, parse: Callable[[str], Selector | None]) -> Terms:
    since, count = _HEAD.unpack_from(value)
    stop = _HEAD.size + count * _OWED.size
    owed = {partition_id: (begin, end) for partition_id, begin, end in _OWED.iter_unpack(value[_HEAD.size:stop])}
    return Terms(parse(value[stop:].decode()), since, owed)
