"""What two hubs say to each other under seal. Pure.

    1 POSITIONS  count u32 | (topic uuid 16, partition u32, position u64)*   how far the reader's partitions are here
                 | (last offset u64, mark 8)*                                which message of each came last; 1.3
    2 READY      window u32 | count u32 | filter text* | takes u8            from here on letters of batches may come
    3 BATCHES    number u64 | sent at i64 | uuid 16 | topic text | count u32 | section*
    4 STORED     number u64                                                  that letter of batches, and those before
    5 STOPPED    code text | text                                            this side takes no more
    6 PACKED     size u32 | one frame of zstd                                a letter of so many bytes; 1.1
    7 SPOOL_KEY  number u64 | key 32 | now i64                               letters may be kept, sealed for it; 1.2
    8 NEXT_KEY   key 32 | signature 64                                       this hub's key from some day on; 1.2
    9 PINNED     key 32                                                      that key is pinned beside the other; 1.2

    section := partition u32 | flags u8 | predecessor u64 | next u64 | lost u64 | count u32 | piece*
    piece   := first offset u64 | count u32 | stored at i64 | largest time i64 | first id i64 | whole u8 | body

A section covers the offsets from `predecessor` until before `next` of one partition: what of them is in no piece did
not match, or is `lost` to retention. A piece's body lies as in the log: v2 records, or a batch of a producer, or a
part of one. Records are counted by their order, and their own offsets say nothing.
`window`: so many bytes of such letters may be on their way, as they are before they are packed. `takes` (1.1; left out:
0): 1, this side reads PACKED; 2, it has letters kept and reads SPOOL_KEY; 4, it reads NEXT_KEY; 8 (1.3), it says which
message came last, and reads flag 2; 16 (1.4), it reads letters that are sealed with AES. Flag 1: the reader has heard
nothing of this partition yet, and this is where it begins. Flag 2: what the reader has from `predecessor` on is of
another history, and this follows instead.
"""
from __future__ import annotations

import struct
from typing import Final, NamedTuple

import zstandard

from gatehouse.kernel.errors import CorruptBatch
from gatehouse.kernel.message import Piece
from gatehouse.kernel.records.compression import ZSTD, decompress
from gatehouse.relay.errors import BadFrame
from gatehouse.relay.fields import Fields, body, i64, text, u8, u32, u64
from gatehouse.relay.frames import KEY_BYTES, SIGNATURE_BYTES
from gatehouse.relay.histories import MARK_BYTES, NO_MARK, Last

POSITIONS: Final = 1
READY: Final = 2
BATCHES: Final = 3
STORED: Final = 4
STOPPED: Final = 5
PACKED: Final = 6
SPOOL_KEY: Final = 7
NEXT_KEY: Final = 8
PINNED: Final = 9

TAKES_PACKED: Final = 1
TAKES_SPOOL_KEYS: Final = 2
TAKES_NEXT_KEYS: Final = 4
TAKES_HISTORIES: Final = 8
TAKES_AES: Final = 16
PACK_LEVEL: Final = 3
MIN_PACKED_BYTES: Final = 512          # a letter that is smaller goes as it is


BEGINS: Final = 1
ANEW: Final = 2
"""Flags of a section."""

UUID_BYTES: Final = 16
MAX_OFFSET: Final = (1 << 63) - 1
MAX_POSITIONS: Final = 10_000          # of one letter
MAX_FILTERS: Final = 1_000

_POSITION = struct.Struct(">16sIQ")
_LAST = struct.Struct(f">Q{MARK_BYTES}s")
_SECTION = struct.Struct(">IBQQQI")
_PIECE = struct.Struct(">QIqqqB")
PIECE_BYTES: Final = _PIECE.size + 4
SECTION_BYTES: Final = _SECTION.size

Position = tuple[bytes, int, int]
"""(topic uuid, partition, next offset)."""


class Section(NamedTuple):
    """A stretch of one partition."""

    partition: int
    begins: bool
    predecessor: int
    next: int
    lost: int
    pieces: list[Piece]
    anew: bool = False
    """The sender was restored from an older copy: from `predecessor` on it has another history than the reader."""


class Positions(NamedTuple):
    positions: list[Position]
    last: list[Last | None] = []
    """Of each of them, or of none."""


class Ready(NamedTuple):
    window_bytes: int
    filters: list[str]
    takes: int = 0


class Batches(NamedTuple):
    number: int
    sent_ms: int
    uuid: bytes
    topic: str
    sections: list[Section]


class StoredUntil(NamedTuple):
    number: int


class Stopped(NamedTuple):
    code: str
    reason: str


class SpoolKey(NamedTuple):
    number: int
    key: bytes
    now_ms: int


class NextKey(NamedTuple):
    key: bytes
    signature: bytes


class Pinned(NamedTuple):
    key: bytes


Letter = Positions | Ready | Batches | StoredUntil | Stopped | SpoolKey | NextKey | Pinned


