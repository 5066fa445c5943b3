"""Delayed messages are recalled by their sender, and messages that may be repeated are stored once; on the real
kernel."""
from __future__ import annotations

import json
from typing import Any

import pytest

from gatehouse.gateways.amqp.properties import write
from gatehouse.gateways.amqp.recalling import RECALL, TOLD
from gatehouse.gateways.amqp.tables import typed
from tests.gateways.amqp.fakes import Client, Got
from tests.gateways.amqp.test_with_kernel import KernelHub, closed, delivered, taken

LATER = {"x-delay": 60_000}


@pytest.fixture
def hub() -> KernelHub:
    return KernelHub()


@pytest.fixture
def client(hub: KernelHub) -> Client:
    client = hub.client()
    client.ask("queue.declare", queue="q", durable=True)
    client.ask("exchange.declare", exchange="later", type="x-delayed-message", durable=True,
               arguments={"x-delayed-type": "fanout"})
    client.ask("queue.bind", queue="q", exchange="later")
    client.ask("basic.consume", queue=TOLD, consumer_tag="told", no_ack=True)
    client.ask("confirm.select")
    return client


def send(client: Client, body: bytes, exchange: str = "later", key: str = "", **said: Any) -> list[Got]:
    headers = {name: typed(value) for name, value in said.pop("headers", {}).items()}
    client.publish(exchange, key, body, write({**said, "headers": headers} if headers else said))
    client.hub.kernel.flush()
    return client.got()


def told(got: list[Got]) -> list[dict[str, Any]]:
    return [json.loads(body) for body in delivered(got)]


def answers(got: list[Got]) -> list[tuple[str, int]]:
    return [(name, arguments["delivery_tag"]) for _, name, arguments in got if name in ("basic.ack", "basic.nack")]


def recall(client: Client, **what: Any) -> list[Got]:
    return send(client, json.dumps(what).encode(), "", RECALL)


def test_the_id_is_told_before_the_confirm_and_recalls(hub: KernelHub, client: Client) -> None:
    got = send(client, b"a", headers=LATER)
    assert [name for _, name, _ in got] == ["basic.deliver", "header", "body", "basic.ack"]
    (first,) = told(got)
    assert first == {"id": first["id"], "ids": [first["id"]], "key": None, "channel": 1, "delivery_tag": 1}
    got = recall(client, id=first["id"])
    assert told(got) == [{"id": first["id"], "recalled": [first["id"]]}] and answers(got) == [("basic.ack", 2)]
    hub.advance(61_000)
    assert taken(client) == []
    assert answers(recall(client, id=first["id"])) == [("basic.ack", 3)]           # again, and it is as it was


def test_a_key_recalls_all_that_waits_under_it(hub: KernelHub, client: Client) -> None:
    for body, key in ((b"a", "order-1"), (b"b", "order-2"), (b"c", "order-1")):
        send(client, body, headers={**LATER, "x-delay-key": key})
    got = recall(client, key="order-1")
    (what,) = told(got)
    assert what["key"] == "order-1" and len(what["recalled"]) == 2 and answers(got) == [("basic.ack", 4)]
    (what,) = told(recall(client, key="order-1"))
    assert what["code"] == "unknown_scheduled"
    hub.advance(61_000)
    assert taken(client) == [b"b"]
    got = recall(client, key="order-2")
    assert told(got)[0]["code"] == "unknown_scheduled" and answers(got) == [("basic.nack", 6)]


def test_a_recall_that_comes_with_its_message_finds_it(hub: KernelHub, client: Client) -> None:
    headers = {name: typed(value) for name, value in {**LATER, "x-delay-key": "k"}.items()}
    client.publish("later", "", b"a", write({"headers": headers}))
    client.publish("", RECALL, b'{"key": "k"}')
    client.publish("", "q", b"behind")
    client.hub.kernel.flush()
    got = client.got() + client.ask("basic.qos")
    assert [tag for name, tag in answers(got)] == [1, 2, 3]
    hub.advance(61_000)
    assert taken(client) == [b"behind"]


def test_keys_are_there_after_a_kill_and_a_checkpoint(hub: KernelHub, client: Client) -> None:
    send(client, b"a", headers={**LATER, "x-delay-key": "k"})
    hub.restart()
    client = hub.client()
    client.ask("confirm.select")
    assert answers(recall(client, key="k")) == [("basic.ack", 1)]
    hub.restart()
    hub.advance(61_000)
    assert taken(hub.client()) == []


