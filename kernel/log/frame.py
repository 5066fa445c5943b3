"""A frame as it is on disk: its head, which has everything replay needs to know without opening a batch, and the column
of authors in front of its body. Pure. Hot.

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

A body whose messages somebody is known to have published begins with the column of authors:

     0  magic         u32
     4  length        u32    of all of it
     8  crc           u32    CRC-32C of what follows
    12  first_id      u64    the first message id that the frame gives out
    20  name_count    u32    names that this frame says
    24  author_count  u32
    28  stretch_count u32
    32  authors       u64 each: where a name stands; the position of a frame's body << 16 and the number of the name in
                      its column, or without a position one of this column
        firsts        u32 each: a stretch of messages begins there, counted from `first_id`
        numbers       u16 each: whose they are, an author of this frame by its number; NOBODY: that is not known
        names         each: door, user, client id, peer; of each its length, u16, and its bytes, UTF-8

A name is said once in a segment of the log, in the frame of its author's first message there, and other frames point
to it: whatever deletes the segment deletes both.
"""
from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from typing import Final, NamedTuple

from crc32c import crc32c

from gatehouse.kernel.message import Origin

HEAD_VERSION: Final = 2
NUMBERED: Final = 1            # the version whose entries number their records within the frame
WHOLE: Final = 1               # entry flag: the bytes are a whole record batch as its producer sent it
DELETED: Final = 1             # state record flag

_HEAD = struct.Struct("<HxxIqQIII4x")
_STATE = struct.Struct("<BBHIQ")
_HEAD_BYTES: Final = 40
_STATE_BYTES: Final = 16
_ENTRY_BYTES: Final = {HEAD_VERSION: 4 * 8 + 5 * 4, NUMBERED: 3 * 8 + 6 * 4}

U32: Final = "I" if array("I").itemsize == 4 else "L"
assert sys.byteorder == "little" and array(U32).itemsize == 4 and array("q").itemsize == 8


class Entries:  # decision 4
    """The entries of a frame, as columns of equal length."""

    __slots__ = ("partition_id", "first_offset", "max_ms", "message_id", "count", "byte_offset", "byte_length", "crc",
                 "flags")

    def __init__(self) -> None:
        self.partition_id = array("q")
        self.first_offset = array("q")
        self.max_ms = array("q")
        self.message_id = array("q")
        self.count = array(U32)
        self.byte_offset = array(U32)
        self.byte_length = array(U32)
        self.crc = array(U32)
        self.flags = array(U32)

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
    numbers = array(U32)
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


COLUMN_MAGIC: Final = 0x89A7F00D
"""Its first byte, 0x0D, is no length of a record and begins no batch: no message can be taken for a column."""

NOBODY_NUMBER: Final = 0xFFFF
MAX_AUTHORS: Final = 60_000
"""Of one frame that are told apart; whose the messages of others are is not known."""

MAX_TEXT_BYTES: Final = 256
"""What is kept of a user's name, a client id, a peer."""

AUTHOR_BITS: Final = 16

_COLUMN: Final = struct.Struct("<IIIQIII")
COLUMN_HEAD_BYTES: Final = 32
_START: Final = struct.Struct("<III")                # the head in two parts, as its checksum begins with the second
_COUNTS: Final = struct.Struct("<QIII")
_LENGTH: Final = struct.Struct("<H")

Stretches = list[tuple[int, "Origin | None"]]
"""Where stretches of messages begin, and who published them."""


class Authors(NamedTuple):
    """What a column of authors says."""

    first_id: int
    names: list[Origin]
    authors: array[int]
    firsts: array[int]
    numbers: array[int]

    def author_of(self, message_id: int) -> int:
        """Where the name of its publisher stands, as in the column; -1 where that is not known."""
        at = bisect_right(self.firsts, message_id - self.first_id) - 1
        if at < 0 or self.numbers[at] >= len(self.authors):
            return -1
        return self.authors[self.numbers[at]]

    def within(self, message_id: int, count: int) -> list[tuple[int, int]]:
        """Of so many messages: from which id on, and where the name of their publisher stands; -1 where that is not
        known."""
        begin = message_id - self.first_id
        if begin < 0:
            return []
        at = max(0, bisect_right(self.firsts, begin) - 1)
        stretches: list[tuple[int, int]] = []
        while at < len(self.firsts) and self.firsts[at] < begin + count:
            number = self.numbers[at]
            stretches.append((max(begin, self.firsts[at]) + self.first_id,
                              self.authors[number] if number < len(self.authors) else -1))
            at += 1
        return stretches


