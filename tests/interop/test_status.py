"""What the hub tells of itself and of what it holds, after stock clients have used every door."""
from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from typing import Any

import paho.mqtt.client as mqtt
import pika
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.running_hub import RunningHub

WAIT_S = 60


def ask(hub: RunningHub, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}{path}", data,
                                     {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return json.loads(answer.read())


def use_mqtt(hub: RunningHub) -> None:
    """One in, one out."""
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.on_message = lambda *_: client.disconnect()
    client.connect("127.0.0.1", hub.port("mqtt"))
    client.subscribe("plant/mqtt", 1)
    client.on_subscribe = lambda *_: client.publish("plant/mqtt", "x", 1)
    client.loop_forever()


def use_amqp(hub: RunningHub) -> None:
    """Two in; one out pushed, one fetched."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp"))) as connection:
        channel = connection.channel()
        channel.queue_declare("work", durable=True)
        channel.confirm_delivery()
        for _ in range(2):
            channel.basic_publish("", "work", b"x")
        assert channel.basic_get("work", auto_ack=True)[0] is not None
        assert next(channel.consume("work", auto_ack=True))[2] == b"x"


async def use_kafka(hub: RunningHub) -> None:
    """Three in, three out."""
    servers = f"127.0.0.1:{hub.port('kafka')}"
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(3):
            await producer.send_and_wait("stream", b"x", partition=0 if number else None)
    consumer = AIOKafkaConsumer("stream", bootstrap_servers=servers, auto_offset_reset="earliest")
    async with consumer, asyncio.timeout(WAIT_S):
        for _ in range(3):
            await consumer.getone()


def test_every_door_counts_what_it_takes_and_gives(hub: RunningHub) -> None:
    use_mqtt(hub)
    use_amqp(hub)
    asyncio.run(use_kafka(hub))
    ask(hub, "POST", "/v1/publish", {"messages": [{"address": "http/a", "value": "x"}] * 4})
    assert len(ask(hub, "GET", "/v1/topics/http/messages")["messages"]) == 4
    end_s = time.monotonic() + WAIT_S
    while len(topics := ask(hub, "GET", "/v1/topics")["topics"]) < 5:       # two of them are written behind it
        assert time.monotonic() < end_s, topics
    assert [topic["name"] for topic in topics] == ["audit", "http", "journeys", "plant", "stream"]
    told = ask(hub, "GET", "/v1/status")
    flows = {door["door"]: (door["messages_in"], door["messages_out"]) for door in told["doors"]}
    assert flows == {"mqtt": (1, 1), "amqp": (2, 2), "kafka": (3, 3), "http": (4, 4)}
    assert all(door["bytes_in"] and door["bytes_out"] for door in told["doors"])
    assert told["you"]["administrator"] and told["ready"] and told["topics"] == 5
    assert 0 < told["log"]["disk_free_bytes"] <= told["log"]["disk_bytes"] and told["log"]["bytes"] > 0
    assert told["started"] <= told["now"] and told["memory_bytes"] > 0


def test_lists_are_counted_filtered_and_cut(hub: RunningHub) -> None:
    ask(hub, "POST", "/v1/publish", {"messages": [{"address": f"{topic}/a", "value": "x"} for topic in
                                                  ("alpha", "beta", "Alphabet") for _ in range(5)]})
    ask(hub, "POST", "/v1/groups/readers/pop?topic=alpha&max=2&wait=20")
    page = ask(hub, "GET", "/v1/topics?contains=ALPHA&max=1&counts=true")
    assert [topic["name"] for topic in page["topics"]] == ["Alphabet"]
    page = ask(hub, "GET", f"/v1/topics?contains=ALPHA&max=1&counts=true&cursor={page['cursor']}")
    (alpha,) = page["topics"]
    assert (alpha["name"], alpha["messages"], alpha["groups"], alpha["lag"], page["cursor"]) == ("alpha", 5, 1, 5, None)
    assert "messages" not in ask(hub, "GET", "/v1/topics?max=1")["topics"][0]
    (group,) = ask(hub, "GET", "/v1/groups?contains=read&counts=true")["groups"]
    (progress,) = group["topics"]
    assert (progress["topic"], progress["ready"] + progress["leased"]) == ("alpha", 5)
    assert progress["oldest"] > 0
    assert ask(hub, "GET", "/v1/groups?contains=nobody")["groups"] == []
    assert "topics" not in ask(hub, "GET", "/v1/groups")["groups"][0]
    ask(hub, "POST", "/v1/groups/readers/release", {"dead_letter": True, "receipt_handles": [
        message["receipt_handle"] for message in ask(hub, "POST", "/v1/groups/readers/pop?topic=alpha&max=1&wait=20")[
            "messages"]]})
    end_s = time.monotonic() + WAIT_S
    while not (queues := ask(hub, "GET", "/v1/queues?contains=dead&counts=true")["queues"]):    # once it is buried
        assert time.monotonic() < end_s
    assert [(one["name"], one["ready"]) for one in queues] == [("$dead-letters/readers", 1)]
    assert ask(hub, "GET", "/v1/queues?contains=nothing&max=1&counts=false") == {"queues": [], "cursor": None}


def test_connections_are_found_by_what_people_know_of_them(hub: RunningHub) -> None:
    clients = []
    for number in range(5):
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=f"Sensor-{number}")
        client.connect("127.0.0.1", hub.port("mqtt"))
        client.loop_start()
        clients.append(client)
        while not client.is_connected():
            time.sleep(0.01)
    found = ask(hub, "GET", "/v1/connections?contains=sensor-&max=3")
    assert [one["client_id"] for one in found["connections"]] == ["Sensor-0", "Sensor-1", "Sensor-2"]
    rest = ask(hub, "GET", f"/v1/connections?contains=sensor-&max=3&cursor={found['cursor']}")
    assert ([one["client_id"] for one in rest["connections"]], rest["cursor"]) == (["Sensor-3", "Sensor-4"], None)
    assert {one["door"] for one in ask(hub, "GET", "/v1/connections?contains=HTTP")["connections"]} == {"http"}
    for client in clients:
        client.disconnect()
        client.loop_stop()
