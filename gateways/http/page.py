"""One page of messages out of what was fetched from several partitions, and the cursor that goes on behind it. Pure.

Inside a partition, so for every key, messages keep their order. Across partitions a page follows the message ids, which
grow from flush to flush of the hub, as far as the fetched pieces reach. A page always moves on: what cannot be given is
named in it and stepped over.

    lost         offsets before the log's start: retention deleted them before this reader came
    skipped      how many messages a selector passed over
    unreadable   offsets of stored batches at which their producer wrote nothing that makes sense, and offsets that no
                 piece has (the log is damaged there)

The cursor is where a reader is in every partition of a topic, in one opaque URL-safe word: the server keeps no state.

    base64url without padding of
    ┌─────────┬───────────────┬───────────┬──────┬───────┬──────────────────────────────────┬───────────┐
    │ version │ topic uuid    │ partition │ turn │ count │ count x (partition, next offset) │ CRC-32    │
    │ 1 byte  │ 16 bytes      │ +1, 0     │      │       │ partitions ascending             │ 4 bytes   │
    │         │               │ = all     │      │       │                                  │ big-endian│
    └─────────┴───────────────┴───────────┴──────┴───────┴──────────────────────────────────┴───────────┘
    everything from `partition` to the CRC in unsigned LEB128

The checksum tells a cursor from garbage and from one that was cut; it is no secret and proves nothing: what a reader
may see is decided by his rights on every request. `turn` is the partition that is read first, so that full partitions
cannot starve others. `decode_cursor(encode_cursor(x)) == x`, anything else raises ValueError.
"""
from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import a2b_base64
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from zlib import crc32

from gatehouse.gateways.http.problems import Refusal
from gatehouse.kernel.errors import CorruptBatch, StorageFailed
from gatehouse.kernel.message import Fetched, Piece, Record
from gatehouse.kernel.records.batch import missing, records_from, sound_records

# --- the page -----------------------------------------------------------------------------------------------------

DAMAGED: Final = (StorageFailed.code, "the log is damaged there")
SENSELESS: Final = (CorruptBatch.code, "the producer's batch has no sound record there")


class PageSource(NamedTuple):
    """One partition of a page: its number, the offset that the reader wants next, and what was fetched from there."""

    partition: int
    position: int
    fetched: Fetched
    compacted: bool = False              # offsets that no piece has are no damage


class _Entry(NamedTuple):
    """One step of a reader through one partition."""

    order: int                           # message id
    partition: int
    next_offset: int                     # the reader's position after this step
    record: Record | None                # None: nothing to show (a control batch), or `unreadable`
    unreadable: dict[str, Any] | None


