"""Everything back: whole partitions over HTTP and over Kafka, and readers that look on while there is load."""
from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from typing import Any, Final

import confluent_kafka

from tests.faults.mqtt_peer import PUBLISH, MqttPeer, split_publish
from tests.faults.oplog import OperationLog
from tests.faults.writers import TOPIC

PAGE: Final = 1000
READ_S: Final = 60.0

Partitions = dict[int, list[tuple[int, str, bytes]]]
"""By partition: offset, key, value, in order."""


class Gone(Exception):
    """Retention has taken what was asked for; the argument is where the partition begins now."""


def get(port: int, path: str) -> Any:
    """A JSON answer; None for 404. Raises Gone."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=READ_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status == 404:
        return None
    if answer.status == 416:
        raise Gone(json.loads(body)["log_start_offset"])
    assert answer.status == 200, (answer.status, body)
    return json.loads(body)


def value_of(message: dict[str, Any]) -> bytes:
    return base64.b64decode(message["value_base64"]) if "value_base64" in message else message["value"].encode()


def read_over_http(port: int, starts: dict[int, int] | None = None,
                   gaps: list[tuple[int, int]] | None = None) -> Partitions:
    """The topic by pages, whole or from an offset per partition. Adds offset and count of what is unreadable to `gaps`;
    without them nothing may be."""
    partitions: Partitions = {}
    topic = get(port, f"/v1/topics/{TOPIC}")
    for partition in range(topic["partitions"] if topic else 0):
        found = partitions[partition] = []
        path = f"/v1/topics/{TOPIC}/messages?max={PAGE}&partition={partition}"
        start = (starts or {}).get(partition)
        try:
            page = get(port, path + (f"&from={start}" if start else ""))
        except Gone:
            page = get(port, path)
        while page["messages"] or page.get("unreadable"):
            unreadable = [(one["offset"], one["count"]) for one in page.get("unreadable", ())]
            if gaps is not None:
                gaps += unreadable
            else:
                assert not unreadable, page["unreadable"]
            if page.get("lost"):
                found.clear()          # retention went on meanwhile: what is left begins here
            found += [(message["offset"], message["key"], value_of(message)) for message in page["messages"]]
            page = get(port, f"{path}&cursor={page['cursor']}")
    return partitions


def read_at_rest(port: int, gaps: list[tuple[int, int]] | None = None) -> Partitions:
    """The topic as it is at one time, though retention works on it."""
    while True:
        partitions = read_over_http(port, gaps=gaps)
        firsts = {partition: get(port, f"/v1/topics/{TOPIC}/messages?max=1&partition={partition}")["messages"]
                  for partition in partitions}
        if all([message["offset"] for message in firsts[partition]] == [offset for offset, _,
                                                                        _ in partitions[partition][:1]]
               for partition in partitions):
            return partitions


def read_over_kafka(port: int) -> Partitions:
    """The topic by fetches, whole."""
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": f"127.0.0.1:{port}", "group.id": "checker", "enable.auto.commit": False,
        "enable.partition.eof": True, "auto.offset.reset": "earliest", "log_level": 0, "fetch.wait.max.ms": 20})
    partitions: Partitions = {}
    try:
        metadata = consumer.list_topics(TOPIC, timeout=READ_S).topics[TOPIC]
        if metadata.error is not None:
            return {}
        partitions = {number: [] for number in metadata.partitions}
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, number, confluent_kafka.OFFSET_BEGINNING)
                         for number in partitions])
        ended: set[int] = set()
        deadline_s = time.monotonic() + READ_S
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline_s, f"the ends of {partitions.keys() - ended} were not reached"
            for message in consumer.consume(1000, 0.05):
                if message.error() is None:
                    partitions[message.partition()].append((message.offset(), message.key().decode(), message.value()))
                elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
    finally:
        consumer.close()
    return partitions


def follow_over_http(port: int, log: OperationLog, stop: threading.Event) -> None:
    """Read pages as they come, one partition after the other, until told to stop or the hub is gone."""
    cursor = ""
    try:
        while not stop.is_set():
            page = get(port, f"/v1/topics/{TOPIC}/messages?max=200&wait=0.1" + (cursor or "&from=latest"))
            if page is None:
                stop.wait(0.05)
                continue
            cursor = f"&cursor={page['cursor']}"
            for message in page["messages"]:
                log.see(message["partition"], message["offset"], value_of(message))
    except (OSError, http.client.HTTPException):
        pass


class KafkaFollower:
    """A consumer that is never told about restarts and reads on through them."""

    def __init__(self, log: OperationLog, port: int, partitions: int) -> None:
        self._log = log
        self._consumer = confluent_kafka.Consumer({
            "bootstrap.servers": f"127.0.0.1:{port}", "group.id": "follower", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "log_level": 0, "fetch.wait.max.ms": 20, "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100})
        self._consumer.assign([confluent_kafka.TopicPartition(TOPIC, number, confluent_kafka.OFFSET_BEGINNING)
                               for number in range(partitions)])

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            for message in self._consumer.consume(500, 0.05):
                if message.error() is None:
                    self._log.see(message.partition(), message.offset(), message.value())

    def close(self) -> None:
        self._consumer.close()


def follow_over_mqtt(port: int, log: OperationLog, stop: threading.Event) -> None:
    """A live subscriber: what it is given has been stored."""
    try:
        peer = MqttPeer(port, "listener")
        peer.subscribe(f"{TOPIC}/#", qos=0)
        peer.socket.settimeout(0.5)
        while not stop.is_set():
            try:
                for kind, body in peer.read_ready():
                    if kind == PUBLISH:
                        log.heard.add(split_publish(body)[1])
            except TimeoutError:
                pass
    except OSError:
        pass
