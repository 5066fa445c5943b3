"""Which messages are followed now, and where each of them lies: in its partition, in queues, among dead letters.

Looked at with every batch that is handed out or settled: `partitions` tells where something is followed at all, and one
comparison that nothing of a batch is. Messages that entered together are one *stretch*, however many they are; one of
which something is known that is not true of the others (it failed, it has a copy) is taken apart from it. Pure.
"""
from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

MAX_FOLLOWED: Final = 100_000
"""Messages that are followed apart at a time, and stretches. Of those beyond, the ones followed longest are let go
of."""

MAX_PLACES: Final = 32
"""Of one message: queues that it entered, dead letters, what was redriven."""

LET_GO: Final = 64
"""Of too many stretches this part goes at once."""


class Followed:
    """One message that is followed. `errors` of it are known, and `left_out` of them were not recorded since the last
    event that was. `is_named`: some event of it says its address, or nothing is to."""

    __slots__ = ("message_id", "errors", "left_out", "places", "topic_id", "is_named")

    def __init__(self, message_id: int, topic_id: int) -> None:
        self.message_id = message_id
        self.topic_id = topic_id
        self.errors = 0
        self.left_out = 0
        self.is_named = True
        self.places: list[tuple[int, int]] = []

    def name(self) -> None:
        """An event of it says its address, or is about to."""
        self.is_named = True

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


class FollowedStretch:
    """Followed messages of one run of a frame: their indices in it, where the first message of the run has
    `first_id`."""

    __slots__ = ("first_id", "topic_id", "rows", "among", "apart", "views", "is_gone")

    def __init__(self, first_id: int, topic_id: int, rows: Sequence[int]) -> None:
        self.first_id = first_id
        self.topic_id = topic_id
        self.rows = rows                                           # sorted
        self.among: range | frozenset[int] = rows if isinstance(rows, range) else frozenset(rows)
        self.apart: set[int] | None = None                         # those that are followed apart
        self.views: list[tuple[int, Lying]] = []                    # by partition id
        self.is_gone = False


class Lying:
    """Where a part of a stretch lies: the indices from `low` to `high` of its run, the first of them at an offset."""

    __slots__ = ("stretch", "offset", "low", "high")

    def __init__(self, stretch: FollowedStretch, offset: int, low: int, high: int) -> None:
        self.stretch = stretch
        self.offset = offset
        self.low = low
        self.high = high


class FollowedPiece(NamedTuple):
    """Messages of which the same is true: the first, and how many lie evenly behind it."""

    message_id: int
    offset: int
    rows: int
    step: int
    topic_id: int


def even(numbers: Sequence[int]) -> range | None:
    """Sorted numbers as a range, where they lie evenly."""
    if isinstance(numbers, range):
        return numbers
    count = len(numbers)
    if not count:
        return range(0)
    step = numbers[1] - numbers[0] if count > 1 else 1
    if step < 1 or numbers[-1] - numbers[0] != step * (count - 1):
        return None
    lying = range(numbers[0], numbers[-1] + 1, step)
    return lying if count < 3 or list(lying) == list(numbers) else None


def evenly(numbers: Sequence[int]) -> list[range]:
    """Sorted numbers as ranges: as few as they fall into from the first on."""
    whole = even(numbers)
    if whole is not None:
        return [whole] if whole else []
    parts: list[range] = []
    start = 0
    while start < len(numbers):
        stop = start + 1
        step = 1
        if stop < len(numbers):
            step = numbers[stop] - numbers[start]
            while stop < len(numbers) and numbers[stop] - numbers[stop - 1] == step:
                stop += 1
            if stop == start + 2 and stop < len(numbers):          # two alone: the second may begin a run of its own
                stop, step = start + 1, 1
        parts.append(range(numbers[start], numbers[stop - 1] + 1, step))
        start = stop
    return parts


