"""Record headers in which a door keeps its own side of a message: nobody else is shown them. Pure.

Their names begin with `MARK`, a code point that Unicode keeps for the inside of programs: no text has it, and its first
byte is in no ASCII text, so that a search for it passes over most data at the speed of memory. `Kernel.fetch` and what
reads retained values take them out of what they give; who is handed encoded headers reads them by `public_headers`.
"""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.message import Headers, Piece, Record
from gatehouse.kernel.records.record import encode_headers, read_headers, read_varint, varint

MARK: Final = "\U0010ffff".encode()
_FIRST_BYTE: Final = MARK[:1]


def has_private(data: bytes) -> bool:
    """Whether there may be such a header in encoded headers or records."""
    return data.find(_FIRST_BYTE) >= 0 and data.find(MARK) >= 0


def public_headers(data: bytes) -> Headers:
    """Encoded headers, decoded, as everybody may see them. Raises CorruptBatch."""
    headers, _ = read_headers(data, 0)
    return _public(headers) if has_private(data) else headers


def public_record(record: Record) -> Record:
    """A record as everybody may see it."""
    offset, timestamp_ms, key, value, headers, attributes, message_id = record
    public = _public(headers) if headers else headers
    return record if len(public) == len(headers) else (
        offset, timestamp_ms, key, value, public, attributes, message_id)


def public_piece(piece: Piece) -> Piece:  # decision 151
    """A piece as everybody may see it: the same one where nothing is private. Producers' batches are as they came.
    Raises CorruptBatch."""
    if piece.whole or not has_private(piece.data):
        return piece
    data, at = piece.data, 0
    parts: list[bytes] = []
    for _ in range(piece.count):
        start = at
        length, at = read_varint(data, at)
        end = at + length
        parts.append(_public_body(data[at:end]) if has_private(data[at:end]) else data[start:end])
        at = end
    return Piece(piece.first_offset, piece.count, False, b"".join(parts), piece.append_ms, piece.max_timestamp_ms,
                 piece.first_id, piece.position)


def _public_body(body: bytes) -> bytes:
    """One record, with its length, of what stands behind its length."""
    _, at = read_varint(body, 1)             # behind the attributes: the times
    _, at = read_varint(body, at)
    for _ in ("key", "value"):
        length, at = read_varint(body, at)
        at += max(length, 0)
    headers, _ = read_headers(body, at)
    body = body[:at] + encode_headers(_public(headers))
    return varint(len(body)) + body


def _public(headers: Headers) -> Headers:
    return tuple([header for header in headers if not header[0].startswith(MARK)])
