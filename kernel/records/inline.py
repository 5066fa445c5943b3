"""One stored record by itself, as state records carry it.

     0  append_ms     i64    when the record was appended
     8  timestamp_ms  i64    its own timestamp
    16  message_id    i64
    24  the record in the v2 format, offset delta 0, timestamp delta from append_ms

Numbers are big-endian. The value is a run of one record: a Kafka reader gets a header written before it.
"""
from __future__ import annotations

import struct
from typing import Final

from gatehouse.kernel.message import Message, Piece, Record
from gatehouse.kernel.records.batch import add_header, encode_headers, encode_key, encode_record

_FRONT = struct.Struct(">qqq")
FRONT_BYTES: Final = _FRONT.size


def of_message(message: Message, append_ms: int, message_id: int) -> bytes:
    """A message as it enters the log in the same frame."""
    placement, value, headers, attributes, timestamp_ms = message
    if placement.address_header:
        headers = add_header(headers, placement.address_header)
    stamp_ms = timestamp_ms or append_ms
    return _FRONT.pack(append_ms, stamp_ms, message_id) + encode_record(
        attributes, stamp_ms - append_ms, placement.key_part, value, headers)


def of_record(record: Record, append_ms: int) -> bytes:
    """A record read back."""
    _, timestamp_ms, key, value, headers, attributes, message_id = record
    return _FRONT.pack(append_ms, timestamp_ms, message_id) + encode_record(
        attributes, timestamp_ms - append_ms, encode_key(key), value, encode_headers(headers))


def piece_of(inline: bytes, offset: int) -> Piece:
    """The record as a reader of its partition gets it."""
    append_ms, timestamp_ms, message_id = _FRONT.unpack_from(inline)
    return Piece(offset, 1, False, inline[FRONT_BYTES:], append_ms, timestamp_ms, message_id)
