"""Retained values with stock clients: set over one door, seen over the others, there after a kill."""
from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from tests.interop.test_mqtt import WAIT_S, Client
from tests.running_hub import DOORS, RunningHub, running_hub


def ask(hub: RunningHub, method: str, path: str, body: bytes | None = None, **headers: str) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}{path}", body, headers, method=method)
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return json.loads(answer.read() or b"null")


def retained(client: Client, count: int) -> dict[str, tuple[bytes, bool]]:
    got = [client.messages.get(timeout=WAIT_S) for _ in range(count)]
    return {message.topic: (bytes(message.payload), message.retain) for message in got}


def test_over_all_doors_and_a_kill(tmp_path: Path) -> None:
    with running_hub(tmp_path, *DOORS) as hub:
        with Client(hub) as sender:
            for name in ("line1", "line2"):
                sender.paho.publish(f"plant/{name}/temp", name.encode(), qos=1, retain=True).wait_for_publish(WAIT_S)
            sender.paho.publish("plant/line1/temp", b"later", qos=1).wait_for_publish(WAIT_S)
        ask(hub, "POST", "/v1/publish/plant/line3/temp", b"by http", **{"X-Retain": "true"})
        ask(hub, "POST", "/v1/publish/events", b"x")
        ask(hub, "PATCH", "/v1/topics/events", b'{"interpret_headers": true}', **{"Content-Type": "application/json"})
        producer = KafkaProducer(bootstrap_servers=f"127.0.0.1:{hub.port('kafka')}", compression_type="gzip")
        producer.send("events", b"by kafka", key=b"door/1", headers=[("retain", b"true")])
        producer.send("events", b"plain", key=b"door/2")
        producer.flush(WAIT_S)
        producer.close()
        hub.kill()
    with running_hub(tmp_path, *DOORS) as hub:
        with Client(hub) as receiver:
            receiver.subscribe(("plant/+/temp", 1), ("events/#", 1))
            assert retained(receiver, 4) == {
                "plant/line1/temp": (b"line1", True), "plant/line2/temp": (b"line2", True),
                "plant/line3/temp": (b"by http", True), "events/door/1": (b"by kafka", True)}
            with Client(hub) as sender:
                sender.paho.publish("plant/line2/temp", b"now", qos=1, retain=True).wait_for_publish(WAIT_S)
                sender.paho.publish("plant/line1/temp", b"", qos=1, retain=True).wait_for_publish(WAIT_S)
            assert retained(receiver, 2) == {"plant/line2/temp": (b"now", False), "plant/line1/temp": (b"", False)}
        one = ask(hub, "GET", "/v1/retained/plant/line2/temp")
        assert (one["value"], one["door"], one["retain"]) == ("now", "mqtt", True)
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(hub, "GET", "/v1/retained/plant/line1/temp")
        assert (refused.value.code, json.loads(refused.value.read())["code"]) == (404, "nothing_retained")
        first = ask(hub, "GET", "/v1/retained/%23?max=2")
        rest = ask(hub, "GET", f"/v1/retained/%23?max=2&cursor={first['cursor']}")
        assert [one["address"] for one in first["messages"] + rest["messages"]] == [
            "events/door/1", "plant/line2/temp", "plant/line3/temp"]


def test_mosquitto_subscribes_and_publishes(tmp_path: Path) -> None:
    with running_hub(tmp_path, "mqtt") as hub:
        where = ["-h", "127.0.0.1", "-p", str(hub.port("mqtt")), "-q", "1"]
        for i in range(30):
            subprocess.run(["mosquitto_pub", *where, "-t", f"m/{i}", "-m", f"{i}", "-r"], check=True, timeout=WAIT_S)
        subprocess.run(["mosquitto_pub", *where, "-t", "m/7", "-n", "-r"], check=True, timeout=WAIT_S)
        done = subprocess.run(["mosquitto_sub", *where, "-t", "m/+", "-C", "29", "-F", "%t %p %r"], check=True,
                              timeout=WAIT_S, capture_output=True, text=True)
        assert sorted(done.stdout.splitlines()) == sorted(f"m/{i} {i} 1" for i in range(30) if i != 7)


def test_a_compacted_topic_is_made_by_kafka_and_written_by_every_door(tmp_path: Path) -> None:
    with running_hub(tmp_path, *DOORS) as hub:
        where = f"127.0.0.1:{hub.port('kafka')}"
        admin = KafkaAdminClient(bootstrap_servers=where)
        admin.create_topics([NewTopic("settings", 1, 1, topic_configs={"cleanup.policy": "compact"})])
        admin.close()
        topic = ask(hub, "GET", "/v1/topics/settings")
        assert topic["compact"] is True and topic["bounds"][0]["log_start_offset"] == 0
        ask(hub, "POST", "/v1/publish/settings/a", b"1")
        producer = KafkaProducer(bootstrap_servers=where)
        producer.send("settings", b"2", key=b"a")
        producer.send("settings", None, key=b"b")
        producer.flush(WAIT_S)
        producer.close()
        consumer = KafkaConsumer(bootstrap_servers=where, enable_auto_commit=False)
        partition = TopicPartition("settings", 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        got = [next(consumer) for _ in range(3)]
        assert [(one.offset, one.key, one.value) for one in got] == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"b", None)]
        consumer.close()
