"""The state records of a schedule. Pure.

    kind       key                          value
    SCHEDULED  id u64                       a message that waits, or what became of it
    SCHEDULED  nothing                      how many wait, how many are settled: u64, u64
    TIMER      due_ms u64, id u64           nothing: the message falls due then, by hub time
    TIMER      WALL | ms u64, id u64        nothing: the same by the wall clock
    TIMER      FORGET | ms u64, id u64      ids, u64 each: what became of these is forgotten then
    NAMED      name, id u64                 nothing: the message waits under a name, see `name_of`

A message that waits:

     0  fate          u8     PENDING
     1  attributes    u8     of the record
     2  flags         u8     FIXED_TOPIC, FIXED_PARTITION, TO_QUEUE, ROUTED, NULL_KEY, NULL_VALUE, BY_WALL, NO_CREATE
     3  name          u8     bytes of its name, 0 or 16
     4  partition     u32    with FIXED_PARTITION; with TO_QUEUE, the priority
     8  times         u32    delivered so far
    12  lengths       u32 each: tenant, address, topic, key, repeat, routed, headers
    40  due_ms        i64
    48  accepted_ms   i64    by the wall clock
    56  start_ms      i64    of the repetitions, by the clock that it is due by
    64  timestamp_ms  i64    0: the time of delivery
    72  tenant, address, topic, key, repeat, routed (partition ids, u64 each), headers, name, value

What became of it:

     0  fate          u8     DELIVERED, RECALLED
     1  zero          3 bytes
     4  times         u32
     8  due_ms        i64    of the last time
    16  settled_ms    i64
    24  tenant

Numbers are big-endian: keys sort by time.
"""
from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.state.state import Kind

FIXED_TOPIC: Final = 1
FIXED_PARTITION: Final = 2
NULL_KEY: Final = 4
NULL_VALUE: Final = 8
TO_QUEUE: Final = 16
ROUTED: Final = 32
BY_WALL: Final = 64
NO_CREATE: Final = 128

WALL: Final = 1 << 62
FORGET: Final = 1 << 63
FIRST_WALL: Final = struct.pack(">QQ", WALL, 0)
FIRST_FORGET: Final = struct.pack(">QQ", FORGET, 0)
BEYOND: Final = b"\xff" * 17                 # behind every TIMER key

COUNTS_KEY: Final = b""
NAME_BYTES: Final = 16

_ID = struct.Struct(">Q")
_TIMER = struct.Struct(">QQ")
_COUNTS = struct.Struct(">QQ")
_PENDING = struct.Struct(">BBBBIIIIIIIIIqqqq")
_SETTLED = struct.Struct(">BxxxIqq")


class Fate(IntEnum):
    PENDING = 0
    DELIVERED = 1
    RECALLED = 2


class Pending(NamedTuple):
    """A message that waits."""

    due_ms: int                  # by hub time, or
    by_wall: bool                # by the wall clock: the sender named the time
    accepted_ms: int
    start_ms: int                # of the repetitions
    timestamp_ms: int            # 0: the time of delivery
    times: int                   # delivered so far
    attributes: int
    tenant: str
    address: str
    topic: str                   # of a queue, its name
    fixed_topic: bool            # the topic and key were asked for; else the address decides
    may_create: bool             # the sender may have its topic made, should it be gone by then
    to_queue: bool                  # it goes to a queue alone
    partition: int                   # the partition that was asked for; -1: the key's. Of a queue, the priority
    routed: tuple[int, ...] | None       # the queues that a door chose for it
    key: bytes | None
    repeat: str                  # "": once
    headers: bytes               # as they stand in a record
    value: bytes | None
    name: bytes = b""            # its sender may recall it by this, see `name_of`


class Settled(NamedTuple):
    """What became of a scheduled message."""

    fate: Fate
    times: int
    due_ms: int
    settled_ms: int
    tenant: str


class ScheduleCounts(NamedTuple):
    pending: int
    settled: int


def id_key(message_id: int) -> bytes:
    return _ID.pack(message_id)


def name_of(tenant: str, name: str) -> bytes:
    """A sender's name for what waits, in a fixed size."""
    return blake2b(f"{tenant}\0{name}".encode(), digest_size=NAME_BYTES).digest()


def named_key(name: bytes, id_: bytes) -> bytes:
    """The key of a NAMED record, from a SCHEDULED key; without that, where keys of the name begin."""
    return name + id_


def timer_key(due_ms: int, by_wall: bool, message_id: int) -> bytes:  # decision 37
    return _TIMER.pack(due_ms | WALL if by_wall else due_ms, message_id)


def timer_of(pending: Pending, message_id: int) -> bytes:
    return timer_key(pending.due_ms, pending.by_wall, message_id)


