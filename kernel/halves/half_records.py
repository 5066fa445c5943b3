"""Half messages as state records keep them: pages of those that came together, in columns. Pure. Hot.

    key    transaction id u64, page u32

     0  first_id  u64    message id of its first message; the others follow
     8  count     u32
    12  places    u32    different ones: many messages go to few
    16  of each message, in columns:
          place           u32    its number
          timestamp_ms    i64    0: the time of the decision
          attributes      u32    of the record
          headers length  u32
          value length    u32    0xffffffff: no value
        of each place: length u32, the place
        of each message: headers, value

A place is where a message goes, and when:

     0  delay_ms  i64    how long after the decision it is delivered; 0: at once, or at its own time
     8  a message as `kernel.scheduling.schedule_records` keeps it, without what is in the columns; due at its own time,
        0: at once

Numbers are big-endian.
"""
from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from gatehouse.kernel.message import Message, When
from gatehouse.kernel.scheduling.schedule_records import Pending, decode, encode_pending

PAGE_BYTES: Final = 256 << 10       # a page takes messages until it is larger: a record is moved and read whole
NO_VALUE: Final = 0xFFFFFFFF

_KEY = struct.Struct(">QI")
_HEAD = struct.Struct(">QII")
_DELAY = struct.Struct(">q")
_LENGTH = struct.Struct(">I")

Row = tuple[bytes, "bytes | None", bytes, int, int]
"""A message as it is kept: place, value, headers, attributes, timestamp_ms."""


class Half:
    """A message that waits for a decision, as it is handed in. No tuple: there is one for each message."""

    __slots__ = ("delay_ms", "message", "when")

    def __init__(self, message: Message, when: When | None = None, delay_ms: int = 0) -> None:
        self.message = message
        self.when = when                # once decided: at this time, if that is not over
        self.delay_ms = delay_ms        # or so long after the decision

    def put_right(self, message: Message) -> None:
        """It says no more of its address than it may."""
        self.message = message


class HeldMessage(NamedTuple):
    """A half message as it is read back."""

    id: int
    delay_ms: int
    what: Pending


def encode_place(delay_ms: int, what: Pending) -> bytes:
    """Where a half message goes, encoded: everything but its value, headers, attributes and timestamp."""
    return _DELAY.pack(delay_ms) + encode_pending(what)


def pending_in(place: bytes) -> Pending:
    """A message to this place, without value, headers, attributes and timestamp."""
    what = decode(place[_DELAY.size:])
    assert isinstance(what, Pending), "a half message waits"
    return what


def held_of(message_id: int, row: Row) -> HeldMessage:
    """A row by itself."""
    place, value, headers, attributes, timestamp_ms = row
    return HeldMessage(message_id, _DELAY.unpack_from(place)[0], pending_in(place)._replace(
        value=value, headers=headers, attributes=attributes, timestamp_ms=timestamp_ms))


def half_key(transaction_id: int, page: int) -> bytes:
    return _KEY.pack(transaction_id, page)


def size_of(rows: list[Row]) -> int:
    """Bytes of values and headers."""
    size_bytes = 0
    for _, value, headers, _, _ in rows:
        size_bytes += len(headers) + (0 if value is None else len(value))
    return size_bytes


def cut_pages(rows: list[Row]) -> list[list[Row]]:
    """Rows of one page each, in order."""
    pages: list[list[Row]] = [[]]
    size_bytes = 0
    for row in rows:
        if size_bytes > PAGE_BYTES:
            pages.append([])
            size_bytes = 0
        pages[-1].append(row)
        size_bytes += size_of([row])
    assert sum([len(page) for page in pages]) == len(rows), "every message is on one page"
    return pages


def column(kind: str, numbers: list[int]) -> bytes:
    """Numbers of a kind as `array` has them, one after the other."""
    values = array(kind, numbers)
    if sys.byteorder == "little":
        values.byteswap()
    return values.tobytes()


def encode_page(first_id: int, rows: list[Row]) -> bytes:
    assert rows, "a page has messages"
    numbers: dict[bytes, int] = {}
    places: list[int] = []
    stamps: list[int] = []
    attributes: list[int] = []
    headers_lengths: list[int] = []
    value_lengths: list[int] = []
    own: list[bytes] = []
    for place, value, headers, of_record, timestamp_ms in rows:
        places.append(numbers.setdefault(place, len(numbers)))
        stamps.append(timestamp_ms)
        attributes.append(of_record)
        headers_lengths.append(len(headers))
        own.append(headers)
        if value is None:
            value_lengths.append(NO_VALUE)
        else:
            value_lengths.append(len(value))
            own.append(value)
    count = len(rows)
    parts = [_HEAD.pack(first_id, count, len(numbers)), column("I", places), column("q", stamps),
             column("I", attributes), column("I", headers_lengths), column("I", value_lengths)]
    for place in numbers:
        parts.append(_LENGTH.pack(len(place)))
        parts.append(place)
    return b"".join(parts + own)


def decode_rows(value: bytes) -> tuple[int, list[Row]]:
    """Id of a page's first message, and all of it."""
    first_id, count, place_count = _HEAD.unpack_from(value)
    columns = struct.Struct(f">{count}I{count}q{3 * count}I")
    numbers = columns.unpack_from(value, _HEAD.size)
    at = _HEAD.size + columns.size
    places: list[bytes] = []
    for _ in range(place_count):
        length, = _LENGTH.unpack_from(value, at)
        at += _LENGTH.size
        places.append(value[at:at + length])
        at += length
    rows: list[Row] = []
    for i in range(count):
        headers_length, value_length = numbers[3 * count + i], numbers[4 * count + i]
        headers = value[at:at + headers_length]
        at += headers_length
        own = None if value_length == NO_VALUE else value[at:at + value_length]
        at += len(own or b"")
        rows.append((places[numbers[i]], own, headers, numbers[2 * count + i], numbers[count + i]))
    assert at == len(value) and len(rows) == count, "a page is as long as its columns say"
    return first_id, rows


def decode_page(value: bytes, limit: int = 1 << 32) -> list[HeldMessage]:
    """Its messages, or the first of them."""
    first_id, rows = decode_rows(value)
    return held(first_id, islice(rows, limit))


def held(first_id: int, rows: Iterable[Row]) -> list[HeldMessage]:
    """Messages that follow each other."""
    return [held_of(first_id + number, row) for number, row in enumerate(rows)]
