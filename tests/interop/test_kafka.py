"""The Kafka door with stock clients against a real hub: kcat, librdkafka, aiokafka, kafka-python."""
from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.protocol.consumer import FetchResponse
from kafka.structs import OffsetAndMetadata
from paho.mqtt.enums import CallbackAPIVersion

from tests.gateways.kafka.batches import batch
from tests.gateways.kafka.judge import decoded, fetch, framed, produce
from tests.running_hub import RunningHub, config_of, sound_hub

WAIT_S = 60
FETCH_MS = 20_000
DOORS = ("mqtt", "kafka")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with sound_hub(tmp_path_factory.mktemp("kafka"), config_of(DOORS, 'fsync = "commit"')) as running:
        yield running


def address(hub: RunningHub) -> str:
    return f"127.0.0.1:{hub.port('kafka')}"


# ---- kcat

def kcat(hub: RunningHub, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(["kcat", "-b", address(hub), "-m", str(WAIT_S), *arguments], input=stdin,
                          capture_output=True, text=True, timeout=WAIT_S, check=True)
    return done.stdout


def test_kcat_produces_and_reads_back(hub: RunningHub) -> None:
    kcat(hub, "-P", "-t", "by-kcat", "-p", "2", "-K:", stdin="a:1\nb:2\na:3\n")
    assert kcat(hub, "-C", "-t", "by-kcat", "-p", "2", "-e", "-q", "-f", "%o %k=%s\n") == "0 a=1\n1 b=2\n2 a=3\n"
    assert kcat(hub, "-C", "-t", "by-kcat", "-p", "2", "-e", "-q", "-o", "-1", "-f", "%s") == "3"


def test_kcat_lists_the_topic_and_finds_an_offset_by_time(hub: RunningHub) -> None:
    kcat(hub, "-P", "-t", "listed", "-p", "0", stdin="1\n")
    assert 'topic "listed" with 4 partitions' in kcat(hub, "-L", "-t", "listed")
    assert kcat(hub, "-Q", "-t", "listed:0:1") == "listed [0] offset 0\n"


# ---- librdkafka

def librdkafka_producer(hub: RunningHub, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": address(hub), "enable.idempotence": True, "linger.ms": 5,
                     "reconnect.backoff.max.ms": 500,
                     **{name.replace("_", "."): value for name, value in settings.items()}})


