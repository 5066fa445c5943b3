"""The page cursor: where a reader is in every partition of a topic, in one opaque URL-safe word, so the server keeps no
state.

    base64url without padding of
    ┌─────────┬───────────────┬───────────┬──────┬───────┬──────────────────────────────────┬───────────┐
    │ version │ topic uuid    │ partition │ turn │ count │ count x (partition, next offset) │ CRC-32    │
    │ 1 byte  │ 16 bytes      │ +1, 0     │      │       │ partitions ascending             │ 4 bytes   │
    │         │               │ = all     │      │       │                                  │ big-endian│
    └─────────┴───────────────┴───────────┴──────┴───────┴──────────────────────────────────┴───────────┘
    everything from `partition` to the CRC in unsigned LEB128

The checksum tells a cursor from garbage and from one that was cut; it is no secret and proves nothing: what a reader
may see is decided by his rights on every request. `turn` is the partition that is read first, so that full partitions
cannot starve others. Pure: `decode_cursor(encode_cursor(x)) == x`, anything else raises ValueError.
"""
from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import a2b_base64
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar
from zlib import crc32

from gatehouse.gateways.http.leb128 import encode_number, read_number
from gatehouse.gateways.http.problems import Refusal

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
    out += encode_number(0 if cursor.partition is None else cursor.partition + 1)
    out += encode_number(cursor.turn)
    out += encode_number(len(cursor.positions))
    for partition in sorted(cursor.positions):
        out += encode_number(partition)
        out += encode_number(cursor.positions[partition])
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


# --- of lists that have no order but their places -------------------------------------------------------------

def page_by_place(rows: Sequence[Row], cursor: str, count: int) -> tuple[Sequence[Row], str | None]:
    """So many rows from where a cursor says, "" for the first, and the cursor of the next page, None at the end.
    Refuses `invalid_cursor`."""
    text = decode_name(cursor) or "0"
    if not text.isascii() or not text.isdigit() or len(text) > MAX_PLACE_DIGITS:
        raise Refusal("invalid_cursor", "this cursor was not made here")
    stop = int(text) + count
    return rows[int(text):stop], encode_name(str(stop)) if len(rows) > stop else None
