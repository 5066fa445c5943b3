"""What outlives retention, and the state records that say so.

    KEPT     key    partition id u64, offset u64
             value  record (`kernel.records.inline`)
    LATEST   key    partition id u64, tag u8, then by tag  0: the record's key  1: the SHA-256 of a long one  2: no key
             value  offset i64, append time i64, flags u8 (1: the record's value is null, it deletes its key)

Numbers are big-endian. KEPT records lie below the start of their partition in the log. There a reader who asks for what
is kept finds these, each a piece of its own. LATEST is written for compacted topics with every record, and says where
the newest of its key is.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final, NamedTuple

from gatehouse.kernel.message import Piece
from gatehouse.kernel.records import inline
from gatehouse.kernel.state.state import Changed, Kind

MAX_PIECES: Final = 4_096                      # of one partition in one fetch

RAW, HASHED, NO_KEY = b"\0", b"\1", b"\2"
RAW_BYTES: Final = 1_024                       # longer keys are known by their hash
DELETES: Final = 1

_PARTITION = struct.Struct(">Q")
_KEPT = struct.Struct(">QQ")
_LATEST = struct.Struct(">qqB")

StateRange = Callable[[int, bytes, bytes], Iterable[tuple[bytes, "bytes | None"]]]


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


def kept_pieces(state_range: StateRange, changed: Changed, partition_id: int, start: int, stop: int, max_bytes: int
                ) -> tuple[list[Piece], int]:
    """What is kept of a partition from one offset until before another, up to a size, but one piece in any case.

    And the offset up to which nothing is left out: `stop`, or less where there is more than was asked for.
    """
    assert start <= stop, "a stretch begins before it ends"
    lowest, below = kept_key(partition_id, start), kept_key(partition_id, stop)
    records: dict[bytes, bytes | None] = {key: None for key in changed.keys() if lowest <= key < below}
    count = size_bytes = 0
    for key, value in state_range(Kind.KEPT, lowest, below):
        if value is not None:
            records[key] = value
            count += 1
            size_bytes += len(value)
            if size_bytes > max_bytes or count == MAX_PIECES:
                stop = split_kept_key(key)[1] + 1
                break
    for key in records:
        newest = changed.get(key)
        if newest is not None:
            records[key] = newest[2]
    below = kept_key(partition_id, stop)
    living = [(key, value) for key, value in sorted(records.items()) if value is not None and key < below]
    count = _count_within([len(value) for _, value in living], max_bytes)
    pieces = [inline.piece_of(value, split_kept_key(key)[1]) for key, value in living[:count]]
    reached = split_kept_key(living[count][0])[1] if count < len(living) else stop
    assert not pieces or start <= pieces[0].first_offset <= pieces[-1].first_offset < reached <= stop, \
        "what is kept lies where it was asked for"
    return pieces, reached


def _count_within(sizes: list[int], max_bytes: int) -> int:
    """How many of these go into a size, and into one fetch; one in any case."""
    total = 0
    for count, size in enumerate(sizes[:MAX_PIECES]):
        total += size
        if count and total > max_bytes:
            return count
    return min(len(sizes), MAX_PIECES)
