"""Half messages with a stock MQTT client: held, decided, asked about, and seen by nobody before."""
from __future__ import annotations

import json
import queue
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest

from gatehouse_client import HubError, SyncClient
from tests.running_hub import DEADLINE_S, RunningHub, running_hub


class Peer:
    """A paho client that keeps what it is sent."""

    def __init__(self, hub: RunningHub, client_id: str) -> None:
        self.inbox: queue.Queue[mqtt.MQTTMessage] = queue.Queue()
        self.granted: queue.Queue[list[Any]] = queue.Queue()
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv311)
        self.client.on_message = lambda client, userdata, message: self.inbox.put(message)
        self.client.on_subscribe = lambda client, userdata, mid, codes, properties: self.granted.put(codes)
        self.client.connect("127.0.0.1", hub.port("mqtt"))
        self.client.loop_start()

    def subscribe(self, *filters: str, qos: int = 1) -> list[int]:
        self.client.subscribe([(one, qos) for one in filters])
        return [code.value for code in self.granted.get(timeout=DEADLINE_S)]

    def publish(self, topic: str, value: Any, qos: int = 1) -> None:
        """Returns when it is acknowledged."""
        payload = value if isinstance(value, str | bytes) else json.dumps(value)
        self.client.publish(topic, payload, qos).wait_for_publish(DEADLINE_S)

    def take(self, topic: str) -> Any:
        """What comes next, of this topic, as JSON."""
        message = self.inbox.get(timeout=DEADLINE_S)
        assert message.topic == topic, (message.topic, message.payload)
        return json.loads(message.payload)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "http", "mqtt") as hub:
        yield hub


@pytest.fixture
def http(hub: RunningHub) -> Iterator[SyncClient]:
    with SyncClient(f"http://127.0.0.1:{hub.port('http')}") as client:
        yield client


@pytest.fixture
def peer(hub: RunningHub, request: pytest.FixtureRequest) -> Iterator[Peer]:
    peer = Peer(hub, request.node.name)
    yield peer
    peer.close()


def values(http: SyncClient, topic: str) -> list[str]:
    try:
        return sorted(message.text for message in http.read(topic))
    except HubError as error:
        assert error.code == "unknown_topic", error
        return []


def hold(peer: Peer, group: str, address: str, value: str) -> str:
    """Hold a half message; its id, told on the client's own notices."""
    peer.publish(f"$half/{group}/{address}", value)
    held = peer.take(f"$txn/half/{group}")
    assert (held["group"], held["address"]) == (group, address)
    return str(held["id"])


def test_commit_and_rollback(peer: Peer, http: SyncClient) -> None:
    assert peer.subscribe("$txn/half/shop", "$txn/decided", "orders/#") == [1, 1, 1]
    first, second = hold(peer, "shop", "orders/1", "one"), hold(peer, "shop", "orders/2", "two")
    peer.publish("$txn/decide", {"id": second, "decision": "rollback"})
    assert peer.take("$txn/decided")["state"] == "rolled_back"
    assert values(http, "orders") == []
    peer.publish("$txn/decide", {"id": first, "decision": "commit"})
    seen = {message.topic: message.payload for message in (peer.inbox.get(timeout=DEADLINE_S) for _ in range(2))}
    assert seen["orders/1"] == b"one"
    assert json.loads(seen["$txn/decided"])["state"] == "committed"
    (message,) = http.read("orders")
    assert (message.id, message.door) == (first, "mqtt")


def test_what_is_wrong_with_a_decision_is_told(peer: Peer) -> None:
    peer.subscribe("$txn/half/shop", "$txn/decided")
    one = hold(peer, "shop", "wrong/1", "x")
    peer.publish("$txn/decide", {"id": one, "decision": "commit"})
    assert peer.take("$txn/decided")["state"] == "committed"
    peer.publish("$txn/decide", {"id": one, "decision": "commit"})
    assert peer.take("$txn/decided")["state"] == "committed"
    for payload, code in (({"id": one, "decision": "rollback"}, "already_decided"),
                          ({"id": "12345", "decision": "commit"}, "unknown_transaction"),
                          ({"id": one, "decision": "perhaps"}, "invalid_decision"),
                          ({"decision": "commit"}, "invalid_decision"), ("{", "invalid_decision"),
                          (b"\xff" * 2000, "invalid_decision")):
        peer.publish("$txn/decide", payload)
        told = peer.take("$txn/decided")
        assert (told["code"], told["id"]) == (code, payload.get("id") if isinstance(payload, dict) else None), payload


