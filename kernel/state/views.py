"""State records as they are used: what is in memory whole, and what one record does to it."""
from __future__ import annotations

import struct

from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.state.watermarks import PAGE_PARTITIONS, Watermarks

MAX_GROUP_BYTES = 65_000
MAX_METADATA_BYTES = 4_096

_OFFSET = struct.Struct(">q")
_PARTITION = struct.Struct(">Q")
_PAGE = struct.Struct(">Q")


def offset_key(group: str, partition_id: int) -> bytes:
    """The key of an OFFSET record; the group of a queue itself is ""."""
    return _PARTITION.pack(partition_id) + group.encode()


def offset_record(group: str, partition_id: int, offset: tuple[int, bytes] | None) -> StateRecord:
    """A group's committed offset in one partition; None deletes it."""
    value = None if offset is None else _OFFSET.pack(offset[0]) + offset[1][:MAX_METADATA_BYTES]
    return StateRecord(Kind.OFFSET, offset_key(group, partition_id), value)


def decode_offset_key(key: bytes) -> tuple[int, str]:
    """Partition id and group of an OFFSET record."""
    return _PARTITION.unpack_from(key)[0], key[_PARTITION.size:].decode()


def decode_offset(value: bytes) -> tuple[int, bytes]:
    """Offset and metadata of an OFFSET record."""
    return _OFFSET.unpack_from(value)[0], value[_OFFSET.size:]


def epoch_key(epoch: int) -> bytes:
    """Of where an epoch began."""
    return epoch.to_bytes(4, "big")


def decode_epoch_key(key: bytes) -> int:
    return int.from_bytes(key, "big")


def encode_position(position: int) -> bytes:
    return position.to_bytes(8, "big")


def decode_position(value: bytes) -> int:
    return int.from_bytes(value, "big")


def heads_record(page: int, packed: bytes) -> StateRecord:
    return StateRecord(Kind.WATERMARKS, _PAGE.pack(page), packed)


def partitions_of_watermarks(key: bytes) -> range:
    """The partitions whose watermarks a WATERMARKS record holds."""
    first = int(_PAGE.unpack(key)[0]) * PAGE_PARTITIONS
    return range(first, first + PAGE_PARTITIONS)


class Views:
    """Topics, watermarks, committed offsets and the epoch, kept up to date by state records."""

    def __init__(self, topics: Topics, watermarks: Watermarks) -> None:
        self._topics = topics
        self._watermarks = watermarks
        self.epoch = 0
        self.offsets: dict[str, dict[int, tuple[int, bytes]]] = {}

    def apply(self, record: StateRecord) -> None:
        """A record at replay; a kind that is not kept in memory does nothing."""
        if record.kind == Kind.COUNTERS and record.value is not None:
            self._topics.apply_counters(record.value)
        elif record.kind == Kind.TOPIC:
            self._topics.apply(record.key, record.value)
        elif record.kind == Kind.EPOCH and record.value is not None:
            self.epoch = max(self.epoch, int.from_bytes(record.value, "big"))
        else:
            self.apply_stored(record)

    def apply_stored(self, record: StateRecord) -> None:
        """A record that has just become durable: only what was not changed beforehand."""
        if record.kind == Kind.WATERMARKS and record.value is not None:
            self._watermarks.merge(_PAGE.unpack(record.key)[0], record.value)
        elif record.kind == Kind.OFFSET:
            self._apply_offset(record.key, record.value)

    def _apply_offset(self, key: bytes, value: bytes | None) -> None:
        partition_id, group = decode_offset_key(key)
        if not group:                             # a queue's own: nobody needs what lies before it
            gone = self._watermarks.next_offset(partition_id)          # of a deleted partition nobody needs anything
            self._watermarks.advance(partition_id, gone if value is None else decode_offset(value)[0])
        elif value is not None:
            self.offsets.setdefault(group, {})[partition_id] = decode_offset(value)
        elif group in self.offsets:
            self.offsets[group].pop(partition_id, None)
            if not self.offsets[group]:
                del self.offsets[group]
