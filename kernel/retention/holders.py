"""What is needed beyond retention, and the state records that say so. Pure.

    KEPT     key    partition id u64, offset u64
             value  record (`kernel.records.inline`)
    LATEST   key    partition id u64, tag u8, then by tag  0: the record's key  1: the SHA-256 of a long one  2: no key
             value  offset i64, append time i64, flags u8 (1: the record's value is null, it deletes its key)

    RETAINED key    tenant NUL address, its levels joined by NUL: addresses sort by level (`kernel.addresses.skip_scan`)
             value  see `kernel.delivery.retained`

Numbers are big-endian. KEPT records lie below the start of their partition in the log. LATEST is written for compacted
topics with every record, and says where the newest of its key is.
"""
from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable
from hashlib import sha256
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from gatehouse.kernel.addresses.skip_scan import NUL, join_levels
from gatehouse.kernel.errors import InvalidAddress

MAX_KEY_BYTES: Final = (1 << 16) - 1           # of a state record

RAW, HASHED, NO_KEY = b"\0", b"\1", b"\2"
RAW_BYTES: Final = 1_024                       # longer keys are known by their hash
DELETES: Final = 1

_PARTITION = struct.Struct(">Q")
_KEPT = struct.Struct(">QQ")
_LATEST = struct.Struct(">qqB")


Stretch = tuple[int, int]
"""Consecutive offsets: the first, and the one behind the last."""


NONE_NEEDED: Final = 1 << 62


class Holder(Protocol):  # decision 14
    """Whoever needs records beyond retention."""

    def needed(self, partition_id: int, start: int, stop: int) -> Iterable[Stretch]:
        """Which offsets from `start` until before `stop` are still needed, in any order.

        Asked on the kernel's thread, once per partition of a segment that is about to go.
        """

    def first_needed(self, partition_id: int) -> int:
        """No offset before this one is needed of what was kept of a partition; NONE_NEEDED where none at all is."""


def joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    """All offsets of these stretches, as sorted stretches that do not touch."""
    union: list[Stretch] = []
    for start, stop in sorted(stretches):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], stop))
        elif start < stop:
            union.append((start, stop))
    assert all(before[1] < after[0] for before, after in pairwise(union)), "stretches do not touch"
    return union


def within(stretches: list[Stretch], start: int, stop: int) -> list[Stretch]:
    """What of joined stretches lies from `start` until before `stop`."""
    i = bisect_right(stretches, start, key=itemgetter(1))
    overlaps: list[Stretch] = []
    while i < len(stretches) and stretches[i][0] < stop:
        overlaps.append((max(start, stretches[i][0]), min(stop, stretches[i][1])))
        i += 1
    return overlaps


class Latest(NamedTuple):
    """The newest record of a key."""

    offset: int
    append_ms: int
    flags: int


def kept_key(partition_id: int, offset: int) -> bytes:
    return _KEPT.pack(partition_id, offset)


def split_kept_key(key: bytes) -> tuple[int, int]:
    """Partition id and offset."""
    partition_id, offset = _KEPT.unpack(key)
    return partition_id, offset


def retained_key(tenant: str, address: str) -> bytes:
    """Raises InvalidAddress for one that is too long."""
    key = tenant.encode() + NUL + join_levels(address)
    if len(key) > MAX_KEY_BYTES:
        raise InvalidAddress(f"an address of {len(key)} bytes with its tenant is too long to retain a value")
    return key


def latest_key(partition_id: int, key: bytes | None) -> bytes:
    if key is None:
        return _PARTITION.pack(partition_id) + NO_KEY
    if len(key) > RAW_BYTES:
        return _PARTITION.pack(partition_id) + HASHED + sha256(key).digest()
    return _PARTITION.pack(partition_id) + RAW + key


def partition_of(key: bytes) -> int:
    """The partition that a LATEST record is about."""
    return int(_PARTITION.unpack_from(key)[0])


def encode_latest(latest: Latest) -> bytes:
    return _LATEST.pack(*latest)


def decode_latest(value: bytes) -> Latest:
    return Latest._make(_LATEST.unpack(value))


def kept_key_of(key: bytes, value: bytes) -> bytes:
    """The KEPT record that a LATEST record needs, where the log has it no more."""
    return kept_key(partition_of(key), decode_latest(value).offset)
