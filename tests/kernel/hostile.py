"""Batches that are not what they claim, each with a right CRC, and what the kernel says to them.

`ATTACKS` maps what is wrong to a function that makes the batch, given how its records are compressed.
"""
from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from crc32c import crc32c

from gatehouse.kernel.errors import InvalidRecord, InvalidTimestamp, KernelError, MessageTooLarge
from gatehouse.kernel.records.batch import MAX_BATCH_RECORDS, MAX_TIMESTAMP_MS, NO_HEADERS, NULL, encode_key, varint
from tests.kernel.batches import encode_record, wrap
from tests.kernel.packers import PACKERS

UNPACKED: Final = (0, bytes)
WAYS: Final[dict[str, tuple[int, Callable[[bytes], bytes]]]] = {"none": UNPACKED, **PACKERS}
BASE_MS: Final = 1_700_000_000_000

TEN: Final = b"".join(encode_record(i, b"k", b"value %d" % i) for i in range(10))


class Way(NamedTuple):
    """How records are compressed."""

    codec: int
    pack: Callable[[bytes], bytes]

    def batch(self, records: bytes, count: int, *, base_ms: int = BASE_MS, max_ms: int = BASE_MS, behind: bytes = b""
              ) -> bytes:
        return wrap(self.pack(records) + behind, count, codec=self.codec, base_ms=base_ms, max_ms=max_ms)


def changed(data: bytes, at: int, shape: str, value: int) -> bytes:
    """The batch with one field of its header changed and its CRC right again."""
    out = bytearray(data)
    struct.pack_into(shape, out, at, value)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


def claiming(data: bytes, count: int) -> bytes:
    """The batch with another count, and a last offset delta that goes with it."""
    return changed(changed(data, 57, ">i", count), 23, ">i", count - 1)


def record(*parts: bytes, length: int | None = None) -> bytes:
    """A record of these parts behind its attributes, and a length, which may be a lie."""
    body = b"\0" + b"".join(parts)
    return varint(len(body) if length is None else length) + body


FRONT: Final = varint(0) + varint(0)                # timestamp delta and offset delta
BARE: Final = FRONT + NULL + NULL                   # and neither key nor value


def headers(count: int, *rest: bytes) -> bytes:
    return varint(count) + b"".join(rest)


Attack = Callable[[Way], bytes]

