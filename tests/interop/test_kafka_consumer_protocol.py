"""Consumer groups whose partitions the hub assigns (KIP-848), with librdkafka's `group.protocol=consumer`."""
from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.interop.asking import ask
from tests.interop.test_kafka_groups import PARTITIONS, WAIT_S, address, fill, member_that_is_killed, poll_until, read
from tests.running_hub import RunningHub, config_of, sound_hub

SETTINGS = "group_consumer_heartbeat_interval_ms = 200\ngroup_consumer_session_timeout_ms = 2000\n"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with sound_hub(tmp_path_factory.mktemp("consumers"), config_of(("http", "kafka"), 'fsync = "commit"') + SETTINGS
                   ) as running:
        yield running


def consumer_of(hub: RunningHub, group: str, **settings: Any) -> Consumer:
    return Consumer({"bootstrap.servers": address(hub), "group.id": group, "group.protocol": "consumer",
                     "auto.offset.reset": "earliest", "enable.auto.commit": False, "reconnect.backoff.max.ms": 500,
                     **{name.replace("_", "."): value for name, value in settings.items()}})


def parts_of(*consumers: Consumer) -> list[tuple[str, int]]:
    return sorted((part.topic, part.partition) for consumer in consumers for part in consumer.assignment())


def test_a_group_reads_commits_and_goes_on_from_there(hub: RunningHub) -> None:
    fill(hub, "hour")
    consumer = consumer_of(hub, "hour")
    consumer.subscribe(["hour"])
    assert read(consumer, 100) == list(range(100))
    consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": address(hub)})
    listed, = [row for row in admin.list_consumer_groups().result().valid if row.group_id == "hour"]
    assert listed.type is ConsumerGroupType.CONSUMER
    described = admin.describe_consumer_groups(["hour"])["hour"].result()
    member, = described.members
    assert described.partition_assignor == "uniform" and member.client_id == "rdkafka" and member.host == "/127.0.0.1"
    assert len(member.assignment.topic_partitions) == PARTITIONS
    shown = ask(hub, "GET", "/v1/groups/hour")[1]
    assert (shown["state"], shown["protocol"], shown["assignor"]) == ("Stable", "consumer", "uniform")
    assert [(row["client_id"], row["client_host"], row["partitions"]) for row in shown["members"]] \
        == [("rdkafka", "127.0.0.1", [{"topic": "hour", "partitions": list(range(PARTITIONS))}])]
    status, document = ask(hub, "PUT", "/v1/groups/hour/offsets", {"topic": "hour", "to": "earliest"})
    assert (status, document["code"]) == (409, "group_has_members")
    consumer.close()
    assert ask(hub, "PUT", "/v1/groups/hour/offsets", {"topic": "hour", "to": "5", "partition": 0})[0] == 200
    fill(hub, "hour", 20, 100)
    again = consumer_of(hub, "hour")
    again.subscribe(["hour"])
    assert read(again, 40) == sorted([*range(20, 100, 4), *range(100, 120)])
    again.close()


