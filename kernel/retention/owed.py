"""What is needed beyond retention, and the state records that say so. Pure.

    KEPT     key    queue id u64, offset u64
             value  record (`kernel.records.inline`)
    LATEST   key    queue id u64, tag u8, then by tag  0: the record's key  1: the SHA-256 of a long one  2: no key
             value  offset i64, append time i64, flags u8 (1: the record's value is null, it deletes its key)

    RETAINED key    tenant NUL address, its levels joined by NUL: addresses sort by level (`kernel.addresses.skip_scan`)
             value  see `kernel.delivery.retained`

Numbers are big-endian. KEPT records lie below the start of their queue in the log. LATEST is written for compacted
topics with every record, and says where the newest of its key is.
"""
from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable
from hashlib import sha256
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from kernel.addresses.skip_scan import NUL, join_levels
from kernel.errors import InvalidAddress

MAX_KEY_BYTES: Final = (1 << 16) - 1           # of a state record

RAW, HASHED, NO_KEY = b"\0", b"\1", b"\2"
RAW_BYTES: Final = 1_024                       # longer keys are known by their hash
DELETES: Final = 1

_QUEUE = struct.Struct(">Q")
_KEPT = struct.Struct(">QQ")
_LATEST = struct.Struct(">qqB")


Stretch = tuple[int, int]
"""Consecutive offsets: the first, and the one behind the last."""


NONE_NEEDED: Final = 1 << 62


class Owed(Protocol):
    """Whoever needs records beyond retention."""

    def wanted(self, queue_id: int, start: int, stop: int) -> Iterable[Stretch]:
        """Which offsets from `start` until before `stop` are still needed, in any order.

        Asked on the kernel's thread, once per queue of a segment that is about to go.
        """

    def first_needed(self, queue_id: int) -> int:
        """No offset before this one is needed of what was kept of a queue; NONE_NEEDED where none at all is."""


def joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    """The same offsets as sorted stretches that do not touch."""
    found: list[Stretch] = []
    for start, stop in sorted(stretches):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        elif start < stop:
            found.append((start, stop))
    return found


def within(stretches: list[Stretch], start: int, stop: int) -> list[Stretch]:
    """What of joined stretches lies from `start` until before `stop`."""
    i = bisect_right(stretches, start, key=itemgetter(1))
    found: list[Stretch] = []
    while i < len(stretches) and stretches[i][0] < stop:
        found.append((max(start, stretches[i][0]), min(stop, stretches[i][1])))
        i += 1
    return found


class Latest(NamedTuple):
    """The newest record of a key."""

    offset: int
    append_ms: int
    flags: int


def kept_key(queue_id: int, offset: int) -> bytes:
    return _KEPT.pack(queue_id, offset)


def split_kept_key(key: bytes) -> tuple[int, int]:
    """Queue id and offset."""
    queue_id, offset = _KEPT.unpack(key)
    return queue_id, offset


def retained_key(tenant: str, address: str) -> bytes:
    """Raises InvalidAddress for one that is too long."""
    key = tenant.encode() + NUL + join_levels(address)
    if len(key) > MAX_KEY_BYTES:
        raise InvalidAddress(f"an address of {len(key)} bytes with its tenant is too long to retain a value")
    return key


def latest_key(queue_id: int, key: bytes | None) -> bytes:
    if key is None:
        return _QUEUE.pack(queue_id) + NO_KEY
    if len(key) > RAW_BYTES:
        return _QUEUE.pack(queue_id) + HASHED + sha256(key).digest()
    return _QUEUE.pack(queue_id) + RAW + key


def queue_of(key: bytes) -> int:
    """The queue that a LATEST record is about."""
    return int(_QUEUE.unpack_from(key)[0])


def encode_latest(latest: Latest) -> bytes:
    return _LATEST.pack(*latest)


def decode_latest(value: bytes) -> Latest:
    return Latest._make(_LATEST.unpack(value))


def kept_key_of(key: bytes, value: bytes) -> bytes:
    """The KEPT record that a LATEST record needs, where the log has it no more."""
    return kept_key(queue_of(key), decode_latest(value).offset)
