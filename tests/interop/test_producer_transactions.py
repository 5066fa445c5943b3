"""Kafka's transactions with stock clients against a real hub: librdkafka, aiokafka, kafka-python, KafkaJS."""
from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from gatehouse_client import SyncClient
from scripts.stock_clients import kafkajs
from tests.interop.test_kafka import WAIT_S, address
from tests.interop.test_transactions_mqtt import Peer as MqttPeer
from tests.running_hub import RunningHub, config_of, sound_hub

DOORS = ("mqtt", "http", "amqp", "kafka")
FSYNC = 'fsync = "commit"'


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with sound_hub(tmp_path_factory.mktemp("hub"), config_of(DOORS, FSYNC)) as running:
        yield running


def producer(hub: RunningHub, name: str, **settings: str) -> Producer:
    made = Producer({"bootstrap.servers": address(hub), "transactional.id": name, "linger.ms": 1,
                     "metadata.recovery.strategy": "none", **settings})      # see the door's README
    made.init_transactions(WAIT_S)
    return made


def consumer(hub: RunningHub, group: str, *topics: str) -> Consumer:
    made = Consumer({"bootstrap.servers": address(hub), "group.id": group, "auto.offset.reset": "earliest",
                     "isolation.level": "read_committed", "enable.auto.commit": False, "session.timeout.ms": 6000})
    made.subscribe(list(topics))
    return made


def take(reader: Consumer, count: int) -> list[Any]:
    """So many messages, or what there is when it has been silent for long."""
    messages: list[Any] = []
    while len(messages) < count:
        message = reader.poll(WAIT_S)
        assert message is not None and message.error() is None, message
        messages.append(message)
    return messages


def make_topics(hub: RunningHub, *names: str, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": address(hub)})
    for made in admin.create_topics([NewTopic(name, partitions) for name in names]).values():
        made.result(WAIT_S)


def test_every_door_sees_a_transaction_when_it_is_committed(hub: RunningHub) -> None:
    make_topics(hub, "plant", partitions=1)
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp"))) as amqp, \
            SyncClient(f"http://127.0.0.1:{hub.port('http')}") as http:
        channel = amqp.channel()
        channel.queue_declare("bound")
        channel.queue_bind("bound", "amq.topic", "plant.#")
        mqtt = MqttPeer(hub, "subscriber")
        assert mqtt.subscribe("plant/#") == [1]
        sender = producer(hub, "doors")
        for commits in (False, True):
            sender.begin_transaction()
            sender.produce("plant", b"committed" if commits else b"rolled back", b"line1")
            assert sender.flush(WAIT_S) == 0
            assert list(http.read("plant")) == []
            assert channel.basic_get("bound", auto_ack=True)[2] is None
            if commits:
                sender.commit_transaction(WAIT_S)
            else:
                sender.abort_transaction(WAIT_S)
        heard = mqtt.inbox.get(timeout=WAIT_S)
        assert (heard.topic, heard.payload) == ("plant/line1", b"committed")
        assert [message.value for message in http.read("plant")] == [b"committed"]
        assert channel.basic_get("bound", auto_ack=True)[2] == b"committed"
        mqtt.close()


def test_offsets_go_with_the_commit_and_zombies_are_fenced(hub: RunningHub) -> None:
    make_topics(hub, "orders", "bills")
    plain = Producer({"bootstrap.servers": address(hub)})
    for number in range(20):
        plain.produce("orders", b"%d" % number, partition=number % 2)
    assert plain.flush(WAIT_S) == 0
    reader, sender = consumer(hub, "billing", "orders"), producer(hub, "billing")
    orders = take(reader, 20)
    for commits in (False, True):
        sender.begin_transaction()
        for order in orders:
            sender.produce("bills", order.value(), order.value())
        sender.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata(),
                                           WAIT_S)
        if commits:
            sender.commit_transaction(WAIT_S)
        else:
            sender.abort_transaction(WAIT_S)
        committed = sorted(part.offset for part in reader.committed(reader.assignment(), WAIT_S))
        assert committed == ([10, 10] if commits else [-1001, -1001])
    reader.close()
    audit = consumer(hub, "audit", "bills")
    assert sorted(int(bill.value()) for bill in take(audit, 20)) == list(range(20))
    assert audit.poll(1) is None
    audit.close()
    sender.begin_transaction()
    sender.produce("bills", b"of a zombie")
    producer(hub, "billing")                     # takes over
    with pytest.raises(KafkaException) as fenced:
        sender.commit_transaction(WAIT_S)
    assert fenced.value.args[0].fatal()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_compressed_is_committed_while_some_of_it_is_followed(hub: RunningHub, codec: str) -> None:
    """One message of a hundred is, unless the hub is told otherwise."""
    make_topics(hub, f"by-{codec}", partitions=1)
    sender = producer(hub, codec, **{"compression.type": codec})
    for turn in range(20):
        sender.begin_transaction()
        for number in range(20):
            sender.produce(f"by-{codec}", b"%d " % (20 * turn + number) * 50)
        sender.commit_transaction(WAIT_S)
    reader = consumer(hub, codec, f"by-{codec}")
    assert [int(message.value().split()[0]) for message in take(reader, 400)] == list(range(400))
    reader.close()


