"""Who published: a column in front of the runs of a frame's body. Pure. Hot.

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
to it: whatever deletes the segment deletes both. A body whose messages nobody is known to have published has no
column. Numbers are little-endian.
"""
from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import Final, NamedTuple

from crc32c import crc32c

from gatehouse.kernel.message import Origin

MAGIC: Final = 0x89A7F00D
"""Its first byte, 0x0D, is no length of a record and begins no batch: no message can be taken for a column."""

NOBODY_NUMBER: Final = 0xFFFF
MAX_AUTHORS: Final = 60_000
"""Of one frame that are told apart; whose the messages of others are is not known."""

MAX_TEXT_BYTES: Final = 256
"""What is kept of a user's name, a client id, a peer."""

NUMBER_BITS: Final = 16

_HEAD: Final = struct.Struct("<IIIQIII")
HEAD_BYTES: Final = 32
_START: Final = struct.Struct("<III")                # the head in two parts, as its checksum begins with the second
_COUNTS: Final = struct.Struct("<QIII")
_LENGTH: Final = struct.Struct("<H")
U32: Final = "I" if array("I").itemsize == 4 else "L"

Stretches = list[tuple[int, "Origin | None"]]
"""Where stretches of messages begin, and who published them."""


class Authors(NamedTuple):
    """What a column says."""

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
    since <<= NUMBER_BITS
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
    start = _START.pack(MAGIC, HEAD_BYTES + len(rest), crc32c(rest, crc32c(counts)))
    return b"".join((start, counts, rest)), saying


def note_names(saying: list[Origin], position: int) -> None:
    """The column that says these lies at this position, for good."""
    for number, origin in enumerate(saying):
        origin.note_named(position << NUMBER_BITS | number)


def length_of(start: bytes) -> int:
    """How long the column is that a body begins with, by its first HEAD_BYTES; 0 where it begins with none."""
    if len(start) < HEAD_BYTES:
        return 0
    magic, length = struct.unpack_from("<II", start)
    return int(length) if magic == MAGIC and length >= HEAD_BYTES else 0


def decode_authors(column: bytes) -> Authors:
    """Raises CorruptAuthors."""
    if len(column) < HEAD_BYTES:
        raise CorruptAuthors("a column of authors is longer")
    magic, length, crc, first_id, name_count, author_count, stretch_count = _HEAD.unpack_from(column)
    if magic != MAGIC or length != len(column) or crc32c(column[12:]) != crc:
        raise CorruptAuthors("this is no column of authors")
    authors, firsts, numbers = array("Q"), array(U32), array("H")
    at = HEAD_BYTES
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
