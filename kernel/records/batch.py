"""Kafka's records, format v2: encoded for what the other doors publish, decoded for what they read; headers that only
the hub sees; and batches of records: their header read, checked and made, their records given out. Pure. Hot.

    record  := length varint | attributes i8 | timestamp delta varlong | offset delta varint
             | key length varint (-1: null) | key | value length varint (-1: null) | value
             | header count varint | header*
    header  := name length varint | name | value length varint (-1: null) | value

Varints are zigzag, seven bits a byte, least significant first. `length` counts what follows it. A batch:

     0  base offset             i64   outside the CRC; set when the batch gets its place
     8  batch length            i32   bytes after this field
    12  partition leader epoch  i32   outside the CRC
    16  magic                   i8    2
    17  crc                     u32   CRC-32C of everything from `attributes` on
    21  attributes              i16   bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control
    23  last offset delta       i32
    27  base timestamp          i64
    35  max timestamp           i64
    43  producer id             i64   -1: none
    51  producer epoch          i16
    53  base sequence           i32
    57  record count            i32
    61  records, compressed as one where a codec is set

In private headers a door keeps its own side of a message: nobody else is shown them. Their names begin with `MARK`, a
code point that Unicode keeps for the inside of programs. No text has it, and its first byte is in no ASCII text. So a
search for it passes over most data at the speed of memory. `Kernel.fetch` and what reads retained values take
them out of what they give; who is handed encoded headers reads them by `public_headers`.

Source: https://kafka.apache.org/documentation/#record, #recordbatch
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from gatehouse.kernel.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, MessageTooLarge, UnsupportedBatch
from gatehouse.kernel.message import Fetched, Headers, Leased, Piece, Record
from gatehouse.kernel.records.compression import NONE, decompress

if TYPE_CHECKING:
    from mypy_extensions import i64  # the processor's, for the compiler; an `int` where nothing is compiled


# --- records ------------------------------------------------------------------------------------------------------

NO_HEADERS: Final = b"\0"
NULL: Final = b"\x01"          # the varint -1

SMALL_LIMIT: Final = 1 << 14
MAX_HEADERS: Final = 10_000    # of one record
CARRIED_HEADERS: Final = MAX_HEADERS - 10       # of one that enters: its address, and its deaths, are added here
FEW_HEADERS_BYTES: Final = 2 * CARRIED_HEADERS    # so many bytes hold no more than these: one has two at least
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
    """Whether these are more headers than a message may enter with."""
    return len(headers) > FEW_HEADERS_BYTES and read_varint(headers, 0)[0] > CARRIED_HEADERS


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


# --- a batch ------------------------------------------------------------------------------------------------------

LAST_OFFSET: Final = (1 << 62) - 1
HEADER_BYTES: Final = 61
LENGTH_COVERS_FROM: Final = 12
CRC_AT: Final = 17
CRC_COVERS_FROM: Final = 21
ATTRIBUTES_AT: Final = 21
LAST_DELTA_AT: Final = 23
MAX_MS_AT: Final = 35
COUNT_AT: Final = 57
MAX_OPENED_BYTES: Final = 64 << 20          # of one batch's records, decompressed
MAX_BATCH_RECORDS: Final = 1 << 17          # clients fill batches by bytes; librdkafka counts too, to 10,000 by default

MAX_DELTA: Final = (1 << 31) - 1            # an i32
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

_HEADER = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_BEFORE_ATTRIBUTES = struct.Struct(">qiibI")
_PLACE = struct.Struct(">qii")
PLACE_BYTES: Final = _PLACE.size


class BatchHeader(NamedTuple):
    """The fields of a batch header, in their order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_ms: int
    max_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def read_header(data: bytes) -> BatchHeader:
    """The header as it stands, unchecked. CorruptBatch where there are not even 61 bytes."""
    if len(data) < HEADER_BYTES:
        raise CorruptBatch(f"a record batch of {len(data)} bytes is shorter than its header")
    return BatchHeader._make(_HEADER.unpack_from(data))


