"""Who answers requests from inside a network, until standard input ends:

    python -m tests.relay.answering device PORT FILTER     an MQTT 5 device, to the response topic
    python -m tests.relay.answering worker PORT KEY        an AMQP application, by the default exchange to `reply_to`

Says `ready` once it listens, then a line for each request. Its answer is its own name, a colon and what was asked.
"""
from __future__ import annotations

import sys
import threading
from typing import Any

import paho.mqtt.client as paho
import pika
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties


def device(port: int, wanted: str) -> None:
    """The session is kept: what comes while its hub is away is answered later."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "device", protocol=paho.MQTTv5)
    kept = Properties(PacketTypes.CONNECT)
    kept.SessionExpiryInterval = 3600

    def on_message(client: paho.Client, _: Any, message: paho.MQTTMessage) -> None:
        print(message.topic, message.payload.decode(), flush=True)
        assert message.properties is not None
        answer = Properties(PacketTypes.PUBLISH)
        answer.CorrelationData = message.properties.CorrelationData
        client.publish(message.properties.ResponseTopic, b"device: " + message.payload, 1, properties=answer)

    client.on_message = on_message
    client.on_connect = lambda client, *_: client.subscribe(wanted, 1)
    client.on_subscribe = lambda *_: print("ready", flush=True)
    client.connect("127.0.0.1", port, clean_start=False, properties=kept)
    client.loop_start()
    sys.stdin.read()
    client.disconnect()
    client.loop_stop()


def worker(port: int, key: str) -> None:
    ended = threading.Event()
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.queue_declare("work", durable=True)
    channel.queue_bind("work", "amq.topic", key)

    def on_message(channel: Any, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        print(method.routing_key, body.decode(), flush=True)
        if properties.reply_to:
            channel.basic_publish("", properties.reply_to, b"worker: " + body, pika.BasicProperties(
                correlation_id=properties.correlation_id, delivery_mode=2))
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume("work", on_message)
    print("ready", flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
    while not ended.is_set():
        connection.process_data_events(0.1)
    connection.close()


if __name__ == "__main__":
    {"device": device, "worker": worker}[sys.argv[1]](int(sys.argv[2]), sys.argv[3])
