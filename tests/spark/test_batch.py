"""Batches read from a real hub by a real Spark."""
from __future__ import annotations

import json
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pika
import pytest
from confluent_kafka import Producer
from paho.mqtt.publish import single
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from gatehouse.spark.schema import COLUMNS
from tests.interop.guarded_hub import PASSWORD, guarded_hub
from tests.interop.test_rights import http
from tests.running_hub import DEADLINE_S, RunningHub
from tests.spark.conftest import Reading
from tests.spark.door import HttpDoor


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def refusal(frame_of: Any) -> str:
    with pytest.raises(PySparkException) as raised:
        frame_of().collect()
    return str(raised.value)


def test_every_doors_messages_are_rows(hub: RunningHub, door: HttpDoor, reading: Reading) -> None:
    door.ask("POST", "/v1/publish/plant/line1/temp", b"21.5", **{"Content-Type": "text/plain", "X-Header-Unit": "C"})
    single("plant/line2/temp", b"19.0", qos=1, port=hub.port("mqtt"), hostname="127.0.0.1")
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{hub.port('kafka')}", "compression.type": "zstd"})
    producer.produce("plant", b"23.1", b"line3/temp", headers=[("a", b"1")], timestamp=1_600_000_000_000)
    assert producer.flush(DEADLINE_S) == 0
    frame = reading.batch()
    assert frame.columns == list(COLUMNS)
    rows = {row.address: row for row in frame.collect()}
    assert {(row.door, bytes(row.value)) for row in rows.values()} == {
        ("http", b"21.5"), ("mqtt", b"19.0"), ("kafka", b"23.1")}
    http, kafka = rows["plant/line1/temp"], rows["plant/line3/temp"]
    assert (http.content_type, http.headers[-1].key, bytes(http.headers[-1].value)) == ("text/plain", "unit", b"C")
    assert http.timestamp == http.append_time
    assert kafka.timestamp == datetime.fromtimestamp(1_600_000_000, UTC).replace(tzinfo=None)
    assert abs((kafka.append_time - http.append_time).total_seconds()) < 60
    assert {row.envelope.durable for row in rows.values()} == {True}
    assert len({row.message_id for row in rows.values()}) == 3


def test_columns_by_option_and_by_schema(door: HttpDoor, reading: Reading, spark: SparkSession) -> None:
    door.publish("plant", 10)
    assert reading.batch(columns="offset, partition,value").columns == ["offset", "partition", "value"]
    frame = spark.read.format("gatehouse").schema("value binary, key binary").options(
        url=door.url, subscribe="plant").load()
    assert sorted(bytes(row.key) for row in frame.collect()) == sorted(b"k%d" % i for i in range(10))
    assert "there is no column 'valu'" in refusal(lambda: reading.batch(columns="valu"))


def test_offsets_times_and_assignment(hub: RunningHub, door: HttpDoor, reading: Reading) -> None:
    door.ask("PUT", "/v1/topics/plant", {"partitions": 2})
    base = 1_700_000_000_000
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{hub.port('kafka')}"})
    for i in range(20):
        producer.produce("plant", b"%d" % i, b"k%d" % i, timestamp=base + i * 1000)
    assert producer.flush(DEADLINE_S) == 0
    (_, end0), (_, end1) = door.bounds("plant")
    places = json.dumps({"plant": {"0": 2, "1": -2}})
    ends = json.dumps({"plant": {"0": end0 - 1, "1": -1}})
    assert reading.batch(startingOffsets=places, endingOffsets=ends).count() == end0 - 3 + end1
    since = datetime.fromtimestamp(base / 1000 + 15, UTC).isoformat()
    assert numbers(reading.batch(startingOffsets=since)) == list(range(15, 20))
    assert numbers(reading.batch(startingTimestamp=base + 4000, endingTimestamp=base + 900_000)) == list(range(4, 20))
    by_partition = json.dumps({"plant": {"0": base + 10_000, "1": base + 10_000}})
    assert numbers(reading.batch(startingOffsetsByTimestamp=by_partition)) == list(range(10, 20))
    assert "has to name every partition" in refusal(
        lambda: reading.batch(startingOffsetsByTimestamp=json.dumps({"plant": {"0": base}})))
    assert "has to name every partition" in refusal(
        lambda: reading.batch(startingOffsetsByTimestamp=json.dumps({"plnat": {"0": base, "1": base}})))
    assert reading.batch(assign='{"plant": [1]}').count() == end1
    assert "partition 0 of 'plant' ends at" in refusal(
        lambda: reading.batch(startingOffsets=json.dumps({"plant": {"0": end0 + 1, "1": 0}})))
    assert "has to name every partition" in refusal(lambda: reading.batch(startingOffsets='{"plant": {"0": 1}}'))


