"""The reader of a batch: two positions, fixed when the query is planned, and tasks between them."""
from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, GreaterThanOrEqual, In, InputPartition

from gatehouse.spark.errors import InvalidOption
from gatehouse.spark.fetching import ReadSpec, Task, read_task
from gatehouse.spark.hub import Hub
from gatehouse.spark.options import EARLIEST, LATEST, AtTime, ReadOptions
from gatehouse.spark.plan import Range, split, task_count
from gatehouse.spark.positions import Positions, filter_levels

PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""Spark plans a read in this worker where its configuration allows filters to be pushed, and else in another."""


def spec_of(options: ReadOptions, columns: Sequence[str]) -> ReadSpec:
    """What the tasks of a reader have to know. Raises InvalidOption."""
    return ReadSpec(options.hub, tuple(columns), filter_levels(options), frozenset(), options.fail_on_data_loss,
                    options.fetch_bytes)


def plan(ranges: Sequence[Range], options: ReadOptions, positions: Positions) -> list[InputPartition]:
    """The tasks for these ranges."""
    rows = sum(range_.rows for range_ in ranges)
    tasks = task_count(rows, len(ranges), options.min_partitions, options.max_records_per_partition)
    return [Task(part, positions.facts) for part in split(ranges, tasks)] or [Task((), positions.facts)]


class BatchReader(DataSourceReader):
    """Reads what there is between two positions that are fixed when the query is planned."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        if options.starting == LATEST:
            raise InvalidOption("'startingOffsets' of a batch cannot be 'latest'")
        self._options = options
        self._spec = spec_of(options, columns)
        self._topics: frozenset[str] | None = None
        self._partitions: frozenset[int] | None = None
        self._since_ms: int | None = None

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks."""
        hub = Hub(self._options.hub)
        try:
            positions = Positions(hub, self._options.subscription)
            return plan(self._ranges(positions), self._options, positions)
        finally:
            hub.close()

    def _ranges(self, positions: Positions) -> list[Range]:
        ends, topics = positions.resolve(self._options.ending or LATEST, ending=True)
        starts, _ = positions.resolve(self._options.starting or EARLIEST)
        since, _ = positions.resolve(AtTime(self._since_ms)) if self._since_ms is not None else ({}, None)
        ranges = []
        for name, topic in topics.items():
            if self._topics is not None and name not in self._topics:
                continue
            for partition, end in ends[name].items():
                if self._partitions is None or partition in self._partitions:
                    start = max(starts.get(name, {}).get(partition, 0), since.get(name, {}).get(partition, 0))
                    ranges.append(Range(name, topic.uuid, partition, start, max(start, end)))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, Task)
        return read_task(self._spec, partition)


class FilteringReader(BatchReader):
    """Leaves out what filters rule out before it is read or decoded; Spark still looks at what remains."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Notes what is of use, of two conditions on one column the last; every filter is given back, so that Spark
        looks at the rest itself."""
        for condition in filters:
            path: tuple[str, ...] = getattr(condition, "attribute", ())
            column = path[0] if len(path) == 1 else ""
            values: tuple[Any, ...] = ()
            if isinstance(condition, EqualTo):
                values = (condition.value,)
            elif isinstance(condition, In):
                values = tuple(condition.value)
            if (isinstance(condition, GreaterThanOrEqual) and column == "timestamp"
                    and condition.value.tzinfo is not None):
                self._since_ms = int(condition.value.timestamp() * 1000)
            elif values and column == "topic":
                self._topics = frozenset(values)
            elif values and column == "partition":
                self._partitions = frozenset(values)
            elif values and column == "key":
                self._spec = replace(self._spec, keys=frozenset(bytes(value) for value in values))
        return filters


def batch_reader(options: ReadOptions, columns: Sequence[str]) -> BatchReader:
    """The reader for how Spark is configured: it refuses one that takes filters unless it is told to push them."""
    main: Any = getattr(sys.modules.get("__main__"), "__spec__", None)
    pushes = PUSHDOWN_WORKER in sys.modules or getattr(main, "name", "") == PUSHDOWN_WORKER
    return (FilteringReader if pushes else BatchReader)(options, columns)
