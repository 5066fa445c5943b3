"""A login that is refused leaves a line in the log, on every door: once a minute for each peer and reason."""
from __future__ import annotations

import threading
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pika
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from paho.mqtt import client as mqtt

from tests.interop.guarded_hub import GuardedHub, guarded_hub
from tests.running_hub import DEADLINE_S


def over_http(port: int) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/topics", headers={
        "Authorization": "Basic " + b64encode(b"ada:wrong").decode()})
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request, timeout=DEADLINE_S)


def over_mqtt(port: int) -> None:
    told = threading.Event()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.username_pw_set("ada", "wrong")
    client.on_connect = lambda *given: given[3].is_failure and (client.disconnect(), told.set())
    client.connect("127.0.0.1", port)
    client.loop_start()
    assert told.wait(DEADLINE_S)
    client.loop_stop()


def over_amqp(port: int) -> None:
    with pytest.raises(pika.exceptions.AMQPError):
        pika.BlockingConnection(pika.ConnectionParameters(
            "127.0.0.1", port, credentials=pika.PlainCredentials("ada", "wrong")))


def over_kafka(port: int, mechanism: str) -> None:
    failed = threading.Event()
    client = AdminClient({
        "bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
        "sasl.username": "ada", "sasl.password": "wrong", "log_level": 0, "error_cb": lambda error: failed.set()})
    while not failed.is_set():
        with pytest.raises(KafkaException):
            client.list_topics(timeout=1)
        client.poll(0.1)


def lines(hub: GuardedHub, door: str) -> list[str]:
    return [line for line in hub.hub.log().splitlines() if f"{door} refused 127.0.0.1: " in line]


@pytest.mark.parametrize(("door", "attempt"), [
    ("http", over_http), ("mqtt", over_mqtt), ("amqp", over_amqp), ("kafka", partial(over_kafka, mechanism="PLAIN"))])
def test_a_wrong_password_leaves_one_line(hub: GuardedHub, door: str, attempt: Callable[[int], None]) -> None:
    for _ in range(2):
        attempt(hub.ports(door)[0])
        hub.hub.wait_log_line(f"{door} refused 127.0.0.1: ")
    assert len(lines(hub, door)) == 1
    assert "unknown user or wrong password" in lines(hub, door)[0]


def test_a_wrong_password_that_was_never_sent_leaves_one_line(tmp_path: Path) -> None:
    with guarded_hub(tmp_path) as hub:
        test_a_wrong_password_leaves_one_line(hub, "kafka", partial(over_kafka, mechanism="SCRAM-SHA-256"))


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedHub]:
    with guarded_hub(tmp_path_factory.mktemp("hub")) as hub:
        yield hub