def test_a_topic_that_is_set_otherwise_meanwhile_has_the_transaction_rolled_back(hub: RunningHub) -> None:
    make_topics(hub, "changing", "other", partitions=1)
    admin = AdminClient({"bootstrap.servers": address(hub)})
    sender = producer(hub, "changing")
    sender.begin_transaction()
    for topic in ("changing", "other"):
        sender.produce(topic, b"without a key")
    assert sender.flush(WAIT_S) == 0
    compact = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    for changed in admin.incremental_alter_configs([ConfigResource(
            ConfigResource.Type.TOPIC, "changing", incremental_configs=[compact])]).values():
        changed.result(WAIT_S)
    with pytest.raises(KafkaException) as refused:
        sender.commit_transaction(WAIT_S)
    assert refused.value.args[0].txn_requires_abort()
    sender.abort_transaction(WAIT_S)
    sender.begin_transaction()
    for topic in ("changing", "other"):
        sender.produce(topic, b"with a key", b"key")
    sender.commit_transaction(WAIT_S)
    reader = consumer(hub, "changing", "changing", "other")
    assert [message.value() for message in take(reader, 2)] == 2 * [b"with a key"]
    reader.close()


def test_a_group_that_is_deleted_does_not_come_back_with_a_commit(hub: RunningHub) -> None:
    make_topics(hub, "read", "written", partitions=1)
    admin = AdminClient({"bootstrap.servers": address(hub)})
    plain = Producer({"bootstrap.servers": address(hub)})
    plain.produce("read", b"1")
    assert plain.flush(WAIT_S) == 0
    reader, sender = consumer(hub, "leaving", "read"), producer(hub, "leaving")
    take(reader, 1)
    reader.commit(asynchronous=False)
    sender.begin_transaction()
    sender.produce("written", b"1")
    sender.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata(), WAIT_S)
    reader.close()
    for deleted in admin.delete_consumer_groups(["leaving"]).values():
        deleted.result(WAIT_S)
    sender.commit_transaction(WAIT_S)
    assert "leaving" not in [group.group_id for group in admin.list_consumer_groups().result(WAIT_S).valid]


