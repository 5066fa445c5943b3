"""Records of many pieces found all at once: where each one's key, value and headers lie, without touching them.

A record is in `kernel.record`'s form. Its length stands in front, so the next one's place follows from it and records
must be found one after the other; everything else is the same for all of them and is done by numpy in columns.

    find      where every record begins: by stride where records of a piece are equally long, in step through many
              pieces, or one by one
    locate    lengths of keys and values, timestamps, where headers begin

What does not fit together (a length that points elsewhere) is found by comparing where a record ends with where it
should: such a piece is left to `kernel.record`, which says what is wrong with it. Pure.
"""
from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kernel.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAX_OPENED_BYTES,
    read_header,
)
from kernel.compression import decompress
from kernel.errors import CorruptBatch
from spark.answers import Heads, Longs

Bytes = npt.NDArray[np.uint8]

STRIDE_RECORDS: Final = 192        # from this many on it pays to look whether records of a piece are equally long
STEP_PIECES: Final = 12            # from this many on it pays to step through all of them at once
MAX_VARINT_BYTES: Final = 10


@dataclass(slots=True)
class Located:
    """Records in columns. `*_at` are places in `buffer`; a length of -1 is null."""

    buffer: bytes
    offset: Longs
    timestamp_ms: Longs
    append_ms: Longs
    message_id: Longs
    attributes: Bytes
    key_at: Longs
    key_length: Longs
    value_at: Longs
    value_length: Longs
    headers_at: Longs
    end: Longs                     # of the record, so of its headers

    def __len__(self) -> int:
        return len(self.offset)

    def only(self, kept: npt.NDArray[Any]) -> Located:
        """The records of a mask or of indexes, over the same buffer."""
        return Located(self.buffer, *(getattr(self, one.name)[kept] for one in fields(self)[1:]))


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A piece that cannot be opened."""

    first_offset: int
    count: int
    why: str


@dataclass(slots=True)
class _Stretches:
    """Runs of records in one buffer."""

    buffer: bytes
    at: Longs
    limit: Longs                   # where the run's bytes end
    count: Longs
    first_offset: Longs
    base_ms: Longs
    fixed_ms: Longs                # every record's time, or -1: its own
    append_ms: Longs
    first_id: Longs


def locate(pieces: Heads) -> tuple[Located, list[Unreadable]]:
    """Every record of the pieces in order, and the pieces that cannot be opened."""
    stretches, unreadable = _open(pieces)
    if not len(stretches.at):
        return _empty(), unreadable
    bytes_of = np.frombuffer(stretches.buffer, np.uint8)
    starts = _find(stretches, bytes_of)
    found, good = _locate(stretches, bytes_of, starts)
    if good.all():
        return found, unreadable
    owner = np.repeat(np.arange(len(stretches.at)), stretches.count)
    broken = np.unique(owner[~good])
    unreadable += [Unreadable(int(stretches.first_offset[i]), int(stretches.count[i]),
                              "its records do not fit together") for i in broken]
    return found.only(~np.isin(owner, broken)), sorted(unreadable, key=lambda one: one.first_offset)


def _empty() -> Located:
    none = np.zeros(0, np.int64)
    return Located(b"", none, none, none, none, none.astype(np.uint8), none, none, none, none, none, none)


# --- opening ------------------------------------------------------------------------------------------------

def _open(pieces: Heads) -> tuple[_Stretches, list[Unreadable]]:
    """Headers read, compressed pieces opened. Pieces of bare records are taken as they are, all at once."""
    at, count = pieces.at.copy(), pieces.count.copy()
    base_ms, fixed_ms = pieces.append_ms.copy(), np.full(len(pieces), -1, np.int64)
    limit = pieces.at + pieces.length
    opened: list[bytes] = []
    opened_at = len(pieces.body)
    unreadable: list[Unreadable] = []
    for i in np.flatnonzero(pieces.whole).tolist():
        start = int(at[i])
        header = read_header(pieces.body[start:start + HEADER_BYTES])
        base_ms[i] = header.base_ms
        if header.attributes & LOG_APPEND_TIME:
            fixed_ms[i] = header.max_ms
        at[i] = start + HEADER_BYTES
        if header.attributes & CONTROL:
            count[i] = 0
        elif codec := header.attributes & CODEC_MASK:
            try:
                records = decompress(codec, pieces.body[start + HEADER_BYTES:int(limit[i])], MAX_OPENED_BYTES)
            except CorruptBatch as error:
                unreadable.append(Unreadable(int(pieces.first_offset[i]), int(count[i]), str(error)))
                count[i] = 0
                continue
            at[i], limit[i] = opened_at, opened_at + len(records)
            opened_at += len(records)
            opened.append(records)
    buffer = b"".join([pieces.body, *opened]) if opened else pieces.body
    stretches = _Stretches(buffer, at, limit, count, pieces.first_offset, base_ms, fixed_ms, pieces.append_ms,
                           pieces.first_id)
    return _without_empty(stretches), unreadable


def _without_empty(found: _Stretches) -> _Stretches:
    kept = found.count > 0
    if kept.all():
        return found
    return _Stretches(found.buffer, *(getattr(found, one.name)[kept] for one in fields(found)[1:]))


# --- finding ------------------------------------------------------------------------------------------------

def _find(stretches: _Stretches, buffer: Bytes) -> Longs:
    """Where every record begins. Beyond the buffer where lengths lie; `_locate` finds that out."""
    counts = stretches.count
    firsts = np.concatenate(([0], np.cumsum(counts)))
    starts = np.empty(int(firsts[-1]), np.int64)
    single = counts == 1
    starts[firsts[:-1][single]] = stretches.at[single]
    rest = np.flatnonzero(~single)
    if len(rest) >= STEP_PIECES:
        _step(stretches, buffer, starts, firsts, rest)
        return starts
    for i in rest.tolist():
        first, end = int(firsts[i]), int(firsts[i + 1])
        if end - first >= STRIDE_RECORDS:
            _stride(stretches.buffer, buffer, int(stretches.at[i]), int(stretches.limit[i]), starts[first:end])
        else:
            starts[first:end] = _walk(stretches.buffer, int(stretches.at[i]), end - first)
    return starts


def _step(stretches: _Stretches, buffer: Bytes, starts: Longs, firsts: Longs, rest: Longs) -> None:
    """The n-th record of all pieces at once, for every n; pieces that have ended fall out at the end of the order."""
    order = rest[np.argsort(-stretches.count[rest], kind="stable")]
    counts = stretches.count[order]
    alive = np.searchsorted(-counts, -np.arange(1, int(counts[0]) + 1), side="right")
    at, to = stretches.at[order], firsts[order]
    last = len(buffer) - 1
    for n, living in enumerate(alive.tolist()):
        if living < len(at):
            at, to = at[:living], to[:living]
        starts[to + n] = at
        size, width = _lengths(buffer, at, last)
        at = at + size + width


def _lengths(buffer: Bytes, at: Longs, last: int) -> tuple[Longs, Longs]:
    """(value, bytes) of the varints at these places, as far as lengths of records go: up to four bytes."""
    first = buffer[np.minimum(at, last)].astype(np.int64)
    value, width = first & 0x7F, np.ones(len(at), np.int64)
    more = first > 0x7F
    shift = 7
    while shift < 28 and more.any():
        byte = buffer[np.minimum(at + width, last)].astype(np.int64)
        value = np.where(more, value | (byte & 0x7F) << shift, value)
        width += more
        more &= byte > 0x7F
        shift += 7
    return value >> 1, width


def _stride(data: bytes, buffer: Bytes, at: int, limit: int, starts: Longs) -> None:
    """Follow stretches of equally long records by looking only at their length bytes; else one by one.

    Offset deltas grow by a byte at 64 and 8192, and records with them.
    """
    done, count = 0, len(starts)
    while done < count:
        length, width = _one_length(data, at)
        size = length + width
        most = min(count - done, (limit - at) // size) if size > 0 else 0
        if most < 2:
            starts[done] = at
            done, at = done + 1, at + max(size, 1)
            continue
        rows = np.lib.stride_tricks.as_strided(buffer[at:], (most, width), (size, 1))
        same = (rows == rows[0]).all(axis=1)
        equal = most if same.all() else int(np.argmin(same))
        starts[done:done + equal] = at + size * np.arange(equal)
        done, at = done + equal, at + size * equal
        if equal < 8 and done < count:
            starts[done:] = _walk(data, at, count - done)
            return


def _one_length(data: bytes, at: int) -> tuple[int, int]:
    raw = shift = width = 0
    while at + width < len(data) and width < MAX_VARINT_BYTES:
        byte = data[at + width]
        raw |= (byte & 0x7F) << shift
        width += 1
        shift += 7
        if byte < 0x80:
            break
    return raw >> 1, max(width, 1)


def _walk(data: bytes, at: int, count: int) -> list[int]:
    """One after the other."""
    starts = []
    end = len(data)
    for _ in range(count):
        starts.append(at)
        if at >= end:
            continue
        byte = data[at]
        if byte < 0x80:
            at += 1 + (byte >> 1)
            continue
        raw, shift = byte & 0x7F, 7
        at += 1
        while at < end and shift < 63:
            byte = data[at]
            at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        at += raw >> 1
    return starts


# --- locating -----------------------------------------------------------------------------------------------

def _locate(stretches: _Stretches, buffer: Bytes, starts: Longs) -> tuple[Located, npt.NDArray[np.bool_]]:
    """The fields of the records that begin at `starts`, and which of them fit together."""
    counts = stretches.count
    several = len(counts) < len(starts)
    last = len(buffer) - 1

    def spread(column: Longs) -> Longs:
        return np.repeat(column, counts) if several else column

    limit = spread(stretches.limit)
    length, width = _lengths(buffer, starts, last)
    at = starts + width
    end = at + length
    attributes = buffer[np.minimum(at, last)]
    delta_ms, at = _varints(buffer, at + 1, last)
    _, at = _varints(buffer, at, last)                 # the offset delta: a batch that is stored has no gaps
    key_length, key_at = _varints(buffer, at, last)
    value_length, value_at = _varints(buffer, key_at + np.clip(key_length, 0, last), last)
    headers_at = value_at + np.clip(value_length, 0, last)
    good = (starts < limit) & (end <= limit) & (headers_at < end)
    good &= (key_length >= -1) & (key_length <= length) & (value_length >= -1) & (value_length <= length)
    first = np.cumsum(counts) - counts
    index = np.arange(len(starts)) - (np.repeat(first, counts) if several else first)
    timestamp_ms = spread(stretches.base_ms) + delta_ms
    if (stretches.fixed_ms >= 0).any():
        fixed_ms = spread(stretches.fixed_ms)
        timestamp_ms = np.where(fixed_ms >= 0, fixed_ms, timestamp_ms)
    found = Located(stretches.buffer, spread(stretches.first_offset) + index, timestamp_ms,
                    spread(stretches.append_ms), spread(stretches.first_id) + index, attributes, key_at, key_length,
                    value_at, value_length, headers_at, end)
    return found, good


def _varints(buffer: Bytes, at: Longs, last: int) -> tuple[Longs, Longs]:
    """(values, places behind them) of the zigzag varints at these places."""
    first = buffer[np.minimum(at, last)]
    raw = (first & 0x7F).astype(np.int64)
    at = at + 1
    more = np.flatnonzero(first > 0x7F)
    shift = 7
    while len(more) and shift < 7 * MAX_VARINT_BYTES:
        byte = buffer[np.minimum(at[more], last)]
        raw[more] |= (byte & 0x7F).astype(np.int64) << shift
        at[more] += 1
        more = more[byte > 0x7F]
        shift += 7
    return (raw >> 1) ^ -(raw & 1), at