def librdkafka_consumer(hub: RunningHub, topic: str, partitions: int = 4) -> Consumer:
    consumer = Consumer({"bootstrap.servers": address(hub), "group.id": "tests", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    return consumer


def receive(consumer: Consumer, count: int) -> list[Message]:
    got: list[Message] = []
    while len(got) < count:
        messages = consumer.consume(count - len(got), WAIT_S)
        assert messages, f"{len(got)} of {count} came"
        for message in messages:
            assert message.error() is None, message.error()
        got += messages
    return got


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_an_idempotent_producer_and_an_assigned_consumer(hub: RunningHub, codec: str) -> None:
    topic = f"rdkafka-{codec}"
    producer = librdkafka_producer(hub, compression_type=codec)
    refused: list[Any] = []
    for i in range(3000):
        producer.produce(topic, key=b"k%d" % (i % 7), value=b"value %d" % i, headers=[("n", b"%d" % i), ("none", None)],
                         timestamp=1_700_000_000_000 + i,
                         on_delivery=lambda error, _: refused.append(error) if error else None)
    assert producer.flush(WAIT_S) == 0
    assert refused == []
    consumer = librdkafka_consumer(hub, topic)
    got = receive(consumer, 3000)
    consumer.close()
    by_key: dict[bytes, list[bytes]] = {}
    for message in got:
        number = int(message.value().split()[1])
        assert message.headers() == [("n", b"%d" % number), ("none", None)]
        assert message.timestamp()[1] == 1_700_000_000_000 + number
        by_key.setdefault(message.key(), []).append(message.value())
    assert by_key == {b"k%d" % key: [b"value %d" % i for i in range(key, 3000, 7)] for key in range(7)}


def test_watermarks_offsets_by_time_and_a_seek(hub: RunningHub) -> None:
    producer = librdkafka_producer(hub)
    for i in range(100):
        producer.produce("positions", value=b"%d" % i, partition=1, timestamp=1_700_000_000_000 + 1000 * i)
        producer.flush(WAIT_S)
    consumer = librdkafka_consumer(hub, "positions")
    assert consumer.get_watermark_offsets(TopicPartition("positions", 1), WAIT_S) == (0, 100)
    found, = consumer.offsets_for_times([TopicPartition("positions", 1, 1_700_000_040_500)], WAIT_S)
    assert found.offset == 41
    consumer.assign([TopicPartition("positions", 1, 41)])
    assert [message.value() for message in receive(consumer, 59)] == [b"%d" % i for i in range(41, 100)]
    consumer.close()


def test_a_message_that_is_too_large_is_refused_and_the_next_is_taken(hub: RunningHub) -> None:
    producer = librdkafka_producer(hub, message_max_bytes=10_000_000, enable_idempotence=False)
    told: list[str] = []
    for size in (5 << 20, 100):
        producer.produce("large", bytes(size),
                         on_delivery=lambda error, _: told.append(error.name() if error else "ok"))
        assert producer.flush(WAIT_S) == 0
    assert told == ["MSG_SIZE_TOO_LARGE", "ok"]


def test_a_restart_loses_nothing_repeats_nothing_and_clients_go_on(tmp_path: Path) -> None:
    """SIGKILL in the middle of producing; producer and consumer stay as they are, the hub comes back on its port."""
    config = config_of(DOORS, 'fsync = "commit"')
    first = RunningHub(tmp_path, config)
    second: RunningHub | None = None
    try:
        first.wait_ready()
        producer = librdkafka_producer(first)
        acked: list[int] = []
        for i in range(500):
            producer.produce("survivors", b"%d" % i, partition=0,
                             on_delivery=lambda error, message: None if error else acked.append(int(message.value())))
        assert producer.flush(WAIT_S) == 0
        consumer = librdkafka_consumer(first, "survivors", 1)
        assert len(receive(consumer, 500)) == 500
        for i in range(500, 1000):
            producer.produce("survivors", b"%d" % i, partition=0,
                             on_delivery=lambda error, message: None if error else acked.append(int(message.value())))
            producer.poll(0)
        first.kill()
        second = RunningHub(tmp_path, config)
        second.wait_ready()
        for i in range(1000, 1500):
            producer.produce("survivors", b"%d" % i, partition=0,
                             on_delivery=lambda error, message: None if error else acked.append(int(message.value())))
        assert producer.flush(2 * WAIT_S) == 0
        assert acked == list(range(1500))
        assert [int(message.value()) for message in receive(consumer, 1000)] == list(range(500, 1500))
        consumer.close()
        code, said = second.stop()
        assert (code, "Traceback" in said) == (0, False), said
    finally:
        for running in (first, second):
            if running is not None:
                running.kill()


def test_a_group_that_assigns_for_itself_commits_and_goes_on_from_there(hub: RunningHub) -> None:
    """librdkafka, kafka-python and aiokafka share the group's offsets, which the disk has."""
    producer = Producer({"bootstrap.servers": address(hub), "compression.type": "lz4"})
    for i in range(100):
        producer.produce("committed", b"%d" % i, partition=0)
    assert producer.flush(WAIT_S) == 0
    by_librdkafka = Consumer({"bootstrap.servers": address(hub), "group.id": "own", "enable.auto.commit": False})
    by_librdkafka.commit(offsets=[TopicPartition("committed", 0, 40)], asynchronous=False)
    by_python = KafkaConsumer(bootstrap_servers=address(hub), group_id="own", enable_auto_commit=False)
    by_python.assign([PythonTopicPartition("committed", 0)])
    page = by_python.poll(timeout_ms=WAIT_S * 1000, max_records=1)
    assert [record.offset for records in page.values() for record in records] == [40]
    by_python.commit({PythonTopicPartition("committed", 0): OffsetAndMetadata(40, "so far", -1)})
    assert by_python.committed(PythonTopicPartition("committed", 0), metadata=True).metadata == "so far"
    by_python.close()

    async def run() -> tuple[int | None, int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=address(hub), group_id="own", enable_auto_commit=False)
        await consumer.start()
        partition = AioTopicPartition("committed", 0)
        consumer.assign([partition])
        message = await asyncio.wait_for(consumer.getone(), WAIT_S)
        await consumer.commit({partition: message.offset + 1})
        committed = await consumer.committed(partition)
        await consumer.stop()
        return committed, message.offset

    assert asyncio.run(run()) == (41, 40)
    by_librdkafka.assign([TopicPartition("committed", 0)])
    message = by_librdkafka.poll(WAIT_S)
    assert message is not None and message.offset() == 41
    by_librdkafka.close()


def test_librdkafka_compresses_by_lz4(hub: RunningHub) -> None:
    """It takes a broker without FindCoordinator for one that is too old for lz4."""
    producer = Producer({"bootstrap.servers": address(hub), "compression.type": "lz4", "linger.ms": 100})
    for _ in range(100):
        producer.produce("by-lz4", b"x" * 1000, partition=0)
    assert producer.flush(WAIT_S) == 0
    with socket.create_connection(("127.0.0.1", hub.port("kafka"))) as connection:
        connection.sendall(framed(fetch(11, {("by-lz4", 0): 0}, max_wait_ms=FETCH_MS), 5))
        size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
        answer = decoded(FetchResponse, 11, connection.recv(size, socket.MSG_WAITALL), 5)
    records = answer.responses[0].partitions[0].records
    assert records[22] & 0x07 == 3 and len(records) < 10_000


# ---- aiokafka

def test_aiokafka_produces_and_consumes(hub: RunningHub) -> None:
    async def run() -> tuple[list[bytes | None], dict[Any, int]]:
        producer = AIOKafkaProducer(bootstrap_servers=address(hub), enable_idempotence=True)
        await producer.start()
        for i in range(300):
            await producer.send("by-aiokafka", b"%d" % i, partition=i % 4)
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=address(hub))
        await consumer.start()
        partitions = [AioTopicPartition("by-aiokafka", index) for index in range(4)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        values = [(await asyncio.wait_for(consumer.getone(), WAIT_S)).value for _ in range(300)]
        ends = await consumer.end_offsets(partitions)
        await consumer.stop()
        return values, ends

    values, ends = asyncio.run(run())
    assert sorted(int(value or b"") for value in values) == list(range(300))
    assert set(ends.values()) == {75}


# ---- kafka-python

def test_kafka_python_makes_a_topic_and_uses_it(hub: RunningHub) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address(hub))
    admin.create_topics([NewTopic("by-kafka-python", 3, 1)])
    assert "by-kafka-python" in admin.list_topics()
    admin.close()
    producer = KafkaProducer(bootstrap_servers=address(hub))
    for i in range(300):
        producer.send("by-kafka-python", b"%d" % i, partition=i % 3)
    producer.flush(WAIT_S)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=address(hub), enable_auto_commit=False)
    partitions = [PythonTopicPartition("by-kafka-python", index) for index in range(3)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    got = [int(next(consumer).value) for _ in range(300)]
    assert set(consumer.end_offsets(partitions).values()) == {100}
    consumer.close()
    assert sorted(got) == list(range(300))


# ---- many partitions, by hand

class Wire:
    """A connection that sends requests as kafka-python's classes encode them."""

    def __init__(self, hub: RunningHub) -> None:
        self.socket = socket.create_connection(("127.0.0.1", hub.port("kafka")), WAIT_S)
        self.stream = self.socket.makefile("rb")

    def ask(self, request: Any) -> bytes:
        """The answer's frame without its size."""
        self.socket.sendall(framed(request, 1))
        size, = struct.unpack(">i", self.stream.read(4))
        frame = self.stream.read(size)
        assert len(frame) == size
        return frame

    def close(self) -> None:
        self.stream.close()
        self.socket.close()


def test_ten_thousand_partitions_in_every_fetch(hub: RunningHub) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address(hub))
    admin.create_topics([NewTopic("wide", 10_000, 1)])
    admin.close()
    wire, other = Wire(hub), Wire(hub)
    wanted = [1, 5_000, 9_999]
    offsets = {("wide", index): 0 for index in range(10_000)}
    for round_ in range(3):
        append = produce(7, {("wide", index): batch(b"a") for index in wanted})
        waiting = threading.Timer(0.05, other.ask, (append,))
        waiting.start()
        parts: list[Any] = []
        while not any(part.records for part in parts):
            answer = decoded(FetchResponse, 11, wire.ask(fetch(11, offsets, max_wait_ms=FETCH_MS, max_bytes=4 << 20)))
            parts = answer.responses[0].partitions
        waiting.join()
        assert [part.partition_index for part in parts] == list(range(10_000))
        assert {part.error_code for part in parts} == {0}
        assert [part.partition_index for part in parts if part.records] == wanted
        for index in wanted:
            assert parts[index].high_watermark == round_ + 1
            offsets["wide", index] = round_ + 1
    wire.close()
    other.close()