def test_members_of_a_group_are_asked_in_turn(hub: RunningHub, http: SyncClient) -> None:
    members = [Peer(hub, f"member-{number}") for number in range(2)]
    try:
        for member in members:
            assert member.subscribe("$txn/check/asked") == [1]
        held = []
        for number in range(4):
            transaction = http.client.transaction("asked", check={"after": 0.05, "every": 60})
            http.wait(transaction.publish(topic="asked", key=str(number), value=str(number)))
            held.append(transaction.id)
        asked = []
        for member in members:
            for _ in range(2):
                check = member.take("$txn/check/asked")
                asked.append(check["id"])
                assert check["message"]["key"] in "0123"
                member.publish("$txn/decide", {"id": check["id"], "decision": "commit"})
        assert sorted(asked) == sorted(held)
        assert values(http, "asked") == ["0", "1", "2", "3"]
    finally:
        for member in members:
            member.close()


def test_a_client_that_dies_is_spoken_for(hub: RunningHub, http: SyncClient) -> None:
    dying = Peer(hub, "dying")
    dying.publish("$half/spoken/spoken/1", "x")
    dying.client.socket().close()                            # type: ignore[union-attr]
    (one,) = http.transactions(group="spoken")
    other = Peer(hub, "other")
    other.subscribe("$txn/check/spoken")
    http.check_transaction(one["id"])
    check = other.take("$txn/check/spoken")
    assert (check["id"], check["message"]["value"], check["message"]["door"]) == (one["id"], "x", "mqtt")
    other.publish("$txn/decide", {"id": check["id"], "decision": "commit"})
    assert values(http, "spoken") == ["x"]
    other.close()
    dying.close()


def test_a_burst_of_everything_is_acknowledged_in_order(peer: Peer, http: SyncClient) -> None:
    peer.subscribe("$txn/half/burst", qos=0)
    acknowledged: list[int] = []
    peer.client.on_publish = lambda client, userdata, mid, code, properties: acknowledged.append(mid)
    one = hold(peer, "burst", "burst/half", "half")
    sent = [peer.client.publish("burst/plain", "plain", 1)]
    sent.append(peer.client.publish("$half/burst/burst/second", "second", 1))
    sent.append(peer.client.publish("$txn/decide", json.dumps({"id": one, "decision": "commit"}), 1))
    sent += [peer.client.publish("burst/plain", "plain", 1) for _ in range(20)]
    sent.append(peer.client.publish("$nothing/known", "x", 1))
    sent.append(peer.client.publish("$half/burst", "no address", 1))
    sent.append(peer.client.publish("burst/last", "last", 1))
    sent[-1].wait_for_publish(DEADLINE_S)
    deadline = time.monotonic() + DEADLINE_S
    while len(acknowledged) < len(sent) + 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert acknowledged[1:] == [message.mid for message in sent]
    assert values(http, "burst") == ["half", "last", *["plain"] * 21]


def test_delayed_half_messages(peer: Peer, http: SyncClient) -> None:
    peer.subscribe("$txn/half/later", "$txn/decided")
    peer.publish("$half/later/$delayed/3600/later/1", "x")
    one = peer.take("$txn/half/later")["id"]
    peer.publish("$txn/decide", {"id": one, "decision": "commit"})
    assert peer.take("$txn/decided")["state"] == "committed"
    assert http.show_scheduled(one)["address"] == "later/1"


def test_one_that_has_a_name_is_sent_again(peer: Peer, http: SyncClient) -> None:
    peer.subscribe("$txn/half/named", "$txn/decided")
    topic = "$half/named/$id/order 17/named/17"
    for _ in range(2):
        peer.publish(topic, "x")
    first, again = peer.take("$txn/half/named"), peer.take("$txn/half/named")
    assert (first["id"], first["name"], first["address"]) == (again["id"], "order 17", "named/17")
    peer.publish(topic, "another")
    told = peer.take("$txn/half/named")
    assert (told["code"], told["name"]) == ("idempotency_conflict", "order 17")
    assert told["packet_id"] == again["packet_id"] + 1
    peer.publish("$txn/decide", {"id": first["id"], "decision": "commit"})
    assert peer.take("$txn/decided")["state"] == "committed"
    peer.publish(topic, "x")
    assert peer.take("$txn/half/named")["id"] == first["id"]
    assert values(http, "named") == ["x"]