class Following:
    """All of them, by their ids and by where they lie."""

    def __init__(self, most: int = MAX_FOLLOWED) -> None:
        self._most = most
        self._by_id: OrderedDict[int, Followed] = OrderedDict()
        self._offsets: dict[int, list[int]] = {}                   # by partition id, sorted
        self._of: dict[int, dict[int, Followed]] = {}
        self._ids: list[int] = []                                  # sorted
        self._first_ids: list[int] = []                            # of stretches, sorted
        self._stretches: list[FollowedStretch] = []                        # in this order
        self._views: dict[int, tuple[list[int], list[Lying]]] = {}  # by partition id, with their offsets, sorted
        self._in_stretches = 0
        self.partitions: set[int] = set()
        """In which something that is followed lies."""

    def __len__(self) -> int:
        return len(self._by_id) + self._in_stretches

    # ---- one message

    def by_id(self, message_id: int) -> Followed | None:
        """A message that is followed."""
        followed = self._by_id.get(message_id)
        if followed is not None or not self._stretches:
            return followed
        number = bisect_right(self._first_ids, message_id) - 1
        if number < 0:
            return None
        stretch = self._stretches[number]
        return self._take_apart(stretch, message_id - stretch.first_id)

    def add(self, message_id: int, topic_id: int) -> Followed:
        """Follow this message, if it is not followed already."""
        followed = self.by_id(message_id)
        if followed is None:
            followed = self._add(message_id, topic_id)
        return followed

    def _add(self, message_id: int, topic_id: int) -> Followed:
        while len(self._by_id) >= self._most:
            self.remove(next(iter(self._by_id)))
        followed = self._by_id[message_id] = Followed(message_id, topic_id)
        insort(self._ids, message_id)
        return followed

    def place(self, followed: Followed, partition_id: int, offset: int) -> None:
        """It lies there, too."""
        of = self._of.setdefault(partition_id, {})
        if offset in of or len(followed.places) >= MAX_PLACES:
            return
        of[offset] = followed
        self.partitions.add(partition_id)
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
                if partition_id not in self._views:
                    self.partitions.discard(partition_id)

    def _take_apart(self, stretch: FollowedStretch, at: int) -> Followed | None:
        """The message at an index of a stretch, apart from the others; None where it is none of it."""
        if at not in stretch.among or stretch.apart is not None and at in stretch.apart:
            return None
        if stretch.apart is None:
            stretch.apart = set()
        stretch.apart.add(at)
        self._in_stretches -= 1
        followed = self._add(stretch.first_id + at, stretch.topic_id)
        for partition_id, view in stretch.views:
            if view.low <= at <= view.high:
                self.place(followed, partition_id, view.offset + at - view.low)
        return followed

    # ---- stretches

    def add_stretch(self, first_id: int, topic_id: int, rows: Sequence[int]) -> FollowedStretch:
        """Follow messages of a run: those at these indices."""
        if len(self._stretches) >= self._most:
            self._let_go(-(-self._most // LET_GO))
        stretch = FollowedStretch(first_id, topic_id, rows)
        self._in_stretches += len(rows)
        if not self._first_ids or self._first_ids[-1] < first_id:
            self._first_ids.append(first_id)
            self._stretches.append(stretch)
        else:
            number = bisect_right(self._first_ids, first_id)
            self._first_ids.insert(number, first_id)
            self._stretches.insert(number, stretch)
        return stretch

    def view(self, stretch: FollowedStretch, partition_id: int, offset: int, low: int, high: int) -> None:
        """What of it has indices from `low` to `high` lies in this partition, that at `low` at the offset."""
        if len(stretch.views) >= MAX_PLACES:
            return
        view = Lying(stretch, offset, low, high)
        stretch.views.append((partition_id, view))
        self.partitions.add(partition_id)
        offsets, views = self._views.setdefault(partition_id, ([], []))
        if not offsets or offsets[-1] < offset:
            offsets.append(offset)
            views.append(view)
        else:
            number = bisect_right(offsets, offset)
            offsets.insert(number, offset)
            views.insert(number, view)

    def lie_at(self, first_id: int, last_id: int, partition_id: int, offset: int) -> None:
        """Messages of a stretch, from one id to another, lie in this partition, too; the first at the offset."""
        number = bisect_right(self._first_ids, first_id) - 1
        if number < 0:
            return
        stretch = self._stretches[number]
        low, high = first_id - stretch.first_id, last_id - stretch.first_id
        if high <= stretch.rows[-1] and all(
                of != partition_id or not view.low <= low <= view.high for of, view in stretch.views):
            self.view(stretch, partition_id, offset, low, high)

    def _let_go(self, count: int) -> None:
        """Of the oldest stretches, whose ids are the lowest."""
        gone = self._stretches[:count]
        del self._stretches[:count], self._first_ids[:count]
        partition_ids: set[int] = set()
        for stretch in gone:
            stretch.is_gone = True
            self._in_stretches -= len(stretch.rows) - len(stretch.apart or ())
            partition_ids.update([partition_id for partition_id, _ in stretch.views])
        for partition_id in partition_ids:
            views = [view for view in self._views[partition_id][1] if not view.stretch.is_gone]
            if views:
                self._views[partition_id] = [view.offset for view in views], views
            else:
                del self._views[partition_id]
                if partition_id not in self._of:
                    self.partitions.discard(partition_id)

    # ---- by where they lie

    def at(self, partition_id: int, offset: int) -> Followed | None:
        """The message at this offset, if it is followed."""
        of = self._of.get(partition_id)
        followed = None if of is None else of.get(offset)
        if followed is not None:
            return followed
        lying = self._views.get(partition_id)
        number = -1 if lying is None else bisect_right(lying[0], offset) - 1
        if lying is None or number < 0:
            return None
        view = lying[1][number]
        at = view.low + offset - view.offset
        return self._take_apart(view.stretch, at) if at <= view.high else None

    def any_within(self, partition_id: int, first: int, last: int) -> bool:
        """Whether something is followed from one offset to another, perhaps."""
        sorted_offsets = self._offsets.get(partition_id)
        if sorted_offsets is not None:
            at = bisect_left(sorted_offsets, first)
            if at < len(sorted_offsets) and sorted_offsets[at] <= last:
                return True
        lying = self._views.get(partition_id)
        if lying is None:
            return False
        number = bisect_right(lying[0], last) - 1
        if number < 0:
            return False
        view = lying[1][number]
        return view.offset + view.high - view.low >= first

    def among(self, partition_id: int, offsets: Sequence[int], lowest: int, highest: int
              ) -> list[tuple[int, Followed]]:
        """Those that lie at these offsets and are followed apart, with their offsets."""
        sorted_offsets = self._offsets.get(partition_id)
        if sorted_offsets is None:
            return []
        at = bisect_left(sorted_offsets, lowest)
        if at == len(sorted_offsets) or sorted_offsets[at] > highest:
            return []
        of = self._of[partition_id]
        return [(offset, of[offset]) for offset in offsets if offset in of]

    def pieces(self, partition_id: int, offsets: Sequence[int], lowest: int, highest: int) -> list[FollowedPiece]:
        """What of stretches lies at these offsets, from one to another."""
        lying = self._views.get(partition_id)
        if lying is None:
            return []
        firsts, views = lying
        number = max(0, bisect_right(firsts, lowest) - 1)
        if number >= bisect_right(firsts, highest):
            return []
        ordered: Sequence[int] = range(lowest, highest + 1) if highest - lowest == len(offsets) - 1 \
            else sorted(offsets)
        pieces: list[FollowedPiece] = []
        while number < len(views) and firsts[number] <= highest:
            view = views[number]
            number += 1
            start = bisect_left(ordered, view.offset)
            stop = bisect_right(ordered, view.offset + view.high - view.low)
            if start < stop:
                self._add_pieces(pieces, view, ordered, start, stop)
        return pieces

    @staticmethod
    def _add_pieces(pieces: list[FollowedPiece], view: Lying, ordered: Sequence[int], start: int, stop: int) -> None:
        stretch = view.stretch
        behind = view.offset - view.low                      # from an index to its offset
        first, last = ordered[start] - behind, ordered[stop - 1] - behind
        rows = stretch.among
        if last - first == stop - start - 1 and stretch.apart is None and isinstance(rows, range):
            low = bisect_left(rows, first)
            lying: list[range] = [rows[low:bisect_right(rows, last, low)]]
        else:
            apart = stretch.apart or ()
            lying = evenly([offset - behind for offset in ordered[start:stop]
                            if offset - behind in rows and offset - behind not in apart])
        for part in lying:
            if part:
                pieces.append(FollowedPiece(stretch.first_id + part[0], part[0] + behind, len(part), part.step,
                                   stretch.topic_id))

    def ids_within(self, first_id: int, count: int) -> list[int]:
        """Followed messages with ids from `first_id` on."""
        at = bisect_left(self._ids, first_id)
        apart = self._ids[at:bisect_left(self._ids, first_id + count, at)]
        number = max(0, bisect_right(self._first_ids, first_id) - 1)
        within: list[int] = []
        while number < len(self._stretches) and self._first_ids[number] < first_id + count:
            stretch = self._stretches[number]
            number += 1
            within += [stretch.first_id + row for row in stretch.rows
                       if first_id <= stretch.first_id + row < first_id + count
                       and (stretch.apart is None or row not in stretch.apart)]
        return sorted([*apart, *within]) if within else apart
