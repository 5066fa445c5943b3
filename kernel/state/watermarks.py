"""Where each partition begins and ends: two numbers per partition, in pages of 256 partitions. Hot.

Partition ids of a topic follow one another, so a million partitions are some four thousand pages; a partition that
never held a message has no page. Both numbers only ever grow, so applying a page or an entry twice changes nothing.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

from gatehouse.kernel.ids import shards_of
from gatehouse.kernel.log.frame import Entries

PAGE_PARTITIONS: Final = 256
_SHIFT: Final = 8
_MASK: Final = PAGE_PARTITIONS - 1


class Watermarks:  # decision 11
    """log_start and next offset of every partition, as far as they are durable."""

    def __init__(self) -> None:
        self.pages: dict[int, array[int]] = {}
        self.dirty: set[int] = set()
        self.floors: dict[int, int] = {}
        """Compacted partitions of which not even the newest of a key is kept before this offset. Retention looks anew
        after a start: until then they begin at 0."""

        self.consumed: dict[int, int] = {}  # partitions whose beginning was consumed since a checkpoint: their start

    def begin_at(self, floors: dict[int, int]) -> None:
        """These are all floors that there are."""
        self.floors = floors

    def next_offset(self, partition_id: int) -> int:
        page = self.pages.get(partition_id >> _SHIFT)
        if page is None:
            return 0
        offset: int = page[(partition_id & _MASK) * 2 + 1]
        return offset

    def log_start(self, partition_id: int) -> int:
        page = self.pages.get(partition_id >> _SHIFT)
        if page is None:
            return 0
        offset: int = page[(partition_id & _MASK) * 2]
        return offset

    def bounds_of(self, first: int, count: int) -> array[int]:
        """log_start and next offset of each of `count` partitions that follow one another."""
        bounds: array[int] = array("q")
        end = first + count
        while first < end:
            stop = min(end, (first | _MASK) + 1)
            page = self.pages.get(first >> _SHIFT)
            if page is None:
                bounds.frombytes(bytes((stop - first) * 16))
            elif stop - first == PAGE_PARTITIONS:
                bounds.extend(page)                  # nothing is made of it in between
            else:
                at = (first & _MASK) * 2
                bounds.extend(page[at:at + (stop - first) * 2])
            first = stop
        return bounds

    def next_offsets(self, partition_ids: list[int]) -> list[int]:
        """Next offsets of many partitions at once."""
        offsets: list[int] = []
        pages = self.pages
        for partition_id in partition_ids:
            page = pages.get(partition_id >> _SHIFT)
            if page is None:
                offsets.append(0)
            else:
                offset: int = page[(partition_id & _MASK) * 2 + 1]
                offsets.append(offset)
        return offsets

    def apply(self, entries: Entries) -> None:
        """Records entered these partitions."""
        pages = self.pages
        partition_ids: list[int] = entries.partition_id.tolist()
        firsts: list[int] = entries.first_offset.tolist()
        counts: list[int] = entries.count.tolist()
        number_before = -1
        page: array[int] | None = None
        for i in range(len(partition_ids)):
            partition_id = partition_ids[i]
            number = partition_id >> _SHIFT
            if number != number_before or page is None:
                number_before = number
                page = pages.get(number)
                if page is None:
                    page = pages[number] = array("q", bytes(PAGE_PARTITIONS * 16))
                self.dirty.add(number)
            end = firsts[i] + counts[i]
            at = (partition_id & _MASK) * 2 + 1
            if page[at] < end:
                page[at] = end

    def advance(self, partition_id: int, start: int) -> None:
        """What lies before `start` was consumed: the partition begins there, unless it begins later already."""
        number = partition_id >> _SHIFT
        page = self._page(number)
        at = (partition_id & _MASK) * 2
        if page[at] < start:
            page[at] = start
            self.dirty.add(number)
            self.consumed[partition_id] = start

    def take_changes(self) -> tuple[dict[int, bytes], dict[int, int]]:
        """For a checkpoint: the pages that have changed since the one before, and the partitions whose beginning was
        consumed since then."""
        pages = {number: self.packed(number) for number in self.dirty}
        consumed, self.consumed = self.consumed, {}
        self.dirty.clear()
        return pages, consumed

    def pages_starting_at(self, starts: dict[int, int]) -> dict[int, bytes]:
        """The pages of these partitions as they are once the records before these offsets are gone; nothing changes
        here."""
        changed: dict[int, array[int]] = {}
        for partition_id, offset in starts.items():
            number = partition_id >> _SHIFT
            page = changed.get(number)
            if page is None:
                page = changed[number] = array("q", self.packed(number))
            at = (partition_id & _MASK) * 2
            assert offset >= 0, "offsets count from 0"
            page[at] = max(page[at], min(offset, page[at + 1]))
        return {number: page.tobytes() for number, page in changed.items()}

    def used(self) -> list[int]:
        """Partitions that have given out offsets."""
        return [number << _SHIFT | at for number, page in self.pages.items() for at in range(PAGE_PARTITIONS)
                if page[at * 2 + 1]]

    def shards(self) -> set[int]:
        """The shards that gave the ids of the partitions in use."""
        return shards_of([number << _SHIFT for number in self.pages])

    def pages_leaping(self, partition_ids: Iterable[int], by: int) -> dict[int, bytes]:
        """The pages of these partitions as they are once each goes on so many offsets later; nothing changes here."""
        assert by >= 0, "watermarks never fall"
        changed: dict[int, array[int]] = {}
        for partition_id in partition_ids:
            number = partition_id >> _SHIFT
            page = changed.get(number)
            if page is None:
                page = changed[number] = array("q", self.packed(number))
            page[(partition_id & _MASK) * 2 + 1] += by
        return {number: page.tobytes() for number, page in changed.items()}

    def merge(self, number: int, packed: bytes) -> None:
        """A page as `packed` made it, from a checkpoint or a state record."""
        page = self._page(number)
        self.dirty.add(number)
        newer = array("q", packed)
        assert len(newer) == len(page), "a page has two numbers for each of its partitions"
        for i in range(len(page)):
            if page[i] < newer[i]:
                page[i] = newer[i]

    def packed(self, number: int) -> bytes:
        return self._page(number).tobytes()

    def _page(self, number: int) -> array[int]:
        page = self.pages.get(number)
        if page is None:
            page = self.pages[number] = array("q", bytes(PAGE_PARTITIONS * 16))
        return page
