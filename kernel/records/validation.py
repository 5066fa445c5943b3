"""What a producer sends as a record batch is opened and held against what it claims, before it is stored. Pure.

    count      as many records as the header says, and nothing behind them; `batch.check_batch` bounds the number
    offsets    the deltas 0, 1, 2, ...: else two messages get one offset
    lengths    each record, key, value and header lies within what holds it
    size       each record is within its topic's limit; all together, opened, within `opened_limit`
    times      from 1970 to the year 9999, or none; the largest is what the header says

Kafka's broker writes the largest timestamp anew, so clients exist that do not know it: sarama wrote none until 1.45,
ruby-kafka counts deltas in seconds and rounds. What is not given, or off by less than `TIME_SLACK_MS`, is written
anew here too; what is off by more is refused.

Compiled code does not let go of the interpreter while it runs, so records are walked in slices: on another thread they
hold up the loop for a slice at most.

A batch may be made anew, with a header more in some of its records (`with_headers`): whatever else it says stays as it
is, its codec, times, sequence and the number of its records; its length, its checksum and the bytes of its records are
new.
"""
from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from gatehouse.kernel.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, MessageTooLarge
from gatehouse.kernel.message import Headers, Record
from gatehouse.kernel.records.batch import (
    CODEC_MASK,
    CRC_AT,
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_COVERS_FROM,
    MAX_HEADERS,
    MAX_OPENED_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    add_header,
    decode_records,
    read_header,
    read_headers,
    read_varint,
    stamped,
    varint,
    walk_records,
    without_headers,
)
from gatehouse.kernel.records.compression import NONE, OpenedTooLarge, compress, decompress
from gatehouse.kernel.records.headers import CONTEXT_MARK, RECEIPT_MARK, TRACE_MARK, Asked, asked_of, asks_for_trace_of
from gatehouse.tracing.context import OF_CONTEXT

SMALL_BYTES: Final = 1 << 20           # what any batch may open to, however small it is stored
OPENED_RATIO: Final = 64               # beyond that, of opened to stored bytes: logs and telemetry stay below 30
MAX_BATCH_HEADERS: Final = 1 << 19     # of all records together: each is an object for whoever reads it
TIME_SLACK_MS: Final = 3_600_000       # an hour
MAX_ASKS: Final = 10_000               # records of a batch that may ask for a receipt
SLICE_RECORDS: Final = 4096            # a tenth of a millisecond to walk over, some milliseconds to decode


class Validated(NamedTuple):
    """A batch that is what it claims."""

    batch: bytes                       # as sent, or with the right largest timestamp
    header: BatchHeader
    records: list[Record] | None       # where they were wanted; offsets are counted from 0, message ids too
    opened_bytes: int
    asks: list[tuple[int, Asked, bytes | None, Headers]]      # records that ask for a receipt: index, key, headers
    traced: list[int]                  # records that ask to be followed, where their sender may ask that


Divert = Callable[[Validated], bool]
"""Is shown a sound batch and its records when its turn has come; True: it went elsewhere, and enters no partition."""


def opened_limit(stored_bytes: int, record_bytes: int) -> int:
    """What a batch may open to, whose topic takes records of so many bytes."""
    return min(max(record_bytes, SMALL_BYTES, OPENED_RATIO * stored_bytes), MAX_OPENED_BYTES)


# decision 113
def validate(batch: bytes, header: BatchHeader, record_bytes: int, wanted: bool, most_bytes: int = MAX_OPENED_BYTES,
             traces: bool = False) -> Validated:
    """Open a batch whose header `check_batch` has checked; keep its records if they are wanted. `traces`: its sender
    may have records followed.

    Raises InvalidRecord, InvalidTimestamp, MessageTooLarge, CorruptBatch where it does not decompress; OpenedTooLarge
    where it opens to more than `most_bytes` without being too large.
    """
    if header.attributes & CODEC_MASK == NONE:
        data, at = batch, HEADER_BYTES
    else:
        data, at = _opened(batch, header, opened_limit(len(batch), record_bytes), most_bytes)
    records: list[Record] | None = [] if wanted else None
    largest_ms, headers = NO_TIMESTAMP, 0
    asks: list[tuple[int, Asked, bytes | None, Headers]] = []
    traced: list[int] = []
    for first in range(0, header.record_count, SLICE_RECORDS):
        stop = min(first + SLICE_RECORDS, header.record_count)
        start = at
        at, slice_ms, slice_headers, named = walk_records(data, at, first, stop, header.base_ms, record_bytes)
        largest_ms = max(largest_ms, slice_ms)
        headers += slice_headers
        if headers > MAX_BATCH_HEADERS:
            raise MessageTooLarge(f"the records of a batch have more than {MAX_BATCH_HEADERS} headers")
        if records is not None:
            records += decode_records(data, start, stop - first, first, header.base_ms, first)
        if named and data.find(RECEIPT_MARK, start, at) >= 0:
            asks += asking(decode_records(data, start, stop - first, first, header.base_ms, first))
            if len(asks) > MAX_ASKS:
                raise MessageTooLarge(f"more than {MAX_ASKS} records of a batch ask for a receipt")
        if traces and slice_headers and (data.find(TRACE_MARK, start, at) >= 0
                                         or data.find(CONTEXT_MARK, start, at) >= 0):
            traced += [record[0] for record in decode_records(data, start, stop - first, first, header.base_ms, first)
                       if asks_for_trace_of(record[4])]
    if at != len(data):
        raise InvalidRecord(f"{len(data) - at} bytes follow the last of {header.record_count} records")
    if largest_ms != header.max_ms:
        batch, header = _stamped(batch, header, largest_ms)
    return Validated(batch, header, records, len(data), asks, traced)


