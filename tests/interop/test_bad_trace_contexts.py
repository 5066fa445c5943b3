"""Trace headers that lie, never end or repeat, on every door by stock clients: the message is taken, and has one trace
context, a new one, as W3C Trace Context says (3.2.2 and 4.3)."""
from __future__ import annotations

import http.client
from pathlib import Path
from typing import Final

import pika
from confluent_kafka import Consumer, Producer
from paho.mqtt import client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gatehouse.tracing.context import read
from tests.interop.test_http_groups import ask
from tests.running_hub import RunningHub, config_of, sound_hub

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
SPAN: Final = "b7ad6b7169203331"
GOOD: Final = f"00-{TRACE}-{SPAN}-01"
STATE: Final = "vendor=1"
ENDLESS: Final = 60_000
WAIT_S: Final = 60

CASES: Final[dict[str, list[str]]] = {
    "upper case": [GOOD.upper()], "version ff": ["ff" + GOOD[2:]], "no trace": [f"00-{'0' * 32}-{SPAN}-01"],
    "no span": [f"00-{TRACE}-{'0' * 16}-01"], "flags": [GOOD[:-2] + "0g"], "nothing": [""], "cut": [GOOD[:-1]],
    "more than 00 has": [GOOD + "-more"], "several": [GOOD, GOOD.replace("0af", "1bf")], "twice": [GOOD, GOOD],
    "bad and good": ["none", GOOD], "no UTF-8": ["\udcff\udcfe" + GOOD[2:]],
    "endless": [GOOD + "-" + "a" * ENDLESS]}
"""The last one is so long that the hub does not open the next Kafka batch for a context (decision 263)."""

SOUND: Final[dict[str, list[str]]] = {"good": [GOOD], "a later version": ["01" + GOOD[2:] + "-more"]}


def over_http(hub: RunningHub, name: str, said: list[bytes]) -> None:
    if len(said[0]) > ENDLESS:                                # as a header the request is refused: 431
        assert ask(hub, "POST", "/v1/publish", {"messages": [
            {"topic": "plant", "key": "http", "value": name, "traceparent": said[0].decode()}]})[0] == 201
        return
    connection = http.client.HTTPConnection("127.0.0.1", hub.port("http"), timeout=WAIT_S)
    connection.putrequest("POST", "/v1/publish/plant/http")
    for value in said:
        connection.putheader("traceparent", value)
    connection.putheader("tracestate", STATE)
    connection.putheader("Content-Length", str(len(name)))
    connection.endheaders(name.encode())
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    connection.close()


def over_mqtt(client: mqtt.Client, name: str, said: list[bytes]) -> None:
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [*[("traceparent", value.decode()) for value in said], ("tracestate", STATE)]
    client.publish("plant/mqtt", name, qos=1, properties=properties).wait_for_publish(WAIT_S)


def test_whatever_is_said_of_a_trace_the_message_is_taken_and_has_one_context(tmp_path: Path) -> None:
    expected = set()
    with sound_hub(tmp_path, config_of(("http", "mqtt", "amqp", "kafka")) + "[tracing.topics.plant]\n") as hub:
        assert ask(hub, "PUT", "/v1/topics/plant", {"partitions": 1})[0] == 201
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        client.connect("127.0.0.1", hub.port("mqtt"))
        client.loop_start()
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp")))
        channel = connection.channel()
        channel.confirm_delivery()
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{hub.port('kafka')}"})
        for name, values in (CASES | SOUND).items():
            said = [value.encode(errors="surrogateescape") for value in values]
            over_http(hub, name, said)
            expected |= {("http", name), ("kafka", name)}
            if name != "no UTF-8":                            # MQTT 5, 1.5.4: a malformed packet
                over_mqtt(client, name, said)
                expected.add(("mqtt", name))
            if len(said) == 1:                                # a table has a name once
                channel.basic_publish("amq.topic", "plant.amqp", name.encode(), pika.BasicProperties(
                    headers={"traceparent": said[0] if name == "no UTF-8" else values[0], "tracestate": STATE}))
                expected.add(("amqp", name))
            producer.produce("plant", name.encode(), b"kafka", headers=[
                *[("traceparent", value) for value in said], ("tracestate", STATE.encode())])
            assert producer.flush(WAIT_S) == 0
        client.disconnect()
        client.loop_stop()
        connection.close()
        consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{hub.port('kafka')}", "group.id": "readers",
                             "auto.offset.reset": "earliest"})
        consumer.subscribe(["plant"])
        while expected:
            message = consumer.poll(WAIT_S)
            assert message is not None and message.error() is None, expected
            which = message.key().decode(), message.value().decode()
            expected.remove(which)
            headers = [(name, value) for name, value in message.headers() or [] if name.startswith("trace")]
            contexts = [value for name, value in headers if name == "traceparent"]
            assert len(contexts) == 1, (which, headers)
            context = read(contexts[0])
            assert context is not None, (which, headers)
            is_sound = which[1] in SOUND
            assert (context.trace_id.hex() == TRACE) is is_sound, (which, headers)
            assert (("tracestate", STATE.encode()) in headers) is is_sound, which
        consumer.close()
