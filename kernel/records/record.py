"""Records of Kafka's record format v2: encoding for what the other doors publish, decoding for what they read; and
headers that only the hub sees. Pure. Hot.

    record  := length varint | attributes i8 | timestamp delta varlong | offset delta varint
             | key length varint (-1: null) | key | value length varint (-1: null) | value
             | header count varint | header*
    header  := name length varint | name | value length varint (-1: null) | value

Varints are zigzag, seven bits a byte, least significant first. `length` counts what follows it.
Source: https://kafka.apache.org/documentation/#record

In private headers a door keeps its own side of a message: nobody else is shown them. Their names begin with `MARK`, a
code point that Unicode keeps for the inside of programs. No text has it, and its first byte is in no ASCII text. So a
search for it passes over most data at the speed of memory. `Kernel.fetch` and what reads retained values take
them out of what they give; who is handed encoded headers reads them by `public_headers`.
"""
from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final

from gatehouse.kernel.errors import CorruptBatch
from gatehouse.kernel.message import Fetched, Headers, Leased, Piece, Record

# --- records ------------------------------------------------------------------------------------------------------

NO_HEADERS: Final = b"\0"
NULL: Final = b"\x01"          # the varint -1

SMALL_LIMIT: Final = 1 << 14
MAX_HEADERS: Final = 10_000    # of one record
CARRIED_HEADERS: Final = MAX_HEADERS - 10       # of one that enters: its address, and its deaths, are added here
SENT_HEADERS: Final = CARRIED_HEADERS - 10      # of what a sender sends: a link adds some of its own
MAX_TIME_MS: Final = 1 << 61   # either side of 1970: differences of times fit 64 bits, too


def varint(value: int) -> bytes:
    """Zigzag varint of a signed 64-bit number: 1 to 10 bytes."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    if rest < 0x80:
        return bytes((rest,))
    if rest < 0x4000:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


SMALL: Final[list[bytes]] = [varint(i) for i in range(SMALL_LIMIT)]
"""The varints of 0 to SMALL_LIMIT - 1: lengths and offset deltas are nearly always among them."""


def encode_key(key: bytes | None) -> bytes:
    """The key as it stands in a record."""
    return NULL if key is None else varint(len(key)) + key


def encode_headers(headers: Headers | list[tuple[bytes, bytes | None]]) -> bytes:
    """Header count and headers as they stand at the end of a record."""
    if not headers:
        return NO_HEADERS
    parts = [varint(len(headers))]
    for name, value in headers:
        parts.append(varint(len(name)) + name)
        parts.append(NULL if value is None else varint(len(value)) + value)
    return b"".join(parts)


def encode_record(attributes: int, delta_ms: int, key_part: bytes, value: bytes | None, headers: bytes) -> bytes:
    """One record with the offset delta 0; key and headers as `encode_key` and `encode_headers` made them."""
    body = b"".join((bytes((attributes,)), varint(delta_ms), b"\0", key_part,
                     NULL if value is None else varint(len(value)) + value, headers))
    return varint(len(body)) + body


def encode_header(name: bytes, value: bytes) -> bytes:
    """One header as it stands in a record."""
    return varint(len(name)) + name + varint(len(value)) + value


def add_header(headers: bytes, extra: bytes, extra_count: int = 1) -> bytes:
    """Encoded headers with one more, or so many, as `encode_header` makes them, at the end."""
    count, at = read_varint(headers, 0)
    return varint(count + extra_count) + headers[at:] + extra


def are_too_many(headers: bytes) -> bool:
    """Whether these are more headers than a message may enter with; one has two bytes at least."""
    return len(headers) > 2 * CARRIED_HEADERS and read_varint(headers, 0)[0] > CARRIED_HEADERS


def without_headers(headers: bytes, names: Container[bytes]) -> bytes:
    """Encoded headers without those of these names. Raises CorruptBatch."""
    return encode_headers([each for each in read_headers(headers, 0)[0] if each[0] not in names])


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode one varint; returns (value, index after it). CorruptBatch where it runs off the end or never ends."""
    end = len(data)
    raw = 0
    shift = 0
    while shift < 70:
        if at >= end:
            break
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    raise CorruptBatch("a variable-length number is cut off or too long")


