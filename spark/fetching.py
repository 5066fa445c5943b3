"""What a task does: ranges fetched page by page, decoded into Arrow batches. The next page comes while one is decoded.

Every range gives exactly its offsets, whoever reads it and how often, or an error that names what is gone.
"""
from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from gatehouse.kernel.addresses.filters import matches
from gatehouse.spark.answers import Heads, Served, join_heads, read_answer
from gatehouse.spark.columns import Columns, HubFacts
from gatehouse.spark.errors import DataLoss, HubRefused
from gatehouse.spark.hub import Hub, HubAddress
from gatehouse.spark.plan import Range
from gatehouse.spark.records import Located, locate

RANGES_PER_REQUEST: Final = 256
GROUP_BYTES: Final = 2 << 20
GONE: Final = frozenset(("offset_out_of_range", "unknown_topic", "topic_replaced", "unknown_partition"))
"""What a range answers with when its messages are no longer there."""

PRINCIPAL: Final = "principal"
"""The column for which the hub looks at more than the messages."""

logger = logging.getLogger("gatehouse.spark")


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """What a task has to know besides its ranges. Picklable."""

    hub: HubAddress
    columns: tuple[str, ...]
    filter: tuple[str, ...] = ()           # levels of an address filter; (): every address
    fail_on_data_loss: bool = True
    fetch_bytes: int = 512 << 10


class Task(InputPartition):
    """The ranges of one task, and what the hub said about itself when they were planned."""

    def __init__(self, ranges: Sequence[Range], facts: HubFacts) -> None:
        self.ranges = tuple(ranges)
        self.facts = facts


def read_task(spec: ReadSpec, task: Task) -> Iterator[pa.RecordBatch]:
    """The record batches of a task. Raises DataLoss, HubRefused, HubUnreachable."""
    columns = Columns(spec.columns, task.facts)
    for range_, pieces in grouped(pages(spec, task.ranges)):
        for records in _wanted(spec, range_, pieces):
            if spec.filter and len(records):
                records = _matching(records, columns, range_.topic, spec.filter)
            if len(records):
                yield columns.build(records, range_.topic, range_.partition)


def grouped(fetched_pages: Iterator[tuple[Range, Heads]]) -> Iterator[tuple[Range, Heads]]:
    """Pages of one partition that follow each other, up to `GROUP_BYTES`: pages are small for the hub's sake, and many
    columns of few rows cost Spark more than few of many."""
    first: Range | None = None
    parts: list[Heads] = []
    size_bytes = 0
    for range_, pieces in fetched_pages:
        follows = first is not None and (range_.uuid, range_.partition) == (first.uuid, first.partition) \
            and pieces.first_offset[0] >= parts[-1].end_offset
        if first is not None and not (follows and size_bytes < GROUP_BYTES):
            yield first, join_heads(parts)
            first, parts, size_bytes = None, [], 0
        first = first or range_
        parts.append(pieces)
        size_bytes += int(pieces.length.sum())
    if first is not None:
        yield first, join_heads(parts)


def pages(spec: ReadSpec, ranges: Sequence[Range]) -> Iterator[tuple[Range, Heads]]:
    """The pieces of the ranges, as they come: (what is left of a range, pieces from its offset on)."""
    waiting = list(ranges)
    hub = Hub(spec.hub)
    with ThreadPoolExecutor(1, "gatehouse-fetch") as executor:
        try:
            answer = executor.submit(_fetch, hub, waiting[:RANGES_PER_REQUEST], spec) if waiting else None
            while answer is not None:
                asked = waiting[:RANGES_PER_REQUEST]
                served = answer.result()
                left = _advance(spec, asked, served)
                waiting = left + waiting[len(asked):]
                answer = executor.submit(_fetch, hub, waiting[:RANGES_PER_REQUEST], spec) if waiting else None
                for range_, got in zip(asked, served, strict=True):
                    if len(got.pieces):
                        yield range_, got.pieces
        finally:
            hub.close()


