"""A fetch's partitions as one numpy block, where a topic lists many: ten thousand cost a fraction of a millisecond.

Decoding is a view on the frame, the comparison with what the partitions hold is one per column, and the rows of the
answer are one array. Fewer than `MANY` partitions are cheaper one by one (`fetch_codec`), and what is out of the
ordinary (tagged fields, a partition that is not there) is left to that path too. Pure.

    request  v4   index i32 |             offset i64 |                                       most bytes i32
             v5   index i32 |             offset i64 |                       log start i64 | most bytes i32
             v9   index i32 | epoch i32 | offset i64 |                       log start i64 | most bytes i32
             v12  index i32 | epoch i32 | offset i64 | last fetched epoch i32 | log start i64 | most bytes i32 | tags
    answer        index i32 | error i16 | high watermark i64 | last stable offset i64 | log start i64 (v5)
                  | aborted transactions i32 (v12: varint) | preferred replica i32 (v11)
                  | records i32 (v12: varint, tags)
"""
from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from gatehouse.gateways.kafka.error_codes import FENCED_LEADER_EPOCH, OFFSET_OUT_OF_RANGE, UNKNOWN_LEADER_EPOCH

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