def _read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at)
    if length < 0:
        return None, at
    end = at + length
    if end > len(data):
        raise CorruptBatch("a length points beyond the end of its record")
    return data[at:end], end


def read_headers(data: bytes, at: int) -> tuple[Headers, int]:
    """Decode header count and headers; returns (headers, index after them)."""
    count, at = read_varint(data, at)
    if count == 0:
        return (), at
    if count < 0 or count > MAX_HEADERS:
        raise CorruptBatch(f"a record claims {count} headers")
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        name, at = _read_bytes(data, at)
        if name is None:
            raise CorruptBatch("a header has no name")
        value, at = _read_bytes(data, at)
        headers.append((name, value))
    return tuple(headers), at


def named_headers(data: bytes, wanted: Container[bytes]) -> Headers:
    """The headers of a record whose names are wanted, decoded, in order. Raises CorruptBatch."""
    count, at = read_varint(data, 0)
    if count < 0 or count > MAX_HEADERS:
        raise CorruptBatch(f"a record claims {count} headers")
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        name, at = _read_bytes(data, at)
        length, start = read_varint(data, at)
        at = start if length < 0 else start + length
        if name is None or at > len(data):
            raise CorruptBatch("a header has no name, or a length points beyond the end of its record")
        if name in wanted:
            headers.append((name, data[start:at] if length >= 0 else None))
    return tuple(headers)


def decode_records(data: bytes, at: int, count: int, first_offset: int, base_ms: int, first_id: int,
                   append_ms: int = -1, passes_over: bool = False) -> list[Record]:
    """Decode `count` records beginning at index `at`. Their offsets and ids follow from the first: a record's own
    offset delta is its sender's word.

    `append_ms` >= 0 replaces every record's own timestamp (a batch whose attributes say log append time).
    Raises CorruptBatch where lengths or counts lie. With `passes_over` records that make no sense are left out, and
    `count` may be any number: no work is done for records that are not there.
    """
    records: list[Record] = []
    size = len(data)
    i = 0
    end = at
    while i < count:
        try:
            while i < count:
                end = size                 # where a length makes no sense nothing behind it can be found
                length, at = read_varint(data, at)
                if length < 6 or at + length > size:
                    raise CorruptBatch(f"record {i} of {count} claims {length} bytes")
                end = at + length
                attributes = data[at]
                delta_ms, at = read_varint(data, at + 1)
                _, at = read_varint(data, at)
                key, at = _read_bytes(data, at)
                value, at = _read_bytes(data, at)
                if at < end and data[at] == 0:
                    headers: Headers = ()
                    at += 1
                else:
                    headers, at = read_headers(data, at)
                time_ms = base_ms + delta_ms if append_ms < 0 else append_ms
                if at != end or not -MAX_TIME_MS < time_ms < MAX_TIME_MS:
                    raise CorruptBatch(f"record {i} of {count} is not as long as it claims, or of no time")
                records.append((first_offset + i, time_ms, key, value, headers, attributes, first_id + i))
                i += 1
        except CorruptBatch:
            if not passes_over:
                raise
            i += 1
            at = end
            if at >= size:
                break
    return records


def skip_records(data: bytes, at: int, count: int, max_bytes: int, max_record_bytes: int) -> tuple[int, int]:
    """How many records, up to `count`, lie from index `at` on within `max_bytes`, and the index behind them.

    The first is given whatever its size, up to `max_record_bytes`: 0 where it is larger, or where its length makes no
    sense. Nothing but lengths is looked at.
    """
    stop = at + max_bytes
    size = len(data)
    passed = 0
    while passed < count and at < size:
        try:
            length, start = read_varint(data, at)
        except CorruptBatch:
            break
        end = start + length
        if length < 6 or end > size or length > max_record_bytes or end > stop and passed > 0:
            break
        at = end
        passed += 1
    return passed, at