def check_batch(data: bytes) -> BatchHeader:
    """The header of a producer's batch after checking all that it says without opening the records.

    Raises UnsupportedBatch (an older message format, a control batch), CorruptBatch (length, CRC, counts),
    MessageTooLarge (more than MAX_BATCH_RECORDS), InvalidRecord, InvalidTimestamp. `validation.validate` checks the
    records.
    """
    if len(data) > 16 and data[16] != 2:
        raise UnsupportedBatch(f"message format {data[16]} is not stored here, only version 2")
    header = read_header(data)
    after_length = len(data) - LENGTH_COVERS_FROM
    if header.length != after_length:
        raise CorruptBatch(f"a batch claims {header.length} bytes after its length field and has {after_length}")
    if crc32c(memoryview(data)[CRC_COVERS_FROM:]) != header.crc:
        raise CorruptBatch("a batch does not match its CRC")
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise CorruptBatch(f"a batch of {header.record_count} records ends at offset delta {header.last_offset_delta}")
    if header.record_count > MAX_BATCH_RECORDS:
        raise MessageTooLarge(f"a batch of {header.record_count} records is more than is taken: {MAX_BATCH_RECORDS}")
    if header.attributes & CONTROL:
        raise UnsupportedBatch("control batches are not accepted from producers")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidRecord(f"producer {header.producer_id} has the epoch {header.producer_epoch} and the sequence "
                            f"{header.base_sequence}")
    if header.attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp("a producer says when records were made, and not when they were appended")
    if not NO_TIMESTAMP <= header.base_ms <= MAX_TIMESTAMP_MS:
        raise InvalidTimestamp(f"a batch begins at the timestamp {header.base_ms}, beyond the year 9999 or before 1970")
    return header


def stamped(data: bytes, max_ms: int, attributes: int = 0) -> bytes:
    """The batch with another largest timestamp and these attributes besides, and a CRC that covers it."""
    return _sealed(data, data[ATTRIBUTES_AT + 1] | attributes, max_ms.to_bytes(8, "big", signed=True))


def out_of_transaction(data: bytes) -> bytes:
    """The batch without the mark of a transaction, and a CRC that covers it."""
    return _sealed(data, data[ATTRIBUTES_AT + 1] & ~TRANSACTIONAL, data[MAX_MS_AT:MAX_MS_AT + 8])


def _sealed(data: bytes, attributes: int, max_ms: bytes) -> bytes:
    tail = data[ATTRIBUTES_AT:ATTRIBUTES_AT + 1] + bytes((attributes,)) + data[ATTRIBUTES_AT + 2:MAX_MS_AT] \
        + max_ms + data[MAX_MS_AT + 8:]
    return data[:CRC_AT] + crc32c(tail).to_bytes(4, "big") + tail


def place_of(data: bytes, base_offset: int, leader_epoch: int) -> bytes:  # decision 5
    """The first `PLACE_BYTES` of the batch with its place written in: both fields lie outside the CRC."""
    return _PLACE.pack(base_offset, len(data) - LENGTH_COVERS_FROM, leader_epoch)


def as_batch(piece: Piece, leader_epoch: int) -> bytes:
    """The piece as a record batch. A whole batch is given as it lies; bare records get a header around them."""
    if piece.whole:
        return piece.data
    return _headed(piece.data, piece.count, piece.first_offset, piece.count - 1, piece.append_ms,
                   piece.max_timestamp_ms, leader_epoch)


def _headed(records: bytes, count: int, first_offset: int, last_delta: int, base_ms: int, max_ms: int,
            leader_epoch: int) -> bytes:
    """So many bare records with the header of a batch before them, that no producer is known of."""
    after_crc = _AFTER_CRC.pack(0, last_delta, base_ms, max_ms, -1, -1, -1, count)
    length = HEADER_BYTES - LENGTH_COVERS_FROM + len(records)
    crc = crc32c(records, crc32c(after_crc))
    return _BEFORE_ATTRIBUTES.pack(first_offset, length, leader_epoch, 2, crc) + after_crc + records


def leased_batch(messages: list[Leased], leader_epoch: int) -> bytes:
    """Leased messages of one partition, in the order of their offsets, as a record batch, with the headers that
    everybody may see."""
    first_offset, base_ms = messages[0][1], messages[0][4]
    records: list[bytes] = []
    for _, offset, _, _, timestamp_ms, key, value, headers, attributes in messages:
        shown = encode_headers(public_headers(headers)) if has_private(headers) else headers
        record = b"".join((bytes((attributes,)), varint(timestamp_ms - base_ms), varint(offset - first_offset),
                           encode_key(key), NULL if value is None else varint(len(value)) + value, shown))
        records += (varint(len(record)), record)
    return _headed(b"".join(records), len(messages), first_offset, messages[-1][1] - first_offset, base_ms,
                   max([message[4] for message in messages]), leader_epoch)


def cut(piece: Piece, max_bytes: int) -> list[Piece]:
    """The piece as pieces of up to `max_bytes` of records, where they lie open; a larger record has one for itself. Of
    a producer's batch each part is a batch, whose records count their offsets from that of the first part. A piece
    that is compressed, or whose lengths make no sense, stays as it is."""
    data = piece.data
    if len(data) <= max_bytes:
        return [piece]
    at, header = 0, b""
    if piece.whole:
        at, header = HEADER_BYTES, data[:HEADER_BYTES]
        if header[ATTRIBUTES_AT + 1] & (CODEC_MASK | CONTROL):
            return [piece]
    parts: list[Piece] = []
    passed = 0
    while passed < piece.count:
        count, end = skip_records(data, at, piece.count - passed, max_bytes, len(data))
        if not count:
            return [piece]
        first_offset, records = piece.first_offset + passed, data[at:end]
        if header:
            records = _batch_of(header, first_offset, count, records)
        parts.append(Piece(first_offset, count, piece.whole, records, piece.append_ms, piece.max_timestamp_ms,
                           piece.first_id + passed, piece.position))
        at = end
        passed += count
    return parts


