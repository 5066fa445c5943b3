"""Share groups (KIP-932) with Java's `KafkaShareConsumer`, as Kafka's own tools use it, beside other doors and over a
kill of the hub."""
from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.interop.asking import ask
from tests.interop.test_kafka_first_hour import WAIT_S, Tools
from tests.interop.test_kafka_groups import address
from tests.running_hub import RunningHub, config_of, sound_hub
from tests.waiting import until

VERSION = "4.2.0"
SETTINGS = "group_share_heartbeat_interval_ms = 200\n"
COMMAND = "consumer.group.ShareGroupCommand"
COUNT = 4_000


@contextmanager
def share_consumer(tools: Tools, topic: str, group: str, output: Path) -> Iterator[None]:
    """Kafka's verifiable consumer: it says each record that it was given, and what was acknowledged."""
    with output.open("w") as file:
        process = subprocess.Popen([*tools.java, "org.apache.kafka.tools.VerifiableShareConsumer", *tools.hub,
                                    "--topic", topic, "--group-id", group, "--verbose",
                                    "--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest"],
                                   stdout=file, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait(WAIT_S)


def said(output: Path, name: str) -> list[dict[str, Any]]:
    """What a consumer has said under this name so far."""
    lines = [line for line in output.read_text().split("\n")[:-1] if line.startswith("{")]
    return [document for line in lines if (document := json.loads(line))["name"] == name]


def members(tools: Tools, group: str) -> int:
    """How many members tools see in a group."""
    shown = tools.run(COMMAND, "--describe", "--members", "--group", group)
    return sum(line.split()[:1] == [group] for line in shown.splitlines())


def publish(hub: RunningHub, topic: str, first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": address(hub), "linger.ms": 5})
    for number in range(first, last):
        producer.produce(topic, b"%d" % number, b"k%d" % (number % 50))
        if not number % 1_000:
            producer.poll(0)
    assert producer.flush(WAIT_S) == 0


def test_members_share_a_partition_over_a_kill_of_the_hub(tmp_path: Path) -> None:
    """Every message is acknowledged, those included that were there before the first member."""
    config = config_of(("http", "kafka"), 'fsync = "commit"') + SETTINGS
    first = RunningHub(tmp_path, config)
    second = None
    outputs = [tmp_path / f"member-{number}" for number in range(2)]
    try:
        first.wait_ready()
        tools = Tools(first, VERSION)
        assert ask(first, "PUT", "/v1/topics/jobs", {"partitions": 1})[0] in (200, 201)
        publish(first, "jobs", 0, COUNT // 4)
        with share_consumer(tools, "jobs", "workers", outputs[0]), share_consumer(tools, "jobs", "workers", outputs[1]):
            until(lambda: members(tools, "workers") == 2, "both members")
            publish(first, "jobs", COUNT // 4, COUNT // 2)
            until(lambda: all(said(output, "offsets_acknowledged") for output in outputs), "both take part")
            first.kill()
            second = RunningHub(tmp_path, config)
            second.wait_ready()
            publish(second, "jobs", COUNT // 2, COUNT)
            until(lambda: acknowledged(outputs) == set(range(COUNT)), "everything acknowledged")
        code, log = second.stop()
        assert (code, "Traceback" in log) == (0, False), log
    finally:
        for running in (first, second):
            if running is not None:
                running.kill()


def acknowledged(outputs: list[Path]) -> set[int]:
    """Offsets of the one partition that the hub has said it has."""
    return {offset for output in outputs for document in said(output, "offsets_acknowledged") if document["success"]
            for part in document["partitions"] for offset in part["offsets"]}


def test_tools_and_other_doors_see_the_same_group(tmp_path: Path) -> None:
    with sound_hub(tmp_path, config_of(("http", "kafka"), 'fsync = "commit"') + SETTINGS) as hub:
        tools = Tools(hub, VERSION)
        assert ask(hub, "PUT", "/v1/topics/plant", {"partitions": 1})[0] in (200, 201)
        for number in range(6):
            assert ask(hub, "POST", "/v1/publish/plant/line", {"value": number})[0] == 201
        assert ask(hub, "PUT", "/v1/groups/pickers", {"start": "earliest"})[0] in (200, 201)
        read = tools.run("consumer.ConsoleShareConsumer", "--topic", "plant", "--group", "pickers", "--max-messages",
                         "3", "--timeout-ms", "30000")
        assert len(read.splitlines()) == 3
        popped = ask(hub, "POST", "/v1/groups/pickers/pop?topic=plant&max=10&wait=10")[1]["messages"]
        assert {message["offset"] for message in popped} == {3, 4, 5}, "the rest, which HTTP takes"
        handles = [message["receipt_handle"] for message in popped]
        assert ask(hub, "POST", "/v1/groups/pickers/ack", {"receipt_handles": handles})[0] == 200
        assert [line.split()[:5] for line in tools.run(COMMAND, "--describe", "--group", "pickers").splitlines()
                if line.startswith("pickers")] == [["pickers", "plant", "0", "6", "0"]]
        assert tools.run(COMMAND, "--list").split() == ["pickers"]
        tools.run(COMMAND, "--reset-offsets", "--to-earliest", "--topic", "plant", "--group", "pickers", "--execute")
        again = ask(hub, "POST", "/v1/groups/pickers/pop?topic=plant&max=10&wait=10")[1]["messages"]
        assert [message["offset"] for message in again] == list(range(6))
        assert "Successful" in tools.run(COMMAND, "--delete-offsets", "--topic", "plant", "--group", "pickers")
        assert "no offset information" in tools.run(COMMAND, "--describe", "--group", "pickers")
        assert "successful" in tools.run(COMMAND, "--delete", "--group", "pickers")
        assert ask(hub, "GET", "/v1/groups/pickers")[0] == 404
