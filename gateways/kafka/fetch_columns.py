"""What a fetch session follows of one topic with many partitions: a numpy column for each number, sorted by partition.

Fewer than `fetch_block.MANY` partitions are cheaper one by one (`fetch_session`). What is compared, and the rows of the
answer, are as in `fetch_block`. Pure.
"""
from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from gatehouse.gateways.kafka.fetch_block import Column, encode_rows, errors_of

NOT_TOLD: Final = -1                 # no high watermark or log start: the client has not heard of this partition


class Looked(NamedTuple):
    """Every partition that is there against what it holds."""

    rows: bytes                      # of the answer: partitions without records that the client is to hear of
    row_count: int
    there: int
    missing: list[int]               # partitions that the topic has not
    wants: list[tuple[int, int, int, int, int]]    # (place, partition, offset, most bytes, when it was served last)
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

    def __len__(self) -> int:
        return len(self.index)

    def follow(self, wanted: npt.NDArray[np.int64]) -> None:
        """Rows of (partition, leader epoch, offset, most bytes), new ones or others for those that are followed. Of
        several of one partition the last counts."""
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

    def forget(self, partitions: list[int]) -> None:
        """Follow these no longer."""
        kept = ~np.isin(self.index, np.array(partitions, np.int64))
        self.index, self.epoch, self.offset = self.index[kept], self.epoch[kept], self.offset[kept]
        self.most, self.high, self.log_start = self.most[kept], self.high[kept], self.log_start[kept]
        self.served = self.served[kept]

    def look(self, version: int, bounds: npt.NDArray[np.int64], leader_epoch: int, read_committed: bool,
             whole: bool) -> Looked:
        """`bounds` holds (log start, high watermark) by partition. `whole`: the client is to hear of each."""
        first, stop = np.searchsorted(self.index, (0, len(bounds))).tolist()
        index, offset, epoch = self.index[first:stop], self.offset[first:stop], self.epoch[first:stop]
        start, high = bounds[index, 0], bounds[index, 1]
        error = errors_of(offset, epoch, start, high, leader_epoch)
        readable = (offset < high) & (error == 0)
        new = (high != self.high[first:stop]) | (start != self.log_start[first:stop]) | (error != 0)
        shown = np.flatnonzero(~readable & (new | whole))
        read = np.flatnonzero(readable)
        wants = list(zip((read + first).tolist(), index[read].tolist(), offset[read].tolist(),
                         self.most[first:stop][read].tolist(), self.served[first:stop][read].tolist(), strict=True))
        high_shown = np.where(error[shown] == 0, high[shown], NOT_TOLD)
        rows = encode_rows(version, index[shown], error[shown], start[shown], high[shown], read_committed)
        return Looked(rows.tobytes(), len(shown), stop - first,
                      self.index[:first].tolist() + self.index[stop:].tolist(), wants, int(np.count_nonzero(error)),
                      (shown + first, high_shown, start[shown]))

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
