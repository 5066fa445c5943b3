"""A group whose handlers all fail is paused: pika, paho, HTTP and the command line see it, over a `kill -9`, too."""
from __future__ import annotations

import json
import time
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import paho.mqtt.client as paho
import pika
from paho.mqtt.enums import CallbackAPIVersion

from tests.interop.asking import ask
from tests.running_hub import DEADLINE_S, RunningHub, config_of, gatehouse

SHARE = "$share/team/orders/#"
CONFIG = config_of(("mqtt", "http", "amqp"))
CIRCUIT = "group:team"


def started(folder: Path) -> RunningHub:
    hub = RunningHub(folder, CONFIG)
    hub.wait_ready()
    return hub


def command(hub: RunningHub, *arguments: str) -> Any:
    done = gatehouse(*arguments, "--json", "--url", f"http://127.0.0.1:{hub.port('http')}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def state(hub: RunningHub) -> Any:
    return ask(hub, "GET", f"/v1/circuits/{CIRCUIT}")[1]


def fail_until_paused(hub: RunningHub) -> int:
    """A handler on AMQP that gives back whatever it gets; how often it was given something."""
    given = 0
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp"))) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        deadline = time.monotonic() + DEADLINE_S
        for method, _, _ in channel.consume(SHARE, inactivity_timeout=0.5):
            if method is not None:
                given += 1
                channel.basic_nack(method.delivery_tag, requeue=True)
            elif given:
                return given
            assert time.monotonic() < deadline
    raise AssertionError("the consumer ended")


def worker(hub: RunningHub, took: Queue[str]) -> paho.Client:
    client = paho.Client(CallbackAPIVersion.VERSION2, "worker", protocol=paho.MQTTv5)
    subscribed: Queue[bool] = Queue()
    client.on_connect = lambda *_: client.subscribe(SHARE, qos=1)
    client.on_subscribe = lambda *_: subscribed.put(True)
    client.on_message = lambda _, __, message: took.put(message.payload.decode())
    client.connect("127.0.0.1", hub.port("mqtt"))
    client.loop_start()
    subscribed.get(timeout=DEADLINE_S)
    return client


def is_paused_for_all(hub: RunningHub) -> bool:
    popped = ask(hub, "POST", "/v1/groups/team/pop?topic=orders&max=10&wait=0.2")[1]["messages"]
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp"))) as connection:
        got = connection.channel().basic_get(SHARE)[0]
    return not popped and got is None


def test_a_group_whose_handlers_all_fail_is_paused_on_every_door_and_over_a_kill(tmp_path: Path) -> None:
    hub = started(tmp_path)
    try:
        ask(hub, "PUT", "/v1/topics/orders", {"partitions": 1})
        made = command(hub, "groups", "define", "team", "--pause-after", "5", "--pause", "3600", "--max-attempts", "0")
        assert made["pausing"] == {"failures": 5, "open_ms": 3_600_000, "longest_open_ms": 3_600_000}
        for number in range(20):
            ask(hub, "POST", "/v1/publish/orders/a", str(number).encode())
        assert fail_until_paused(hub) == 5
        told = state(hub)
        assert (told["circuit"], told["reason"]) == ("open", "a member gave a message back")
        assert is_paused_for_all(hub)
        named = command(hub, "status")["circuits"]
        assert [each["id"] for each in named["not_closed"]] == [CIRCUIT]

        hub.kill()
        hub = started(tmp_path)
        assert state(hub)["circuit"] == "open"
        took: Queue[str] = Queue()
        client = worker(hub, took)
        assert is_paused_for_all(hub)
        command(hub, "circuits", "close", CIRCUIT)
        assert sorted(int(took.get(timeout=DEADLINE_S)) for _ in range(20)) == list(range(20))
        command(hub, "circuits", "open", CIRCUIT)
        ask(hub, "POST", "/v1/publish/orders/a", b"waits")
        assert is_paused_for_all(hub)
        try:
            raise AssertionError(f"{took.get_nowait()} came over an open circuit")
        except Empty:
            pass
        command(hub, "circuits", "close", CIRCUIT)
        assert took.get(timeout=DEADLINE_S) == "waits"
        client.loop_stop()
        audited = ask(hub, "GET", "/v1/topics/audit/messages?max=100")[1]["messages"]
        assert sum("circuit.turned" in json.dumps(message) for message in audited) == 3
    finally:
        hub.kill()
