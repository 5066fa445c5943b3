"""Half messages with a stock AMQP client (pika): held, decided, asked about, and seen by nobody before."""
from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from gatehouse_client import HubError, SyncClient
from tests.running_hub import DEADLINE_S, RunningHub, running_hub


class Peer:
    """A pika connection with one channel that confirms."""

    def __init__(self, hub: RunningHub) -> None:
        self.connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp")))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.told: dict[str, list[Any]] = {}

    def listen(self, queue: str, *, auto_ack: bool = False) -> None:
        mine = self.told.setdefault(queue, [])

        def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            assert (method.exchange, method.routing_key, properties.content_type) == ("", queue, "application/json")
            mine.append(json.loads(body))
            if not auto_ack:
                channel.basic_ack(method.delivery_tag)

        self.channel.basic_consume(queue, on_message, auto_ack=auto_ack)

    def take(self, queue: str) -> Any:
        """What comes next there."""
        mine = self.told[queue]
        end_s = time.monotonic() + DEADLINE_S
        while not mine:
            assert time.monotonic() < end_s, f"nothing comes from {queue}"
            self.connection.process_data_events(0.1)
        return mine.pop(0)

    def publish(self, exchange: str, key: str, body: bytes, group: str | None = None, name: Any = None,
                **options: Any) -> None:
        headers = None if group is None else {"x-half": group, "unit": "C"}
        if headers is not None and name is not None:
            headers["x-half-id"] = name
        self.channel.basic_publish(exchange, key, body, pika.BasicProperties(headers=headers, delivery_mode=2),
                                   **options)

    def hold(self, group: str, key: str, body: bytes, exchange: str = "amq.topic", name: str | None = None) -> str:
        """A half message; its id, told to this connection."""
        self.publish(exchange, key, body, group, name)
        return str(self.take(f"$txn.half.{group}")["id"])

    def decide(self, transaction: str, decision: str) -> None:
        """Raises NackError."""
        self.channel.basic_publish("", "$txn.decide", json.dumps({"id": transaction, "decision": decision}).encode())


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "http", "amqp") as hub:
        yield hub


@pytest.fixture
def http(hub: RunningHub) -> Iterator[SyncClient]:
    with SyncClient(f"http://127.0.0.1:{hub.port('http')}") as client:
        yield client


@pytest.fixture
def peer(hub: RunningHub) -> Iterator[Peer]:
    peer = Peer(hub)
    yield peer
    if peer.connection.is_open:
        peer.connection.close()


def values(http: SyncClient, topic: str) -> list[str]:
    try:
        return sorted(message.text for message in http.read(topic))
    except HubError as error:
        assert error.code == "unknown_topic", error
        return []


def body_of(peer: Peer, queue: str) -> tuple[bytes | None, Any]:
    """Body and headers of the next message in a queue."""
    _, properties, body = peer.channel.basic_get(queue, auto_ack=True)
    return body, properties.headers if properties is not None else None


def test_a_committed_message_is_routed_as_any_other(peer: Peer, http: SyncClient) -> None:
    queue = peer.channel.queue_declare("", exclusive=True).method.queue
    peer.channel.queue_bind(queue, "amq.topic", "plant.#")
    peer.listen("$txn.half.shop")
    one, other = peer.hold("shop", "plant.line1", b"one"), peer.hold("shop", "plant.line2", b"two")
    assert body_of(peer, queue) == (None, None)
    peer.decide(other, "rollback")
    peer.decide(one, "commit")
    assert body_of(peer, queue) == (b"one", {"unit": "C"})
    assert body_of(peer, queue) == (None, None)
    (message,) = http.read("plant")
    assert (message.id, message.address, message.door) == (one, "plant/line1", "amqp")
    assert message.header("x-half") is None


def test_a_queue_by_its_name_alone(peer: Peer) -> None:
    peer.channel.queue_declare("direct", durable=True)
    peer.listen("$txn.half.shop", auto_ack=True)
    one = peer.hold("shop", "direct", b"x", exchange="")
    assert peer.channel.queue_declare("direct", passive=True).method.message_count == 0
    peer.decide(one, "commit")
    assert body_of(peer, "direct") == (b"x", {"unit": "C"})


