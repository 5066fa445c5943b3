"""Exchanges of RabbitMQ's plug-ins over pika: consistent hashing, and messages for later."""
from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pika
import pytest
from confluent_kafka import Producer
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from pika.exceptions import ChannelClosedByBroker, NackError

from tests.running_hub import DEADLINE_S, RunningHub, running_hub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "mqtt", "http", "amqp", "kafka") as hub:
        yield hub
        code, said = hub.stop()
        assert code == 0
        assert "Traceback" not in said, said


def connect(hub: RunningHub) -> Any:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp")))


@pytest.fixture
def channel(hub: RunningHub) -> Iterator[Any]:
    with connect(hub) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def take(channel: Any, queue: str, count: int) -> list[Any]:
    """(method, properties, body) of so many, once they are there."""
    got: list[Any] = []
    end_s = time.monotonic() + DEADLINE_S
    while len(got) < count:
        assert time.monotonic() < end_s
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            got.append((method, properties, body))
    return got


def test_each_message_goes_to_one_queue_and_each_key_to_the_same(channel):
    channel.exchange_declare("hashed", "x-consistent-hash", durable=True)
    queues = [f"hashed.{number}" for number in range(3)]
    for queue in queues:
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "hashed", "1")
    for number in range(300):
        channel.basic_publish("hashed", f"key.{number % 100}", b"%d" % number, mandatory=True)
    found: dict[str, set[str]] = {}
    for queue in queues:
        count = channel.queue_declare(queue, passive=True).method.message_count
        for method, _, _ in take(channel, queue, count):
            found.setdefault(method.routing_key, set()).add(queue)
    assert len(found) == 100
    assert all(len(places) == 1 for places in found.values())
    with pytest.raises(ChannelClosedByBroker, match="The binding key must be an integer"):
        channel.queue_bind(queues[0], "hashed", "abc")


def test_by_a_header(channel):
    channel.exchange_declare("by-header", "x-consistent-hash", durable=True, arguments={"hash-header": "device"})
    for queue in ("h.1", "h.2"):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "by-header", "10")
    for number in range(40):
        channel.basic_publish("by-header", str(number), b"", pika.BasicProperties(headers={"device": number % 4}))
    places: dict[int, set[str]] = {}
    for queue in ("h.1", "h.2"):
        count = channel.queue_declare(queue, passive=True).method.message_count
        for _, properties, _ in take(channel, queue, count):
            places.setdefault(properties.headers["device"], set()).add(queue)
    assert sorted(places) == [0, 1, 2, 3]
    assert all(len(queues) == 1 for queues in places.values())


def test_a_delayed_message_is_confirmed_now_and_comes_later(channel):
    channel.exchange_declare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "topic"})
    channel.queue_declare("later.q", durable=True)
    channel.queue_bind("later.q", "later", "a.#")
    began_s = time.monotonic()
    channel.basic_publish("later", "a.slow", b"slow", pika.BasicProperties(headers={"x-delay": 1500, "n": 1}))
    channel.basic_publish("later", "a.fast", b"fast", pika.BasicProperties(headers={"x-delay": 300}))
    channel.basic_publish("later", "a.now", b"now", pika.BasicProperties(headers={"x-delay": -5}))
    channel.basic_publish("later", "a.plain", b"plain")
    got = take(channel, "later.q", 4)
    assert time.monotonic() - began_s >= 1.5
    assert [body for _, _, body in got] == [b"now", b"plain", b"fast", b"slow"]
    method, properties, _ = got[3]
    assert (method.exchange, method.routing_key, properties.headers) == ("later", "a.slow", {"x-delay": -1500, "n": 1})


