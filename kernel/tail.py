"""The newest part of the index: every entry since the last checkpoint, in memory. Hot.

Entries lie in columns in the order of the log; per queue there is a list of their numbers. A checkpoint takes a whole tail
away and writes it to the store; reads then look in the tail being filled, the one being written, and the store.
"""
from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

from kernel.frame import Entries

ENTRY_BYTES: Final = 100        # of memory an entry costs here, for the checkpoint's bound


class Tail:
    """Columns over all entries since `start`; `frame` indexes the per-frame columns."""

    def __init__(self, start: int) -> None:
        self.start: int = start            # position from which on everything is in here
        self.end: int = start
        self.body_bytes: int = 0
        self.entries = Entries()
        self.frame = array("I")
        self.position = array("q")
        self.append_ms = array("q")
        self.first_id = array("q")
        self.by_queue: dict[int, list[int]] = {}

    def absorb(self, position: int, end: int, append_ms: int, first_id: int, body_bytes: int, entries: Entries) -> None:
        """Take in a frame that is durable."""
        mine = self.entries
        base = len(mine.queue_id)
        count = len(entries.queue_id)
        for column, more in zip(mine.columns(), entries.columns()):
            column.extend(more)
        self.frame.extend(array("I", (len(self.position),)) * count)
        self.position.append(position)
        self.append_ms.append(append_ms)
        self.first_id.append(first_id)
        self.end = end
        self.body_bytes += body_bytes
        by_queue = self.by_queue
        queue_ids: list[int] = entries.queue_id.tolist()
        for queue_id in queue_ids:
            numbers = by_queue.get(queue_id)
            if numbers is None:
                by_queue[queue_id] = [base]
            else:
                numbers.append(base)
            base += 1

    def first_offset_of(self, queue_id: int) -> int:
        """The first offset of the queue in this tail, or -1."""
        numbers = self.by_queue.get(queue_id)
        if numbers is None:
            return -1
        offset: int = self.entries.first_offset[numbers[0]]
        return offset

    def find(self, queue_id: int, offset: int) -> tuple[list[int], int]:
        """The queue's entry numbers and the index among them of the last that begins at or before `offset` (or 0)."""
        numbers = self.by_queue.get(queue_id)
        if numbers is None:
            return [], 0
        firsts = self.entries.first_offset
        if firsts[numbers[-1]] <= offset:
            return numbers, len(numbers) - 1
        return numbers, max(0, bisect_right(numbers, offset, key=firsts.__getitem__) - 1)

    def size_bytes(self) -> int:
        return self.body_bytes + len(self.entries.queue_id) * ENTRY_BYTES
