"""Stock clients at both ends of a link: a device in network A, an application in network B, and a request between."""
from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pika
import pytest
from confluent_kafka import Consumer

from tests.interop.test_requests import device, post, worker
from tests.relay.processes import RunningRelay, ask, hub_config, key_of, link_of, read_all
from tests.running_hub import RunningHub, free_port
from tests.waiting import until

DEADLINE_S = 60
LINK = '[[relay.links]]\nname = "link"\n'
ALLOWED = "[hub]\nallow_drills = true\n"
DOORS = '[gateways.mqtt]\nlisten = ["127.0.0.1:0"]\n[gateways.amqp]\nlisten = ["127.0.0.1:0"]\n'


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningHub, RunningHub]]:
    folder: Path = tmp_path_factory.mktemp("networks")
    port, kafka = free_port(), free_port()
    url = f"ws://127.0.0.1:{port}/v1/relay"
    started = []
    for name, links, doors in (
            ("a", 'send = ["plant/#", "answers/#"]\nreceive = ["commands/#"]\n', DOORS),
            ("b", 'send = ["commands/#"]\nreceive = ["plant/#", "answers/#"]\nreplies = "answers/queues"\n',
             DOORS + "[gateways.kafka]\n"
             f'listen = ["127.0.0.1:{kafka}"]\nadvertise = "127.0.0.1:{kafka}"\n')):
        (folder / name).mkdir()
        started.append(RunningHub(folder / name, hub_config(url, LINK + links, ALLOWED + doors)))
    relay = None
    try:
        for hub in started:
            hub.wait_ready()
        a, b = started
        relay = RunningRelay(folder, port, {"a": key_of(a), "b": key_of(b)}, ["plant", "commands", "answers"])
        invitation = ask(a, "POST", "/v1/relay/links/link/invite", {})["invitation"]
        ask(b, "POST", "/v1/relay/join", {"invitation": invitation})
        until(lambda: link_of(a)["state"] == link_of(b)["state"] == "open", lambda: (link_of(a), link_of(b)))
        yield a, b
    finally:
        for hub in started:
            hub.kill()
        if relay is not None:
            relay.kill()


def publish(hub: RunningHub, topic: str, *values: bytes, retain: bool = False) -> None:
    """As a device does."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "sensor")
    client.connect("127.0.0.1", hub.port("mqtt"))
    client.loop_start()
    try:
        for value in values:
            client.publish(topic, value, 1, retain).wait_for_publish(DEADLINE_S)
    finally:
        client.disconnect()
        client.loop_stop()


def test_a_device_in_a_is_heard_by_applications_in_b(hubs: tuple[RunningHub, RunningHub]) -> None:
    a, b = hubs
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", b.port("amqp")))
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "amq.topic", "plant.#")
    values = [b"%d" % number for number in range(100)]
    publish(a, "plant/line1/temp", *values)
    came: list[bytes] = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=DEADLINE_S):
        assert method is not None, f"only {len(came)} came"
        assert properties.headers["relay-origin"].partition("/")[0] == link_of(b)["hub"]
        came.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(came) == len(values):
            break
    assert came == values
    connection.close()
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{b.port('kafka')}", "group.id": "app",
                         "auto.offset.reset": "earliest"})
    consumer.subscribe(["plant"])
    read: list[bytes] = []
    while len(read) < len(values):
        message = consumer.poll(DEADLINE_S)
        assert message is not None and message.error() is None
        assert message.key() == b"line1/temp"
        read.append(message.value())
    consumer.close()
    assert read == values


def test_a_retained_value_of_a_is_given_to_who_subscribes_in_b(hubs: tuple[RunningHub, RunningHub]) -> None:
    a, b = hubs
    publish(a, "plant/line2/state", b"on", retain=True)
    until(lambda: link_of(a)["lag"]["messages"] == 0, lambda: link_of(a))
    came: list[Any] = []
    there = threading.Event()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "panel")

    def on_message(_: paho.Client, __: Any, message: paho.MQTTMessage) -> None:
        came.append((message.topic, message.payload, message.retain))
        there.set()

    client.on_message = on_message
    client.on_connect = lambda client, *_: client.subscribe("plant/line2/#", 1)
    client.connect("127.0.0.1", b.port("mqtt"))
    client.loop_start()
    assert there.wait(DEADLINE_S)
    client.disconnect()
    client.loop_stop()
    assert came == [("plant/line2/state", b"on", True)]


def test_a_device_in_a_answers_a_request_from_b(hubs: tuple[RunningHub, RunningHub]) -> None:
    a, b = hubs
    with device(a, "commands/line1") as seen:
        for number in range(3):
            status, answer = post(b, "/v1/request/commands/line1", b"%d" % number, X_Reply_To="answers/desk")
            assert (status, answer["value"]) == (200, f"device says {number}"), answer
        assert seen == ["answers/desk"] * 3


def test_an_amqp_client_in_b_is_answered_in_its_queue_by_a_worker_in_a(hubs: tuple[RunningHub, RunningHub]) -> None:
    """Both as everybody writes them: `reply_to` is a queue of the client's own."""
    a, b = hubs
    with worker(a, "adding", "commands.add"), \
            pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", b.port("amqp"))) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        for number in range(3):
            channel.basic_publish("amq.topic", "commands.add", b"%d" % number, pika.BasicProperties(
                reply_to=queue, correlation_id=f"number {number}"))
        came = [next(channel.consume(queue, auto_ack=True, inactivity_timeout=DEADLINE_S)) for _ in range(3)]
        assert [(properties.correlation_id, body) for _, properties, body in came] == [
            (f"number {number}", b"worker says %d" % number) for number in range(3)]
        channel.cancel()


def test_a_call_in_b_that_names_no_address_is_answered_from_a(hubs: tuple[RunningHub, RunningHub]) -> None:
    a, b = hubs
    with device(a, "commands/line2") as seen:
        status, answer = post(b, "/v1/request/commands/line2", b"open")
        assert (status, answer["value"]) == (200, "device says open"), answer
        name, = seen
        assert name.startswith("answers/queues/") and name.endswith("/replies.http")


def test_a_link_that_a_drill_has_lost_comes_back_with_all_that_was_sent_meanwhile(
        hubs: tuple[RunningHub, RunningHub]) -> None:
    a, b = hubs
    until(lambda: ask(a, "GET", "/v1/relay")["state"] == "online", lambda: ask(a, "GET", "/v1/relay"))
    assert ask(a, "POST", "/v1/drills", {"drill": "lost_link", "seconds": 1.5}) == {"drill": "lost_link"}
    until(lambda: ask(a, "GET", "/v1/relay")["state"] != "online", lambda: ask(a, "GET", "/v1/relay"))
    publish(a, "plant/line3/temp", *[b"%d" % number for number in range(20)])

    def arrived() -> list[str]:
        return [message["value"] for message in read_all(b, "plant") if message["key"] == "line3/temp"]

    until(lambda: len(arrived()) >= 20, lambda: (link_of(a), arrived()))
    assert arrived() == [str(number) for number in range(20)]