def is_by_wall(key: bytes) -> bool:
    """Whether a TIMER's message falls due by the wall clock."""
    return key >= FIRST_WALL


def due_of(key: bytes) -> int:
    """When a TIMER's message falls due, by its clock."""
    return int.from_bytes(key[:8], "big") & (WALL - 1)


def id_of(key: bytes) -> bytes:
    """The SCHEDULED key of a TIMER's message."""
    return key[8:]


def number_of(key: bytes) -> int:
    """The message id in a SCHEDULED key."""
    return int.from_bytes(key, "big")


def bound(due_ms: int, by_wall: bool = False) -> bytes:
    """Behind every TIMER key of this clock that is due by then."""
    return timer_key(due_ms + 1, by_wall, 0)


def forget_bound(when_ms: int) -> bytes:
    """Behind every TIMER key of what is forgotten by then."""
    return _TIMER.pack(FORGET | when_ms + 1, 0)


@lru_cache(maxsize=4_096)
def _encode_names(*names: str) -> tuple[list[int], bytes]:
    """Their lengths, and all of them: messages come to the same addresses again and again."""
    encoded = [name.encode() for name in names]
    return [len(name) for name in encoded], b"".join(encoded)


def encode_pending(pending: Pending) -> bytes:  # decision 37
    (due_ms, by_wall, accepted_ms, start_ms, timestamp_ms, times, attributes, tenant, address, topic, fixed_topic,
     may_create, to_queue, partition, routed, key, repeat, headers, value, name) = pending
    flags = fixed_topic * FIXED_TOPIC | (not may_create) * NO_CREATE | (partition >= 0) * FIXED_PARTITION \
        | to_queue * TO_QUEUE | (routed is not None) * ROUTED | (key is None) * NULL_KEY \
        | (value is None) * NULL_VALUE | by_wall * BY_WALL
    lengths, names = _encode_names(tenant, address, topic)
    parts = (key or b"", repeat.encode(), b"".join(map(id_key, routed)) if routed else b"", headers)
    head = _PENDING.pack(Fate.PENDING, attributes, flags, len(name), max(partition, 0), times, *lengths,
                         *map(len, parts), due_ms, accepted_ms, start_ms, timestamp_ms)
    return b"".join((head, names, *parts, name, value or b""))


def encode_settled(settled: Settled) -> bytes:
    return _SETTLED.pack(settled.fate, settled.times, settled.due_ms, settled.settled_ms) + settled.tenant.encode()


def decode(value: bytes) -> Pending | Settled:
    """The value of a SCHEDULED record with an id."""
    if value[0] != Fate.PENDING:
        fate, times, due_ms, settled_ms = _SETTLED.unpack_from(value)
        return Settled(Fate(fate), times, due_ms, settled_ms, value[_SETTLED.size:].decode())
    _, attributes, flags, name_bytes, partition, times, *rest = _PENDING.unpack_from(value)
    lengths, (due_ms, accepted_ms, start_ms, timestamp_ms) = rest[:-4], rest[-4:]
    parts, at = [], _PENDING.size
    for length in lengths:
        parts.append(value[at:at + length])
        at += length
    tenant, address, topic, key, repeat, routed, headers = parts
    name, at = value[at:at + name_bytes], at + name_bytes
    return Pending(due_ms, bool(flags & BY_WALL), accepted_ms, start_ms, timestamp_ms, times, attributes,
                   tenant.decode(), address.decode(), topic.decode(), bool(flags & FIXED_TOPIC),
                   not flags & NO_CREATE, bool(flags & TO_QUEUE), partition if flags & FIXED_PARTITION else -1,
                   tuple(map(number_of, split_ids(routed))) if flags & ROUTED else None,
                   None if flags & NULL_KEY else key, repeat.decode(), headers,
                   None if flags & NULL_VALUE else value[at:], name)


def counts_record(counts: ScheduleCounts) -> StateRecord:
    return StateRecord(Kind.SCHEDULED, COUNTS_KEY, _COUNTS.pack(*counts))


def decode_counts(value: bytes | None) -> ScheduleCounts:
    return ScheduleCounts(0, 0) if value is None else ScheduleCounts(*_COUNTS.unpack(value))


def forget_record(when_ms: int, ids: list[bytes]) -> StateRecord:
    """These settled ones (their SCHEDULED keys) are forgotten at a time."""
    return StateRecord(Kind.TIMER, _ID.pack(FORGET | when_ms) + ids[0], b"".join(ids))


def split_ids(value: bytes) -> list[bytes]:
    """The SCHEDULED keys in the value of a record of `forget_record`."""
    return [value[at:at + _ID.size] for at in range(0, len(value), _ID.size)]
