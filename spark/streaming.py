"""The reader of a stream: positions that Spark keeps in its checkpoint, limits per trigger, and what may go wrong
between two triggers.

    {"plant": {"uuid": "6f0c...", "offsets": {"0": 17, "1": 4}, "began": {"1": 0}}}

A partition that is not in a position yet (the topic was widened, a new topic matches the pattern) is read from its
beginning, which the next position keeps in `began`: a repeated micro-batch begins there again.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from gatehouse.spark.errors import DataLoss
from gatehouse.spark.fetching import Task, pages, read_task
from gatehouse.spark.hub import Hub
from gatehouse.spark.options import LATEST, ReadOptions
from gatehouse.spark.plan import Range, share
from gatehouse.spark.positions import Positions, TopicBounds
from gatehouse.spark.reading import plan, spec_of

SAMPLED_PARTITIONS: Final = 8
"""From these the size of a row is estimated for `maxBytesPerTrigger`."""

Offsets = dict[str, dict[str, Any]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream: where it begins, how far each micro-batch goes, and the tasks that read it. Spark plans in one
    process, and reads in others with a copy."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._spec = spec_of(options, columns)
        self._hub: Hub | None = None
        self._positions: Positions | None = None
        self._target: dict[str, TopicBounds] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_hub": None, "_positions": None}

    def _asking(self) -> Positions:
        if self._positions is None:
            self._hub = Hub(self._options.hub)
            self._positions = Positions(self._hub, self._options.subscription)
        return self._positions

    # --- positions

    def initialOffset(self) -> Offsets:
        """Where a new query begins; `latest` unless told otherwise."""
        offsets, topics = self._asking().resolve(self._options.starting or LATEST)
        return {name: _entry(topic, offsets[name]) for name, topic in topics.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say."""
        if self._options.max_offsets_per_trigger:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Everything that is there now, and nothing that comes later."""
        self._target = self._asking().bounds()

    def reportLatestOffset(self) -> Offsets:
        """How far the hub is, for Spark's progress reports."""
        return {name: _entry(topic, topic.ends) for name, topic in self._asking().bounds().items()}

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Where the next micro-batch ends. Raises DataLoss where a topic went away."""
        topics = self._asking().bounds() if self._target is None else self._target
        self._check_topics(start, topics)
        begins = {(name, partition): min(max(_begin(start, topic, partition), topic.log_starts[partition]),
                                         topic.ends[partition])
                  for name, topic in topics.items() for partition in topic.partitions}
        lags = {(name, partition): topics[name].ends[partition] - begin for (name, partition), begin in begins.items()}
        rows = self._rows_of(limit, topics, begins, lags)
        shares = lags if rows is None else share(lags, rows)
        return {name: _entry(topic, {partition: begins[name, partition] + shares[name, partition]
                                     for partition in topic.partitions},
                             _began(start, topic)) for name, topic in topics.items()}

    def _rows_of(self, limit: ReadLimit, topics: Mapping[str, TopicBounds], begins: Mapping[tuple[str, int], int],
                 lags: Mapping[tuple[str, int], int]) -> int | None:
        """A limit in rows, None: no limit."""
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
            return min(rows, self._rows_in(self._options.max_bytes_per_trigger, topics, begins, lags)) \
                if self._options.max_bytes_per_trigger else rows
        if isinstance(limit, ReadMaxBytes):
            return self._rows_in(limit.max_bytes, topics, begins, lags)
        return None

    def _rows_in(self, max_bytes: int, topics: Mapping[str, TopicBounds], begins: Mapping[tuple[str, int], int],
                 lags: Mapping[tuple[str, int], int]) -> int:
        """About how many rows are this many stored bytes, by the pieces at the beginning of some partitions; at least
        1."""
        sampled = sorted((partition for partition, lag in lags.items() if lag), key=lambda partition: -lags[partition])
        rows = size_bytes = 0
        for name, partition in sampled[:SAMPLED_PARTITIONS]:
            begin = begins[name, partition]
            range_ = Range(name, topics[name].uuid, partition, begin, begin + 1)
            for _, pieces in pages(self._spec, [range_]):
                rows += int(pieces.count.sum())
                size_bytes += int(pieces.length.sum())
        return max(1, max_bytes * rows // size_bytes) if size_bytes else 1

    def _check_topics(self, start: Offsets, topics: Mapping[str, TopicBounds]) -> None:
        if not self._options.fail_on_data_loss:
            return
        for name, entry in start.items():
            read = ", ".join(f"{partition}: {offset}" for partition, offset in entry["offsets"].items())
            if name not in topics:
                raise DataLoss(f"the topic {name!r} is gone; the stream had read its partitions up to {{{read}}}. "
                               "Set failOnDataLoss to false to go on without it")
            topic = topics[name]
            if entry["uuid"] != topic.uuid:
                raise DataLoss(f"the topic {name!r} was deleted and made again; the stream had read the old one "
                               f"up to {{{read}}}. Set failOnDataLoss to false to read the new one from its beginning")
            for partition, offset in entry["offsets"].items():
                if topic.ends.get(int(partition), offset) < offset:
                    raise DataLoss(f"partition {partition} of {name!r} ends at {topic.ends[int(partition)]}, "
                                   f"and the stream had read up to {offset}. Set failOnDataLoss to false to go on")

    # --- reading

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """The tasks of one micro-batch: the same for the same positions, whenever it is asked."""
        positions = self._asking()
        if not positions.facts.doors:
            positions.bounds()             # a restarted query plans before it asks
        ranges = []
        for name, entry in end.items():
            before = _offsets_of(start, name, entry["uuid"])
            for partition, offset in entry["offsets"].items():
                begin = before.get(partition, entry.get("began", {}).get(partition, 0))
                ranges.append(Range(name, entry["uuid"], int(partition), begin, max(begin, offset)))
        return plan(ranges, self._options, positions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, Task)
        return read_task(self._spec, partition)

    def commit(self, end: Offsets) -> None:
        """Nothing: the hub keeps no position for Spark."""

    def stop(self) -> None:
        """Close the connection."""
        if self._hub is not None:
            self._hub.close()


def _entry(topic: TopicBounds, offsets: Mapping[int, int], began: Mapping[str, int] | None = None) -> dict[str, Any]:
    entry: dict[str, Any] = {"uuid": topic.uuid,
                             "offsets": {str(partition): offset for partition, offset in offsets.items()}}
    return {**entry, "began": dict(began)} if began else entry


def _offsets_of(start: Offsets, name: str, uuid: str) -> dict[str, int]:
    """The offsets of one topic in a position; none where it is not in it, or an earlier topic of that name is."""
    entry = start.get(name)
    offsets: dict[str, int] = {} if entry is None or entry["uuid"] != uuid else entry["offsets"]
    return offsets


def _begin(start: Offsets, topic: TopicBounds, partition: int) -> int:
    """Where a micro-batch that begins at `start` begins in a partition, as far as the position says."""
    return _offsets_of(start, topic.name, topic.uuid).get(str(partition), 0)


def _began(start: Offsets, topic: TopicBounds) -> dict[str, int]:
    """Where the partitions began that no position had before: what retention took before that was never to be read."""
    offsets = _offsets_of(start, topic.name, topic.uuid)
    before = start[topic.name].get("began", {}) if offsets else {}
    return before | {str(partition): topic.log_starts[partition] for partition in topic.partitions
                     if str(partition) not in offsets}
