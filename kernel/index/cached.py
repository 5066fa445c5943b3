"""What readers will ask for next, kept in memory beside the newest part of the index. Hot.

    WrittenBlocks  blocks of the index as checkpoints wrote them lately, for as long as bodies of theirs are in memory:
                   who is some seconds behind needs no thread, no store and no disk
    Pages          what small reads found on the disk: many clients begin at the same place

Both are bounded in bytes, oldest out first. Offsets of a partition are given once and its pieces never change, so what
is in here is true until the partition is deleted; whether a reader may still have it is asked before (`Reader.fetch`).
"""
from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from gatehouse.kernel.message import Piece

KEY: Final = struct.Struct(">cQQ")
PREFIX_BYTES: Final = 9             # of a block's key: all but the offset
BLOCK_BYTES: Final = 150            # of memory a block costs beside its rows: key, two objects, two places in lists
CHUNKS: Final = 16                  # small checkpoints are laid together until they are such a part of the limit
PIECE_BYTES: Final = 250            # of memory a piece costs beside its data

Ranges = tuple[tuple[int, int], ...]
"""Partitions, as (first id, count)."""


def block_key(partition_id: int, offset: int) -> bytes:
    """Under which a block that begins at this offset lies in the store."""
    return KEY.pack(b"b", partition_id, offset)


class Chunk(NamedTuple):
    """Blocks of one checkpoint or several, by their sorted keys."""

    keys: list[bytes]
    blocks: list[bytes]
    end: int                        # of the log that they are about
    size_bytes: int
    joined: bool                    # what the newest one has is in here, too


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same partitions in order, neighbours as one range: ids are given one after the other."""
    rows: list[tuple[int, int]] = []
    for first, count in sorted(ranges):
        if rows and first <= rows[-1][0] + rows[-1][1]:
            begin, before = rows.pop()
            first, count = begin, max(before, first + count - begin)
        rows.append((first, count))
    return tuple(rows)


def without(chunk: Chunk, ranges: Ranges) -> Chunk:
    """The chunk without the blocks of these partitions, which are `merged`; its lists are left as they are."""
    keys: list[bytes] = []
    blocks: list[bytes] = []
    size_bytes, at = chunk.size_bytes, 0
    for first, count in ranges:
        begin = bisect_left(chunk.keys, block_key(first, 0), at)
        end = bisect_left(chunk.keys, block_key(first + count, 0), begin)
        if begin < end:
            size_bytes -= sum([len(block) + BLOCK_BYTES for block in chunk.blocks[begin:end]])
            keys += chunk.keys[at:begin]
            blocks += chunk.blocks[at:begin]
            at = end
    if not at:
        return chunk
    return Chunk(keys + chunk.keys[at:], blocks + chunk.blocks[at:], chunk.end, size_bytes, chunk.joined)


class WrittenBlocks:  # decision 350
    """See the module's text. `prepare` may be called on another thread, one call at a time, each followed by `take`."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes: int = limit_bytes
        self._chunks: list[Chunk] = []
        self._deleted: list[Ranges] = []         # since the checkpoint before the last one
        self._deleted_before: int = 0            # how many of them before the last one
        self._gone: set[int] = set()             # partitions that were deleted since the last one
        self.size_bytes: int = 0

    def prepare(self, blocks: list[tuple[bytes, bytes]], end: int) -> Chunk:
        """What `take` takes: these blocks, in the order of their keys, laid together with those before if both are
        few."""
        size_bytes = 0
        for _, block in blocks:
            size_bytes += len(block) + BLOCK_BYTES
        last = self._chunks[-1] if self._chunks else None
        joined = last is not None and last.size_bytes + size_bytes <= self._limit_bytes // CHUNKS
        if last is not None and joined:
            blocks = sorted([*zip(last.keys, last.blocks, strict=True), *blocks])
            size_bytes += last.size_bytes
        return Chunk([key for key, _ in blocks], [block for _, block in blocks], end, size_bytes, joined)

    def take(self, chunk: Chunk, oldest: int) -> None:
        """These are in the store now; bodies before the position `oldest` are not in memory any more."""
        chunks = self._chunks
        if chunk.joined:
            self.size_bytes -= chunks.pop().size_bytes
        chunks.append(chunk)
        self.size_bytes += chunk.size_bytes
        if self._deleted:                                # which the checkpoint may have had to write
            ranges = merged([each for deleted in self._deleted for each in deleted])
            chunks = self._chunks = [without(each, ranges) for each in chunks]
            self.size_bytes = sum([each.size_bytes for each in chunks])
        del self._deleted[:self._deleted_before]
        self._deleted_before = len(self._deleted)
        self._gone.clear()
        while chunks and (chunks[0].end <= oldest or self.size_bytes > self._limit_bytes):
            self.size_bytes -= chunks.pop(0).size_bytes

    def forget_partitions(self, ranges: Ranges) -> None:
        """Nobody is given blocks of deleted partitions. Their memory goes with the next checkpoint: where thousands are
        deleted at once, that goes through all blocks once."""
        self._deleted.append(ranges)
        for first, count in ranges:
            self._gone.update(range(first, first + count))

    def block_of(self, partition_id: int, offset: int) -> bytes | None:
        """The only block in here that may hold an offset."""
        if partition_id in self._gone:
            return None
        key = block_key(partition_id, offset)
        prefix = key[:PREFIX_BYTES]
        for chunk in reversed(self._chunks):
            at = bisect_right(chunk.keys, key) - 1
            if at >= 0 and chunk.keys[at].startswith(prefix):
                return chunk.blocks[at]
        return None


class Pages:  # decision 351
    """See the module's text: by partition, offset and how many records were asked for, the pieces that have them."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes: int = limit_bytes
        self._pages: OrderedDict[tuple[int, int, int], list[Piece]] = OrderedDict()
        self.size_bytes: int = 0

    def get(self, partition_id: int, offset: int, max_records: int) -> list[Piece] | None:
        """What was read there, as it may be given away."""
        key = (partition_id, offset, max_records)
        pieces = self._pages.get(key)
        if pieces is None:
            return None
        self._pages.move_to_end(key)
        return pieces.copy()

    def clear(self) -> None:
        """Some partition is deleted: which pages are its own is not looked for."""
        self._pages.clear()
        self.size_bytes = 0

    def add(self, partition_id: int, offset: int, max_records: int, pieces: list[Piece]) -> None:
        """These were read, if they have as many records from that offset on, and none is missing between."""
        at, size_bytes = offset, 0
        for piece in pieces:
            if piece.first_offset > at:
                return
            at = piece.first_offset + piece.count
            size_bytes += len(piece.data) + PIECE_BYTES
        if at - offset < max_records or size_bytes > self._limit_bytes // CHUNKS:
            return
        key = (partition_id, offset, max_records)
        before = self._pages.pop(key, None)
        if before is not None:
            self.size_bytes -= size_of(before)
        self._pages[key] = pieces.copy()
        self.size_bytes += size_bytes
        while self.size_bytes > self._limit_bytes:
            self.size_bytes -= size_of(self._pages.popitem(last=False)[1])


def size_of(pieces: list[Piece]) -> int:
    """The memory that they take."""
    return sum([len(piece.data) + PIECE_BYTES for piece in pieces])
