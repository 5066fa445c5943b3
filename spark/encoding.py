"""Rows to record batches, in columns: Arrow writes each part of all records at once and joins them.

A record's parts (length, attributes, offset delta, key, value, headers) are Arrow arrays; joining them row by row gives
the records, and the joined array's own buffer is the body of the batch. Pure.
"""
from __future__ import annotations

import struct
from typing import Any, Final

import lz4.frame
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import zstandard
from crc32c import crc32c

from gatehouse.kernel.addresses.murmur2 import POSITIVE
from gatehouse.kernel.records.batch import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_COVERS_FROM,
    NO_HEADERS,
    NULL,
    SMALL,
    SMALL_LIMIT,
    encode_headers,
    varint,
)
from gatehouse.kernel.records.compression import LZ4, NONE, ZSTD
from gatehouse.spark.answers import Longs

HTTP: Final = 2
"""The door that rows come in by, as it stands in a record's attribute byte."""

CODECS: Final = {"none": NONE, "lz4": LZ4, "zstd": ZSTD}
COMMON: Final = pa.array([NULL, *SMALL], pa.large_binary())
"""The varints from -1 on: lengths and offset deltas are nearly always among them."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_SEED, _MULTIPLIER = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)


def encode_batch(rows: Rows, base_ms: int, codec: int) -> bytes:
    """One record batch of all rows, in their order. Rows without a time of their own get `base_ms`."""
    timestamps = rows.timestamp_ms
    first_ms = base_ms if timestamps is None else int(timestamps.min())
    last_ms = base_ms if timestamps is None else int(timestamps.max())
    records = _records(rows, None if timestamps is None else timestamps - first_ms)
    if codec == LZ4:
        records = lz4.frame.compress(records)
    elif codec == ZSTD:
        records = zstandard.ZstdCompressor(level=1).compress(records)
    length = HEADER_BYTES - LENGTH_COVERS_FROM + len(records)
    fields = (codec, len(rows) - 1, first_ms, last_ms, -1, -1, -1, len(rows))
    crc = crc32c(records, crc32c(_HEADER.pack(0, 0, 0, 0, 0, *fields)[CRC_COVERS_FROM:]))
    return _HEADER.pack(0, length, 0, 2, crc, *fields) + records


class Rows:
    """What is written, in columns of equal length: bytes, and times in milliseconds if there are any."""

    def __init__(self, key: pa.Array, value: pa.Array, headers: pa.Array | None, timestamp_ms: Longs | None) -> None:
        self.key = key
        self.value = value
        self.headers = headers               # encoded header blocks; None: no row has any
        self.timestamp_ms = timestamp_ms

    def __len__(self) -> int:
        return len(self.value)

    def take(self, which: npt.NDArray[Any]) -> Rows:
        """The rows with these indexes."""
        index = pa.array(which)
        return Rows(self.key.take(index), self.value.take(index),
                    None if self.headers is None else self.headers.take(index),
                    None if self.timestamp_ms is None else self.timestamp_ms[which])


def _records(rows: Rows, delta_ms: Longs | None) -> bytes:
    count = len(rows)
    constant = pa.scalar(bytes((HTTP, 0)) if delta_ms is None else bytes((HTTP,)), pa.binary())
    parts: list[Any] = [constant]
    if delta_ms is not None:
        parts.append(_varints(delta_ms))
    parts.append(_varints(np.arange(count)))
    parts += [_varints(_lengths(rows.key)), _present(rows.key), _varints(_lengths(rows.value)), _present(rows.value)]
    parts.append(pa.scalar(NO_HEADERS, pa.binary()) if rows.headers is None else rows.headers)
    empty = pa.scalar(b"", pa.large_binary())
    bodies = pc.binary_join_element_wise(*[_large(part) for part in parts], empty)
    joined = pc.binary_join_element_wise(_large(_varints(_lengths(bodies))), bodies, empty)
    bounds = np.frombuffer(joined.buffers()[1], np.int64)[joined.offset:joined.offset + count + 1]
    return bytes(memoryview(joined.buffers()[2])[int(bounds[0]):int(bounds[-1])])


def _large(part: Any) -> Any:
    return part.cast(pa.large_binary())


def _lengths(column: pa.Array) -> Longs:
    """In bytes; -1 for null."""
    lengths = pc.fill_null(pc.binary_length(column).cast(pa.int64()), -1)
    return np.asarray(lengths)


def _present(column: pa.Array) -> pa.Array:
    return pc.fill_null(column, b"")


def _varints(numbers: Longs) -> pa.Array:
    """Each number's zigzag varint, from the table, or made once for each distinct number."""
    if numbers.min() >= -1 and numbers.max() < SMALL_LIMIT:
        return COMMON.take(pa.array(numbers + 1))
    distinct, which = np.unique(numbers, return_inverse=True)
    return pa.array([varint(number) for number in distinct.tolist()], pa.large_binary()).take(pa.array(which))


# --- headers ------------------------------------------------------------------------------------------------

def header_blocks(column: pa.Array, more: list[list[tuple[bytes, bytes | None]]] | None = None) -> pa.Array:
    """Encoded header blocks of an array of lists of (name, value); `more` are headers to add to each row."""
    blocks = []
    for i, pairs in enumerate(column.to_pylist()):
        headers = [_pair(pair) for pair in pairs or ()] + (more[i] if more is not None else [])
        blocks.append(encode_headers(headers))
    return pa.array(blocks, pa.binary())


def _pair(pair: dict[str, Any]) -> tuple[bytes, bytes | None]:
    name, value = pair.values()
    return str(name).encode(), value.encode() if isinstance(value, str) else value


# --- partitions -------------------------------------------------------------------------------------------------

def partitions_of(keys: pa.Array, partitions: int) -> Longs:
    """Which partition of a topic each key belongs to (`kernel.addresses.murmur2`), all of one length at once. No
    nulls."""
    keys = keys.cast(pa.large_binary())
    bounds = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset:keys.offset + len(keys) + 1]
    content = keys.buffers()[2]
    buffer = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    at, lengths = bounds[:-1], np.diff(bounds)
    hashes = np.empty(len(keys), np.uint32)
    for length in np.unique(lengths).tolist():
        which = np.flatnonzero(lengths == length)
        hashes[which] = _murmur2(buffer[at[which][:, None] + np.arange(length)])
    return (hashes & np.uint32(POSITIVE)).astype(np.int64) % partitions


def _murmur2(keys: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """The hashes of a matrix of keys, one a row."""
    count, length = keys.shape
    h = np.full(count, _SEED ^ np.uint32(length), np.uint32)
    whole = length & ~3
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4")
    for column in range(whole // 4):
        k = words[:, column] * _MULTIPLIER
        k = (k ^ (k >> np.uint32(24))) * _MULTIPLIER
        h = h * _MULTIPLIER ^ k
    if whole < length:
        for i in range(whole, length):
            h ^= keys[:, i].astype(np.uint32) << np.uint32(8 * (i - whole))
        h *= _MULTIPLIER
    h ^= h >> np.uint32(13)
    h *= _MULTIPLIER
    return h ^ (h >> np.uint32(15))