class Page(NamedTuple):
    """What one request is answered with."""

    records: list[tuple[int, Record]]    # (partition, record)
    positions: dict[int, int]            # next offset by partition
    lost: list[dict[str, Any]]
    unreadable: list[dict[str, Any]]
    skipped: int = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to tell, so that a long poll goes on waiting."""
        return not (self.records or self.lost or self.unreadable)


OpenPiece = Callable[[Piece], list[Record]]

ALL: Final = 1 << 62


def build_page(sources: list[PageSource], max_messages: int, max_bytes: int,
               selects: Callable[[Record], bool] | None = None, open_piece: OpenPiece | None = None) -> Page:
    """Take messages that `selects` wants until there are `max_messages`, or over `max_bytes` of keys and values.

    `open_piece` gives every sound record of a piece, for who has them already; else those that the page has come to are
    decoded.
    """
    page = Page([], {source.partition: max(source.position, source.fetched.log_start_offset) for source in sources},
                [], [])
    for source in sources:
        missing = page.positions[source.partition] - source.position
        if missing:
            page.lost.append({"partition": source.partition, "offset": source.position, "count": missing})
        position, behind = page.positions[source.partition], source.fetched.next_offset
        if not source.fetched.pieces and behind > position:
            if not source.compacted:
                page.unreadable.append(_unreadable(source.partition, position, behind, DAMAGED))
            page.positions[source.partition] = behind
    size_bytes = skipped = 0
    if len(sources) == 1 and selects is None and open_piece is None:
        size_bytes = _take_plain(page, sources[0], max_messages, max_bytes)
        if len(page.records) >= max_messages or size_bytes >= max_bytes:
            return page
    most = max_messages if selects is None else ALL        # a search passes over most of what it looks at
    for entry in merge(*(_entries(source, page.positions[source.partition], most, open_piece) for source in sources)):
        if max(len(page.records), len(page.unreadable)) >= max_messages or size_bytes >= max_bytes:
            break
        page.positions[entry.partition] = entry.next_offset
        if entry.record is not None and selects is not None and not selects(entry.record):
            skipped += 1
        elif entry.record is not None:
            page.records.append((entry.partition, entry.record))
            size_bytes += bytes_of(entry.record)
        elif entry.unreadable is not None:
            page.unreadable.append(entry.unreadable)
    return page._replace(skipped=skipped) if skipped else page


def bytes_of(record: Record) -> int:
    """How many bytes its key and its value have."""
    key, value = record[2], record[3]
    return (0 if key is None else len(key)) + (0 if value is None else len(value))


# decision 353
def _take_plain(page: Page, source: PageSource, max_messages: int, max_bytes: int) -> int:
    """Take the records of the only partition up to the first of which there is more to tell; their bytes."""
    partition, records = source.partition, page.records
    position = page.positions[partition]
    size_bytes = 0
    for piece in source.fetched.pieces:
        end = piece.first_offset + piece.count
        if end <= position:
            continue
        count = min(end - position, max_messages - len(records))
        taken = records_from(piece, position, count) if piece.first_offset <= position else []
        if len(taken) < count or not count:
            break
        for record in taken:
            if size_bytes >= max_bytes:
                break
            records.append((partition, record))
            size_bytes += bytes_of(record)
            position += 1
    page.positions[partition] = position
    return size_bytes


def _entries(source: PageSource, position: int, most: int, open_piece: OpenPiece | None) -> Iterator[_Entry]:
    """The steps of one partition from `position` on; opens a piece only when the page has come to it, and without
    `open_piece` so many of its records at a time."""
    for piece in source.fetched.pieces:
        end = piece.first_offset + piece.count
        if end <= position:
            continue
        if piece.first_offset > position and not source.compacted:
            yield _gap(source.partition, piece.first_id, position, piece.first_offset, DAMAGED)
        first, position = max(position, piece.first_offset), end
        while open_piece is None and first < end:
            taken = records_from(piece, first, min(most, end - first))
            if len(taken) < min(most, end - first):
                break                                # there is more to tell than what these are
            for record in taken:
                yield _Entry(record[6], source.partition, record[0] + 1, record, None)
            first += len(taken)
        if first == end:
            continue
        records = sound_records(piece) if open_piece is None else open_piece(piece)
        gaps = missing(piece, [record[0] for record in records]) if len(records) < piece.count else []
        steps: Iterator[_Entry] = (_Entry(record[6], source.partition, record[0] + 1, record, None)
                                   for record in records
                                   if record[0] >= first)
        if gaps:
            steps = merge(steps, (_gap(source.partition, piece.first_id + start - piece.first_offset, max(start, first),
                                       stop, SENSELESS) for start, stop in gaps if stop > first))
        yield from steps
        if not records and not gaps:                 # control records
            yield _Entry(piece.first_id, source.partition, end, None, None)


def _gap(partition: int, order: int, start: int, stop: int, why: tuple[str, str]) -> _Entry:
    return _Entry(order, partition, stop, None, _unreadable(partition, start, stop, why))


def _unreadable(partition: int, start: int, stop: int, why: tuple[str, str]) -> dict[str, Any]:
    code, detail = why
    return {"partition": partition, "offset": start, "count": stop - start, "code": code, "detail": detail}


class PartitionReader(Protocol):
    """Who reads partitions: a guard, for its principal; or the door's port, where each reader's right was asked
    before."""

    def fetch(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None],
              stored: bool, max_records: int = 0) -> None:
        """See `KernelPort.fetch`."""

    def offset_for_time(self, partition_id: int, timestamp_ms: int, on_done: Callable[[int | None, int], None]) -> None:
        """See `KernelPort.offset_for_time`."""

    def note_unreadable(self, partition_id: int, offset: int, count: int) -> None:
        """See `KernelPort.note_unreadable`."""


def note_unreadable(reader: PartitionReader, page: Page, partition_id_of: Callable[[int], int]) -> None:
    """Tell the kernel what producers' batches did not hold; `partition_id_of` makes a partition id of a page's
    partition."""
    for gap in page.unreadable:
        if gap["code"] == CorruptBatch.code:
            reader.note_unreadable(partition_id_of(gap["partition"]), gap["offset"], gap["count"])


# --- where the next page begins -----------------------------------------------------------------------------------

VERSION: Final = 1
MAX_CURSOR_CHARS: Final = 6000
"""Below the limit of a request line (8190), with room for the path."""

MAX_PARTITIONS: Final = 512
"""The most partitions that a cursor within `MAX_CURSOR_CHARS` holds, with offsets below 2^35. Readers of a topic with
more partitions name one of them."""

_UUID_BYTES: Final = 16
_CRC_BYTES: Final = 4
NUMBER_BITS: Final = 64
MAX_PLACE_DIGITS: Final = 9

Row = TypeVar("Row")


# decision 53: the server keeps no state
class Cursor(NamedTuple):
    """Where a reader is. `partition` is the only one that is read, None for all; `positions` are next offsets by
    partition."""

    topic_uuid: bytes
    partition: int | None
    turn: int
    positions: dict[int, int]


def encode_cursor(cursor: Cursor) -> str:
    """The opaque word for a cursor."""
    out = bytearray([VERSION])
    out += cursor.topic_uuid
    _put_number(out, 0 if cursor.partition is None else cursor.partition + 1)
    _put_number(out, cursor.turn)
    _put_number(out, len(cursor.positions))
    for partition in sorted(cursor.positions):
        _put_number(out, partition)
        _put_number(out, cursor.positions[partition])
    out += crc32(out).to_bytes(_CRC_BYTES, "big")
    return urlsafe_b64encode(out).rstrip(b"=").decode()


def decode_cursor(text: str) -> Cursor:
    """The cursor of an opaque word. Raises ValueError where no hub wrote it."""
    data = _checked(text)
    body = data[1 + _UUID_BYTES:]
    partition, at = read_number(body, 0, NUMBER_BITS)
    turn, at = read_number(body, at, NUMBER_BITS)
    count, at = read_number(body, at, NUMBER_BITS)
    if count > MAX_PARTITIONS:
        raise ValueError("too many partitions")
    positions: dict[int, int] = {}
    for _ in range(count):
        number, at = read_number(body, at, NUMBER_BITS)
        positions[number], at = read_number(body, at, NUMBER_BITS)
    if at != len(body) or len(positions) != count:
        raise ValueError("wrong length")
    cursor = Cursor(data[1:1 + _UUID_BYTES], partition - 1 if partition else None, turn, positions)
    if encode_cursor(cursor) != text:
        raise ValueError("not in its one written form")
    return cursor


def _checked(text: str) -> bytes:
    """The bytes of a word without their checksum."""
    if len(text) > MAX_CURSOR_CHARS or not text.isascii():
        raise ValueError("too long or not ASCII")
    plain = text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)
    data = a2b_base64(plain, strict_mode=True)
    if len(data) < 1 + _UUID_BYTES + _CRC_BYTES or data[0] != VERSION:
        raise ValueError("too short or of another version")
    if crc32(data[:-_CRC_BYTES]) != int.from_bytes(data[-_CRC_BYTES:], "big"):
        raise ValueError("wrong checksum")
    return data[:-_CRC_BYTES]


# --- of lists by name -----------------------------------------------------------------------------------------

def encode_name(name: str) -> str:
    """The cursor of a list that goes on behind this name."""
    return urlsafe_b64encode(name.encode()).rstrip(b"=").decode()


def decode_name(cursor: str) -> str:
    """The name in such a cursor. Refuses `invalid_cursor`."""
    try:
        name = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode()
    except ValueError:
        name = ""
    if encode_name(name) != cursor:              # the library passes over what is no base64
        raise Refusal("invalid_cursor", "this cursor was not made here")
    return name


def page_by_name(rows: list[Row], count: int, name_of: Callable[[Row], str]) -> tuple[list[Row], str | None]:
    """So many of the rows behind a cursor's name, and the cursor of the next page, None at the end."""
    return rows[:count], encode_name(name_of(rows[count - 1])) if len(rows) > count else None


# --- of lists that have no order but their places -------------------------------------------------------------

def page_by_place(rows: Sequence[Row], cursor: str, count: int) -> tuple[Sequence[Row], str | None]:
    """So many rows from where a cursor says, "" for the first, and the cursor of the next page, None at the end.
    Refuses `invalid_cursor`."""
    text = decode_name(cursor) or "0"
    if not text.isascii() or not text.isdigit() or len(text) > MAX_PLACE_DIGITS:
        raise Refusal("invalid_cursor", "this cursor was not made here")
    stop = int(text) + count
    return rows[int(text):stop], encode_name(str(stop)) if len(rows) > stop else None


# --- numbers in cursors -------------------------------------------------------------------------------------------

def encode_number(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    out = bytearray()
    _put_number(out, number)
    return bytes(out)


def _put_number(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def read_number(data: bytes, at: int, bits: int) -> tuple[int, int]:
    """A number whose last byte begins below so many bits, and the place after it. Raises ValueError."""
    number = shift = 0
    while at < len(data) and shift < bits:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise ValueError("cut number")