def skip_large(data: bytes, at: int, count: int, max_record_bytes: int) -> tuple[int, int]:
    """How many records that are larger than a bound follow each other from index `at` on, and the index behind them.
    The index is the end of the bytes where a length makes no sense."""
    size = len(data)
    passed = 0
    while passed < count and at < size:
        try:
            length, start = read_varint(data, at)
        except CorruptBatch:
            return passed, size
        if length < 6 or start + length > size:
            return passed, size
        if length <= max_record_bytes:
            break
        at = start + length
        passed += 1
    return passed, at


def record_starts(data: bytes, firsts: list[int], limits: list[int], counts: list[int]
                  ) -> tuple[list[int], list[int]]:
    """Where the records of several runs begin, and how many of each were found: at most `counts` of them from each of
    `firsts` on, one behind the other, up to its limit.

    Nothing but lengths is looked at. A run ends early where its bytes do, or where a length makes no sense.
    """
    starts: list[int] = []
    record_counts: list[int] = []
    for i in range(len(firsts)):
        at = firsts[i]
        limit = limits[i]
        left = counts[i]
        while left > 0 and at < limit:
            start = at
            byte = data[at]
            at += 1
            raw = byte & 0x7F
            shift = 7
            while byte >= 0x80 and at < limit and shift < 35:
                byte = data[at]
                at += 1
                raw |= (byte & 0x7F) << shift
                shift += 7
            at += raw >> 1
            if byte >= 0x80 or raw & 1 or raw < 12 or at > limit:
                break
            starts.append(start)
            left -= 1
        record_counts.append(counts[i] - left)
    return starts, record_counts


def split_records(cursor: object, data: bytes, at: int, count: int, first_offset: int, base_ms: int, first_id: int,
                  append_ms: int = -1, checks: bool = False) -> list[Leased]:
    """As `decode_records`, for handing out: headers stay encoded, and each record is marked as given out for the first
    time. Records that make no sense are passed over; `checks` asks to look at headers and times for that, too."""
    records: list[Leased] = []
    size = len(data)
    i = 0
    end = at
    while i < count:
        try:
            while i < count:
                end = size
                length, at = read_varint(data, at)
                if length < 6 or at + length > size:
                    raise CorruptBatch(f"record {i} of {count} claims {length} bytes")
                end = at + length
                attributes = data[at]
                delta_ms, at = read_varint(data, at + 1)
                _, at = read_varint(data, at)
                key, at = _read_bytes(data, at)
                value, at = _read_bytes(data, at)
                if at >= end:
                    raise CorruptBatch(f"record {i} of {count} is not as long as it claims")
                time_ms = base_ms + delta_ms if append_ms < 0 else append_ms
                if checks:
                    _check_end(data, at, end, time_ms)
                records.append((cursor, first_offset + i, 1, first_id + i, time_ms, key, value, data[at:end],
                                attributes))
                at = end
                i += 1
        except CorruptBatch:
            i += 1
            at = end
            if at >= size:
                break
    return records


def _check_end(data: bytes, at: int, end: int, time_ms: int) -> None:
    """Raises CorruptBatch where the headers from index `at` on do not end where their record does, or where its time
    is none that can be reckoned with."""
    count = data[at] >> 1
    if data[at] & 0x81:                        # negative, or more than fit one byte
        count, at = read_varint(data, at)
    else:
        at += 1
    if not 0 <= count <= MAX_HEADERS:
        raise CorruptBatch(f"a record claims {count} headers")
    for i in range(2 * count):
        if at >= end:
            break
        length = data[at]
        if length & 0x81:
            length, at = read_varint(data, at)
            if length < 0 and i & 1:
                length = 0                     # a value that is null
        else:
            length >>= 1
            at += 1
        if length < 0:
            raise CorruptBatch("a header has no name")
        at += length
    else:
        if at == end and -MAX_TIME_MS < time_ms < MAX_TIME_MS:
            return
    raise CorruptBatch("a record's headers do not end with it, or it is of no time")


# --- headers that only the hub sees -------------------------------------------------------------------------------

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


def give_public(on_done: Callable[[list[Fetched]], None], answers: list[Fetched]) -> None:
    """Give these to `on_done` as everybody may see them."""
    for answer in answers:
        answer.pieces = [public_piece(piece) for piece in answer.pieces]
    on_done(answers)


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
