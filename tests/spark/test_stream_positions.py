"""What a stream reads from one micro-batch to the next, asked of the reader itself, with a real hub."""
from __future__ import annotations

import json
import pickle
import time
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from gatehouse.spark.errors import DataLoss, InvalidOption
from gatehouse.spark.fetching import Task
from gatehouse.spark.options import read_options
from gatehouse.spark.streaming import StreamReader
from tests.spark.door import HttpDoor

ALL = ReadAllAvailable()
DEADLINE_S = 60


class Query:
    """What Spark does with a reader: positions through JSON, tasks and reader through pickle."""

    def __init__(self, door: HttpDoor, **options: Any) -> None:
        given = {"url": door.url, "startingOffsets": "earliest"}
        given |= {name: str(value) for name, value in options.items()}
        if not options.keys() & {"subscribe", "subscribePattern", "filter", "assign"}:
            given["subscribe"] = "plant"
        self.reader = StreamReader(read_options(given), ["offset", "value"])
        self.position: Any = None

    def next(self, limit: ReadLimit | None = None) -> list[int]:
        """The values of the next micro-batch."""
        if self.position is None:
            self.position = json.loads(json.dumps(self.reader.initialOffset()))
        start = self.position
        self.position = json.loads(json.dumps(
            self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit())))
        return self.read(start, self.position)

    def read(self, start: Any, end: Any) -> list[int]:
        """The values between two positions."""
        found = []
        for task in self.reader.partitions(start, end):
            copy: StreamReader = pickle.loads(pickle.dumps(self.reader))
            task = pickle.loads(pickle.dumps(task))
            assert isinstance(task, Task)
            for batch in copy.read(task):
                found += [int(value) for value in batch.column("value").to_pylist()]
        return sorted(found)


