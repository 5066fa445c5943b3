"""One user makes names up until use may make no more topics: what each door says, and that nothing is stored."""
from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import paho.mqtt.publish
import pika
import pytest
from confluent_kafka.admin import AdminClient
from pika.exceptions import ChannelClosedByBroker

from tests.running_hub import RunningHub, running_hub

WAIT_S = 60.0
MAY_MAKE = 19
KERNEL = f"max_auto_topics_per_user = {MAY_MAKE}\nmax_auto_topics = {MAY_MAKE + 2}\n"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("makers"), "amqp", "mqtt", "http", "kafka", kernel=KERNEL) as running:
        yield running


def ask(hub: RunningHub, path: str, document: Any = None) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}{path}",
                                     json.dumps(document).encode() if document is not None else None,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        body = answer.read()
    return json.loads(body) if body.startswith((b"{", b"[")) else body.decode()


def test_each_door_says_that_there_are_too_many(hub: RunningHub) -> None:
    answer = ask(hub, "/v1/publish", {"messages": [{"address": f"made-up-{n}/x", "value": "v"} for n in range(1_000)]})
    stored = [one for one in answer["messages"] if one["status"] == 201]
    refused = [one for one in answer["messages"] if one["status"] == 429]
    assert (len(stored), len(refused), refused[0]["code"]) == (MAY_MAKE, 1_000 - MAY_MAKE, "too_many_topics")
    hub.wait_log_line("a tenth or less is left of the topics that users may make")
    assert ask(hub, "/v1/status")["topics_left"] == 2

    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp"), stack_timeout=WAIT_S))
    channel = connection.channel()
    channel.confirm_delivery()
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.basic_publish("amq.topic", "made-up-by-amqp.x", b"v")
    assert closed.value.reply_code == 406 and "max_auto_topics_per_user" in closed.value.reply_text
    connection.close()

    paho.mqtt.publish.single("made-up-by-mqtt/x", "v", qos=1, hostname="127.0.0.1", port=hub.port("mqtt"))
    assert 'gatehouse_events_total{door="mqtt",event="publish_too_many_topics"} 1.0' in ask(hub, "/metrics")

    kafka = AdminClient({"bootstrap.servers": f"127.0.0.1:{hub.port('kafka')}", "allow.auto.create.topics": True})
    told = kafka.list_topics("made-up-by-kafka", timeout=WAIT_S).topics["made-up-by-kafka"]
    assert told.error is not None and told.error.name() == "POLICY_VIOLATION"

    names = {topic["name"] for topic in ask(hub, "/v1/topics")["topics"]}
    assert not names & {"made-up-by-amqp", "made-up-by-mqtt", "made-up-by-kafka", "unrouted"}
