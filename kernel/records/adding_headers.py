"""A producer's batch anew, with a header more in some of its records. Pure.

Whatever else a batch says stays as it is: its codec, times, sequence and the number of its records; its length, its
checksum and the bytes of its records are new.
"""
from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from gatehouse.kernel.errors import CorruptBatch
from gatehouse.kernel.message import Headers
from gatehouse.kernel.records.batch import (
    CODEC_MASK,
    CRC_AT,
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_COVERS_FROM,
    BatchHeader,
    read_header,
)
from gatehouse.kernel.records.compression import NONE, compress, decompress
from gatehouse.kernel.records.record import MAX_HEADERS, add_header, read_headers, read_varint, varint, without_headers

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
