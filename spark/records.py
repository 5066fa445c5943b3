"""Records of many pieces found all at once: where each one's key, value and headers lie, without touching them.

A record is in `kernel.records.batch`'s form. Its length stands in front, so the next one's place follows from it and
records must be found one after the other (`record_starts`, which is compiled where there is a compiler); everything
else is the same for all of them and is done by numpy in columns: lengths of keys and values, timestamps, where
headers begin.

What does not fit together (a length that points elsewhere) is found by comparing where a record ends with where it
should; such a record is left out, and told, as is what a batch claims and does not have. Nothing is allocated for
claims. Pure.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gatehouse.kernel.errors import CorruptBatch
from gatehouse.kernel.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAX_OPENED_BYTES,
    read_header,
    record_starts,
)
from gatehouse.kernel.records.compression import decompress
from gatehouse.spark.answers import NO_PRINCIPALS, Heads, Longs, Principals

Bytes = npt.NDArray[np.uint8]

MAX_VARINT_BYTES: Final = 10
MAX_PART_BYTES: Final = 64 << 20   # opened at one time; the last piece may go beyond it


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
    principals: Principals = field(default_factory=lambda: NO_PRINCIPALS)

    def __len__(self) -> int:
        return len(self.offset)

    def only(self, kept: npt.NDArray[Any]) -> Located:
        """The records of a mask or of indexes, over the same buffer."""
        records = Located(self.buffer, *(getattr(self, each.name)[kept] for each in fields(self)[1:-1]))
        records.principals = self.principals
        return records


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Offsets of a producer's batch at which nothing makes sense."""

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


def locate(pieces: Heads) -> Iterator[tuple[Located, list[Unreadable]]]:  # decision 103
    """Every sound record of the pieces in order, and offsets that have none; in parts of bounded size."""
    first = 0
    while first < len(pieces):
        stretches, unreadable, taken = _open(pieces.part(first, len(pieces)))
        first += taken
        records, unreadable = _located(stretches, unreadable)
        records.principals = pieces.principals
        yield records, unreadable


def _located(stretches: _Stretches, unreadable: list[Unreadable]) -> tuple[Located, list[Unreadable]]:
    claimed = stretches.count
    if (claimed == 1).all():
        starts, counts = stretches.at, claimed
    else:
        listed, found_counts = record_starts(stretches.buffer, stretches.at.tolist(), stretches.limit.tolist(),
                                             claimed.tolist())
        starts, counts = np.array(listed, np.int64), np.array(found_counts, np.int64)
    for i in np.flatnonzero(counts < claimed).tolist():
        unreadable.append(Unreadable(int(stretches.first_offset[i] + counts[i]), int(claimed[i] - counts[i]),
                                     "the batch has fewer records than it claims, or a length that makes no sense"))
    if not len(starts):
        return _empty(), unreadable
    records, good = _locate(stretches, counts, np.frombuffer(stretches.buffer, np.uint8), starts)
    if not good.all():
        unreadable += _senseless(records.offset[~good])
        records = records.only(good)
    return records, sorted(unreadable, key=lambda batch: batch.first_offset)


def _senseless(offsets: Longs) -> list[Unreadable]:
    """Unreadable offsets that follow each other are told together."""
    first = np.flatnonzero(np.diff(offsets, prepend=offsets[0] - 2) != 1)
    counts = np.diff(np.append(first, len(offsets)))
    return [Unreadable(offset, count, "its fields do not fit together")
            for offset, count in zip(offsets[first].tolist(), counts.tolist(), strict=True)]


def _empty() -> Located:
    none = np.zeros(0, np.int64)
    return Located(b"", none, none, none, none, none.astype(np.uint8), none, none, none, none, none, none)


# --- opening ------------------------------------------------------------------------------------------------

def _open(pieces: Heads) -> tuple[_Stretches, list[Unreadable], int]:
    """Headers read, compressed pieces opened, and how many pieces that were: a kilobyte can hold a megabyte.

    Pieces of bare records are taken as they are, all at once. What was opened stands in the buffer in the place of what
    was stored, so records lie there in the order of their offsets, from whichever piece they are.
    """
    at, count = pieces.at.copy(), pieces.count.copy()
    base_ms, fixed_ms = pieces.append_ms.copy(), np.full(len(pieces), -1, np.int64)
    size = pieces.length.copy()
    moved = np.zeros(len(pieces), np.int64)        # how much further on a piece begins than the one before it
    parts: list[bytes] = []
    copied = opened_bytes = 0              # up to where the body is in `parts`
    taken = len(pieces)
    unreadable: list[Unreadable] = []
    for i in np.flatnonzero(pieces.whole).tolist():
        if opened_bytes > MAX_PART_BYTES:
            count[i:] = 0
            taken = i
            break
        start, end = int(pieces.at[i]), int(pieces.at[i] + pieces.length[i])
        header = read_header(pieces.body[start:start + HEADER_BYTES])
        base_ms[i] = header.base_ms
        if header.attributes & LOG_APPEND_TIME:
            fixed_ms[i] = header.max_ms
        at[i] += HEADER_BYTES
        size[i] -= HEADER_BYTES
        if header.attributes & CONTROL:
            count[i] = 0
        elif codec := header.attributes & CODEC_MASK:
            try:
                records = decompress(codec, pieces.body[start + HEADER_BYTES:end], MAX_OPENED_BYTES)
            except CorruptBatch as error:
                unreadable.append(Unreadable(int(pieces.first_offset[i]), int(count[i]), str(error)))
                count[i] = 0
                continue
            parts += [pieces.body[copied:start + HEADER_BYTES], records]
            copied = end
            moved[i + 1:i + 2] = len(records) - int(size[i])
            size[i] = len(records)
            opened_bytes += len(records)
    at += np.cumsum(moved)
    buffer = b"".join([*parts, pieces.body[copied:]]) if parts else pieces.body
    stretches = _Stretches(buffer, at, at + size, count, pieces.first_offset, base_ms, fixed_ms, pieces.append_ms,
                           pieces.first_id)
    return _without_empty(stretches), unreadable, taken


def _without_empty(stretches: _Stretches) -> _Stretches:
    kept = stretches.count > 0
    if kept.all():
        return stretches
    return _Stretches(stretches.buffer, *(getattr(stretches, field.name)[kept] for field in fields(stretches)[1:]))


# --- locating -----------------------------------------------------------------------------------------------

def _locate(stretches: _Stretches, counts: Longs, buffer: Bytes, starts: Longs
            ) -> tuple[Located, npt.NDArray[np.bool_]]:
    """The fields of the records that begin at `starts`, so many of each stretch, and which of them fit together."""
    several = bool((counts != 1).any())
    last = len(buffer) - 1

    def spread(column: Longs) -> Longs:
        return np.repeat(column, counts) if several else column

    limit = spread(stretches.limit)
    length, at = _varints(buffer, starts, last)
    end = at + np.clip(length, 0, last)
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
    records = Located(stretches.buffer, spread(stretches.first_offset) + index, timestamp_ms,
                      spread(stretches.append_ms), spread(stretches.first_id) + index, attributes, key_at, key_length,
                      value_at, value_length, headers_at, end)
    return records, good


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
