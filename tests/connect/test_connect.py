"""Distributed Kafka Connect: a file is read into a topic and the topic into a file, by a worker that is killed between.
Then MirrorMaker 2: what one hub has comes to another, with its offsets."""
from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from scripts.stock_clients import CONNECT_VERSION, connectors, java_client, mirror_settings
from tests.interop.test_kafka_groups import address
from tests.running_hub import RunningHub, config_of, free_port, sound_hub
from tests.waiting import until

WAIT_S: Final = 240
SETTINGS: Final = "group_initial_rebalance_delay_ms = 100\ngroup_min_session_timeout_ms = 1000\n"
WORKER: Final = """\
bootstrap.servers={address}
group.id=connect
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
status.storage.topic=connect-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=5
status.storage.partitions=2
offset.flush.interval.ms=500
session.timeout.ms=3000
heartbeat.interval.ms=500
scheduled.rebalance.max.delay.ms=0
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
listeners=http://127.0.0.1:{rest}
"""
MIRROR: Final = """\
near->far.groups=readers
sync.group.offsets.enabled=true
sync.group.offsets.interval.seconds=1
emit.checkpoints.interval.seconds=1
refresh.topics.interval.seconds=2
refresh.groups.interval.seconds=2
offset.lag.max=0
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    with hub_in(tmp_path / "hub") as running:
        yield running


@contextmanager
def hub_in(folder: Path) -> Iterator[RunningHub]:
    folder.mkdir()
    with sound_hub(folder, config_of(("http", "kafka"), 'fsync = "commit"') + SETTINGS) as running:
        yield running


@contextmanager
def java(folder: Path, main: str, properties: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Java's; its log is `NAME.log` in the folder."""
    file = folder / f"{main.rpartition('.')[2]}.properties"
    file.write_text(properties)
    jars = f"{java_client(CONNECT_VERSION)}/*:{connectors()}/*"
    with file.with_suffix(".log").open("ab") as log:
        process = subprocess.Popen(["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", jars, main, str(file)],
                                   stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Connect:
    """The worker's REST interface."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, document: Any = None) -> Any:
        """The answer, or None where there is none yet."""
        body = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return json.loads(answer.read() or b"true")
        except (OSError, urllib.error.HTTPError):
            return None                          # it begins, or its members are being sorted out

    def put(self, name: str, kind: str, **settings: str) -> None:
        config = {"connector.class": f"org.apache.kafka.connect.file.FileStream{kind}Connector", "tasks.max": "1",
                  **settings}
        until(lambda: self.ask("PUT", f"/connectors/{name}/config", config), f"connector {name}")

    def runs(self, name: str) -> bool:
        status = self.ask("GET", f"/connectors/{name}/status")
        return bool(status and status["tasks"] and all(
            part["state"] == "RUNNING" for part in (status["connector"], *status["tasks"])))


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_a_file_goes_through_a_topic_into_a_file_over_a_kill_of_the_worker(hub: RunningHub, tmp_path: Path) -> None:
    source, sink, rest = tmp_path / "source", tmp_path / "sink", free_port()
    source.write_text("".join(f"line {number}\n" for number in range(100)))
    properties = WORKER.format(address=address(hub), rest=rest)
    connect = Connect(rest)
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    with java(tmp_path, main, properties):
        connect.put("reading", "Source", file=str(source), topic="lines")
        connect.put("writing", "Sink", file=str(sink), topics="lines")
        until(lambda: len(lines_of(sink)) == 100, "all lines")
        until(lambda: connect.runs("reading") and connect.runs("writing"), "both at work")
        until(lambda: connect.ask("GET", "/connectors/reading/offsets")["offsets"], "an offset of the source")
        until(lambda: connect.ask("GET", "/connectors/writing/offsets")["offsets"], "an offset of the sink")
    assert lines_of(sink) == lines_of(source)
    with source.open("a") as more:
        more.write("".join(f"line {number}\n" for number in range(100, 150)))
    with java(tmp_path, main, properties):
        until(lambda: set(lines_of(source)) <= set(lines_of(sink)), "what came while nobody was there")
        assert sorted(connect.ask("GET", "/connectors")) == ["reading", "writing"], "they were remembered"


def records(hub: RunningHub, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": address(hub), "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    read: list[tuple[bytes | None, bytes | None]] = []
    deadline = time.monotonic() + WAIT_S
    while len(read) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            read.append((message.key(), message.value()))
    consumer.close()
    return read


def test_mirrormaker_brings_topics_and_offsets_to_another_hub(tmp_path: Path) -> None:
    with hub_in(tmp_path / "near") as near, hub_in(tmp_path / "far") as far:
        admin = AdminClient({"bootstrap.servers": address(near)})
        for created in admin.create_topics([NewTopic("plant", 2, 1)]).values():
            created.result()
        producer = Producer({"bootstrap.servers": address(near)})
        sent = [(b"%d" % (number % 7), b"%d" % number) for number in range(200)]
        for key, value in sent:
            producer.produce("plant", value, key)
        assert producer.flush(WAIT_S) == 0
        reader = Consumer({"bootstrap.servers": address(near), "group.id": "readers"})
        ends = [reader.get_watermark_offsets(TopicPartition("plant", partition))[1] for partition in range(2)]
        reader.commit(offsets=[TopicPartition("plant", partition, end) for partition, end in enumerate(ends)],
                      asynchronous=False)
        reader.close()
        with java(tmp_path, "org.apache.kafka.connect.mirror.MirrorMaker",
                  mirror_settings(address(near), address(far), "plant.*", MIRROR)):
            far_admin = AdminClient({"bootstrap.servers": address(far)})
            until(lambda: "near.plant" in far_admin.list_topics(timeout=WAIT_S).topics, "the topic")
            assert sorted(records(far, "near.plant", len(sent))) == sorted(sent)
            asking = Consumer({"bootstrap.servers": address(far), "group.id": "readers"})

            def committed() -> list[int]:
                return [part.offset for part in asking.committed(
                    [TopicPartition("near.plant", partition) for partition in range(2)], timeout=WAIT_S)]

            until(lambda: committed() == ends, "the group's offsets")
            asking.close()