# ---- through other doors

def mqtt_client(hub: RunningHub) -> paho.Client:
    connected = threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.on_connect = lambda *_: connected.set()
    client.connect("127.0.0.1", hub.port("mqtt"))
    client.loop_start()
    assert connected.wait(WAIT_S)
    return client


def test_what_comes_by_mqtt_is_read_by_kafka(hub: RunningHub) -> None:
    client = mqtt_client(hub)
    for i in range(50):
        client.publish("from-mqtt/line1/temp", b"%d" % i, qos=1).wait_for_publish(WAIT_S)
    consumer = librdkafka_consumer(hub, "from-mqtt")
    got = receive(consumer, 50)
    consumer.close()
    client.loop_stop()
    assert [(message.key(), message.value()) for message in got] == [(b"line1/temp", b"%d" % i) for i in range(50)]
    assert len({message.partition() for message in got}) == 1


def test_what_comes_by_kafka_is_delivered_by_mqtt(hub: RunningHub) -> None:
    client = mqtt_client(hub)
    subscribed, delivered, got = threading.Event(), threading.Event(), []

    def on_message(_client: Any, _data: Any, message: Any) -> None:
        got.append((message.topic, message.payload))
        if len(got) == 50:
            delivered.set()

    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = on_message
    client.subscribe("from-kafka/#", 1)
    assert subscribed.wait(WAIT_S)
    producer = librdkafka_producer(hub, compression_type="gzip")
    for i in range(50):
        producer.produce("from-kafka", key=b"line2/temp", value=b"%d" % i)
    assert producer.flush(WAIT_S) == 0
    assert delivered.wait(WAIT_S)
    client.loop_stop()
    assert got == [("from-kafka/line2/temp", b"%d" % i) for i in range(50)]