def _batch_of(header: bytes, first_offset: int, count: int, records: bytes) -> bytes:
    """A batch of some records of another one, which had this header."""
    after_crc = b"".join([header[ATTRIBUTES_AT:LAST_DELTA_AT], (count - 1).to_bytes(4, "big"),
                          header[LAST_DELTA_AT + 4:COUNT_AT], count.to_bytes(4, "big")])
    length = HEADER_BYTES - LENGTH_COVERS_FROM + len(records)
    before = first_offset.to_bytes(8, "big") + length.to_bytes(4, "big") + header[LENGTH_COVERS_FROM:CRC_AT]
    return b"".join([before, crc32c(records, crc32c(after_crc)).to_bytes(4, "big"), after_crc, records])


def empty_batch(first_offset: int, next_offset: int, leader_epoch: int) -> bytes:
    """A batch without records, over offsets at which nothing is left: its reader goes on at `next_offset`, as behind
    what a broker has compacted away."""
    last_delta = min(next_offset - first_offset - 1, MAX_DELTA)
    return _headed(b"", 0, first_offset, last_delta, -1, -1, leader_epoch)


def records_of(piece: Piece) -> list[Record]:
    """Every record of the piece. Control batches give none. Raises CorruptBatch."""
    return _records(piece, False)


def sound_records(piece: Piece) -> list[Record]:  # decision 115
    """Every record of the piece that makes sense; control batches, and what cannot be opened, give none.

    What is behind a batch's checksum is its producer's word, and a log may hold batches that nobody has looked into.
    """
    try:
        return _records(piece, True)
    except CorruptBatch:
        return []


def records_from(piece: Piece, first: int, count: int) -> list[Record]:
    """As `sound_records`, of `count` offsets from `first` on, which the piece has: what is before them is passed over
    by its lengths, and what is behind them is not looked at."""
    before = first - piece.first_offset
    try:
        if not piece.whole and not before:
            return decode_records(piece.data, 0, count, first, piece.append_ms, piece.first_id, -1, True)
        inside = open_piece(piece)
        if inside is None:
            return []
        size = len(inside.data)
        passed, at = skip_records(inside.data, inside.at, before, size, size) if before > 0 else (0, inside.at)
        return [] if passed < before else decode_records(inside.data, at, count, first, inside.base_ms,
                                                         piece.first_id + before, inside.fixed_ms, True)
    except CorruptBatch:
        return []


class OpenPiece(NamedTuple):
    """The records of a piece where they lie: their bytes, where the first begins, what their times count from, and the
    time that replaces theirs; -1: none does."""

    data: bytes
    at: int
    base_ms: int
    fixed_ms: int


def open_piece(piece: Piece) -> OpenPiece | None:
    """The records of a piece, opened; None for a control batch. Raises CorruptBatch."""
    if not piece.whole:
        return OpenPiece(piece.data, 0, piece.append_ms, -1)
    header = read_header(piece.data)
    if header.attributes & CONTROL:
        return None
    return OpenPiece(*opened(piece.data, header), header.base_ms, _fixed_ms(header))


def _records(piece: Piece, passes_over: bool) -> list[Record]:
    inside = open_piece(piece)
    return [] if inside is None else decode_records(inside.data, inside.at, piece.count, piece.first_offset,
                                                   inside.base_ms, piece.first_id, inside.fixed_ms, passes_over)


def is_control(piece: Piece) -> bool:
    """Whether its records are marks of transactions and no messages."""
    return piece.whole and bool(read_header(piece.data).attributes & CONTROL)


def missing(piece: Piece, offsets: list[int]) -> list[tuple[int, int]]:
    """Which offsets of a piece have no sound record, as (first, behind the last), where these have one, in order."""
    if len(offsets) == piece.count or is_control(piece):
        return []
    stretches = []
    at = piece.first_offset
    for offset in (*offsets, piece.first_offset + piece.count):
        if offset > at:
            stretches.append((at, offset))
        at = offset + 1
    return stretches


def opened(batch: bytes, header: BatchHeader, limit_bytes: int = MAX_OPENED_BYTES) -> tuple[bytes, int]:
    """The records' bytes, and where they begin. Raises CorruptBatch, also where they are more than the limit."""
    codec = header.attributes & CODEC_MASK
    if codec == NONE:
        return batch, HEADER_BYTES
    return decompress(codec, batch[HEADER_BYTES:], limit_bytes), 0


