"""Consumer groups with stock clients against a real hub: librdkafka, kafka-python, aiokafka, kcat."""
from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import GroupIdNotFoundError, NonEmptyGroupError
from kafka.structs import OffsetAndMetadata

from tests.interop.asking import ask
from tests.running_hub import COMMAND_LINE, ROOT, RunningHub, config_of, sound_hub

WAIT_S = 60
PARTITIONS = 4
SETTINGS = "group_min_session_timeout_ms = 500\ngroup_initial_rebalance_delay_ms = 100\n"

MEMBER = """
import json, sys
from confluent_kafka import Consumer
consumer = Consumer(json.loads(sys.argv[1]))
consumer.subscribe([sys.argv[2]])
while True:
    consumer.poll(0.1)
    print(len(consumer.assignment()), flush=True)
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    config = config_of(("http", "kafka"), 'fsync = "commit"') + SETTINGS
    with sound_hub(tmp_path_factory.mktemp("groups"), config) as running:
        yield running


def address(hub: RunningHub) -> str:
    return f"127.0.0.1:{hub.port('kafka')}"


def fill(hub: RunningHub, topic: str, count: int = 100, first: int = 0) -> None:
    """Messages that are numbers, over all partitions in turn."""
    if not first:
        admin = KafkaAdminClient(bootstrap_servers=address(hub))
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        admin.close()
    producer = Producer({"bootstrap.servers": address(hub)})
    for i in range(first, first + count):
        producer.produce(topic, b"%d" % i, partition=i % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def consumer_of(hub: RunningHub, group: str, **settings: Any) -> Consumer:
    return Consumer({"bootstrap.servers": address(hub), "group.id": group, "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, "session.timeout.ms": 30_000, "heartbeat.interval.ms": 200,
                     **{name.replace("_", "."): value for name, value in settings.items()}})


def poll_until(done: Callable[[], object], *consumers: Consumer) -> list[Any]:
    """Poll them in turn until it is so; what they were given."""
    messages: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None:
                assert message.error() is None, message.error()
                messages.append(message)
    return messages


@contextmanager
def member_that_is_killed(topic: str, settings: dict[str, Any]) -> Iterator[Callable[[], int]]:
    """A consumer in a process of its own, and how many partitions it has; at the end SIGKILL.

    What it says is read beside the test: the other members must go on polling, or they take and give no partitions.
    """
    process = subprocess.Popen([sys.executable, "-c", MEMBER, json.dumps(settings), topic], cwd=ROOT,
                               stdout=subprocess.PIPE, text=True)
    lines = process.stdout
    assert lines is not None
    counts = [0]

    def listen() -> None:
        for line in lines:
            counts.append(int(line))

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        yield lambda: counts[-1]
    finally:
        process.kill()
        process.wait()
        listener.join()
        lines.close()


def read(consumer: Consumer, count: int) -> list[int]:
    numbers: list[int] = []
    while len(numbers) < count:
        message = consumer.poll(WAIT_S)
        assert message is not None and message.error() is None, message and message.error()
        numbers.append(int(message.value()))
    return sorted(numbers)


def group_of(hub: RunningHub, name: str) -> dict[str, Any]:
    admin = KafkaAdminClient(bootstrap_servers=address(hub))
    try:
        described: dict[str, Any] = admin.describe_groups([name])[name]
        return described
    finally:
        admin.close()


# ---- one client's first hour

def test_librdkafka_reads_in_a_group_commits_and_goes_on_from_there(hub: RunningHub) -> None:
    fill(hub, "first-rd")
    consumer = consumer_of(hub, "rd")
    consumer.subscribe(["first-rd"])
    assert read(consumer, 100) == list(range(100))
    consumer.commit(asynchronous=False)
    consumer.close()
    fill(hub, "first-rd", 20, 100)
    again = consumer_of(hub, "rd")
    again.subscribe(["first-rd"])
    assert read(again, 20) == list(range(100, 120))
    again.close()


def test_kafka_python_reads_in_a_group_commits_and_goes_on_from_there(hub: RunningHub) -> None:
    fill(hub, "first-py")
    for expected in (range(100), range(100, 120)):
        consumer = KafkaConsumer("first-py", bootstrap_servers=address(hub), group_id="py",
                                 auto_offset_reset="earliest", enable_auto_commit=False)
        assert sorted(int(next(consumer).value) for _ in expected) == list(expected)
        consumer.commit()
        consumer.close()
        fill(hub, "first-py", 20, 100)


def test_aiokafka_reads_in_a_group_commits_and_goes_on_from_there(hub: RunningHub) -> None:
    fill(hub, "first-aio")

    async def run(count: int) -> list[int]:
        consumer = AIOKafkaConsumer("first-aio", bootstrap_servers=address(hub), group_id="aio",
                                    auto_offset_reset="earliest", enable_auto_commit=False)
        await consumer.start()
        numbers = [int((await asyncio.wait_for(consumer.getone(), WAIT_S)).value or b"") for _ in range(count)]
        await consumer.commit()
        await consumer.stop()
        return sorted(numbers)

    assert asyncio.run(run(100)) == list(range(100))
    fill(hub, "first-aio", 20, 100)
    assert asyncio.run(run(20)) == list(range(100, 120))


def test_kcat_reads_in_a_group(hub: RunningHub) -> None:
    fill(hub, "first-kcat", 8)
    arguments = ["kcat", "-b", address(hub), "-q", "-c", "8", "-X", "auto.offset.reset=earliest", "-G", "kcat",
                 "first-kcat"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert sorted(map(int, done.stdout.split())) == list(range(8))


# ---- several members

def test_a_second_member_takes_half_and_gives_it_back_when_it_is_killed(hub: RunningHub) -> None:
    fill(hub, "killed", 40)
    consumer = consumer_of(hub, "killed")
    consumer.subscribe(["killed"])
    poll_until(lambda: len(consumer.assignment()) == PARTITIONS, consumer)
    with member_that_is_killed("killed", {"bootstrap.servers": address(hub), "group.id": "killed",
                                          "session.timeout.ms": 2000, "heartbeat.interval.ms": 200}) as count:
        poll_until(lambda: len(consumer.assignment()) == count() == PARTITIONS // 2, consumer)
        assert len(group_of(hub, "killed")["members"]) == 2
    fill(hub, "killed", 40, 40)
    numbers = {int(message.value()) for message in poll_until(
        lambda: len(consumer.assignment()) == PARTITIONS, consumer)}
    while not set(range(40, 80)) <= numbers:
        message = consumer.poll(WAIT_S)
        assert message is not None, numbers
        numbers.add(int(message.value()))
    assert len(group_of(hub, "killed")["members"]) == 1
    consumer.close()


def test_clients_of_two_kinds_share_a_group(hub: RunningHub) -> None:
    fill(hub, "mixed", 40)
    by_librdkafka = consumer_of(hub, "mixed", partition_assignment_strategy="range")
    by_librdkafka.subscribe(["mixed"])
    poll_until(by_librdkafka.assignment, by_librdkafka)
    by_python = KafkaConsumer("mixed", bootstrap_servers=address(hub), group_id="mixed", enable_auto_commit=False,
                              heartbeat_interval_ms=200)

    def both() -> bool:
        by_python.poll(timeout_ms=50)
        return len(by_librdkafka.assignment()) == len(by_python.assignment()) == PARTITIONS // 2

    poll_until(both, by_librdkafka)
    parts = {(part.topic, part.partition) for part in [*by_librdkafka.assignment(), *by_python.assignment()]}
    assert parts == {("mixed", number) for number in range(PARTITIONS)}
    by_python.close()
    poll_until(lambda: len(by_librdkafka.assignment()) == PARTITIONS, by_librdkafka)
    by_librdkafka.close()


def test_a_static_member_is_started_again_and_nobody_else_notices(hub: RunningHub) -> None:
    fill(hub, "static", 4)
    noticed: list[int] = []
    stays = consumer_of(hub, "static", group_instance_id="a")
    stays.subscribe(["static"], on_assign=lambda _, parts: noticed.append(len(parts)))
    poll_until(stays.assignment, stays)
    restarts = consumer_of(hub, "static", group_instance_id="b")
    restarts.subscribe(["static"])
    poll_until(lambda: restarts.assignment() and len(stays.assignment()) == PARTITIONS // 2, stays, restarts)
    before, mine = list(noticed), {part.partition for part in restarts.assignment()}
    restarts.close()
    again = consumer_of(hub, "static", group_instance_id="b")
    again.subscribe(["static"])
    poll_until(again.assignment, stays, again)
    assert {part.partition for part in again.assignment()} == mine and noticed == before
    twin = consumer_of(hub, "static", group_instance_id="b")
    twin.subscribe(["static"])
    fenced: list[Any] = []
    while not fenced:
        twin.poll(0.05)
        message = again.poll(0.05)
        if message is not None and message.error() is not None:
            fenced.append(message.error())
    assert fenced[0].code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)
    for consumer in (stays, twin, again):
        consumer.close()


def test_cooperative_members_keep_what_they_have(hub: RunningHub) -> None:
    fill(hub, "coop", 4)
    revoked: list[int] = []
    first = consumer_of(hub, "coop", partition_assignment_strategy="cooperative-sticky")
    first.subscribe(["coop"], on_revoke=lambda _, parts: revoked.extend(part.partition for part in parts))
    poll_until(lambda: len(first.assignment()) == PARTITIONS, first)
    second = consumer_of(hub, "coop", partition_assignment_strategy="cooperative-sticky")
    second.subscribe(["coop"])
    poll_until(lambda: len(second.assignment()) == PARTITIONS // 2, first, second)
    assert len(revoked) == PARTITIONS // 2
    assert {part.partition for part in second.assignment()} == set(revoked)
    second.close()
    poll_until(lambda: len(first.assignment()) == PARTITIONS, first)
    assert len(revoked) == PARTITIONS // 2
    first.close()


# ---- over a crash of the hub

def test_members_go_on_in_their_generation_after_a_crash(tmp_path: Path) -> None:
    """SIGKILL while two members read: what they committed is there, and nobody's partitions are assigned anew."""
    config = config_of(("http", "kafka"), 'fsync = "commit"') + SETTINGS
    first, second = RunningHub(tmp_path, config), None
    try:
        first.wait_ready()
        fill(first, "survivors", 40)
        noticed: list[str] = []
        members = [consumer_of(first, "survivors", reconnect_backoff_max_ms=500)
                   for _ in range(2)]
        for name, member in zip("ab", members, strict=True):
            member.subscribe(["survivors"], on_assign=lambda _, parts, name=name: noticed.append(name))
        numbers = poll_until(lambda: all(len(member.assignment()) == PARTITIONS // 2 for member in members), *members)
        poll_until(lambda: all(part.offset >= 0 for member in members
                               for part in member.position(member.assignment())) or numbers, *members)
        for member in members:
            member.commit(offsets=[TopicPartition("survivors", part.partition, 10) for part in member.assignment()],
                          asynchronous=False)
        before, generation = list(noticed), {part.partition: name for name, member in zip("ab", members, strict=True)
                                             for part in member.assignment()}
        first.kill()
        second = RunningHub(tmp_path, config)
        second.wait_ready()
        for member in members:
            offsets = member.committed([TopicPartition("survivors", part.partition) for part in member.assignment()],
                                       WAIT_S)
            assert [part.offset for part in offsets] == [10] * (PARTITIONS // 2)
        fill(second, "survivors", 40, 40)
        got: set[int] = set()
        while not set(range(40, 80)) <= got:
            got |= {int(message.value()) for message in poll_until(lambda: True, *members)}
            for member in members:
                message = member.poll(0.1)
                if message is not None and message.error() is None:
                    got.add(int(message.value()))
        for member in members:
            member.commit(offsets=[TopicPartition("survivors", part.partition, 20) for part in member.assignment()],
                          asynchronous=False)
        assert noticed == before
        assert generation == {part.partition: name for name, member in zip("ab", members, strict=True)
                              for part in member.assignment()}
        assert group_of(second, "survivors")["group_state"] == "Stable"
        for member in members:
            member.close()
        code, said = second.stop()
        assert (code, "Traceback" in said) == (0, False), said
    finally:
        for running in (first, second):
            if running is not None:
                running.kill()


# ---- tools

def test_kafka_pythons_admin_client_sees_resets_and_deletes_groups(hub: RunningHub) -> None:
    fill(hub, "tools")
    consumer = consumer_of(hub, "tools")
    consumer.subscribe(["tools"])
    assert read(consumer, 100) == list(range(100))
    consumer.commit(asynchronous=False)
    admin = KafkaAdminClient(bootstrap_servers=address(hub))
    group, = [row for row in admin.list_groups() if row["group_id"] == "tools"]
    assert (group["protocol_type"], group["group_state"], group["group_type"]) == ("consumer", "Stable", "classic")
    member, = admin.describe_groups(["tools"])["tools"]["members"]
    assert member["client_id"] == "rdkafka" and member["client_host"] == "/127.0.0.1"
    assert member["member_assignment"]["assigned_partitions"] == [
        {"topic": "tools", "partitions": list(range(PARTITIONS))}]
    shown = ask(hub, "GET", "/v1/groups/tools")[1]
    assert (shown["state"], shown["protocol"], shown["generation"]) == ("Stable", "classic", 1)
    assert [row["partitions"] for row in shown["members"]] \
        == [[{"topic": "tools", "partitions": list(range(PARTITIONS))}]]
    done = subprocess.run([sys.executable, "-c", COMMAND_LINE, "groups", "show", "tools", "--url",
                           f"http://127.0.0.1:{hub.port('http')}"], cwd=ROOT, capture_output=True, text=True,
                          timeout=WAIT_S, check=True)
    assert "tools:0,1,2,3" in done.stdout, done.stdout
    part = PythonTopicPartition("tools", 0)
    assert admin.list_group_offsets("tools")["tools"][part].offset == 25
    assert admin.delete_groups(["tools"]) == {"tools": NonEmptyGroupError.__name__}
    assert ask(hub, "PUT", "/v1/groups/tools/offsets", {"topic": "tools", "to": "earliest"})[1]["code"] \
        == ask(hub, "DELETE", "/v1/groups/tools")[1]["code"] == "group_has_members"
    consumer.close()
    admin.alter_group_offsets("tools", {part: OffsetAndMetadata(10, "", -1)})
    assert ask(hub, "PUT", "/v1/groups/tools/offsets", {"topic": "tools", "to": "3", "partition": 1})[0] == 200
    status, document = ask(hub, "GET", "/v1/groups/tools/offsets")
    assert (status, [row["offset"] for row in document["offsets"]]) == (200, [10, 3, 25, 25])
    again = consumer_of(hub, "tools")
    again.subscribe(["tools"])
    assert read(again, 15 + 22) == sorted([*range(40, 100, 4), *range(13, 100, 4)])
    again.close()
    admin.delete_group_offsets("tools", [part])
    assert part not in admin.list_group_offsets("tools")["tools"]
    assert admin.delete_groups(["tools", "nobody"]) == {"tools": "OK", "nobody": GroupIdNotFoundError.__name__}
    assert "tools" not in [row["group_id"] for row in admin.list_groups()]
    admin.close()


def test_a_name_is_of_members_or_of_leases_on_every_door(hub: RunningHub) -> None:
    fill(hub, "named", 4)
    consumer = consumer_of(hub, "assigned")
    consumer.subscribe(["named"])
    poll_until(consumer.assignment, consumer)
    status, document = ask(hub, "POST", "/v1/groups/assigned/pop?topic=named")
    assert (status, document["code"]) == (409, "assigned_group")
    assert ask(hub, "GET", "/v1/groups/assigned")[1]["kind"] == "assigned"
    consumer.close()
    assert ask(hub, "POST", "/v1/groups/leased/pop?topic=named")[0] == 200
    refused = consumer_of(hub, "leased")
    refused.subscribe(["named"])
    message = refused.poll(WAIT_S)
    assert message is not None and message.error().code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
    with pytest.raises(KafkaException):
        refused.commit(offsets=[TopicPartition("named", 0, 1)], asynchronous=False)
    refused.close()
