"""A fetch of many partitions of one topic as numpy columns: ten thousand cost a fraction of a millisecond. Fewer than
`MANY` are cheaper one by one (`codec.FetchRows`, `fetch_session`). Pure.

Where a request lists them they are one block: decoding is a view on the frame, the comparison with what the partitions
hold is one per column, and the rows of the answer are one array. What is out of the ordinary (tagged fields, a
partition that is not there) is left to the other path.

    request  v4   index i32 |             offset i64 |                                       most bytes i32
             v5   index i32 |             offset i64 |                       log start i64 | most bytes i32
             v9   index i32 | epoch i32 | offset i64 |                       log start i64 | most bytes i32
             v12  index i32 | epoch i32 | offset i64 | last fetched epoch i32 | log start i64 | most bytes i32 | tags
    answer        index i32 | error i16 | high watermark i64 | last stable offset i64 | log start i64 (v5)
                  | aborted transactions i32 (v12: varint) | preferred replica i32 (v11)
                  | records i32 (v12: varint, tags)

What a fetch session follows of such a topic are `Columns`: one for each number, sorted by partition.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from gatehouse.gateways.kafka.error_codes import FENCED_LEADER_EPOCH, OFFSET_OUT_OF_RANGE, UNKNOWN_LEADER_EPOCH

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.codec import FetchPartition

MANY: Final = 64                     # partitions of one topic from which a block is faster, measured

Block = npt.NDArray[np.void]
"""The partitions of one topic as they stand in the request."""

Column = npt.NDArray[np.int64]
"""A number of each partition."""

_REQUEST_V4: Final = [("index", ">i4"), ("offset", ">i8"), ("most", ">i4")]
_REQUEST_V5: Final = [("index", ">i4"), ("offset", ">i8"), ("log_start", ">i8"), ("most", ">i4")]
_REQUEST_V9: Final = [("index", ">i4"), ("epoch", ">i4"), ("offset", ">i8"), ("log_start", ">i8"), ("most", ">i4")]
_REQUEST_V12: Final = [("index", ">i4"), ("epoch", ">i4"), ("offset", ">i8"), ("fetched_epoch", ">i4"),
                       ("log_start", ">i8"), ("most", ">i4"), ("tags", "u1")]

_ANSWER_V4: Final = [("index", ">i4"), ("error", ">i2"), ("high", ">i8"), ("stable", ">i8"), ("aborted", ">i4"),
                     ("records", ">i4")]
_ANSWER_V5: Final = [*_ANSWER_V4[:4], ("log_start", ">i8"), *_ANSWER_V4[4:]]
_ANSWER_V11: Final = [*_ANSWER_V5[:6], ("preferred", ">i4"), ("records", ">i4")]
_ANSWER_V12: Final = [*_ANSWER_V5[:5], ("aborted", "u1"), ("preferred", ">i4"), ("records", "u1"), ("tags", "u1")]

REQUESTS: Final = tuple(np.dtype(_REQUEST_V4 if version < 5 else _REQUEST_V5 if version < 9
                                 else _REQUEST_V9 if version < 12 else _REQUEST_V12) for version in range(19))
ANSWERS: Final = tuple(np.dtype(_ANSWER_V4 if version < 5 else _ANSWER_V5 if version < 11
                                else _ANSWER_V11 if version < 12 else _ANSWER_V12) for version in range(19))
"""By Fetch version."""


class Scanned(NamedTuple):
    """Every partition of a block against what its partition holds."""

    rows: bytes                      # the answer's rows, `row_bytes` each; those of `wants` are to be replaced
    row_bytes: int
    wants: list[tuple[int, int, int, int]]     # (row, partition, offset, most bytes) where there is something to read
    errors: int


def read_block(data: bytes, at: int, count: int, version: int) -> Block | None:
    """`count` partitions, which are there; None where some of them carry tagged fields."""
    block = np.frombuffer(data, REQUESTS[version], count, at)
    return block if version < 12 or not block["tags"].any() else None


def partitions_of(block: Block) -> list[tuple[int, int, int, int]]:
    """(partition, leader epoch or -1, offset, most bytes), one by one."""
    names = block.dtype.names or ()
    epochs = block["epoch"].tolist() if "epoch" in names else [-1] * len(block)
    return list(zip(block["index"].tolist(), epochs, block["offset"].tolist(), block["most"].tolist(), strict=True))


# decision 59: column by column, one array of rows
def scan_block(block: Block, version: int, bounds: npt.NDArray[np.int64], leader_epoch: int,
               read_committed: bool) -> Scanned | None:
    """`bounds` holds (log start, high watermark) by partition. None where a partition is not there."""
    index = block["index"].astype(np.int64)
    if index.min() < 0 or index.max() >= len(bounds):
        return None
    start, high = bounds[index, 0], bounds[index, 1]
    offset = block["offset"].astype(np.int64)
    epoch = block["epoch"].astype(np.int64) if version >= 9 else None
    error = errors_of(offset, epoch, start, high, leader_epoch)
    rows = encode_rows(version, index, error, start, high, read_committed)
    readable = np.flatnonzero((offset < high) & (error == 0))
    wants = list(zip(readable.tolist(), index[readable].tolist(), offset[readable].tolist(),
                     block["most"][readable].tolist(), strict=True))
    return Scanned(rows.tobytes(), rows.itemsize, wants, int(np.count_nonzero(error)))


def errors_of(offset: Column, epoch: Column | None, start: Column, high: Column, leader_epoch: int) -> Column:
    """What is wrong with each of the offsets that are asked for; 0: nothing."""
    error: Column = np.where((offset < start) | (offset > high), OFFSET_OUT_OF_RANGE, 0)
    if epoch is not None:
        current = (epoch == leader_epoch) | (epoch < 0)
        if not current.all():
            error = np.where(current, error, np.where(epoch < leader_epoch, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH))
    return error


def encode_rows(version: int, index: Column, error: Column, start: Column, high: Column,
                read_committed: bool) -> Block:
    """Partitions of an answer without records."""
    rows = np.empty(len(index), ANSWERS[version])
    rows["index"] = index
    rows["error"] = error
    rows["high"] = rows["stable"] = high
    if version >= 5:
        rows["log_start"] = start
    if version >= 11:
        rows["preferred"] = -1
    compact = int(version >= 12)
    rows["aborted"] = (0 if read_committed else -1) + compact
    rows["records"] = compact
    if compact:
        rows["tags"] = 0
    return rows


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
