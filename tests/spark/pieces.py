"""Stored pieces made by hand, and the answers of a bulk fetch that hold them."""
from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cramjam
import lz4.frame
import zstandard

from gatehouse.kernel.message import Headers, Piece
from gatehouse.kernel.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from gatehouse.kernel.records.pieces import encode_pieces
from gatehouse.spark.answers import Heads, read_answer
from tests.kernel.batches import encode_record, wrap
from tests.kernel.records.placing import placed

Row = tuple[bytes | None, bytes | None, Headers, int, int]
"""(key, value, headers, attributes, timestamp delta)"""

NOW_MS = 1_700_000_000_000


def record(index: int, row: Row) -> bytes:
    """One record of format v2."""
    key, value, headers, attributes, delta_ms = row
    return encode_record(index, key, value, headers, delta_ms, attributes)


def run_of(rows: Sequence[Row], first_offset: int = 0, first_id: int = 0) -> Piece:
    """Bare records, as what came by another door than Kafka is stored."""
    content = b"".join(record(i, row) for i, row in enumerate(rows))
    return Piece(first_offset, len(rows), False, content, NOW_MS, NOW_MS, first_id)


def batch_of(rows: Sequence[Row], first_offset: int = 0, first_id: int = 0, codec: int = NONE,
             attributes: int = 0) -> Piece:
    """A producer's batch, compressed as it sent it."""
    packed = {NONE: bytes, GZIP: gzip.compress, LZ4: lz4.frame.compress, ZSTD: zstandard.ZstdCompressor().compress,
              SNAPPY: lambda given: bytes(cramjam.snappy.compress_raw(given))}[codec](run_of(rows).data)
    batch = wrap(packed, len(rows), codec=codec | attributes, base_ms=NOW_MS, max_ms=NOW_MS)
    return Piece(first_offset, len(rows), True, placed(batch, first_offset, 0), NOW_MS + 5, NOW_MS, first_id)


def answer_of(*ranges: Sequence[Piece], head: dict[str, Any] | None = None, principals: Sequence[str] = (),
              stretches: Sequence[Sequence[tuple[int, int]]] = ()) -> bytes:
    """The answer in which each range got these pieces; `stretches` of each, (first offset, number of a principal)."""
    told: list[dict[str, Any]] = [{"pieces": len(pieces), "log_start_offset": 0, "high_watermark": 1 << 40,
                                   **(head or {})} for pieces in ranges]
    for of_range, own in zip(told, stretches, strict=False):
        of_range["stretches"] = len(own)
    text = json.dumps({"ranges": told, "principals": list(principals)}).encode()
    every = [each for own in stretches for each in own]
    columns = b"".join([struct.pack(f"<{len(every)}q", *[first for first, _ in every]),
                        struct.pack(f"<{len(every)}I", *[number for _, number in every])])
    return b"".join([struct.pack("<I", len(text)), text, *encode_pieces([one for pieces in ranges for one in pieces]),
                     columns])


def heads_of(*pieces: Piece) -> Heads:
    """The pieces as a reader gets them."""
    (served,) = read_answer(answer_of(pieces))
    return replace(served).pieces
