"""Rows written to a real hub by a real Spark."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from gatehouse.kernel.addresses.murmur2 import partition_for
from tests.running_hub import RunningHub
from tests.spark.conftest import Reading
from tests.spark.door import HttpDoor


def save(frame: DataFrame, door: HttpDoor, **options: Any) -> None:
    frame.write.format("gatehouse").options(url=door.url, **options).mode("append").save()


def refusal(frame: DataFrame, door: HttpDoor, **options: Any) -> str:
    with pytest.raises(PySparkException) as raised:
        save(frame, door, **options)
    return str(raised.value)


def test_rows_with_keys_and_headers_are_messages(spark: SparkSession, door: HttpDoor) -> None:
    frame = spark.range(1000).selectExpr(
        "concat('line', id) key", "cast(id as string) value", "timestamp_millis(1700000000000 + id) timestamp",
        "array(struct('unit' as key, cast('C' as binary) as value)) headers")
    save(frame, door, topic="plant")
    assert sorted(door.values("plant")) == list(range(1000))
    _, page = door.ask("GET", "/v1/topics/plant/messages?max=1000")
    for message in page["messages"]:
        number = int(message["value"])
        assert message["key"] == f"line{number}"
        assert message["partition"] == partition_for(message["key"].encode(), 4)
        assert (message["timestamp"], message["headers"], message["door"]) == (
            1_700_000_000_000 + number, [["unit", "C"]], "http")


def test_topics_addresses_queues_and_nulls(spark: SparkSession, door: HttpDoor) -> None:
    save(spark.createDataFrame([("a", b"k", b"1", None), ("b", None, None, 2), ("a", b"", b"3", 0)],
                               "topic string, key binary, value binary, partition int"), door)
    save(spark.createDataFrame([("plant/line1/temp", "4"), ("plant/", "5"), ("plant", "6")],
                               "address string, value string"), door)
    messages = [message for topic in ("a", "b", "plant")
                for message in door.ask("GET", f"/v1/topics/{topic}/messages")[1]["messages"]]
    assert sorted((one["topic"], one["address"], one["key"], str(one["value"])) for one in messages) == [
        ("a", "a", "", "3"), ("a", "a/k", "k", "1"), ("b", "b", None, "None"), ("plant", "plant", None, "6"),
        ("plant", "plant/", "", "5"), ("plant", "plant/line1/temp", "line1/temp", "4")]
    assert [one["partition"] for one in messages if one["topic"] == "b"] == [2]
    assert [one["partition"] for one in messages if one["value"] == "3"] == [0]
    no_topic = spark.createDataFrame([("machine 3/x", "7")], "address string, value string")
    assert "no address to publish to" in refusal(no_topic, door)


def test_many_rows_in_small_chunks_keep_the_order_of_a_key(spark: SparkSession, door: HttpDoor,
                                                           reading: Reading) -> None:
    frame = spark.range(0, 30_000, 1, 3).selectExpr("concat('line', id % 10) key", "cast(id as string) value")
    save(frame, door, topic="plant", batchBytes=20_000, compression="zstd")
    rows = reading.batch(columns="partition,offset,key,value").orderBy("partition", "offset").collect()
    assert sorted(int(bytes(row.value)) for row in rows) == list(range(30_000))
    seen: dict[tuple[bytes, int], int] = {}
    for row in rows:
        number = int(bytes(row.value))
        of_task = (bytes(row.key), number // 10_000)
        assert seen.get(of_task, -1) < number
        seen[of_task] = number


def test_what_cannot_be_written_is_said_and_nothing_is(spark: SparkSession, door: HttpDoor) -> None:
    rows = spark.range(3).coalesce(1)
    assert "make it one with to_json or cast" in refusal(rows.selectExpr("id value"), door, topic="plant")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        rows.write.format("gatehouse").options(url=door.url, topic="plant").mode("overwrite").save()
    assert door.ask("GET", "/v1/topics/plant/messages")[0] == 404


def test_a_repeated_micro_batch_is_stored_once(door: HttpDoor, reading: Reading, tmp_path: Path) -> None:
    """The checkpoint loses the commit of a batch, as it does when the driver dies before writing it."""
    door.publish("plant", 3000)

    def run() -> None:
        frame = reading.stream(maxOffsetsPerTrigger=1000).selectExpr("key", "value")
        query = (frame.writeStream.format("gatehouse").options(url=door.url, topic="copy", batchBytes=4000)
                 .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start())
        query.awaitTermination()

    run()
    assert sorted(door.values("copy")) == list(range(3000))
    for commit in (tmp_path / "checkpoint" / "commits").glob("*2*"):
        commit.unlink()
    run()
    assert sorted(door.values("copy")) == list(range(3000))
    door.publish("plant", 10, 3000)
    run()
    assert sorted(door.values("copy")) == list(range(3010))


def test_a_repeated_micro_batch_with_other_rows_is_refused(door: HttpDoor, reading: Reading, spark: SparkSession,
                                                           tmp_path: Path) -> None:
    door.publish("plant", 100)

    def run(expression: str) -> None:
        query = (reading.stream().selectExpr("key", expression).writeStream.format("gatehouse")
                 .options(url=door.url, topic="copy").option("checkpointLocation", str(tmp_path / "checkpoint"))
                 .trigger(availableNow=True).start())
        query.awaitTermination()

    run("value")
    for commit in (tmp_path / "checkpoint" / "commits").glob("*0*"):
        commit.unlink()
    with pytest.raises(PySparkException, match="was written before with other rows"):
        run("concat(value, cast('1' as binary)) value")
    assert sorted(door.values("copy")) == list(range(100))


def test_a_batch_post_is_all_or_nothing(hub: RunningHub, door: HttpDoor) -> None:
    door.ask("PUT", "/v1/topics/plant", {"partitions": 1})
    status, answer = door.ask("POST", "/v1/topics/plant/batches", b"\0" * 11)
    assert (status, answer["code"]) == (400, "invalid_body")
    status, answer = door.ask("POST", "/v1/topics/plant/batches", b"\0\0\0\0\x50\0\0\0" + b"x" * 80)
    assert (status, answer["code"]) == (400, "unsupported_batch")
    status, answer = door.ask("POST", "/v1/topics/nowhere/batches", b"\0\0\0\0\x50\0\0\0" + b"x" * 80)
    assert (status, answer["code"]) == (404, "unknown_topic")
    assert json.dumps(door.bounds("plant")) == "[[0, 0]]"
