"""MQTT 5 with mosquitto's clients, and requests that cross from MQTT 5 to an AMQP worker and back."""
from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.interop.test_mqtt5 import Client
from tests.running_hub import RunningHub, running_hub

WAIT_S = 60
PROPERTIES = ["-D", "PUBLISH", "content-type", "text/plain", "-D", "PUBLISH", "user-property", "a", "1",
              "-D", "PUBLISH", "user-property", "a", "2", "-D", "PUBLISH", "response-topic", "answers/here",
              "-D", "PUBLISH", "correlation-data", "17"]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("peers"), "mqtt", "amqp") as running:
        yield running


def command(hub: RunningHub, name: str, *arguments: str) -> list[str]:
    return [name, "-h", "127.0.0.1", "-p", str(hub.port("mqtt")), "-V", "5", *arguments]


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_mosquitto_publishes_and_subscribes(hub: RunningHub, qos: str) -> None:
    for name in ("x", "y"):
        subprocess.run(command(hub, "mosquitto_pub", "-q", qos, "-r", "-t", f"mosquitto{qos}/{name}", "-m", name,
                               *PROPERTIES), check=True, timeout=WAIT_S)
    # A QoS 0 publish is told by nobody when it is there: what is acknowledged behind it is there later.
    subprocess.run(command(hub, "mosquitto_pub", "-q", "1", "-t", "mosquitto/behind", "-m", "x"), check=True,
                   timeout=WAIT_S)
    done = subprocess.run(command(hub, "mosquitto_sub", "-q", "2", "-t", f"mosquitto{qos}/+", "-C", "2", "-F",
                                  "%t %p %q %r %C %R %D %P"), check=True, timeout=WAIT_S, capture_output=True,
                          text=True)
    assert sorted(done.stdout.splitlines()) == [
        f"mosquitto{qos}/{name} {name} {qos} 1 text/plain answers/here 17 a:1 a:2" for name in ("x", "y")]


def test_mosquitto_is_told_that_it_may_not_publish(hub: RunningHub, tmp_path: Path) -> None:
    told = subprocess.run(command(hub, "mosquitto_pub", "-q", "1", "-t", "$nobody/takes/it", "-m", "x"), timeout=WAIT_S,
                          capture_output=True, text=True)
    assert told.returncode == 0 and "0x10" not in told.stderr
    subscribed = subprocess.run(command(hub, "mosquitto_sub", "-t", "$hub/#", "-E"), timeout=WAIT_S,
                                capture_output=True, text=True)
    assert "All subscription requests were denied" in subscribed.stderr


def test_mosquitto_sub_reads_the_figures_that_it_knows(hub: RunningHub) -> None:
    told = subprocess.run(command(hub, "mosquitto_sub", "-t", "$SYS/broker/version", "-t",
                                  "$SYS/broker/clients/connected", "-C", "2", "-F", "%r %t %p"), timeout=WAIT_S,
                          capture_output=True, text=True)
    version, connected = sorted(told.stdout.splitlines(), reverse=True)
    assert version.startswith("1 $SYS/broker/version gatehouse version ")
    retained, topic, count = connected.split()
    assert (retained, topic) == ("1", "$SYS/broker/clients/connected") and int(count) >= 1


def test_mosquitto_rr_is_answered_by_an_mqtt_5_client(hub: RunningHub) -> None:
    with Client(hub, "rr-worker") as worker:
        worker.subscribe(("rr/work", SubscribeOptions(1)))
        asker = subprocess.Popen(command(hub, "mosquitto_rr", "-q", "1", "-t", "rr/work", "-e", "rr/answers", "-m",
                                         "6*7", "-W", str(WAIT_S)), stdout=subprocess.PIPE, text=True)
        [request] = worker.receive(1)
        assert request.properties is not None
        reply = Properties(PacketTypes.PUBLISH)
        if hasattr(request.properties, "CorrelationData"):
            reply.CorrelationData = request.properties.CorrelationData
        assert worker.publish(request.properties.ResponseTopic, b"42", 1, properties=reply) == 0
        assert asker.communicate(timeout=WAIT_S)[0] == "42\n"


def amqp(hub: RunningHub) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp"), stack_timeout=WAIT_S))


def taken(channel: object, queue: str) -> tuple[pika.BasicProperties, bytes]:
    """The next message of a queue; waits for it."""
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        method, properties, body = channel.basic_get(queue, auto_ack=True)  # type: ignore[attr-defined]
        if method is not None:
            return properties, body
        channel.connection.process_data_events(0.01)  # type: ignore[attr-defined]
    raise AssertionError(f"nothing came to {queue}")


def test_an_mqtt_5_request_is_answered_by_an_amqp_worker(hub: RunningHub) -> None:
    connection = amqp(hub)
    channel = connection.channel()
    channel.queue_declare("jobs")
    channel.queue_bind("jobs", "amq.topic", "jobs.#")
    with Client(hub, "requester") as asker:
        asker.subscribe(("jobs-done/1", SubscribeOptions(1)))
        said = Properties(PacketTypes.PUBLISH)
        said.ResponseTopic, said.CorrelationData, said.ContentType = "jobs-done/1", b"17", "text/plain"
        said.UserProperty = [("tenant", "a")]
        asker.publish("jobs/sum", b"6*7", 1, properties=said)
        request, body = taken(channel, "jobs")
        assert (body, request.content_type, request.correlation_id) == (b"6*7", "text/plain", "17")
        assert request.headers["tenant"] == "a" or request.headers["tenant"] == b"a"
        channel.basic_publish("", request.reply_to, b"42", pika.BasicProperties(
            correlation_id=request.correlation_id, delivery_mode=2, headers={"worker": "amqp"}))
        [answer] = asker.receive(1)
        assert answer.properties is not None
        assert (answer.payload, answer.properties.CorrelationData) == (b"42", b"17")
        assert ("worker", "amqp") in answer.properties.UserProperty
    connection.close()


def test_an_amqp_request_is_answered_by_an_mqtt_5_worker(hub: RunningHub) -> None:
    connection = amqp(hub)
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    with Client(hub, "mqtt-worker") as worker:
        worker.subscribe(("tasks/#", SubscribeOptions(1)))
        channel.basic_publish("amq.topic", "tasks.sum", b"6*7", pika.BasicProperties(
            reply_to=queue, correlation_id="18", delivery_mode=2, expiration="60000"))
        [request] = worker.receive(1)
        seen = request.properties
        assert seen is not None
        assert (seen.CorrelationData, seen.ResponseTopic) == (b"18", f"$queue/{queue}")
        assert 50 < seen.MessageExpiryInterval <= 60
        reply = Properties(PacketTypes.PUBLISH)
        reply.CorrelationData = seen.CorrelationData
        assert worker.publish(seen.ResponseTopic, b"42", 1, properties=reply) == 0
        answer, body = taken(channel, queue)
        assert (body, answer.correlation_id) == (b"42", "18")
    connection.close()
