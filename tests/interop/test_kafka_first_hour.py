"""A Kafka developer's first hour with clients that do not come from PyPI: Java's of two versions by their console
tools, KafkaJS, and three of Go. Produce, a group, a second member, kill it, reset offsets, alter a topic.

What they need is fetched once by scripts/stock_clients.py.
"""
from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from scripts.stock_clients import (
    OLDEST_GO_OF_KAFKA,
    franz_go,
    has_recent_go,
    java_client,
    kafka_go,
    kafkajs,
    sarama,
)
from tests.interop.asking import ask
from tests.interop.test_kafka_groups import address
from tests.running_hub import RunningHub, config_of, sound_hub
from tests.waiting import until

WAIT_S: Final = 120
PARTITIONS: Final = 4
COUNT: Final = 40
SETTINGS: Final = """\
group_min_session_timeout_ms = 500
group_initial_rebalance_delay_ms = 100
group_consumer_heartbeat_interval_ms = 200
group_consumer_session_timeout_ms = 3000
"""
CLASSIC: Final = ("session.timeout.ms=3000", "heartbeat.interval.ms=200")
CONSUMER: Final = ("group.protocol=consumer",)

WITH_GO: Final = {"kafka-go": (kafka_go, ())} | ({
    "franz-go": (franz_go, ("classic",)), "franz-go-consumer": (franz_go, ("consumer",)), "sarama": (sarama, ())}
    if has_recent_go(OLDEST_GO_OF_KAFKA) else {})


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with sound_hub(tmp_path_factory.mktemp("hour"), config_of(("http", "kafka"), 'fsync = "commit"') + SETTINGS
                   ) as running:
        yield running


class Tools:
    """The console tools of one version of Kafka."""

    def __init__(self, hub: RunningHub, version: str) -> None:
        self.version = version
        self.java = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp",
                     f"{java_client(version)}/*"]
        self.hub = ["--bootstrap-server", address(hub)]

    def run(self, tool: str, *arguments: str) -> str:
        done = subprocess.run([*self.java, f"org.apache.kafka.tools.{tool}", *self.hub, *arguments], text=True,
                              capture_output=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, (tool, done.stdout, done.stderr)
        return done.stdout

    def consume(self, group: str, settings: tuple[str, ...], *arguments: str) -> list[str]:
        """The command of a console consumer."""
        option = "--command-property" if self.version.startswith("4") else "--consumer-property"
        return [*self.java, "org.apache.kafka.tools.consumer.ConsoleConsumer", *self.hub, "--topic", group, "--group",
                group, "--from-beginning", *[part for setting in settings for part in (option, setting)], *arguments]


def shares(hub: RunningHub, group: str) -> list[int]:
    """How many partitions each member of a group has, while it is at rest."""
    status, shown = ask(hub, "GET", f"/v1/groups/{group}")
    if status != 200 or shown.get("state") != "Stable":
        return []
    return sorted([len(part["partitions"]) for member in shown["members"] for part in member["partitions"]])


@pytest.mark.parametrize(("version", "settings", "protocol"), [
    ("3.9.1", CLASSIC, "classic"), ("4.2.0", CLASSIC, "classic"), ("4.2.0", CONSUMER, "consumer")])
def test_javas_clients(hub: RunningHub, tmp_path: Path, version: str, settings: tuple[str, ...], protocol: str) -> None:
    tools = Tools(hub, version)
    group = f"hour-{version}-{protocol}"
    tools.run("TopicCommand", "--create", "--topic", group, "--partitions", str(PARTITIONS))
    tools.run("VerifiableProducer", "--topic", group, "--max-messages", str(COUNT), "--acks", "-1")
    read = tmp_path / "read"
    members = []
    try:
        with read.open("w") as output:
            members.append(subprocess.Popen(tools.consume(group, settings), stdout=output))
        until(lambda: len(read.read_text().split()) == COUNT, "all messages")
        assert sorted(map(int, read.read_text().split())) == list(range(COUNT))
        members.append(subprocess.Popen(tools.consume(group, settings), stdout=subprocess.DEVNULL))
        until(lambda: shares(hub, group) == [PARTITIONS // 2] * 2, "halves")
        os.kill(members[1].pid, signal.SIGKILL)
        until(lambda: shares(hub, group) == [PARTITIONS], "everything again")
        assert ask(hub, "GET", f"/v1/groups/{group}")[1]["protocol"] == protocol
        members[0].terminate()
        members[0].wait(WAIT_S)
    finally:
        for member in members:
            member.kill()
            member.wait()
    command = "consumer.group.ConsumerGroupCommand"
    described = tools.run(command, "--describe", "--group", group)
    assert described.count(f"{group} {group}") >= PARTITIONS, described
    reset = tools.run(command, "--reset-offsets", "--group", group, "--topic", f"{group}:0,1", "--to-earliest",
                      "--execute")
    assert reset.count(group) >= 2
    offsets = ask(hub, "GET", f"/v1/groups/{group}/offsets")[1]["offsets"]
    assert [row["offset"] for row in offsets] == [0, 0, *[row["high_watermark"] for row in offsets[2:]]]
    tools.run("TopicCommand", "--alter", "--topic", group, "--partitions", str(PARTITIONS + 2))
    assert ask(hub, "GET", f"/v1/topics/{group}")[1]["partitions"] == PARTITIONS + 2
    assert "successful" in tools.run(command, "--delete", "--group", group)


def spend(hub: RunningHub, name: str, command: list[str], *more: str, **environment: str) -> None:
    """An hour with a program that is given the broker, a topic and a group of this name, and perhaps more."""
    done = subprocess.run([*command, address(hub), name, name, *more], text=True, capture_output=True,
                          env={**os.environ, **environment}, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr


def test_kafkajs(hub: RunningHub) -> None:
    spend(hub, "hour-js", ["node", str(Path(__file__).with_name("kafkajs_hour.js"))],
          NODE_PATH=str(kafkajs() / "node_modules"))


@pytest.mark.parametrize("name", WITH_GO)
def test_clients_of_go(hub: RunningHub, name: str) -> None:
    program, more = WITH_GO[name]
    spend(hub, f"hour-{name}", [str(program())], *more)