def test_every_queue_that_cc_and_bcc_name_gets_it(peer: Peer) -> None:
    for queue in ("first", "copied", "hidden"):
        peer.channel.queue_declare(queue, durable=True)
    peer.listen("$txn.half.shop", auto_ack=True)
    peer.channel.basic_publish("", "first", b"x", pika.BasicProperties(headers={
        "x-half": "shop", "CC": ["copied"], "BCC": ["hidden"]}))
    one = str(peer.take("$txn.half.shop")["id"])
    assert body_of(peer, "copied") == (None, None)
    peer.decide(one, "commit")
    assert [body_of(peer, queue) for queue in ("first", "copied", "hidden")] == [(b"x", {"CC": ["copied"]})] * 3


def test_a_decision_is_confirmed_or_refused(peer: Peer) -> None:
    peer.listen("$txn.half.shop")
    peer.listen("$txn.decided")
    one = peer.hold("shop", "decided.1", b"x")
    for _ in range(2):
        peer.decide(one, "commit")
        assert peer.take("$txn.decided")["state"] == "committed"
    wrong = [(one, "rollback", "already_decided"), ("12345", "commit", "unknown_transaction"),
             ("abc", "commit", "invalid_decision"), (one, "perhaps", "invalid_decision")]
    for transaction, decision, code in wrong:
        with pytest.raises(pika.exceptions.NackError):
            peer.decide(transaction, decision)
        told = peer.take("$txn.decided")
        assert (told["code"], told["id"]) == (code, transaction)
    peer.decide(one, "unknown")


def test_members_are_asked_in_turn_and_within_their_prefetch(hub: RunningHub, http: SyncClient) -> None:
    members = [Peer(hub) for _ in range(2)]
    for member in members:
        member.channel.basic_qos(prefetch_count=1)
        member.listen("$txn.check.asked")
    held = []
    for number in range(4):
        transaction = http.client.transaction("asked", check={"after": 0.05, "every": 60})
        http.wait(transaction.publish(topic="asked", key=str(number), value=str(number)))
        held.append(transaction.id)
    asked = []
    for number in range(4):
        check = members[number % 2].take("$txn.check.asked")
        asked.append(check["id"])
        members[number % 2].decide(check["id"], "commit")
    assert sorted(asked) == sorted(held)
    assert values(http, "asked") == ["0", "1", "2", "3"]
    for member in members:
        member.connection.close()


def test_a_queue_that_takes_no_more(peer: Peer) -> None:
    """A half message enters it with its commit; before that it takes no room, and is refused like any other."""
    peer.channel.queue_declare("small", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    peer.listen("$txn.half.small")
    held = [peer.hold("small", "small", b"half", exchange="") for _ in range(3)]
    for _ in range(2):
        peer.publish("", "small", b"plain")
    with pytest.raises(pika.exceptions.NackError):
        peer.publish("", "small", b"half", "small", "17")
    told = peer.take("$txn.half.small")
    assert (told["code"], told["name"], "id" in told) == ("queue_full", "17", False)
    peer.decide(held[0], "commit")
    assert peer.channel.queue_declare("small", passive=True).method.message_count == 3
    for one in held[1:]:
        peer.decide(one, "rollback")
    peer.channel.queue_delete("small")


def test_a_sender_that_died_is_spoken_for(hub: RunningHub, http: SyncClient) -> None:
    dying, other = Peer(hub), Peer(hub)
    dying.publish("amq.topic", "spoken.1", b"x", "spoken")
    dying.connection._impl._transport.abort()
    (one,) = http.transactions(group="spoken")
    other.listen("$txn.check.spoken")
    http.check_transaction(one["id"])
    check = other.take("$txn.check.spoken")
    assert (check["id"], check["message"]["value"], check["message"]["door"]) == (one["id"], "x", "amqp")
    other.decide(check["id"], "commit")
    assert values(http, "spoken") == ["x"]
    other.connection.close()


def test_what_comes_behind_a_decision_is_confirmed_behind_it(hub: RunningHub, http: SyncClient) -> None:
    peer = Peer(hub)
    peer.listen("$txn.half.order")
    one = peer.hold("order", "ordered.half", b"half")
    plain = peer.connection.channel()
    plain.basic_publish("amq.topic", "ordered.before", b"before")
    plain.basic_publish("", "$txn.decide", json.dumps({"id": one, "decision": "commit"}).encode())
    for _ in range(50):
        plain.basic_publish("amq.topic", "ordered.behind", b"behind")
    peer.publish("amq.topic", "ordered.last", b"last")
    assert values(http, "ordered") == ["before", *["behind"] * 50, "half", "last"]
    peer.connection.close()


@pytest.mark.parametrize(("queue", "code"), [("$txn.other", 404), ("$txn.check.", 406), ("$txn.", 404)])
def test_queues_that_are_none(hub: RunningHub, queue: str, code: int) -> None:
    peer = Peer(hub)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        peer.channel.basic_consume(queue, lambda *_: None)
    assert closed.value.reply_code == code
    peer.connection.close()


@pytest.mark.parametrize("group", ["", "g" * 4000, "a\0b", b"\xff", 17, None])
def test_a_group_that_can_be_none(hub: RunningHub, group: Any) -> None:
    peer = Peer(hub)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        peer.channel.basic_publish("amq.topic", "x.y", b"x", pika.BasicProperties(headers={"x-half": group}))
    assert closed.value.reply_code == 406
    peer.connection.close()


def test_one_that_has_a_name_is_sent_again(hub: RunningHub, peer: Peer, http: SyncClient) -> None:
    peer.listen("$txn.half.named")
    one = peer.hold("named", "named.17", b"x", name="order 17")
    other = Peer(hub)
    other.listen("$txn.half.named")
    other.publish("amq.topic", "named.17", b"x", "named", "order 17")
    told = other.take("$txn.half.named")
    assert (told["id"], told["name"]) == (one, "order 17")
    peer.decide(one, "commit")
    assert other.hold("named", "named.17", b"x", name="order 17") == one
    (message,) = http.read("named")
    assert (message.text, message.header("x-half-id"), message.header("unit")) == ("x", None, b"C")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="idempotency"):
        other.publish("amq.topic", "named.17", b"another", "named", "order 17")
    other.connection.close()