def with_contexts(validated: Validated, indexes: Sequence[int], context_of: Extra) -> Validated:
    """The batch with a `traceparent` in those of these records that have none, as `context_of` says it; what they say
    in its place is no trace context, and goes."""
    added: dict[int, bytes] = {}

    def note(record: InBatch) -> bytes | None:
        header = context_of(record)
        if header is not None:
            added[record.at] = header
        return header

    batch, header = with_headers(validated.batch, validated.header, indexes, validated.opened_bytes, note,
                                 OF_CONTEXT)
    if not added:
        return validated
    contexts = {at: read_headers(b"\x02" + encoded, 0)[0] for at, encoded in added.items()}
    records, asks = validated.records, validated.asks
    if records is not None:
        records = [(*record[:4], _replaced(record[4], contexts[record[0]]), *record[5:]) if record[0] in contexts
                   else record for record in records]
    asks = [(at, asked._replace(traceparent=contexts[at][0][1] or b""), key, headers) if at in contexts
            else (at, asked, key, headers) for at, asked, key, headers in asks]
    return Validated(batch, header, records, validated.opened_bytes, asks, validated.traced)


def _replaced(headers: Headers, context: Headers) -> Headers:
    return tuple([each for each in headers if each[0] not in OF_CONTEXT]) + context


def asking(records: list[Record]) -> list[tuple[int, Asked, bytes | None, Headers]]:
    """Those of these that ask for a receipt; offsets are counted from the first of their batch."""
    return [(record[0], asked, record[2], record[4]) for record in records
            if record[4] and (asked := asked_of(record[4])) is not None]


def _opened(batch: bytes, header: BatchHeader, limit_bytes: int, most_bytes: int) -> tuple[bytes, int]:
    """The bytes of the records, and where they begin."""
    try:
        return decompress(header.attributes & CODEC_MASK, batch[HEADER_BYTES:], min(limit_bytes, most_bytes)), 0
    except OpenedTooLarge as error:
        if limit_bytes <= most_bytes:
            raise MessageTooLarge(str(error)) from None
        raise


def _stamped(batch: bytes, header: BatchHeader, largest_ms: int) -> tuple[bytes, BatchHeader]:
    """The batch with the largest timestamp that it has. Raises InvalidTimestamp where it states another one."""
    not_given = header.max_ms in (NO_TIMESTAMP, header.base_ms)
    if not not_given and abs(header.max_ms - largest_ms) > TIME_SLACK_MS:
        raise InvalidTimestamp(f"a batch states {header.max_ms} as its largest timestamp, and that is {largest_ms}")
    return stamped(batch, largest_ms), header._replace(max_ms=largest_ms)


_LENGTH_AT: Final = 8


class InBatch(NamedTuple):
    """A record that was looked at."""

    at: int                      # its index
    key: bytes | None
    headers: Headers


Extra = Callable[[InBatch], "bytes | None"]
"""Says what header a record is to have besides, as `record.encode_header` makes it; None: none."""


def with_headers(batch: bytes, header: BatchHeader, indexes: Sequence[int], opened_bytes: int, extra: Extra,
                 instead_of: Container[bytes] = ()) -> tuple[bytes, BatchHeader]:
    """The batch with what `extra` says of the records at these indexes, which are in order; the same one where that is
    nothing. A record that is given a header loses those of the names `instead_of`. The batch was checked, and opens to
    so many bytes. Raises CorruptBatch."""
    codec = header.attributes & CODEC_MASK
    data, at = (batch, HEADER_BYTES) if codec == NONE else (
        decompress(codec, batch[HEADER_BYTES:], opened_bytes), 0)
    parts: list[bytes] = []
    kept = at                                # from here on nothing is in `parts` yet
    index = 0
    for wanted in indexes:
        while index < wanted:
            length, at = read_varint(data, at)
            at += length
            index += 1
        length, start = read_varint(data, at)
        record, headers_at = _record(data, start, start + length, index)
        more = extra(record) if len(record.headers) < MAX_HEADERS else None
        end = start + length
        if more is not None:
            headers = data[headers_at:end]
            if any(name in instead_of for name, _ in record.headers):
                headers = without_headers(headers, instead_of)
            headers = add_header(headers, more)
            parts += (data[kept:at], varint(headers_at - start + len(headers)), data[start:headers_at], headers)
            kept = end
        at, index = end, index + 1
    if not parts:
        return batch, header
    parts.append(data[kept:])
    records = b"".join(parts)
    if codec != NONE:
        records = compress(codec, records, batch[HEADER_BYTES:])
    covered = batch[CRC_COVERS_FROM:HEADER_BYTES] + records
    length = HEADER_BYTES - LENGTH_COVERS_FROM + len(records)
    made = b"".join((batch[:_LENGTH_AT], length.to_bytes(4, "big"), batch[LENGTH_COVERS_FROM:CRC_AT],
                     crc32c(covered).to_bytes(4, "big"), covered))
    return made, read_header(made)


def _record(data: bytes, at: int, end: int, index: int) -> tuple[InBatch, int]:
    """The record that begins behind its length, and where its headers begin."""
    _, at = read_varint(data, at + 1)        # behind the attributes: the times
    _, at = read_varint(data, at)
    length, at = read_varint(data, at)
    key = None if length < 0 else data[at:at + length]
    at += max(length, 0)
    length, at = read_varint(data, at)
    at += max(length, 0)
    headers, stop = read_headers(data, at)
    if stop != end:
        raise CorruptBatch("a record does not end where it says")
    return InBatch(index, key, headers), at
