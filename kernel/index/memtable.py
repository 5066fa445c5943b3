"""The newest part of the index: every entry since the last checkpoint, in memory, and recent bodies. Hot.

Entries lie in columns in the order of the log; per partition there is a list of their numbers, made when a reader first
asks: a flood that nobody reads back costs nothing here. A checkpoint takes a whole memtable away and writes it to the
store; reads then look in the memtable being filled, the one being written, and the store.
"""
from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from typing import Final

from gatehouse.kernel.index.cached import Chunk, Pages, WrittenBlocks
from gatehouse.kernel.log.frame import Entries

ENTRY_BYTES: Final = 100        # of memory an entry costs here, for the checkpoint's bound
WRITTEN_SHARE: Final = 8        # of the bytes for bodies, one part besides for blocks of the index,
PAGES_SHARE: Final = 16         # and one for pages that were read
NO_NUMBERS: Final[list[int]] = []


class Memtable:  # decision 9
    """Columns over all entries since `start`; `frame` indexes the per-frame columns."""

    def __init__(self, start: int) -> None:
        self.start: int = start            # position from which on everything is in here
        self.end: int = start
        self.body_bytes: int = 0
        self.entries = Entries()
        self.frame = array("I")
        self.position = array("q")
        self.append_ms = array("q")
        self._by_partition: dict[int, list[int]] = {}
        self._numbered: int = 0            # entries that are in `_by_partition`
        self.blocks: list[tuple[bytes, bytes]] = []      # as a checkpoint has written it,
        self.chunk: Chunk | None = None                  # and as it stays in memory

    def absorb(self, position: int, end: int, append_ms: int, body_bytes: int, entries: Entries) -> None:
        """Take in a frame that is durable."""
        assert self.end <= position <= end, "frames are taken in in the order of the log"
        for column, more in zip(self.entries.columns(), entries.columns(), strict=True):
            column.extend(more)
        self.frame.extend(array("I", (len(self.position),)) * len(entries.partition_id))
        self.position.append(position)
        self.append_ms.append(append_ms)
        self.end = end
        self.body_bytes += body_bytes

    def note_blocks(self, blocks: list[tuple[bytes, bytes]]) -> None:
        """These are all entries, as a checkpoint writes them."""
        self.blocks = blocks

    def stay_as(self, chunk: Chunk) -> None:
        """What is to stay in memory once it is written."""
        self.chunk = chunk

    def numbers_of(self, partition_id: int) -> list[int]:
        """The numbers of the partition's entries, in their order."""
        by_partition = self._by_partition
        number = self._numbered
        if number < len(self.entries.partition_id):
            fresh: list[int] = self.entries.partition_id[number:].tolist()
            for entry_partition in fresh:
                numbers = by_partition.get(entry_partition)
                if numbers is None:
                    by_partition[entry_partition] = [number]
                else:
                    numbers.append(number)
                number += 1
            self._numbered = number
        return by_partition.get(partition_id, NO_NUMBERS)

    def first_offset_of(self, partition_id: int) -> int:
        """The first offset of the partition in this memtable, or -1."""
        numbers = self.numbers_of(partition_id)
        if not numbers:
            return -1
        offset: int = self.entries.first_offset[numbers[0]]
        return offset

    def find(self, partition_id: int, offset: int) -> tuple[list[int], int]:
        """The partition's entry numbers and the index among them of the last that begins at or before `offset` (or
        0)."""
        numbers = self.numbers_of(partition_id)
        if not numbers:
            return numbers, 0
        firsts = self.entries.first_offset
        if firsts[numbers[-1]] <= offset:
            return numbers, len(numbers) - 1
        return numbers, max(0, bisect_right(numbers, offset, key=firsts.__getitem__) - 1)

    def size_bytes(self) -> int:
        return self.body_bytes + len(self.entries.partition_id) * ENTRY_BYTES


class Recent:
    """Bodies of the newest frames, bounded in bytes; oldest out first."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes: int = limit_bytes
        self._size_bytes: int = 0
        self._bodies: OrderedDict[int, bytes] = OrderedDict()

    def add(self, position: int, body: bytes) -> None:
        if not body:
            return
        assert position not in self._bodies, "a position names one frame"
        self._bodies[position] = body
        self._size_bytes += len(body)
        while self._size_bytes > self._limit_bytes:
            self._size_bytes -= len(self._bodies.popitem(last=False)[1])
        assert self._size_bytes > 0 or not self._bodies, "bytes are those of the bodies"

    @property
    def size_bytes(self) -> int:
        """Of all bodies."""
        return self._size_bytes

    def oldest(self, end: int) -> int:
        """The position of the oldest body; `end` where there is none."""
        for position in self._bodies:
            return position
        return end

    def get(self, position: int) -> bytes | None:
        return self._bodies.get(position)


class Memtables:
    """What is in memory of the newest frames: entries that no checkpoint has written, and bodies."""

    def __init__(self, recent_bytes: int) -> None:
        self.recent = Recent(recent_bytes)
        self.newest = Memtable(0)
        self.frozen: Memtable | None = None         # being written by a checkpoint
        self.written = WrittenBlocks(recent_bytes // WRITTEN_SHARE)
        self.pages = Pages(recent_bytes // PAGES_SHARE)

    @property
    def cached_bytes(self) -> int:
        """Of what is in memory for readers alone."""
        return self.recent.size_bytes + self.written.size_bytes + self.pages.size_bytes

    def begin(self, position: int) -> None:
        """Everything before this position is in the store."""
        self.newest = Memtable(position)

    def absorb(self, position: int, end: int, append_ms: int, body: bytes, entries: Entries) -> None:
        """Take in a frame that is durable."""
        self.newest.absorb(position, end, append_ms, len(body), entries)
        self.recent.add(position, body)

    def oldest_first(self) -> list[Memtable]:
        """The one that is being written, if there is, and the one that is being filled."""
        return [self.newest] if self.frozen is None else [self.frozen, self.newest]

    def freeze(self) -> Memtable:
        """Begin a new one; the one before is read until `thaw`."""
        frozen = self.frozen = self.newest
        self.newest = Memtable(frozen.end)
        return frozen

    def thaw(self) -> None:
        """What was frozen is in the store."""
        frozen, self.frozen = self.frozen, None
        if frozen is not None and frozen.chunk is not None:
            self.written.take(frozen.chunk, self.recent.oldest(frozen.end))