def test_a_second_member_takes_half_and_gives_it_back_when_it_is_killed(hub: RunningHub) -> None:
    fill(hub, "halves", 40)
    consumer = consumer_of(hub, "halves")
    consumer.subscribe(["halves"])
    poll_until(lambda: len(consumer.assignment()) == PARTITIONS, consumer)
    with member_that_is_killed("halves", {"bootstrap.servers": address(hub), "group.id": "halves",
                                          "group.protocol": "consumer"}) as count:
        poll_until(lambda: len(consumer.assignment()) == count() == PARTITIONS // 2, consumer)
    poll_until(lambda: len(consumer.assignment()) == PARTITIONS, consumer)
    consumer.close()


def test_a_regular_expression_finds_topics_that_come_later(hub: RunningHub) -> None:
    fill(hub, "later-1", 4)
    consumer = consumer_of(hub, "later")
    consumer.subscribe(["^later-[0-9]+$"])
    poll_until(lambda: len(consumer.assignment()) == PARTITIONS, consumer)
    fill(hub, "later-2", 4)
    poll_until(lambda: len(consumer.assignment()) == 2 * PARTITIONS, consumer)
    assert {topic for topic, _ in parts_of(consumer)} == {"later-1", "later-2"}
    consumer.subscribe(["^later-2"])
    poll_until(lambda: {topic for topic, _ in parts_of(consumer)} == {"later-2"}, consumer)
    consumer.close()


def test_a_regular_expression_that_is_not_offered_is_an_error_that_is_raised(hub: RunningHub) -> None:
    consumer = consumer_of(hub, "refused")
    consumer.subscribe(["^(a{1000}){1000}"])
    deadline, errors = time.monotonic() + WAIT_S, []
    while not errors and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            errors.append(message.error())
    assert errors and "regular expression is not valid" in str(errors[0])
    consumer.close()


def test_a_static_member_is_started_again_and_has_what_it_had(hub: RunningHub) -> None:
    fill(hub, "stays", 4)
    stays, restarts = (consumer_of(hub, "stays", group_instance_id=name) for name in "ab")
    for consumer in (stays, restarts):
        consumer.subscribe(["stays"])
    poll_until(lambda: len(stays.assignment()) == len(restarts.assignment()) == PARTITIONS // 2, stays, restarts)
    before = parts_of(stays), parts_of(restarts)
    restarts.close()
    again = consumer_of(hub, "stays", group_instance_id="b")
    again.subscribe(["stays"])
    poll_until(lambda: len(again.assignment()) == PARTITIONS // 2, stays, again)
    assert (parts_of(stays), parts_of(again)) == before
    for consumer in (stays, again):
        consumer.close()


def test_members_go_on_after_a_crash_of_the_hub(tmp_path: Path) -> None:
    """SIGKILL while two members read: what they committed is there, and each has what it had."""
    config = config_of(("http", "kafka"), 'fsync = "commit"') + SETTINGS.replace("2000", "30000")
    first, second = RunningHub(tmp_path, config), None
    try:
        first.wait_ready()
        fill(first, "survivors", 40)
        members = [consumer_of(first, "survivors") for _ in range(2)]
        for member in members:
            member.subscribe(["survivors"])
        poll_until(lambda: all(len(member.assignment()) == PARTITIONS // 2 for member in members), *members)
        for member in members:
            member.commit(offsets=[TopicPartition("survivors", part.partition, 10) for part in member.assignment()],
                          asynchronous=False)
        before = [parts_of(member) for member in members]
        first.kill()
        second = RunningHub(tmp_path, config)
        second.wait_ready()
        fill(second, "survivors", 40, 40)
        got: set[int] = set()
        while not set(range(40, 80)) <= got:
            for member in members:
                message = member.poll(0.1)
                if message is not None and message.error() is None:
                    got.add(int(message.value()))
        for member in members:
            member.commit(offsets=[TopicPartition("survivors", part.partition, 20) for part in member.assignment()],
                          asynchronous=False)
        assert [parts_of(member) for member in members] == before
        for member in members:
            member.close()
        code, said = second.stop()
        assert (code, "Traceback" in said) == (0, False), said
    finally:
        for running in (first, second):
            if running is not None:
                running.kill()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_go_over_from_one_protocol_to_the_other_one_by_one(hub: RunningHub, strategy: str) -> None:
    """As in a rolling restart, there and back: every partition has one member, whichever protocol that follows."""
    group = f"rolling-{strategy}"
    fill(hub, group, 40)

    def member_of(protocol: str) -> Consumer:
        classic = {"partition_assignment_strategy": strategy, "session_timeout_ms": 30_000,
                   "heartbeat_interval_ms": 200}
        member = consumer_of(hub, group, group_protocol=protocol, **(classic if protocol == "classic" else {}))
        member.subscribe([group])
        return member

    def is_shared() -> bool:
        return parts_of(*members) == [(group, number) for number in range(PARTITIONS)] \
            and all(len(member.assignment()) == PARTITIONS // len(members) for member in members)

    members = [member_of("classic"), member_of("classic")]
    poll_until(is_shared, *members)
    for protocol in ("consumer", "consumer", "classic", "classic"):
        members.append(member_of(protocol))
        poll_until(lambda: members[-1].assignment() and len(parts_of(*members)) == PARTITIONS, *members)
        members.pop(0).close()
        poll_until(is_shared, *members)
        for member in members:
            member.commit(offsets=[TopicPartition(group, part.partition, 1) for part in member.assignment()],
                          asynchronous=False)
    admin = AdminClient({"bootstrap.servers": address(hub)})
    listed, = [row for row in admin.list_consumer_groups().result().valid if row.group_id == group]
    assert listed.type is ConsumerGroupType.CLASSIC
    for member in members:
        member.close()
