"""The reader of a batch: two positions, fixed when the query is planned, and tasks between them."""
from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from gatehouse.spark.errors import InvalidOption
from gatehouse.spark.fetching import ReadSpec, Task, read_task
from gatehouse.spark.hub import Hub
from gatehouse.spark.options import EARLIEST, LATEST, ReadOptions
from gatehouse.spark.plan import Range, split, task_count
from gatehouse.spark.positions import Positions, filter_levels


def spec_of(options: ReadOptions, columns: Sequence[str]) -> ReadSpec:
    """What the tasks of a reader have to know. Raises InvalidOption."""
    return ReadSpec(options.hub, tuple(columns), filter_levels(options), options.fail_on_data_loss,
                    options.fetch_bytes)


def plan(ranges: Sequence[Range], options: ReadOptions, positions: Positions) -> list[InputPartition]:
    """The tasks for these ranges."""
    rows = sum(range_.rows for range_ in ranges)
    tasks = task_count(rows, len(ranges), options.min_partitions, options.max_records_per_partition)
    return [Task(part, positions.facts) for part in split(ranges, tasks)] or [Task((), positions.facts)]


class BatchReader(DataSourceReader):  # decision 358
    """Reads what there is between two positions that are fixed when the query is planned.

    It takes no filters: Spark keeps what a filter has made of a data frame's reader, and gives it to later queries
    without a filter.
    """

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        if options.starting == LATEST:
            raise InvalidOption("'startingOffsets' of a batch cannot be 'latest'")
        self._options = options
        self._spec = spec_of(options, columns)

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
        ranges = []
        for name, topic in topics.items():
            for partition, end in ends[name].items():
                start = starts.get(name, {}).get(partition, 0)
                ranges.append(Range(name, topic.uuid, partition, start, max(start, end)))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, Task)
        return read_task(self._spec, partition)
