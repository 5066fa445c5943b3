"""Which messages are followed now, and where each of them lies: in its partition, in queues, among dead letters.

Looked at with every batch that is handed out or settled: one comparison tells that nothing of it is followed. Pure.
"""
from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

MAX_FOLLOWED: Final = 100_000
"""Messages that are followed at a time. Of those beyond, the ones followed longest are let go of."""

MAX_PLACES: Final = 32
"""Of one message: queues that it entered, dead letters, what was redriven."""


class Followed:
    """One message that is followed. `errors` of it are known, and `left_out` of them were not recorded since the last
    event that was. `from_start`: its first step was recorded."""

    __slots__ = ("message_id", "trace_id", "errors", "left_out", "places", "from_start", "topic_id")

    def __init__(self, message_id: int, trace_id: bytes, from_start: bool, topic_id: int) -> None:
        self.message_id = message_id
        self.trace_id = trace_id
        self.from_start = from_start
        self.topic_id = topic_id
        self.errors = 0
        self.left_out = 0
        self.places: list[tuple[int, int]] = []

    def take_left_out(self) -> int:
        """How many errors were left out; told once."""
        left_out, self.left_out = self.left_out, 0
        return left_out

    def fail(self) -> int:
        """One more error; how many there were before."""
        self.errors += 1
        return self.errors - 1

    def leave_out(self) -> None:
        """Its newest error is not recorded."""
        self.left_out += 1


class Following:
    """All of them, by their ids and by where they lie."""

    def __init__(self, most: int = MAX_FOLLOWED) -> None:
        self._most = most
        self._by_id: OrderedDict[int, Followed] = OrderedDict()
        self._offsets: dict[int, list[int]] = {}                   # by partition id, sorted
        self._of: dict[int, dict[int, Followed]] = {}
        self._ids: list[int] = []                                  # sorted

    def __len__(self) -> int:
        return len(self._by_id)

    def by_id(self, message_id: int) -> Followed | None:
        """A message that is followed."""
        return self._by_id.get(message_id)

    def add(self, message_id: int, trace_id: bytes, from_start: bool, topic_id: int) -> Followed:
        """Follow this message, if it is not followed already."""
        followed = self._by_id.get(message_id)
        if followed is None:
            while len(self._by_id) >= self._most:
                self.remove(next(iter(self._by_id)))
            followed = self._by_id[message_id] = Followed(message_id, trace_id, from_start, topic_id)
            insort(self._ids, message_id)
        return followed

    def place(self, followed: Followed, partition_id: int, offset: int) -> None:
        """It lies there, too."""
        of = self._of.setdefault(partition_id, {})
        if offset in of or len(followed.places) >= MAX_PLACES:
            return
        of[offset] = followed
        insort(self._offsets.setdefault(partition_id, []), offset)
        followed.places.append((partition_id, offset))

    def remove(self, message_id: int) -> None:
        """It is not followed any more."""
        followed = self._by_id.pop(message_id, None)
        if followed is None:
            return
        del self._ids[bisect_left(self._ids, message_id)]
        for partition_id, offset in followed.places:
            of, offsets = self._of[partition_id], self._offsets[partition_id]
            del of[offset]
            del offsets[bisect_left(offsets, offset)]
            if not of:
                del self._of[partition_id], self._offsets[partition_id]

    def at(self, partition_id: int, offset: int) -> Followed | None:
        """The message at this offset, if it is followed."""
        of = self._of.get(partition_id)
        return None if of is None else of.get(offset)

    def any_within(self, partition_id: int, first: int, last: int) -> bool:
        """Whether something is followed from one offset to another."""
        sorted_offsets = self._offsets.get(partition_id)
        if sorted_offsets is None:
            return False
        at = bisect_left(sorted_offsets, first)
        return at < len(sorted_offsets) and sorted_offsets[at] <= last

    def among(self, partition_id: int, offsets: Sequence[int]) -> list[int]:
        """Those of these offsets at which something is followed."""
        sorted_offsets = self._offsets.get(partition_id)
        if sorted_offsets is None:
            return []
        at = bisect_left(sorted_offsets, min(offsets))
        if at == len(sorted_offsets) or sorted_offsets[at] > max(offsets):
            return []
        of = self._of[partition_id]
        return [offset for offset in offsets if offset in of]

    def ids_within(self, first_id: int, count: int) -> list[int]:
        """Followed messages with ids from `first_id` on."""
        at = bisect_left(self._ids, first_id)
        return self._ids[at:bisect_left(self._ids, first_id + count, at)]