def test_clients_of_python(hub: RunningHub) -> None:
    make_topics(hub, "by-python", partitions=1)

    async def run() -> None:
        member = AIOKafkaConsumer("by-python", bootstrap_servers=address(hub), group_id="python",
                                  enable_auto_commit=False)
        await member.start()
        sender = AIOKafkaProducer(bootstrap_servers=address(hub), transactional_id="aiokafka")
        await sender.start()
        with pytest.raises(ZeroDivisionError):
            async with sender.transaction():
                await sender.send_and_wait("by-python", b"never")
                raise ZeroDivisionError
        async with sender.transaction():
            await sender.send_and_wait("by-python", b"aiokafka")
            await sender.send_offsets_to_transaction({AioTopicPartition("by-python", 0): 1}, "python")
        await sender.stop()
        assert await member.committed(AioTopicPartition("by-python", 0)) == 1
        await member.stop()

    asyncio.run(asyncio.wait_for(run(), WAIT_S))
    sender = KafkaProducer(bootstrap_servers=address(hub), transactional_id="kafka-python")
    sender.init_transactions()
    for value, commits in ((b"never", False), (b"kafka-python", True)):
        sender.begin_transaction()
        assert sender.send("by-python", value).get(WAIT_S).offset == -1
        if commits:
            sender.commit_transaction()
        else:
            sender.abort_transaction()
    sender.close()
    reader = KafkaConsumer("by-python", bootstrap_servers=address(hub), auto_offset_reset="earliest",
                           isolation_level="read_committed")
    assert [next(reader).value for _ in range(2)] == [b"aiokafka", b"kafka-python"]
    reader.close()


def test_kafkajs(hub: RunningHub) -> None:
    program = Path(__file__).with_name("kafkajs_transactions.js")
    done = subprocess.run(["node", str(program), address(hub), "by-js", "js"], text=True, capture_output=True,
                          timeout=WAIT_S, check=False, env={**os.environ, "NODE_PATH": str(kafkajs() / "node_modules")})
    assert done.returncode == 0, done.stderr


def test_each_message_is_carried_over_once_while_the_hub_is_killed(tmp_path: Path) -> None:
    """Read, write and commit in one transaction after the other; the hub is killed in the middle of them."""
    config, count = config_of(DOORS, FSYNC), 1_200
    running = RunningHub(tmp_path, config)
    try:
        running.wait_ready()
        make_topics(running, "in", "out")
        plain = Producer({"bootstrap.servers": address(running)})
        for number in range(count):
            plain.produce("in", b"%d" % number, partition=number % 2)
        assert plain.flush(WAIT_S) == 0
        reader, sender = consumer(running, "carriers", "in"), producer(running, "carrier")
        carried = kills = 0
        deadline = time.monotonic() + 2 * WAIT_S
        while carried < count:
            assert time.monotonic() < deadline, f"{carried} of {count}"
            messages = [message for message in reader.consume(50, 1) if message.error() is None]
            if not messages:
                continue
            sender.begin_transaction()
            for message in messages:
                sender.produce("out", message.value(), partition=message.partition())
            if carried > (kills + 1) * count // 5:
                kills += 1
                sender.poll(0)
                running.kill()
                running = RunningHub(tmp_path, config)
                running.wait_ready()
            end(sender, reader, messages)
            carried = sum(part.offset for part in reader.committed(
                [TopicPartition("in", number) for number in (0, 1)], WAIT_S) if part.offset > 0)
        assert kills >= 3
        reader.close()
        audit = consumer(running, "audit", "out")
        there = take(audit, count)
        assert audit.poll(1) is None
        audit.close()
        for partition in (0, 1):
            mine = [int(message.value()) for message in there if message.partition() == partition]
            assert mine == list(range(partition, count, 2))
    finally:
        running.kill()


def end(sender: Producer, reader: Consumer, messages: list[Any]) -> None:
    """As librdkafka's own examples do: again where it may be, or roll back and read once more."""
    positions = reader.position(reader.assignment())
    steps = [lambda: sender.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), WAIT_S),
             lambda: sender.commit_transaction(WAIT_S)]
    while steps:
        try:
            steps[0]()
            steps.pop(0)
        except KafkaException as error:
            if error.args[0].retriable():
                continue
            assert error.args[0].txn_requires_abort(), error
            sender.abort_transaction(WAIT_S)
            for partition in reader.committed(reader.assignment(), WAIT_S):
                partition.offset = max(partition.offset, 0)
                reader.seek(partition)
            return