def _fetch(hub: Hub, ranges: Sequence[Range], spec: ReadSpec) -> list[Served]:
    request: dict[str, Any] = {"max_bytes": spec.fetch_bytes, "ranges": [
        {"topic": range_.topic, "uuid": range_.uuid, "partition": range_.partition, "offset": range_.offset,
         "end": range_.end}
        for range_ in ranges]}
    if PRINCIPAL in spec.columns:
        request["principals"] = True
    return read_answer(hub.post_json("/v1/batches/fetch", request))


def _advance(spec: ReadSpec, asked: Sequence[Range], served: Sequence[Served]) -> list[Range]:
    """What is left of the ranges. Raises DataLoss where something is gone and that is an error."""
    left = []
    moved = False
    for range_, got in zip(asked, served, strict=True):
        if got.code in GONE:
            rest = _behind_loss(spec, range_, got)
            moved = True
        elif got.code:
            raise HubRefused(0, got.code, f"{_named(range_)}: {got.detail}")
        else:
            if not got.compacted:
                _check_whole(spec, range_, got.pieces)
            next_offset = max(got.pieces.end_offset, got.next_offset, range_.offset)
            rest = replace(range_, offset=min(next_offset, range_.end))
            moved = moved or next_offset > range_.offset
        if rest.rows > 0:
            left.append(rest)
    if left and not moved:
        raise DataLoss(f"the hub gives nothing of {_named(left[0])}; its log is damaged there")
    return left


def _behind_loss(spec: ReadSpec, range_: Range, got: Served) -> Range:
    """The range behind what is gone."""
    next_offset = range_.end
    if got.code == "offset_out_of_range" and range_.offset < got.log_start_offset:
        next_offset = min(got.log_start_offset, range_.end)
    _lost(spec, replace(range_, end=next_offset), got.detail or got.code)
    return replace(range_, offset=next_offset)


def _check_whole(spec: ReadSpec, range_: Range, pieces: Heads) -> None:
    """Pieces follow each other without a gap, from the range's offset on."""
    first = pieces.first_offset
    ends = first + pieces.count
    expected = np.concatenate(([range_.offset], ends[:-1]))
    for i in np.flatnonzero(first > expected).tolist():
        _lost(spec, replace(range_, offset=int(expected[i]), end=min(int(first[i]), range_.end)),
              "the log is damaged there")


def _lost(spec: ReadSpec, lost: Range, why: str) -> None:
    text = f"{lost.rows} messages are gone: {_named(lost)} ({why})"
    if spec.fail_on_data_loss:
        raise DataLoss(f"{text}. Set failOnDataLoss to false to go on behind them")
    logger.warning("%s", text)


def _named(range_: Range) -> str:
    return f"offsets {range_.offset} to {range_.end - 1} of partition {range_.partition} of {range_.topic!r}"


# --- which records ------------------------------------------------------------------------------------------

def _wanted(spec: ReadSpec, range_: Range, pieces: Heads) -> Iterator[Located]:
    """The records of the range. What a producer wrote wrongly was never a message and is no loss: no reader gets it."""
    for records, unreadable in locate(pieces):
        for bad in unreadable:
            first, end = max(bad.first_offset, range_.offset), min(bad.first_offset + bad.count, range_.end)
            if first < end:
                logger.warning("%d offsets are passed over: %s (%s)", end - first,
                               _named(replace(range_, offset=first, end=end)), bad.why)
        if len(records) and (records.offset[0] < range_.offset or records.offset[-1] >= range_.end):
            records = records.only((records.offset >= range_.offset) & (records.offset < range_.end))
        yield records


def _matching(records: Located, columns: Columns, topic: str, pattern: tuple[str, ...]) -> Located:
    addresses = columns.addresses(records, topic)
    verdicts = pa.array([matches(pattern, tuple(text.split("/"))) for text in addresses.dictionary.to_pylist()])
    kept = pc.take(verdicts, addresses.indices)
    return records.only(kept.to_numpy(zero_copy_only=False))
