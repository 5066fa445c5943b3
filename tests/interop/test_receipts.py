"""A sender is told at an address of his, on his own door, what became of his message: paho, pika, librdkafka, HTTP."""
from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from confluent_kafka import Consumer, Producer
from paho.mqtt import client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.interop.asking import ask
from tests.interop.guarded_hub import PASSWORD, guarded_hub
from tests.interop.test_rights import http
from tests.running_hub import DEADLINE_S, RunningHub, running_hub
from tests.waiting import until

GROUP = "billing"


def prepare(hub: RunningHub) -> None:
    """Topics of one partition, and a group."""
    for topic in ("orders", "told", "sales"):
        ask(hub, "PUT", f"/v1/topics/{topic}", {"partitions": 1})
    ask(hub, "PUT", f"/v1/groups/{GROUP}", {"kind": "leased", "retry": {"delays_ms": [0]}})


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "mqtt", "http", "amqp", "kafka") as hub:
        prepare(hub)
        yield hub
        code, said = hub.stop()
        assert code == 0 and "Traceback" not in said, said


def take(hub: RunningHub) -> dict[str, Any]:
    """One message of the group, leased over HTTP."""
    popped: list[dict[str, Any]] = ask(hub, "POST", f"/v1/groups/{GROUP}/pop?topic=orders&wait=30")[1]["messages"]
    assert popped
    return popped[0]


def acknowledge(hub: RunningHub) -> str:
    """The next message of the group; its id."""
    message = take(hub)
    ask(hub, "POST", f"/v1/groups/{GROUP}/ack", {"receipt_handles": [message["receipt_handle"]]})
    return str(message["id"])


def properties_of(**user: str) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [(name.replace("_", "-"), value) for name, value in user.items()]
    properties.CorrelationData = b"c-7"
    return properties


@contextmanager
def mqtt_client(port: int, **user: str) -> Iterator[tuple[mqtt.Client, queue.Queue[mqtt.MQTTMessage],
                                                          queue.Queue[Any]]]:
    """Connected, with what it hears and what its publishes are answered with."""
    heard: queue.Queue[mqtt.MQTTMessage] = queue.Queue()
    answers: queue.Queue[Any] = queue.Queue()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    if user:
        client.username_pw_set(user["name"], user["password"])
    client.on_message = lambda *given: heard.put(given[-1])
    client.on_subscribe = lambda *given: answers.put("subscribed")
    client.on_publish = lambda client, userdata, mid, reason, properties: answers.put(reason)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        yield client, heard, answers
    finally:
        client.disconnect()
        client.loop_stop()


def test_over_mqtt(hub: RunningHub) -> None:
    with mqtt_client(hub.port("mqtt")) as (client, heard, answers):
        client.subscribe("told/mqtt", qos=1)
        assert answers.get(timeout=DEADLINE_S) == "subscribed"
        client.publish("orders/1", b"a bill", qos=1, properties=properties_of(receipt="told/mqtt"))
        assert not answers.get(timeout=DEADLINE_S).is_failure
        message_id = acknowledge(hub)
        receipt = heard.get(timeout=DEADLINE_S)
        said = json.loads(receipt.payload)
        assert (said["receipt"], said["id"], said["group"], said["address"]) == ("acked", message_id, GROUP, "orders/1")
        assert receipt.properties.CorrelationData == b"c-7" and receipt.properties.ContentType == "application/json"


def test_over_amqp_of_a_death_and_of_an_ack(hub: RunningHub) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp")))
    channel = connection.channel()
    for name in ("bills", "receipts"):
        channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    for body in (b"bad", b"good"):
        channel.basic_publish("", "bills", body, pika.BasicProperties(
            correlation_id=body.decode(), headers={"receipt": "$queue/receipts"}))
    for method, _, body in channel.consume("bills", inactivity_timeout=DEADLINE_S):
        assert method is not None and body is not None
        if body == b"good":
            channel.basic_ack(method.delivery_tag)
            break
        channel.basic_reject(method.delivery_tag, requeue=False)
    channel.cancel()
    told: dict[str, dict[str, Any]] = {}
    for method, properties, body in channel.consume("receipts", inactivity_timeout=DEADLINE_S):
        assert method is not None and body is not None and properties is not None
        told[properties.correlation_id] = json.loads(body)
        channel.basic_ack(method.delivery_tag)
        if len(told) == 2:
            break
    connection.close()
    assert {name: (said["receipt"], said["group"]) for name, said in told.items()} == {
        "bad": ("dead", "$queue/bills"), "good": ("acked", "$queue/bills")}