def test_lists_patterns_and_address_filters(door: HttpDoor, reading: Reading) -> None:
    for topic in ("plant", "plants", "fleet"):
        door.publish(topic, 5)
    assert reading.batch(subscribe="plant,fleet").count() == 10
    assert {row.topic for row in reading.batch(subscribePattern="plan.*").collect()} == {"plant", "plants"}
    assert [row.address for row in reading.batch(filter="plant/k3").collect()] == ["plant/k3"]
    found = reading.batch(filter="+/k3").collect()
    assert sorted(row.address for row in found) == ["fleet/k3", "plant/k3", "plants/k3"]
    assert reading.batch(filter="fleet/#").count() == 5
    assert "there is no topic 'plnat'" in refusal(lambda: reading.batch(subscribe="plnat"))


def test_tasks_share_the_rows_evenly(door: HttpDoor, reading: Reading) -> None:
    door.publish("plant", 1000)
    frame = reading.batch(minPartitions=7)
    sizes = frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert len(sizes) == 7
    assert max(sizes) - min(sizes) <= 1
    assert numbers(frame) == list(range(1000))


@pytest.mark.parametrize("enabled", ["false", "true"])
def test_filters_give_the_same_whether_they_are_pushed_or_not(door: HttpDoor, reading: Reading, spark: SparkSession,
                                                             enabled: str) -> None:
    door.publish("plant", 300, timestamp=1_700_000_000_000)
    door.publish("fleet", 10)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", enabled)
    try:
        frame = reading.batch(subscribe="plant,fleet")
        assert numbers(frame.where("key = cast('k7' as binary)")) == [7, 7]
        two = frame.where("key in (cast('k7' as binary), cast('k299' as binary)) and topic = 'plant'")
        assert numbers(two) == [7, 299]
        assert frame.where("topic = 'fleet'").count() == 10
        assert frame.where("timestamp >= '2024-01-01'").count() == 10
        assert frame.where("timestamp >= '1960-01-01'").count() == 310
        assert numbers(frame.where("key in (cast('k7' as binary), null)")) == [7, 7]
        assert frame.count() == 310              # Spark keeps what a filter before it has made of the frame
        assert frame.where("partition = 1 or topic = 'fleet'").count() >= 10
        assert frame.where("partition = 1 and partition = 2").count() == 0
        assert frame.where("key = cast('k1' as binary) and key = cast('k2' as binary)").count() == 0
        assert frame.where("offset = 0 and topic = 'plant'").count() == 4
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_opened_in_the_worker(hub: RunningHub, reading: Reading, codec: str) -> None:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{hub.port('kafka')}", "compression.type": codec,
                         "linger.ms": 50})
    for i in range(2000):
        producer.produce("plant", b"%d" % i, b"k%d" % i)
    assert producer.flush(DEADLINE_S) == 0
    assert numbers(reading.batch(columns="value", fetchBytes=20_000)) == list(range(2000))


