"""Publishes to topics that are missing, and to addresses that have none, as stock clients see them on every door."""
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from tests.interop.guarded_hub import GuardedHub, guarded_hub
from tests.interop.test_rights import Amqp, Mqtt, http


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedHub]:
    with guarded_hub(tmp_path_factory.mktemp("missing")) as running:
        yield running
        code, said = running.hub.stop()
        assert code == 0 and "Traceback" not in said, said


def test_a_missing_topic_is_made_only_for_who_may(guarded: GuardedHub) -> None:
    """Bob may publish at a part of `part`: a missing topic is refused on each door, and so it is once it was deleted
    while his connections know it."""
    with Mqtt(guarded, "bob", "known") as mqtt, Amqp(guarded, "bob") as amqp:
        def publish(channel: Any) -> None:
            channel.basic_publish("amq.topic", "part.line1.x", b"v")

        def refused() -> None:
            assert http(guarded, "POST", "/v1/publish/part/line1/x", b"v", "bob") == (403, "create_denied")
            assert amqp.ask(publish) == "403 ACCESS_REFUSED"
            amqp.channel = amqp.connection.channel()
            amqp.channel.confirm_delivery()
            assert mqtt.publish("part/line1/x") == "acknowledged", "as on_denied says"
            assert http(guarded, "GET", "/v1/topics/part/messages", user="root") == (404, "unknown_topic")

        refused()
        http(guarded, "PUT", "/v1/topics/part", user="root")
        assert amqp.ask(publish) == "ok" and mqtt.publish("part/line1/x", b"w") == "acknowledged"
        assert http(guarded, "POST", "/v1/publish/part/line1/x", b"v", "bob")[0] == 201
        http(guarded, "DELETE", "/v1/topics/part", user="root")
        refused()
        assert http(guarded, "GET", "/v1/topics/unrouted/messages", user="root") == (404, "unknown_topic")
        assert mqtt.publish("whole/x") == "acknowledged"
    assert len(json.loads(http(guarded, "GET", "/v1/topics/whole/messages", user="root")[1])["messages"]) == 1


def test_an_exchange_that_is_no_topics_routes_to_queues_alone(guarded: GuardedHub) -> None:
    with Amqp(guarded, "root") as root:
        root.channel.exchange_declare("my: exchange", "fanout", durable=True)
        assert root.ask(lambda channel: channel.basic_publish("my: exchange", "", b"nobody")) == "ok", "as in AMQP"
        with pytest.raises(pika.exceptions.UnroutableError):
            root.channel.basic_publish("my: exchange", "", b"nobody", mandatory=True)
        root.channel.queue_declare("fed", durable=True)
        root.channel.queue_bind("fed", "my: exchange")
        root.channel.basic_publish("my: exchange", "", b"fed", mandatory=True)
        assert root.channel.basic_get("fed", auto_ack=True)[2] == b"fed"
    assert http(guarded, "POST", "/v1/publish/my:%20exchange", b"v", "root") == (400, "unroutable")