ATTACKS: Final[dict[str, tuple[Attack, type[KernelError]]]] = {
    "two thousand million records are claimed of ten":
        (lambda way: claiming(way.batch(TEN, 10), 2_000_000_000), MessageTooLarge),
    "one more than there are": (lambda way: claiming(way.batch(TEN, 10), 11), InvalidRecord),
    "one fewer than there are": (lambda way: claiming(way.batch(TEN, 10), 9), InvalidRecord),
    "as many as may be, of ten": (lambda way: claiming(way.batch(TEN, 10), MAX_BATCH_RECORDS), InvalidRecord),
    "five million true ones": (lambda way: way.batch(many(5_000_000), 5_000_000), MessageTooLarge),
    "two of the same offset": (lambda way: way.batch(encode_record(0, b"k", b"1") * 2, 2), InvalidRecord),
    "a gap between offsets":
        (lambda way: way.batch(encode_record(0, b"k", b"1") + encode_record(2, b"k", b"2"), 2), InvalidRecord),
    "offsets the wrong way round":
        (lambda way: way.batch(encode_record(1, b"k", b"1") + encode_record(0, b"k", b"2"), 2), InvalidRecord),
    "a negative offset": (lambda way: way.batch(encode_record(-1, b"k", b"1"), 1), InvalidRecord),
    "nothing at all": (lambda way: way.batch(b"", 1), InvalidRecord),
    "garbage": (lambda way: way.batch(b"\xff" * 100, 3), InvalidRecord),
    "bytes behind the last record": (lambda way: way.batch(TEN + b"\0", 10), InvalidRecord),
    "a record cut off": (lambda way: way.batch(TEN[:-1], 10), InvalidRecord),
    "a record of no length": (lambda way: way.batch(record(length=0), 1), InvalidRecord),
    "a record of negative length": (lambda way: way.batch(record(BARE, NO_HEADERS, length=-6), 1), InvalidRecord),
    "a record of a length without end": (lambda way: way.batch(b"\x80" * 20, 1), InvalidRecord),
    "a record shorter than its parts":
        (lambda way: way.batch(record(BARE, NO_HEADERS, length=6) + b"\0", 1), InvalidRecord),
    "a record longer than its parts": (lambda way: way.batch(record(BARE, NO_HEADERS, b"x"), 1), InvalidRecord),
    "a key beyond its record": (lambda way: way.batch(record(FRONT, varint(1000), b"k", NULL) + bytes(2000), 1),
                                InvalidRecord),
    "a value beyond its record": (lambda way: way.batch(record(FRONT, NULL, varint(50), b"v") + bytes(99), 1),
                                  InvalidRecord),
    "a key of a terabyte": (lambda way: way.batch(record(FRONT, varint(1 << 40), NULL, NO_HEADERS), 1), InvalidRecord),
    "a value of length -2": (lambda way: way.batch(record(FRONT, NULL, varint(-2), NO_HEADERS), 1), InvalidRecord),
    "a million headers are claimed": (lambda way: way.batch(record(BARE, headers(1 << 20)), 1), InvalidRecord),
    "ten headers are claimed of one": (lambda way: way.batch(record(BARE, headers(10), encode_key(b"h"), NULL), 1),
                                       InvalidRecord),
    "a negative number of headers": (lambda way: way.batch(record(BARE, headers(-1)), 1), InvalidRecord),
    "a header without a name": (lambda way: way.batch(record(BARE, headers(1), NULL, NULL), 1), InvalidRecord),
    "a header's value beyond its record":
        (lambda way: way.batch(record(BARE, headers(1), encode_key(b"h"), varint(9)) + bytes(20), 1), InvalidRecord),
    "a record of sixty megabytes": (lambda way: way.batch(encode_record(0, None, bytes(60_000_000)), 1),
                                    MessageTooLarge),
    "a hundred megabytes": (lambda way: way.batch(b"".join(encode_record(i, None, bytes(2_000_000)) for i in range(50)),
                                                  50), MessageTooLarge),
    "a time before 1970": (lambda way: way.batch(encode_record(0, None, b"v", (), -BASE_MS - 2), 1), InvalidTimestamp),
    "a time beyond the year 9999":
        (lambda way: way.batch(encode_record(0, None, b"v", (), MAX_TIMESTAMP_MS - BASE_MS + 1), 1), InvalidTimestamp),
    "a time in a hundred million years":
        (lambda way: way.batch(record(varint((1 << 62) - 1), varint(0), NULL, NULL, NO_HEADERS), 1), InvalidTimestamp),
    "a time that no processor holds":
        (lambda way: way.batch(record(varint(1 << 63), varint(0), NULL, NULL, NO_HEADERS), 1), InvalidRecord),
    "a time that is nothing but its tenth byte":
        (lambda way: way.batch(record(b"\x80" * 9 + b"\2", varint(0), NULL, NULL, NO_HEADERS), 1), InvalidRecord),
    "a beginning before 1970": (lambda way: way.batch(TEN, 10, base_ms=-2, max_ms=-2), InvalidTimestamp),
    "a beginning beyond the year 9999":
        (lambda way: way.batch(TEN, 10, base_ms=MAX_TIMESTAMP_MS + 1, max_ms=MAX_TIMESTAMP_MS + 1), InvalidTimestamp),
    "a largest time that is later than any":
        (lambda way: way.batch(TEN, 10, max_ms=BASE_MS + 3_600_001), InvalidTimestamp),
    "a largest time that is earlier than any":
        (lambda way: way.batch(TEN, 10, max_ms=BASE_MS - 3_600_001), InvalidTimestamp),
    "the time of its appending": (lambda way: changed(way.batch(TEN, 10), 21, ">h", way.codec | 8), InvalidTimestamp),
    "a producer without an epoch": (lambda way: changed(way.batch(TEN, 10), 43, ">q", 7), InvalidRecord),
}


def many(count: int) -> bytes:
    """The smallest records there are, so many; their deltas are all one byte long, and so not all true."""
    return (varint(6) + b"\0\0\0\1\1\0") * count