def test_what_is_wrong_is_said(door: HttpDoor, reading: Reading, spark: SparkSession) -> None:
    door.publish("plant", 1)
    assert "did you mean 'startingOffsets'?" in refusal(lambda: reading.batch(startingOfsets="earliest"))
    assert "'minPartitions' is a whole number" in refusal(lambda: reading.batch(minPartitions="few"))
    assert "cannot be 'latest'" in refusal(lambda: reading.batch(startingOffsets="latest"))
    assert "belongs to a Kafka client" in refusal(lambda: reading.batch(**{"kafka.bootstrap.servers": "x:1"}))
    assert "exactly one of" in refusal(lambda: reading.batch(subscribe="plant", filter="plant/#"))
    assert "option 'url' is needed" in refusal(
        lambda: spark.read.format("gatehouse").option("subscribe", "plant").load())
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))           # nobody else gets it, and nobody listens
        assert "does not answer" in refusal(lambda: spark.read.format("gatehouse").options(
            url=f"http://127.0.0.1:{nobody.getsockname()[1]}", subscribe="plant", retrySeconds=0).load())


def test_wrong_credentials_are_refused_in_the_hubs_words(reading: Reading, door: HttpDoor) -> None:
    door.publish("plant", 1)
    assert "401 not_authenticated" in refusal(lambda: reading.batch(user="nobody", password="wrong"))


def test_an_empty_topic_has_no_rows(door: HttpDoor, reading: Reading) -> None:
    door.ask("PUT", "/v1/topics/plant")
    assert reading.batch().count() == 0


def test_the_principal_is_who_published(tmp_path: Path, spark: SparkSession) -> None:
    """To an administrator everybody, to others themselves; nobody's where a client was nobody."""
    with guarded_hub(tmp_path) as hub:
        url = f"http://127.0.0.1:{hub.ports('http')[0]}"
        for number, user in enumerate(["root", "ada", "ada", "root", "ada"]):
            status, _ = http(hub, "POST", f"/v1/publish/open/{number}", b"%d" % number, user=user)
            assert status == 201
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311)
        client.username_pw_set("ada", PASSWORD)
        client.connect("127.0.0.1", hub.ports("mqtt")[0])
        client.loop_start()
        client.publish("open/5", b"5", qos=1).wait_for_publish(DEADLINE_S)
        client.disconnect()
        client.loop_stop()
        connection = pika.BlockingConnection(pika.ConnectionParameters(
            "127.0.0.1", hub.ports("amqp")[0], credentials=pika.PlainCredentials("ada", PASSWORD)))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("amq.topic", "open.8", b"8", pika.BasicProperties(headers={"unit": "C"}, app_id="x"))
        connection.close()
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{hub.ports('kafka')[0]}", "compression.type": "gzip",
                             "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256",
                             "sasl.username": "ada", "sasl.password": PASSWORD, "linger.ms": 50})
        for number in (6, 7):
            producer.produce("open", b"%d" % number, b"%d" % number)
        assert producer.flush(DEADLINE_S) == 0

        def principals(user: str, **options: Any) -> dict[int, str | None]:
            rows = spark.read.format("gatehouse").options(
                url=url, subscribe="open", user=user, password=PASSWORD, **options).load().collect()
            return {int(bytes(row.value)): row.principal for row in rows}

        ada = dict.fromkeys((1, 2, 4, 5, 6, 7, 8), "ada")
        assert principals("root") == {0: "root", 3: "root", **ada}
        assert principals("ada") == {0: None, 3: None, **ada}


def test_what_is_written_with_the_headers_that_were_read_is_of_the_same_trace(door: HttpDoor, reading: Reading) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    for number in range(3):
        door.ask("POST", f"/v1/publish/plant/{number}", b"%d" % number,
                 traceparent=f"00-{trace[:-1]}{number}-b7ad6b7169203331-01", **{"X-Header-Unit": "C"})
    frame = reading.batch().selectExpr("key", "upper(cast(value as string)) value", "headers")
    frame.write.format("gatehouse").options(url=door.url, topic="results").mode("append").save()
    written = {int(bytes(row.value)): (row.trace_id, row.headers[-1].key)
               for row in reading.batch(subscribe="results").collect()}
    assert written == {number: (f"{trace[:-1]}{number}", "unit") for number in range(3)}