def test_what_waits_is_seen_and_recalled(hub, channel):
    channel.exchange_declare("recalled", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    channel.queue_declare("recalled.q", durable=True)
    channel.queue_bind("recalled.q", "recalled")
    channel.basic_publish("recalled", "k", b"never", pika.BasicProperties(headers={"x-delay": 3_600_000}))
    url = f"http://127.0.0.1:{hub.port('http')}/v1/scheduled"
    with urllib.request.urlopen(url, timeout=60) as answer:
        (waiting,) = [one for one in json.loads(answer.read())["scheduled"] if one["address"] == "recalled/k"]
    urllib.request.urlopen(urllib.request.Request(f"{url}/{waiting['id']}", method="DELETE"), timeout=60)
    assert channel.queue_declare("recalled.q", passive=True).method.message_count == 0


def test_what_waits_outlives_the_hub(tmp_path: Path):
    with running_hub(tmp_path, "amqp", kernel='fsync = "commit"') as hub:
        channel = connect(hub).channel()
        channel.confirm_delivery()
        channel.exchange_declare("kept", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
        channel.queue_declare("kept.q", durable=True)
        channel.queue_bind("kept.q", "kept", "k")
        channel.basic_publish("kept", "k", b"1", pika.BasicProperties(headers={"x-delay": 1_000}))
        hub.kill()
    with running_hub(tmp_path, "amqp", kernel='fsync = "commit"') as hub:
        with connect(hub) as connection:
            assert [body for _, _, body in take(connection.channel(), "kept.q", 1)] == [b"1"]
        hub.stop()


@pytest.mark.parametrize("arguments", [{}, {"x-delayed-type": "nope"}, {"x-delayed-type": 1}])
def test_a_delayed_exchange_says_how_it_routes(channel, arguments):
    with pytest.raises(ChannelClosedByBroker, match="PRECONDITION_FAILED - Invalid argument, 'x-delayed-type'"):
        channel.exchange_declare("wrong", "x-delayed-message", arguments=arguments)


def test_a_delay_that_is_too_long_is_refused(channel):
    channel.exchange_declare("long", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    with pytest.raises(ChannelClosedByBroker, match="PRECONDITION_FAILED"):
        channel.basic_publish("long", "k", b"", pika.BasicProperties(headers={"x-delay": 1 << 60}))


def test_a_transaction_takes_no_delayed_message(hub, channel):
    channel.exchange_declare("tx.later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    channel.queue_declare("tx.q", durable=True)
    channel.queue_bind("tx.q", "tx.later")
    with connect(hub) as connection:
        tx = connection.channel()
        tx.tx_select()
        tx.basic_publish("tx.later", "k", b"at once")
        tx.basic_publish("tx.later", "k", b"later", pika.BasicProperties(headers={"x-delay": 100}))
        with pytest.raises(ChannelClosedByBroker, match="PRECONDITION_FAILED - a delayed message"):
            tx.tx_commit()
    assert channel.queue_declare("tx.q", passive=True).method.message_count == 0


def test_a_delayed_request_is_answered_directly(hub, channel):
    channel.exchange_declare("asked.later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    channel.queue_declare("asked.q", durable=True)
    channel.queue_bind("asked.q", "asked.later")
    with connect(hub) as connection:
        asking = connection.channel()
        answers: list[bytes] = []
        asking.basic_consume("amq.rabbitmq.reply-to", lambda *got: answers.append(got[3]), auto_ack=True)
        asking.basic_publish("asked.later", "", b"question", pika.BasicProperties(
            reply_to="amq.rabbitmq.reply-to", headers={"x-delay": 200}))
        ((_, properties, _),) = take(channel, "asked.q", 1)
        channel.basic_publish("", properties.reply_to, b"answer")
        end_s = time.monotonic() + DEADLINE_S
        while not answers and time.monotonic() < end_s:
            connection.process_data_events(0.1)
        assert answers == [b"answer"]


def test_a_delay_at_a_plain_exchange_has_no_effect(channel):
    channel.queue_declare("plain.q", durable=True)
    channel.basic_publish("", "plain.q", b"1", pika.BasicProperties(headers={"x-delay": 60_000}))
    ((_, properties, _),) = take(channel, "plain.q", 1)
    assert properties.headers == {"x-delay": 60_000}


# ---- other doors

def test_other_doors_pass_headers_exchanges_and_exchanges_behind_exchanges(hub, channel):
    channel.exchange_declare("works", "headers", durable=True)
    channel.exchange_declare("alarms", "topic", durable=True)
    for queue in ("works.red", "works.all"):
        channel.queue_declare(queue, durable=True)
    channel.queue_bind("works.red", "works", "", {"colour": "red"})
    channel.exchange_bind("alarms", "amq.topic", "works.#")
    channel.queue_bind("works.all", "alarms", "works.*.temp")
    channel.queue_bind("works.all", "alarms", "works.line9")
    publisher = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    publisher.connect("127.0.0.1", hub.port("mqtt"))
    publisher.loop_start()
    for body, colour in ((b"mqtt red", "red"), (b"mqtt blue", "blue")):
        said = Properties(PacketTypes.PUBLISH)
        said.UserProperty = ("colour", colour)
        publisher.publish("works/line1/temp", body, qos=1, properties=said).wait_for_publish(DEADLINE_S)
    publisher.loop_stop()
    publisher.disconnect()
    request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}/v1/publish/works/line2/temp", b"http",
                                     {"X-Header-colour": "red", "Content-Type": "text/plain"}, method="POST")
    with urllib.request.urlopen(request, timeout=DEADLINE_S):
        pass
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{hub.port('kafka')}"})
    producer.produce("works", b"kafka", "line9", headers={"colour": b"red"})
    assert producer.flush(DEADLINE_S) == 0
    assert [body for _, _, body in take(channel, "works.red", 3)] == [b"mqtt red", b"http", b"kafka"]
    got = take(channel, "works.all", 4)
    assert [body for _, _, body in got] == [b"mqtt red", b"mqtt blue", b"http", b"kafka"]
    assert {method.exchange for method, _, _ in got} == {"amq.topic"}
    assert channel.basic_get("works.red")[0] is None and channel.basic_get("works.all")[0] is None


# ---- recalled

def test_a_sender_recalls_by_its_own_key(hub, channel):
    channel.exchange_declare("timers", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
    channel.queue_declare("due", durable=True)
    channel.queue_bind("due", "timers", "due")
    for order in ("17", "18"):
        channel.basic_publish("timers", "due", order.encode(), pika.BasicProperties(
            headers={"x-delay": 2_000, "x-delay-key": f"order-{order}"}))
    channel.basic_publish("", "$delay.recall", json.dumps({"key": "order-17"}).encode())
    with pytest.raises(NackError):
        channel.basic_publish("", "$delay.recall", json.dumps({"key": "order-17"}).encode())
    assert [body for _, _, body in take(channel, "due", 1)] == [b"18"]
    assert channel.basic_get("due")[0] is None


def test_a_publish_that_is_repeated_is_stored_once(hub, channel):
    channel.queue_declare("once", durable=True)
    once = pika.BasicProperties(message_id="7", headers={"x-idempotent": True})
    for _ in range(3):
        channel.basic_publish("", "once", b"a", once)
    channel.basic_publish("", "once", b"b")
    assert [body for _, _, body in take(channel, "once", 2)] == [b"a", b"b"]