def test_over_kafka_of_an_offset_that_a_group_commits(hub: RunningHub) -> None:
    servers = {"bootstrap.servers": f"127.0.0.1:{hub.port('kafka')}"}
    producer = Producer({**servers, "compression.type": "gzip", "linger.ms": 50})
    for number in range(3):
        headers = [("receipt", b"told/kafka")] if number == 1 else [("a", b"b")]
        producer.produce("sales", b"%d" % number, headers=headers)
    assert producer.flush(DEADLINE_S) == 0
    reader = Consumer({**servers, "group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    reader.subscribe(["sales"])
    for _ in range(3):
        assert reader.poll(DEADLINE_S) is not None
    reader.commit(asynchronous=False)
    reader.close()
    hearer = Consumer({**servers, "group.id": "hearers", "auto.offset.reset": "earliest"})
    hearer.subscribe(["told"])
    while True:
        message = hearer.poll(DEADLINE_S)
        assert message is not None and not message.error()
        said = json.loads(message.value() or b"")
        if said["group"] == "readers":
            break
    hearer.close()
    assert (said["receipt"], said["address"]) == ("acked", "sales")


def test_over_http_of_one_group_and_after_a_kill(tmp_path: Path) -> None:
    with running_hub(tmp_path, "http") as hub:
        prepare(hub)
        status, stored = ask(hub, "POST", "/v1/publish?address=orders/3", b"a bill", X_Receipt="told/http",
                             X_Receipt_Group=GROUP, Content_Type="text/plain")
        assert status == 201, stored
        hub.kill()
    with running_hub(tmp_path, "http") as hub:
        assert acknowledge(hub) == stored["id"]

        def told() -> list[dict[str, Any]]:
            found = ask(hub, "GET", "/v1/topics/told/messages?partition=0")[1]["messages"]
            return [json.loads(one["value"]) for one in found if one["address"] == "told/http"]

        assert [(said["receipt"], said["id"]) for said in until(told)] == [("acked", stored["id"])]


def test_a_receipt_at_an_address_of_others_is_refused_by_name(tmp_path: Path) -> None:
    with guarded_hub(tmp_path) as hub:
        asked = {"messages": [{"address": "open/1", "value": "a", "receipt": "shut/1"}]}
        status, said = http(hub, "POST", "/v1/publish", json.dumps(asked).encode(), user="ada",
                            headers={"Content-Type": "application/json"})[:2]
        assert (status, said) == (403, "receipt_denied")
        with mqtt_client(hub.ports("mqtt")[0], name="ada", password=PASSWORD) as (client, _, answers):
            client.publish("open/1", b"x", qos=1, properties=properties_of(receipt="shut/1"))
            assert answers.get(timeout=DEADLINE_S).value == 0x87
            client.publish("open/1", b"x", qos=1, properties=properties_of(receipt="open/told"))
            assert not answers.get(timeout=DEADLINE_S).is_failure
        connection = pika.BlockingConnection(pika.ConnectionParameters(
            "127.0.0.1", hub.ports("amqp")[0], credentials=pika.PlainCredentials("ada", PASSWORD)))
        channel = connection.channel()
        channel.queue_declare("bills", durable=True)
        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            channel.basic_publish("", "bills", b"x", pika.BasicProperties(headers={"receipt": "shut/1"}))
        assert closed.value.reply_code == 403
        connection.close()
        producer = Producer({
            "bootstrap.servers": f"127.0.0.1:{hub.ports('kafka')[0]}", "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN", "sasl.username": "ada", "sasl.password": PASSWORD})
        errors: list[Any] = []
        producer.produce("open", b"x", headers=[("receipt", b"shut/1")],
                         on_delivery=lambda error, message: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0
        assert errors[0].name() == "TOPIC_AUTHORIZATION_FAILED"
