"""One call through a door, for tests that do not need load: post, publish, produce, ping."""
from __future__ import annotations

import http.client
import json
import time
from typing import Any

import confluent_kafka

from tests.faults.mqtt_peer import PINGREQ_PACKET, PINGRESP, PUBACK, MqttPeer, publish_packet
from tests.faults.writers import TOPIC


def request(port: int, method: str, path: str, body: bytes | None = None, timeout_s: float = 60) -> tuple[int, Any]:
    """Status and JSON of one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request(method, path, body, {"Content-Type": "application/octet-stream"} if body else {})
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    return answer.status, json.loads(data) if "json" in answer.headers.get("Content-Type", "") else data


def post(port: int, value: bytes, key: str = "k") -> tuple[int, Any]:
    return request(port, "POST", f"/v1/publish/{TOPIC}/{key}", value)


def publish(port: int, value: bytes, key: str = "k") -> bool:
    """MQTT QoS 1: whether it was acknowledged; False where the hub closed the connection instead."""
    try:
        peer = MqttPeer(port, f"publisher-{time.monotonic_ns()}")
    except OSError:
        return False
    try:
        peer.send(publish_packet(f"{TOPIC}/{key}", value, 1))
        return peer.read()[0] == PUBACK
    except OSError as error:
        assert not isinstance(error, TimeoutError), "neither acknowledged nor closed"
        return False
    finally:
        peer.close()


def produce(port: int, value: bytes, key: str = "k") -> confluent_kafka.KafkaError | None:
    """One message of a producer that does not try again; its error, None where it is stored."""
    producer = confluent_kafka.Producer({
        "bootstrap.servers": f"127.0.0.1:{port}", "retries": 0, "linger.ms": 0, "log_level": 0,
        "message.timeout.ms": 60_000, "message.max.bytes": 4 << 20})
    errors: list[confluent_kafka.KafkaError | None] = []
    producer.produce(TOPIC, value, key, on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(90) == 0
    return errors[0]


def ping(peer: MqttPeer) -> None:
    peer.send(PINGREQ_PACKET)
    while peer.read()[0] != PINGRESP:
        pass
