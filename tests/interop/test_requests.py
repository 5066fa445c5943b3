"""Requests by HTTP that a device over MQTT 5, a worker over AMQP, or somebody over HTTP answers."""
from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pika
import pytest
from confluent_kafka import Consumer, Producer
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.running_hub import RunningHub, running_hub

DEADLINE_S = 60


def post(hub: RunningHub, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}{path}", data=body, method="POST",
                                     headers={name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@contextmanager
def device(hub: RunningHub, filter: str) -> Iterator[list[str]]:
    """A device that answers requests by MQTT 5, and the response topics that it saw."""
    seen: list[str] = []
    ready = threading.Event()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "device", protocol=paho.MQTTv5)

    def on_message(client: paho.Client, _: Any, message: paho.MQTTMessage) -> None:
        topic = message.properties.ResponseTopic
        seen.append(topic)
        properties = Properties(PacketTypes.PUBLISH)
        properties.CorrelationData = message.properties.CorrelationData
        client.publish(topic, b"device says " + message.payload, 1, properties=properties)

    client.on_message = on_message
    client.on_connect = lambda client, *_: client.subscribe(filter, 1)
    client.on_subscribe = lambda *_: ready.set()
    client.connect("127.0.0.1", hub.port("mqtt"))
    client.loop_start()
    try:
        assert ready.wait(DEADLINE_S)
        yield seen
    finally:
        client.disconnect()
        client.loop_stop()


@contextmanager
def worker(hub: RunningHub, queue: str, key: str = "jobs.#") -> Iterator[None]:
    """A worker over AMQP, as everybody writes one: it answers by the default exchange, to `reply_to`."""
    ready, ending = threading.Event(), threading.Event()

    def work() -> None:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp")))
        channel = connection.channel()
        channel.queue_declare(queue)
        channel.queue_bind(queue, "amq.topic", key)

        def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            channel.basic_publish("", properties.reply_to, b"worker says " + body,
                                  pika.BasicProperties(correlation_id=properties.correlation_id))
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume(queue, on_message)
        ready.set()
        while not ending.is_set():
            connection.process_data_events(0.1)
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert ready.wait(DEADLINE_S)
        yield
    finally:
        ending.set()
        thread.join()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    folder: Path = tmp_path_factory.mktemp("hub")
    with running_hub(folder, "mqtt", "http", "amqp", "kafka", kernel='fsync = "never"') as running:
        yield running


def test_a_device_answers_over_mqtt(hub: RunningHub) -> None:
    with device(hub, "plant/+/commands") as seen:
        status, answer = post(hub, "/v1/request/plant/line1/commands", b"open")
        assert (status, answer["value"], answer["door"]) == (200, "device says open", "mqtt")
        assert seen == ["$queue/replies.http"]
        status, answer = post(hub, "/v1/request/plant/line1/commands", b"shut", X_Reply_To="answers/mine")
        assert (status, answer["value"], answer["address"]) == (200, "device says shut", "answers/mine")
        assert seen[1:] == ["answers/mine"]
        assert int(answer["id"]), "heard live, and named as it is stored"


def test_a_worker_answers_over_amqp(hub: RunningHub) -> None:
    with worker(hub, "jobs"):
        for number in range(3):
            status, answer = post(hub, "/v1/request/jobs/add", b"%d" % number)
            assert (status, answer["value"], answer["door"]) == (200, f"worker says {number}", "amqp")
        status, answer = post(hub, "/v1/request/jobs/add", b"9", X_Reply_To="answers/of a/b.c")
        assert (status, answer["value"], answer["address"]) == (200, "worker says 9", "answers/of a/b.c")


def test_a_service_over_kafka_answers_to_its_reply_header(hub: RunningHub) -> None:
    """Topic and key are the first level and the rest of the address in the header."""
    servers = {"bootstrap.servers": f"127.0.0.1:{hub.port('kafka')}"}
    consumer = Consumer({**servers, "group.id": "service", "auto.offset.reset": "earliest"})
    consumer.subscribe(["work"])
    producer = Producer(servers)

    def serve() -> None:
        asked = consumer.poll(DEADLINE_S)
        assert asked is not None and asked.error() is None
        headers = dict(asked.headers())
        topic, _, key = headers["reply-to"].decode().partition("/")
        producer.produce(topic, b"service says " + asked.value(), key,
                         headers={"correlation-id": headers["correlation-id"]})
        producer.flush(DEADLINE_S)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        status, answer = post(hub, "/v1/request/work/add", b"1+1", X_Reply_To="answers/desk/2")
        assert (status, answer["value"], answer["address"], answer["door"]) == (
            200, "service says 1+1", "answers/desk/2", "kafka")
    finally:
        thread.join()
        consumer.close()


def test_an_amqp_client_that_asks_by_an_address_is_answered_in_its_queue(hub: RunningHub) -> None:
    """As across a link, where a queue cannot be answered."""
    with worker(hub, "jobs"), \
            pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp"))) as connection:
        channel = connection.channel()
        channel.queue_declare("desk1")
        channel.queue_bind("desk1", "amq.topic", "answers.desk1")
        channel.basic_publish("amq.topic", "jobs.add", b"7", pika.BasicProperties(
            reply_to="amq.reply-to.answers/desk1", correlation_id="seven"))
        _, properties, body = next(channel.consume("desk1", auto_ack=True, inactivity_timeout=DEADLINE_S))
        assert (properties.correlation_id, body) == ("seven", b"worker says 7")


def test_many_at_once_each_get_their_own_answer(hub: RunningHub) -> None:
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        answers[number] = post(hub, "/v1/request/jobs/add", b"%d" % number)[1]["value"]

    with worker(hub, "jobs"):
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {number: f"worker says {number}" for number in range(20)}


@pytest.mark.parametrize("address", ["", "answers/twice"])
def test_of_two_that_could_not_be_told_apart_the_second_is_refused(hub: RunningHub, address: str) -> None:
    where, topic = ({"X_Reply_To": address}, "twice-addressed") if address else ({}, "twice")
    answers: list[tuple[int, Any]] = []
    first = threading.Thread(target=lambda: answers.append(
        post(hub, f"/v1/request/{topic}/a", b"first", X_Correlation_Id="17", **where)))
    with device(hub, f"{topic}/+") as seen:
        assert post(hub, f"/v1/request/{topic}/a", b"before", X_Correlation_Id="17", **where)[0] == 200
    assert len(seen) == 1
    path = f"http://127.0.0.1:{hub.port('http')}/v1/topics/{topic}/messages"
    first.start()
    while True:
        with urllib.request.urlopen(path, timeout=DEADLINE_S) as page:
            asked = [message for message in json.loads(page.read())["messages"] if message["value"] == "first"]
        if asked:
            break
    status, problem = post(hub, f"/v1/request/{topic}/a", b"second", X_Correlation_Id="17", **where)
    assert (status, problem["code"]) == (400, "invalid_header")
    post(hub, f"/v1/publish?address={asked[0]['reply_to']}", b"for the first", X_Correlation_Id="17")
    first.join()
    assert [(status, answer["value"]) for status, answer in answers] == [(200, "for the first")]


def test_nobody_answers(hub: RunningHub) -> None:
    status, problem = post(hub, "/v1/request/nobody/here?wait=0.2", b"?")
    assert (status, problem["code"]) == (504, "no_answer")
    status, problem = post(hub, "/v1/request/nobody/here", b"?", X_Reply_To="$queue/x")
    assert (status, problem["code"]) == (400, "invalid_header")