def opened_header(header: BatchHeader) -> bytes:
    """For a part of an opened batch: no codec, and no word about counts, lengths or checksum, which nobody reads."""
    return _HEADER.pack(*header._replace(attributes=header.attributes & ~CODEC_MASK))


def _fixed_ms(header: BatchHeader) -> int:
    """The time that replaces those of the records; -1: none does."""
    return header.max_ms if header.attributes & LOG_APPEND_TIME else -1


# --- its records, where they lie ----------------------------------------------------------------------------------

SMALLEST_RECORD: Final = 6            # bytes of a record behind its length: attributes and five numbers
NUMBER_BITS: Final = 35               # of a length, a count or an offset delta: five bytes
TIME_BITS: Final = 63                 # of a timestamp delta: nine bytes, what a 64-bit number of the processor can hold
NULL_BYTES: Final = -1                # the length of what is not there: a key or a value, and never a header's name

NAMED_BYTES: Final = 7                # of the name of the header that is looked for, `records.headers.ADDRESS`
NO_TIMESTAMP: Final = -1              # Kafka's word for a record without a time
MAX_TIMESTAMP_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: beyond it nothing that reads dates can follow."""


# decision 113: nothing is copied, and each length is held against the record that it lies in before it is followed
def walk_records(data: bytes, at: i64, first: i64, stop: i64, base_ms: i64, limit_bytes: i64
                 ) -> tuple[i64, i64, i64, i64]:
    """Check the records `first` to `stop` - 1 of a batch, whose first one begins at index `at`.

    Gives the index behind them, the largest timestamp among them, the number of their headers, and how many of those
    have names of `NAMED_BYTES`. Raises InvalidRecord where offset deltas do not follow on each other or lengths lie,
    MessageTooLarge for a record of more than `limit_bytes`, InvalidTimestamp.
    """
    size: i64 = len(data)
    largest_ms: i64 = NO_TIMESTAMP
    headers: i64 = 0
    named: i64 = 0
    i: i64
    for i in range(first, stop):
        if at >= size:
            raise InvalidRecord(f"a batch ends after {i} records and claims more")
        length, at = _number(data, at, size, NUMBER_BITS)
        if length < SMALLEST_RECORD or length > size - at:
            raise InvalidRecord(f"record {i} claims {length} bytes, and {size - at} are left")
        if length > limit_bytes:
            raise MessageTooLarge(f"record {i} has {length} bytes, more than its topic takes: {limit_bytes}", [i])
        end = at + length
        delta_ms, at = _number(data, at + 1, end, TIME_BITS)
        delta, at = _number(data, at, end, NUMBER_BITS)
        if delta != i:
            raise InvalidRecord(f"record {i} has the offset delta {delta}", [i])
        at = _skip(data, at, end, NULL_BYTES)
        at = _skip(data, at, end, NULL_BYTES)
        if at < end and data[at] == 0:
            at += 1
        else:
            count, at = _number(data, at, end, NUMBER_BITS)
            if count < 0 or count > SENT_HEADERS:
                raise InvalidRecord(f"record {i} claims {count} headers")
            at, more = _skip_headers(data, at, end, count)
            headers += count
            named += more
        if at != end:
            raise InvalidRecord(f"record {i} is not as long as it claims")
        timestamp_ms = base_ms + delta_ms
        if timestamp_ms < NO_TIMESTAMP or timestamp_ms > MAX_TIMESTAMP_MS:
            raise InvalidTimestamp(f"record {i} has the timestamp {timestamp_ms}, beyond the year 9999 or before 1970",
                                   [i])
        if timestamp_ms > largest_ms:
            largest_ms = timestamp_ms
    return at, largest_ms, headers, named


def _number(data: bytes, at: i64, end: i64, bits: i64) -> tuple[i64, i64]:
    """A number of at most so many bits, and the index behind it."""
    byte: i64
    raw: i64 = 0
    shift: i64 = 0
    while at < end and shift < bits:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    raise InvalidRecord("a number in a record is cut off or too long")


def _skip(data: bytes, at: i64, end: i64, least: i64) -> i64:
    """The index behind a length of at least so much, and its bytes."""
    length, at = _number(data, at, end, NUMBER_BITS)
    if length < least or length > end - at:
        raise InvalidRecord(f"{length} bytes are claimed in a record where {end - at} are left")
    return at + length if length > 0 else at


def _skip_headers(data: bytes, at: i64, end: i64, count: i64) -> tuple[i64, i64]:
    named: i64 = 0
    for _ in range(count):
        start = at
        at = _skip(data, at, end, 0)
        if at - start == 1 + NAMED_BYTES:
            named += 1
        at = _skip(data, at, end, NULL_BYTES)
    return at, named