def encode(letter: Letter) -> bytes:
    """One letter as it is sealed."""
    match letter:
        case Positions(positions, last):
            return u8(POSITIONS) + u32(len(positions)) + b"".join(
                [_POSITION.pack(*position) for position in positions]
                + [_LAST.pack(0, NO_MARK) if of is None else _LAST.pack(*of) for of in last])
        case Ready(window_bytes, filters, takes):
            return (u8(READY) + u32(window_bytes) + u32(len(filters)) + b"".join([text(name) for name in filters])
                    + u8(takes))
        case Batches(number, sent_ms, uuid, topic, sections):
            parts = [u8(BATCHES) + u64(number) + i64(sent_ms) + uuid + text(topic) + u32(len(sections))]
            for section in sections:
                flags = (BEGINS if section.begins else 0) | (ANEW if section.anew else 0)
                parts.append(_SECTION.pack(section.partition, flags, section.predecessor, section.next, section.lost,
                                           len(section.pieces)))
                for piece in section.pieces:
                    parts.append(_PIECE.pack(piece.first_offset, piece.count, piece.append_ms, piece.max_timestamp_ms,
                                             piece.first_id, piece.whole))
                    parts.append(body(piece.data))
            return b"".join(parts)
        case StoredUntil(number):
            return u8(STORED) + u64(number)
        case Stopped(code, reason):
            return u8(STOPPED) + text(code) + text(reason)
        case SpoolKey(number, key, now_ms):
            return u8(SPOOL_KEY) + u64(number) + key + i64(now_ms)
        case NextKey(key, signature):
            return u8(NEXT_KEY) + key + signature
        case Pinned(key):
            return u8(PINNED) + key


def decode(data: bytes) -> Letter:
    """Read one letter. Raises BadFrame."""
    fields = Fields(data)
    kind = fields.u8()
    if kind == BATCHES:
        return _batches(fields)
    if kind == STORED:
        return StoredUntil(fields.u64())
    if kind == POSITIONS:
        count = fields.count(_POSITION.size)
        positions = [_POSITION.unpack(fields.take(_POSITION.size)) for _ in range(count)]
        return Positions(positions, [_last(fields) for _ in range(count)] if fields.left else [])
    if kind == READY:
        window_bytes, count = fields.u32(), fields.count(2)
        if count > MAX_FILTERS:
            raise BadFrame(f"{count} filters are more than a link has: {MAX_FILTERS}")
        filters = [fields.text() for _ in range(count)]
        return Ready(window_bytes, filters, fields.u8() if fields.left else 0)
    if kind == STOPPED:
        return Stopped(fields.text(), fields.text())
    if kind == SPOOL_KEY:
        return SpoolKey(fields.u64(), fields.take(KEY_BYTES), fields.i64())
    if kind == NEXT_KEY:
        return NextKey(fields.take(KEY_BYTES), fields.take(SIGNATURE_BYTES))
    if kind == PINNED:
        return Pinned(fields.take(KEY_BYTES))
    raise BadFrame(f"there is no letter of kind {kind}")


def _last(fields: Fields) -> Last | None:
    offset, mark = _LAST.unpack(fields.take(_LAST.size))
    return None if mark == NO_MARK else Last(offset, mark)


def pack(data: bytes) -> bytes:
    """An encoded letter, compressed where that makes it smaller."""
    if len(data) < MIN_PACKED_BYTES:
        return data
    packed = u8(PACKED) + u32(len(data)) + zstandard.ZstdCompressor(level=PACK_LEVEL).compress(data)
    return packed if len(packed) < len(data) else data


def unpack(data: bytes, max_bytes: int) -> bytes:
    """The encoded letter in what was sealed; itself where it is not packed. Raises BadFrame for one that is larger than
    a meeting point carries, or is not as large as it says."""
    if data[:1] != bytes((PACKED,)):
        return data
    fields = Fields(data, 1)
    size_bytes = fields.u32()
    if size_bytes > max_bytes:
        raise BadFrame(f"a packed letter of {size_bytes} bytes is more than {max_bytes}")
    try:
        letter = decompress(ZSTD, fields.rest(), size_bytes)
    except CorruptBatch as error:
        raise BadFrame(f"a packed letter does not open: {error}") from None
    if len(letter) != size_bytes or letter[:1] == bytes((PACKED,)):
        raise BadFrame("a packed letter is not what it says")
    return letter


def _batches(fields: Fields) -> Batches:
    number, sent_ms, uuid, topic = fields.u64(), fields.i64(), fields.take(UUID_BYTES), fields.text()
    sections = [_section(fields) for _ in range(fields.count(SECTION_BYTES))]
    fields.end()
    return Batches(number, sent_ms, uuid, topic, sections)


def _section(fields: Fields) -> Section:
    partition, flags, predecessor, next_offset, lost, count = _SECTION.unpack(fields.take(SECTION_BYTES))
    if not 0 <= predecessor <= next_offset <= MAX_OFFSET or lost > next_offset:
        raise BadFrame(f"a section from offset {predecessor} to {next_offset}, of which {lost} are lost, is none")
    pieces = []
    if count * PIECE_BYTES > next_offset * PIECE_BYTES + PIECE_BYTES:
        raise BadFrame("a section has more pieces than offsets")
    for _ in range(count):
        first, records, append_ms, max_ms, first_id, whole = _PIECE.unpack(fields.take(_PIECE.size))
        if not records or max(first, first_id) + records > MAX_OFFSET or first >= next_offset:
            raise BadFrame(f"a piece of {records} records from offset {first} and id {first_id} on is none of its "
                           "section")
        pieces.append(Piece(first, records, whole == 1, fields.body(), append_ms, max_ms, first_id))
    return Section(partition, bool(flags & BEGINS), predecessor, next_offset, lost, pieces, bool(flags & ANEW))
