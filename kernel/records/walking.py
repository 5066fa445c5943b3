"""Walking over a producer's records where they lie, to see that they are what their batch claims. Hot.

Nothing is copied and nothing is kept but the index: a batch of a thousand records costs some twenty microseconds. Every
length is held against the record that it lies in before it is followed. The format is in `kernel.records.record`.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gatehouse.kernel.errors import InvalidRecord, InvalidTimestamp, MessageTooLarge
from gatehouse.kernel.records.record import MAX_HEADERS

if TYPE_CHECKING:
    from mypy_extensions import i64  # the processor's, for the compiler; an `int` where nothing is compiled

SMALLEST_RECORD: Final = 6            # bytes of a record behind its length: attributes and five numbers
NUMBER_BITS: Final = 35               # of a length, a count or an offset delta: five bytes
TIME_BITS: Final = 63                 # of a timestamp delta: nine bytes, what a 64-bit number of the processor can hold
NULL_BYTES: Final = -1                # the length of what is not there: a key or a value, and never a header's name

NAMED_BYTES: Final = 7                # of the name of the header that is looked for, `records.headers.ADDRESS`
NO_TIMESTAMP: Final = -1              # Kafka's word for a record without a time
MAX_TIMESTAMP_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: beyond it nothing that reads dates can follow."""


# decision 113
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
            if count < 0 or count > MAX_HEADERS:
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
