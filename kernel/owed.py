"""What is needed beyond retention, and the state records that say so. Pure.

    KEPT     key    queue id u64, offset u64
             value  record (`kernel.inline`)
    LATEST   key    queue id u64, tag u8, then by tag  0: the record's key  1: the SHA-256 of a long one  2: no key
             value  offset i64, append time i64, flags u8 (1: the record's value is null, it deletes its key)

Numbers are big-endian. KEPT records lie below the start of their queue in the log. LATEST is written for compacted
topics with every record, and says where the newest of its key is.
"""
from __future__ import annotations

import struct
from collections.abc import Collection
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

RAW, HASHED, NO_KEY = b"\0", b"\1", b"\2"
RAW_BYTES: Final = 1_024                       # longer keys are known by their hash
DELETES: Final = 1

_QUEUE = struct.Struct(">Q")
_KEPT = struct.Struct(">QQ")
_LATEST = struct.Struct(">qqB")


class Owed(Protocol):
    """Whoever needs records beyond retention."""

    def wanted(self, queue_id: int, first_offset: int, count: int) -> Collection[int]:
        """Which of these offsets are still needed; asked on the kernel's thread, once per queue of a segment."""


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