def retain_nothing(door: HttpDoor, topic: str) -> None:
    """Return when retention has taken everything that the topic has now."""
    door.ask("PATCH", f"/v1/topics/{topic}", {"retention_ms": 1})
    deadline = time.monotonic() + DEADLINE_S
    while any(first < end for first, end in door.bounds(topic)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    door.ask("PATCH", f"/v1/topics/{topic}", {"retention_ms": None})


def test_micro_batches_follow_each_other(door: HttpDoor) -> None:
    door.publish("plant", 100)
    query = Query(door)
    assert query.next() == list(range(100))
    assert query.next() == []
    door.publish("plant", 5, 100)
    start = query.position
    assert query.next() == list(range(100, 105))
    assert query.read(start, query.position) == list(range(100, 105)), "a repeated micro-batch has the same rows"
    assert query.reader.reportLatestOffset() == query.position


def test_a_new_query_begins_at_the_end_unless_told_otherwise(door: HttpDoor) -> None:
    door.publish("plant", 10)
    query = Query(door, startingOffsets="latest")
    assert query.next() == []
    door.publish("plant", 1, 10)
    assert query.next() == [10]


def test_limits_of_rows_and_bytes(door: HttpDoor) -> None:
    door.publish("plant", 1000)
    query = Query(door, maxOffsetsPerTrigger=300)
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(300)
    sizes = [len(query.next()) for _ in range(5)]
    assert sizes == [300, 300, 300, 100, 0]
    assert len(Query(door, maxOffsetsPerTrigger=300).next(ALL)) == 1000, "Spark's own limit goes before the option"
    by_bytes = Query(door, maxBytesPerTrigger=4000)
    assert by_bytes.reader.getDefaultReadLimit() == ReadMaxBytes(4000)
    counts = []
    while rows := by_bytes.next():
        counts.append(len(rows))
    assert sum(counts) == 1000
    assert 3 < len(counts) < 20
    both = Query(door, maxBytesPerTrigger=4000, maxOffsetsPerTrigger=10)
    assert len(both.next()) == 10


def test_available_now_ends_where_the_hub_was(door: HttpDoor) -> None:
    door.publish("plant", 100)
    query = Query(door, maxOffsetsPerTrigger=60)
    query.reader.prepareForTriggerAvailableNow()
    door.publish("plant", 50, 100)
    assert len(query.next()) == 60
    assert len(query.next()) == 40
    before = query.position
    assert query.next() == []
    assert query.position == before


def test_a_widened_topic_is_read_from_its_new_queues_beginning(door: HttpDoor) -> None:
    door.ask("PUT", "/v1/topics/plant", {"partitions": 1})
    door.publish("plant", 20)
    query = Query(door)
    assert len(query.next()) == 20
    door.ask("PATCH", "/v1/topics/plant", {"partitions": 3})
    door.publish("plant", 40, 20)
    assert len(door.bounds("plant")) == 3
    assert query.next() == list(range(20, 60))


def test_a_new_topic_of_the_pattern_is_read_from_its_beginning(door: HttpDoor) -> None:
    door.publish("plant-a", 10)
    query = Query(door, subscribePattern="plant-.*", startingOffsets="latest")
    assert query.next() == []
    door.publish("plant-b", 10)
    assert query.next() == list(range(10))


def test_what_a_new_topic_lost_before_the_stream_knew_it_is_no_loss(door: HttpDoor) -> None:
    door.publish("plant-a", 10)
    query = Query(door, subscribePattern="plant-.*")
    assert len(query.next()) == 10
    door.publish("plant-b", 10)
    retain_nothing(door, "plant-b")
    door.publish("plant-b", 5, 10)
    start = query.position
    assert query.next() == list(range(10, 15))
    assert query.read(start, query.position) == list(range(10, 15))
    before = query.position
    assert query.next() == []
    assert query.position == before


def test_a_deleted_topic_is_an_error_or_left_out(door: HttpDoor) -> None:
    door.publish("plant", 10)
    door.publish("fleet", 10, 10)
    strict = Query(door, subscribe="plant,fleet")
    tolerant = Query(door, subscribe="plant,fleet", failOnDataLoss="false")
    assert len(strict.next()) == len(tolerant.next()) == 20
    door.ask("DELETE", "/v1/topics/plant")
    door.publish("fleet", 5, 20)
    with pytest.raises(DataLoss, match="the topic 'plant' is gone"):
        strict.next()
    assert tolerant.next() == list(range(20, 25))
    assert tolerant.next() == []


def test_a_topic_made_again_is_an_error_or_read_anew(door: HttpDoor) -> None:
    door.publish("plant", 10)
    strict, tolerant = Query(door), Query(door, failOnDataLoss="false")
    assert len(strict.next()) == len(tolerant.next()) == 10
    door.ask("DELETE", "/v1/topics/plant")
    door.publish("plant", 30, 500)
    with pytest.raises(DataLoss, match="was deleted and made again"):
        strict.next()
    assert tolerant.next() == list(range(500, 530))


def test_a_topic_deleted_between_planning_and_reading(door: HttpDoor) -> None:
    door.publish("plant", 10)
    strict, tolerant = Query(door), Query(door, failOnDataLoss="false")
    start = strict.reader.initialOffset()
    end = strict.reader.latestOffset(start, ALL)
    tolerant.reader.initialOffset()
    door.ask("DELETE", "/v1/topics/plant")
    with pytest.raises(DataLoss, match=r"messages are gone: offsets 0 to \d+ of partition \d of 'plant'"):
        strict.read(start, end)
    assert tolerant.read(start, end) == []
    door.publish("plant", 10)
    with pytest.raises(DataLoss, match="made again"):
        strict.read(start, end)


def test_retention_that_overtakes_a_stream_names_what_is_lost(door: HttpDoor) -> None:
    door.ask("PUT", "/v1/topics/plant", {"partitions": 1})
    door.publish("plant", 100)
    strict = Query(door, maxOffsetsPerTrigger=10)
    tolerant = Query(door, maxOffsetsPerTrigger=10, failOnDataLoss="false")
    assert len(strict.next()) == len(tolerant.next()) == 10
    start, end = strict.position, strict.reader.latestOffset(strict.position, ReadMaxRows(40))
    retain_nothing(door, "plant")
    door.publish("plant", 7, 100)
    with pytest.raises(DataLoss, match="40 messages are gone: offsets 10 to 49 of partition 0 of 'plant'"):
        strict.read(start, end)
    with pytest.raises(DataLoss, match="90 messages are gone: offsets 10 to 99 of partition 0 of 'plant'"):
        strict.next()
    assert tolerant.read(start, end) == []
    assert tolerant.next() == list(range(100, 107))
    assert tolerant.next() == []


def test_retention_that_overtakes_everything_is_not_waited_for_for_ever(door: HttpDoor) -> None:
    door.publish("plant", 100)
    query = Query(door, maxOffsetsPerTrigger=10, failOnDataLoss="false")
    query.reader.prepareForTriggerAvailableNow()
    assert len(query.next()) == 10
    retain_nothing(door, "plant")
    for _ in range(12):
        assert query.next() == []
    before = query.position
    query.next()
    assert query.position == before


def test_a_stream_of_a_topic_that_is_not_there(door: HttpDoor) -> None:
    with pytest.raises(InvalidOption, match="there is no topic 'plant'"):
        Query(door).next()