def test_one_says_when_it_is_asked_about(peer: Peer, http: SyncClient) -> None:
    peer.listen("$txn.half.when")
    headers = {"x-half": "when", "x-half-check": '{"after": 1.5, "times": 3}'}
    peer.channel.basic_publish("amq.topic", "when.1", b"x", pika.BasicProperties(headers=headers))
    one = peer.take("$txn.half.when")["id"]
    assert http.show_transaction(one)["check"] == {"after": 1.5, "every": 30, "times": 3}
    peer.decide(one, "commit")
    (message,) = http.read("when")
    assert message.header("x-half-check") is None


@pytest.mark.parametrize("check", ["", "[]", "{", '{"after": 0}', '{"times": 99999}', '{"other": 1}', 17, None])
def test_times_that_are_none(hub: RunningHub, check: Any) -> None:
    peer = Peer(hub)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        peer.channel.basic_publish("amq.topic", "x.y", b"x", pika.BasicProperties(
            headers={"x-half": "shop", "x-half-check": check}))
    assert closed.value.reply_code == 406
    peer.connection.close()


@pytest.mark.parametrize("name", ["", "n" * 256, "a\0b", 17, None])
def test_a_name_that_can_be_none(hub: RunningHub, name: Any) -> None:
    peer = Peer(hub)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        peer.channel.basic_publish("amq.topic", "x.y", b"x", pika.BasicProperties(
            headers={"x-half": "shop", "x-half-id": name}))
    assert closed.value.reply_code == 406
    peer.connection.close()


def test_mandatory_and_nowhere_to_go(peer: Peer) -> None:
    with pytest.raises(pika.exceptions.UnroutableError):
        peer.publish("", "no-such-queue", b"x", "shop", mandatory=True)


def test_a_killed_hub_forgets_nothing(tmp_path: Path) -> None:
    with running_hub(tmp_path, "http", "amqp") as hub:
        peer = Peer(hub)
        peer.channel.queue_declare("kept", durable=True)
        peer.listen("$txn.half.kept")
        held = [peer.hold("kept", "kept", str(number).encode(), exchange="") for number in range(10)]
    with running_hub(tmp_path, "http", "amqp") as hub:
        peer = Peer(hub)
        for one in held:
            peer.decide(one, "commit")
        found = [body_of(peer, "kept")[0] for _ in range(11)]
        assert found == [*[str(number).encode() for number in range(10)], None]
        peer.connection.close()


def test_a_name_outlives_a_killed_hub(tmp_path: Path) -> None:
    ids = set()
    for _ in range(2):
        with running_hub(tmp_path, "http", "amqp") as hub:
            peer = Peer(hub)
            peer.listen("$txn.half.kept")
            ids.add(peer.hold("kept", "kept.17", b"x", name="17"))
    assert len(ids) == 1
