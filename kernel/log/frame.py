"""The head of a frame: everything replay needs to know, without opening a batch.

     0  version       u16    2
     2  zero          u16
     4  epoch         u32    which start of the hub wrote it
     8  append_ms     i64    append time of every message in the frame
    16  first_id      u64    the first message id that the frame gives out; the others follow in order
    24  id_count      u32    message ids given out
    28  entry_count   u32
    32  state_bytes   u32
    36  zero          u32
    40  entries in columns, each entry_count long:
          partition_id i64, first_offset i64, max_ms i64, message_id i64,
          count u32, byte_offset u32, byte_length u32, crc u32, flags u32
        state records, state_bytes in all, each:
          kind u8, flags u8, key_len u16, value_len u32, order u64, key, value

An entry says that `count` records lying at `byte_offset` of the body entered a partition at `first_offset`. Columns,
because they are written and read whole, by one call each, however many partitions a frame enters. `message_id` is that
of the entry's first record, the others follow; it is one that the frame gives out, or, for a copy of a message, the one
that the message has had all along. `crc` is the CRC-32C of the entry's bytes, so that one entry can be checked without
reading its frame. A state record with the flag DELETED has no value; `order` is 0 but in kept frames, where it is the
position the record first had. Numbers are little-endian.

Version 1, which is read and no longer written, had no column `message_id` and, between `count` and `byte_offset`, a
column first_record u32: the entry's message id was first_id + first_record.
"""
from __future__ import annotations

import struct
import sys
from array import array
from typing import Final, NamedTuple

HEAD_VERSION: Final = 2
NUMBERED: Final = 1            # the version whose entries number their records within the frame
WHOLE: Final = 1               # entry flag: the bytes are a whole record batch as its producer sent it
DELETED: Final = 1             # state record flag

_HEAD = struct.Struct("<HxxIqQIII4x")
_STATE = struct.Struct("<BBHIQ")
_HEAD_BYTES: Final = 40
_STATE_BYTES: Final = 16
_ENTRY_BYTES: Final = {HEAD_VERSION: 4 * 8 + 5 * 4, NUMBERED: 3 * 8 + 6 * 4}

_U32: Final = "I" if array("I").itemsize == 4 else "L"
assert sys.byteorder == "little" and array(_U32).itemsize == 4 and array("q").itemsize == 8


class Entries:  # decision 4
    """The entries of a frame, as columns of equal length."""

    __slots__ = ("partition_id", "first_offset", "max_ms", "message_id", "count", "byte_offset", "byte_length", "crc",
                 "flags")

    def __init__(self) -> None:
        self.partition_id = array("q")
        self.first_offset = array("q")
        self.max_ms = array("q")
        self.message_id = array("q")
        self.count = array(_U32)
        self.byte_offset = array(_U32)
        self.byte_length = array(_U32)
        self.crc = array(_U32)
        self.flags = array(_U32)

    def columns(self) -> tuple[array[int], ...]:
        return (self.partition_id, self.first_offset, self.max_ms, self.message_id, self.count, self.byte_offset,
                self.byte_length, self.crc, self.flags)

    def __len__(self) -> int:
        return len(self.partition_id)


class StateRecord(NamedTuple):
    """The newest truth about one key: what a key and a value hold is `kernel.state.state`'s business."""

    kind: int
    key: bytes
    value: bytes | None        # None: the key is deleted
    order: int = 0             # in kept frames, the position it first had


class Head(NamedTuple):
    epoch: int
    append_ms: int
    first_id: int
    id_count: int
    entries: Entries
    state: list[StateRecord]


class BadHead(Exception):
    """A head whose CRC is right and whose contents make no sense: written by a version this one does not know."""


# decision 1
def encode_head(epoch: int, append_ms: int, first_id: int, id_count: int, entries: Entries,
                state: list[StateRecord]) -> bytes:
    assert len(entries.partition_id) == len(entries.message_id) == len(entries.flags), "columns are of one length"
    records = b"".join([
        _STATE.pack(kind, DELETED if value is None else 0, len(key), len(value or b""), order) + key + (value or b"")
        for kind, key, value, order in state])
    head = _HEAD.pack(HEAD_VERSION, epoch, append_ms, first_id, id_count, len(entries), len(records))
    return b"".join([head, *[column.tobytes() for column in entries.columns()], records])


def decode_head(head: bytes) -> Head:
    """Raises BadHead where the head does not add up."""
    if len(head) < _HEAD_BYTES:
        raise BadHead("a frame head is shorter than its fixed part")
    version, epoch, append_ms, first_id, id_count, entry_count, state_bytes = _HEAD.unpack_from(head)
    if version not in _ENTRY_BYTES:
        raise BadHead(f"a frame head of version {version} is not known here")
    at = len(head) - state_bytes
    if _HEAD_BYTES + entry_count * _ENTRY_BYTES[version] != at:
        raise BadHead("a frame head is not as long as it says")
    entries = _decode_entries(head, entry_count, first_id if version == NUMBERED else None)
    return Head(epoch, append_ms, first_id, id_count, entries, _decode_state(head, at))


def _decode_entries(head: bytes, entry_count: int, first_id: int | None) -> Entries:
    """`first_id` is given where the entries are numbered from it."""
    entries = Entries()
    numbers = array(_U32)
    columns = entries.columns() if first_id is None else (
        entries.partition_id, entries.first_offset, entries.max_ms, entries.count, numbers, entries.byte_offset,
        entries.byte_length, entries.crc, entries.flags)
    at = _HEAD_BYTES
    for column in columns:
        size = column.itemsize * entry_count
        column.frombytes(head[at:at + size])
        at += size
    if first_id is not None:
        entries.message_id.extend([first_id + number for number in numbers])
    return entries


def _decode_state(head: bytes, at: int) -> list[StateRecord]:
    state: list[StateRecord] = []
    while at < len(head):
        if at + _STATE_BYTES > len(head):
            raise BadHead("a state record is cut off")
        kind, flags, key_len, value_len, order = _STATE.unpack_from(head, at)
        at += _STATE_BYTES
        key = head[at:at + key_len]
        at += key_len
        value = None if flags & DELETED else head[at:at + value_len]
        at += value_len
        if at > len(head):
            raise BadHead("a state record is cut off")
        state.append(StateRecord(kind, key, value, order))
    return state
