"""What a fetch session follows of one topic with many partitions: a numpy column for each number, sorted by partition.

Fewer than `fetch_block.MANY` partitions are cheaper one by one (`fetch_session`). What is compared, and the rows of the
answer, are as in `fetch_block`. Pure.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from gatehouse.gateways.kafka.fetch_block import Column, encode_rows, errors_of

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.fetch_codec import FetchPartition


FEW: Final = 8                       # changes of partitions that are made one by one, measured
MOST_READ: Final = 1_024             # partitions that are read for one answer
NOT_TOLD: Final = -1                 # no high watermark or log start: the client has not heard of this partition


class Looked(NamedTuple):
    """Every partition that is there against what it holds."""

    rows: bytes                      # of the answer: partitions without records that the client is to hear of
    row_count: int
    there: int
    missing: list[int]               # partitions that the topic has not
    wants: list[tuple[int, int, int, int, int]]    # (place, partition, offset, most bytes, when it was served last)
    more: bool                       # others have something to read, too
    errors: int
    told_ends: tuple[Column, Column, Column]       # places of `rows`, the high watermark and log start that they say


class Columns:
    """The partitions; a *place* is an index into each column, good until `follow` or `forget`."""

    def __init__(self) -> None:
        none: Column = np.empty(0, np.int64)
        self.index = none
        self.epoch = none
        self.offset = none
        self.most = none
        self.high = none             # as the client knows it
        self.log_start = none
        self.served = none           # the number of the answer that had records of it last
        self._is_dense = False       # these are the partitions from 0 on, without a gap
        self._has_epochs = False     # some client believes in an epoch

    def __len__(self) -> int:
        return len(self.index)

    def follow(self, partitions: list[FetchPartition]) -> None:
        """New partitions, or other wishes about those that are followed. Of several of one partition the last counts.
        """
        if len(partitions) <= FEW and self._change(partitions):
            return
        wanted = np.array(partitions, np.int64)
        wanted = wanted[np.argsort(wanted[:, 0], kind="stable")]
        wanted = wanted[np.append(wanted[1:, 0] != wanted[:-1, 0], True)]
        places = np.searchsorted(self.index, wanted[:, 0])
        followed = places < len(self.index)
        followed[followed] = self.index[places[followed]] == wanted[followed, 0]
        changed, rows = places[followed], wanted[followed]
        self.epoch[changed], self.offset[changed], self.most[changed] = rows[:, 1], rows[:, 2], rows[:, 3]
        if not followed.all():
            before, rows = places[~followed], wanted[~followed]
            self.index = np.insert(self.index, before, rows[:, 0])
            self.epoch = np.insert(self.epoch, before, rows[:, 1])
            self.offset = np.insert(self.offset, before, rows[:, 2])
            self.most = np.insert(self.most, before, rows[:, 3])
            self.high = np.insert(self.high, before, NOT_TOLD)
            self.log_start = np.insert(self.log_start, before, NOT_TOLD)
            self.served = np.insert(self.served, before, 0)
        self._note()

    def _change(self, partitions: list[FetchPartition]) -> bool:
        """Other wishes about a few that are followed; False, with nothing done, where one is not."""
        index = self.index
        places = [int(index.searchsorted(partition[0])) for partition in partitions]
        if not all(place < len(index) and index[place] == partition[0]
                   for place, partition in zip(places, partitions, strict=True)):
            return False
        for place, (_, epoch, offset, most) in zip(places, partitions, strict=True):
            self.epoch[place], self.offset[place], self.most[place] = epoch, offset, most
            self._has_epochs = self._has_epochs or epoch >= 0
        return True

    def forget(self, partitions: list[int]) -> None:
        """Follow these no longer."""
        kept = ~np.isin(self.index, np.array(partitions, np.int64))
        self.index, self.epoch, self.offset = self.index[kept], self.epoch[kept], self.offset[kept]
        self.most, self.high, self.log_start = self.most[kept], self.high[kept], self.log_start[kept]
        self.served = self.served[kept]
        self._note()

    def _note(self) -> None:
        count = len(self.index)
        self._is_dense = count > 0 and int(self.index[0]) == 0 and int(self.index[-1]) == count - 1
        self._has_epochs = bool((self.epoch >= 0).any())

    def look(self, version: int, bounds: npt.NDArray[np.int64], leader_epoch: int, read_committed: bool,
             whole: bool) -> Looked:
        """`bounds` holds (log start, high watermark) by partition. `whole`: the client is to hear of each."""
        first, stop = 0, min(len(self.index), len(bounds))
        if self._is_dense:
            start, high = bounds[:stop, 0], bounds[:stop, 1]
        else:
            first, stop = self.index.searchsorted((0, len(bounds))).tolist()
            start, high = bounds[self.index[first:stop], 0], bounds[self.index[first:stop], 1]
        offset = self.offset[first:stop]
        new = (high != self.high[first:stop]) | (start != self.log_start[first:stop])
        if whole:
            at = np.arange(stop - first)
        else:
            differs = new | (offset != high)
            if self._has_epochs:
                epoch = self.epoch[first:stop]
                differs |= (epoch != leader_epoch) & (epoch >= 0)
            at = differs.nonzero()[0]
        missing = self.index[:first].tolist() + self.index[stop:].tolist()
        if not len(at):
            return Looked(b"", 0, stop - first, missing, [], False, 0, (at, at, at))
        return self._look_at(at, first, version, start[at], high[at], new[at], leader_epoch, read_committed, whole,
                             stop - first, missing)

    def _look_at(self, at: Column, first: int, version: int, start: Column, high: Column, new: npt.NDArray[np.bool_],
                 leader_epoch: int, read_committed: bool, whole: bool, there: int, missing: list[int]) -> Looked:
        """Those that have something new, or something to read; a place is `first` behind what `at` says."""
        places = at + first
        index, offset = self.index[places], self.offset[places]
        error = errors_of(offset, self.epoch[places] if self._has_epochs else None, start, high, leader_epoch)
        readable = (offset < high) & (error == 0)
        read = np.flatnonzero(readable)
        wants: list[tuple[int, int, int, int, int]] = []
        more = len(read) > MOST_READ
        if more:                         # decision 315: those that were served longest ago; the others have their turn
            read = read[np.argsort(self.served[places[read]], kind="stable")[:MOST_READ]]
            readable[:] = False
            readable[read] = True
        if len(read):
            wants = list(zip(places[read].tolist(), index[read].tolist(), offset[read].tolist(),
                             self.most[places[read]].tolist(), self.served[places[read]].tolist(), strict=True))
        shown = np.flatnonzero(~readable & (new | (error != 0) | whole))
        if not len(shown):
            return Looked(b"", 0, there, missing, wants, more, 0, (shown, shown, shown))
        high_shown = np.where(error[shown] == 0, high[shown], NOT_TOLD)
        rows = encode_rows(version, index[shown], error[shown], start[shown], high[shown], read_committed)
        return Looked(rows.tobytes(), len(shown), there, missing, wants, more, int(np.count_nonzero(error)),
                      (places[shown], high_shown, start[shown]))

    def tell(self, told_ends: tuple[Column, Column, Column]) -> None:
        """The client hears of these: see `Looked.told_ends`."""
        places, high, log_start = told_ends
        self.high[places] = high
        self.log_start[places] = log_start

    def serve(self, place: int, high: int, log_start: int, answer: int) -> None:
        """The client hears of this one, with records where `answer` is the number of the answer and not 0."""
        self.high[place] = high
        self.log_start[place] = log_start
        if answer:
            self.served[place] = answer