def test_a_name_means_the_same_over_another_door(hub: RunningHub, peer: Peer) -> None:
    peer.subscribe("$txn/half/doors")
    peer.publish("$half/doors/$id/17/doors/17", "x")
    request = urllib.request.Request(
        f"http://127.0.0.1:{hub.port('http')}/v1/transactions?group=doors&address=doors/17", b"x",
        {"Idempotency-Key": "17", "Content-Type": "text/plain"})
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        assert json.load(answer)["id"] == peer.take("$txn/half/doors")["id"]


@pytest.mark.parametrize(("given", "check"), [
    ("1.5,20,3", {"after": 1.5, "every": 20, "times": 3}), (",,7", {"after": 6, "every": 30, "times": 7}),
    ("0.25,,", {"after": 0.25, "every": 30, "times": 15})])
def test_one_says_when_it_is_asked_about(peer: Peer, http: SyncClient, given: str, check: dict[str, float]) -> None:
    peer.subscribe("$txn/half/when")
    peer.publish(f"$half/when/$id/{given}/$check/{given}/$delayed/5/when/1", "x")
    held = peer.take("$txn/half/when")
    assert (held["name"], held["address"]) == (given, "when/1")
    assert http.show_transaction(held["id"])["check"] == check


@pytest.mark.parametrize("given", ["", "1", "1,2", "-1,2,3", "1,2,3,4", "0,1,1", "1,1,99999", "a,b,c"])
def test_times_that_are_none(peer: Peer, http: SyncClient, given: str) -> None:
    peer.subscribe("$txn/half/never")
    peer.publish(f"$half/never/$check/{given}/never/1", "x")
    told = peer.take("$txn/half/never")
    assert told["code"] == "invalid_check_back"
    assert "id" not in told
    assert http.transactions(group="never") == []


@pytest.mark.parametrize(("written", "code"), [
    ("", "invalid_group"), ("$id/" + "n" * 256 + "/told/1", "invalid_half_name"), ("$id/17", "invalid_group"),
    ("$delayed/soon/told/1", "invalid_delay")])
def test_who_writes_one_wrongly_is_told(peer: Peer, http: SyncClient, written: str, code: str) -> None:
    peer.subscribe("$txn/half/told")
    peer.publish(f"$half/told/{written}", "x")
    told = peer.take("$txn/half/told")
    assert (told["code"], told["name"], told["address"]) == (code, None, written)
    assert http.transactions(group="told") == []


@pytest.mark.parametrize("name", ["named", "/named", "n" * 256 + "/named"])
def test_names_that_are_none(peer: Peer, http: SyncClient, name: str) -> None:
    open_before = len(http.transactions(group="shop"))
    peer.publish(f"$half/shop/$id/{name}", "x")
    assert len(http.transactions(group="shop")) == open_before


@pytest.mark.parametrize("wanted", ["$txn/check/#", "$txn/check/+", "$txn/check/a/b", "$txn/#", "$txn/other",
                                    "$txn/check/", "$half/#"])
def test_filters_that_are_none_of_them(peer: Peer, wanted: str) -> None:
    assert peer.subscribe(wanted) == [0x80]


def test_a_killed_hub_forgets_nothing(tmp_path: Path) -> None:
    with running_hub(tmp_path, "http", "mqtt") as hub:
        peer = Peer(hub, "sender")
        peer.subscribe("$txn/half/kept")
        held = [hold(peer, "kept", f"kept/{number}", str(number)) for number in range(10)]
        peer.close()
    with running_hub(tmp_path, "http", "mqtt") as hub:
        peer = Peer(hub, "sender")
        peer.subscribe("$txn/decided")
        for one in held:
            peer.publish("$txn/decide", {"id": one, "decision": "commit"})
            assert peer.take("$txn/decided")["state"] == "committed"
        with SyncClient(f"http://127.0.0.1:{hub.port('http')}") as http:
            assert values(http, "kept") == [str(number) for number in range(10)]
        peer.close()


def test_a_name_outlives_a_killed_hub(tmp_path: Path) -> None:
    ids = set()
    for _ in range(2):
        with running_hub(tmp_path, "http", "mqtt") as hub:
            peer = Peer(hub, "sender")
            peer.subscribe("$txn/half/kept")
            peer.publish("$half/kept/$id/17/kept/17", "x")
            ids.add(peer.take("$txn/half/kept")["id"])
            peer.close()
    assert len(ids) == 1