def test_keys_are_their_users_own(hub: KernelHub, client: Client) -> None:
    send(client, b"a", headers={**LATER, "x-delay-key": "k"})
    got = []

    class Owner:
        def on_stored(self, stored: list[Any]) -> None:
            got.extend(stored)

    hub.rig.kernel.scheduling.recall_named("k", "/", Owner())
    hub.rig.kernel.scheduling.recall_named("somebody\0k", "/", Owner())
    hub.rig.run()
    assert [type(answer.error).__name__ for answer in got] == ["UnknownScheduled"] * 2


@pytest.mark.parametrize("body", [b"", b"[]", b'{"id": "x"}', b'{"id": -1}', b'{"id": "99999999999999999999"}',
                                  b'{"key": ""}', b'{"key": 7}', b'{"id": "1", "key": "k"}', b"{" * 2_000])
def test_what_is_no_recall_is_refused(client: Client, body: bytes) -> None:
    got = send(client, body, "", RECALL)
    assert answers(got) == [("basic.nack", 1)] and told(got)[0]["code"] == "invalid_recall"


def test_what_was_delivered_is_not_recalled(hub: KernelHub, client: Client) -> None:
    (first,) = told(send(client, b"a", headers={"x-delay": 1_000}))
    hub.advance(2_000)
    client.got()
    assert told(recall(client, id=first["id"]))[0]["code"] == "already_delivered"
    assert told(recall(client, id="12345"))[0]["code"] == "unknown_scheduled"
    assert taken(client) == [b"a"]


@pytest.mark.parametrize(("after_ms", "left"), [(3_500, [b"a"]), (4_500, [])])
def test_the_time_to_live_begins_when_it_has_waited(hub: KernelHub, client: Client, after_ms: int, left: list[bytes]
                                                    ) -> None:
    send(client, b"a", expiration="1000", headers={"x-delay": 3_000})
    hub.advance(3_001)
    hub.advance(after_ms - 3_001)
    assert taken(client) == left


@pytest.mark.parametrize("key", ["", "k" * 256, 7])
def test_a_key_that_cannot_be_is_refused(client: Client, key: object) -> None:
    assert "x-delay-key" in closed(send(client, b"a", headers={**LATER, "x-delay-key": key}))


def test_nothing_is_recalled_within_a_transaction(hub: KernelHub) -> None:
    client = hub.client()
    client.ask("tx.select")
    assert "within a transaction" in closed(recall(client, id="1"))


# ---- repeated

def test_a_message_that_may_be_repeated_is_stored_once(hub: KernelHub, client: Client) -> None:
    for _ in range(3):
        got = send(client, b"a", "", "q", message_id="m1", headers={"x-idempotent": True})
        assert [name for name, _ in answers(got)] == ["basic.ack"]
    send(client, b"a", "", "q", message_id="m2", headers={"x-idempotent": True})
    for _ in range(2):
        send(client, b"plain", "", "q", message_id="m1")                           # nobody asked for it
        send(client, b"false", "", "q", message_id="m1", headers={"x-idempotent": False})
    assert taken(client) == [b"a", b"a", b"plain", b"false", b"plain", b"false"]
    hub.advance(1_000)                     # what was settled is durable
    hub.restart()
    client = hub.client()
    client.ask("confirm.select")
    assert answers(send(client, b"a", "", "q", message_id="m1", headers={"x-idempotent": True})) == [("basic.ack", 1)]
    assert taken(client) == []


def test_it_may_expire_and_be_repeated_later(hub: KernelHub, client: Client) -> None:
    for exchange in ("", "amq.fanout"):
        client.ask("queue.bind", queue="q", exchange="amq.fanout")
        for _ in range(2):
            got = send(client, b"a", exchange, "q", message_id="e" + exchange, expiration="60000",
                       headers={"x-idempotent": True})
            assert [name for name, _ in answers(got)] == ["basic.ack"], got
            hub.advance(10)
        assert taken(client) == [b"a"]


def test_a_delayed_message_is_repeated_safely(hub: KernelHub, client: Client) -> None:
    for _ in range(2):
        send(client, b"a", message_id="m1", headers={**LATER, "x-idempotent": True})
    hub.advance(61_000)
    assert taken(client) == [b"a"]


@pytest.mark.parametrize(("said", "text"), [
    ({"headers": {"x-idempotent": True}}, "has a message_id"),
    ({"headers": {"x-idempotent": "yes"}, "message_id": "m"}, "true or false")])
def test_what_cannot_be_repeatable_is_refused(client: Client, said: dict[str, Any], text: str) -> None:
    assert text in closed(send(client, b"a", "", "q", **said))


def test_another_message_under_the_same_id_is_refused(client: Client) -> None:
    send(client, b"a", "", "q", message_id="m", headers={"x-idempotent": True})
    assert "PRECONDITION_FAILED" in closed(send(client, b"b", "", "q", message_id="m", headers={"x-idempotent": True}))