class CorruptAuthors(Exception):
    """These bytes are no column."""


# decision 322
def encode_authors(first_id: int, authors: list[Origin], firsts: bytes, numbers: bytes, since: int
                   ) -> tuple[bytes, list[Origin]]:
    """The column of stretches, as it has them, of these authors. And the names that it says, which `note_names` is to
    be told once the frame has its place. Names that were said before the position `since` are said again."""
    saying: list[Origin] = []
    places = array("Q")
    since <<= AUTHOR_BITS
    for origin in authors:
        if origin.named_at >= since and origin.named_at:
            places.append(origin.named_at)
        else:
            places.append(len(saying))
            saying.append(origin)
    counts = _COUNTS.pack(first_id, len(saying), len(places), len(numbers) // 2)
    rest = places.tobytes() + firsts + numbers
    if saying:
        rest += b"".join([_encode_name(origin) for origin in saying])
    start = _START.pack(COLUMN_MAGIC, COLUMN_HEAD_BYTES + len(rest), crc32c(rest, crc32c(counts)))
    return b"".join((start, counts, rest)), saying


def note_names(saying: list[Origin], position: int) -> None:
    """The column that says these lies at this position, for good."""
    for number, origin in enumerate(saying):
        origin.note_named(position << AUTHOR_BITS | number)


def column_length(start: bytes) -> int:
    """How long the column is that a body begins with, by its first COLUMN_HEAD_BYTES; 0 where it begins with none."""
    if len(start) < COLUMN_HEAD_BYTES:
        return 0
    magic, length = struct.unpack_from("<II", start)
    return int(length) if magic == COLUMN_MAGIC and length >= COLUMN_HEAD_BYTES else 0


def decode_authors(column: bytes) -> Authors:
    """Raises CorruptAuthors."""
    if len(column) < COLUMN_HEAD_BYTES:
        raise CorruptAuthors("a column of authors is longer")
    magic, length, crc, first_id, name_count, author_count, stretch_count = _COLUMN.unpack_from(column)
    if magic != COLUMN_MAGIC or length != len(column) or crc32c(column[12:]) != crc:
        raise CorruptAuthors("this is no column of authors")
    authors, firsts, numbers = array("Q"), array(U32), array("H")
    at = COLUMN_HEAD_BYTES
    for part, count in ((authors, author_count), (firsts, stretch_count), (numbers, stretch_count)):
        end = at + count * part.itemsize
        if end > length:
            raise CorruptAuthors("a column of authors is cut off")
        part.frombytes(column[at:end])
        at = end
    names: list[Origin] = []
    for _ in range(name_count):
        texts: list[str] = []
        for _ in range(4):
            if at + 2 > length:
                raise CorruptAuthors("a name is cut off")
            size = int(_LENGTH.unpack_from(column, at)[0])
            texts.append(column[at + 2:at + 2 + size].decode(errors="replace"))
            at += 2 + size
        names.append(Origin(texts[0], texts[1], texts[2], texts[3]))
    if at != length:
        raise CorruptAuthors("something stands behind the names, or one is cut off")
    return Authors(first_id, names, authors, firsts, numbers)


def _encode_name(origin: Origin) -> bytes:
    parts: list[bytes] = []
    for text in (origin.door, origin.user, origin.client, origin.peer):
        raw = text.encode()[:MAX_TEXT_BYTES]
        parts.append(_LENGTH.pack(len(raw)))
        parts.append(raw)
    return b"".join(parts)
