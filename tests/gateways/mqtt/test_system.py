"""`$SYS/broker/...`: the hub's figures, as mosquitto names them."""
from __future__ import annotations

import pytest

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import reasons
from gatehouse.gateways.mqtt.config import MqttConfig
from tests.gateways.mqtt.five import Client, publish_packet, unsubscribe_packet
from tests.gateways.mqtt.test_durable import leave, sleeper

CONNECTED = "$SYS/broker/clients/connected"
RECEIVED = "$SYS/broker/publish/messages/received"


def figures(client: Client) -> dict[str, bytes]:
    return {seen.topic: seen.value for seen in [*client.behind, *client.received()]}


def pass_interval(client: Client, seconds: int = 10) -> None:
    client.behind = []
    client.hub.advance(seconds * 1000)


def test_figures_come_as_what_is_retained_and_then_when_they_change() -> None:
    hub = FakeHub()
    client = Client(hub)
    assert client.subscribe(("$SYS/#", 1)) == [1]
    assert all(seen.retain and seen.qos == 1 for seen in client.behind)
    first = figures(client)
    assert first[CONNECTED] == b"1" and first["$SYS/broker/version"].startswith(b"gatehouse version ")
    assert first["$SYS/broker/uptime"].endswith(b" seconds")
    other = Client(hub, "other")
    other.ask(publish_packet("plant/1", b"x", 1))
    pass_interval(client)
    seen = client.received()
    assert not any(each.retain for each in seen)
    later = {each.topic: each.value for each in seen}
    assert (later[CONNECTED], later[RECEIVED]) == (b"2", b"1")
    assert "$SYS/broker/version" not in later, "it is as before"
    assert float(later["$SYS/broker/load/messages/received/1min"]) > 0


def test_the_names_that_mosquitto_has() -> None:
    client = Client(FakeHub())
    client.subscribe(("$SYS/broker/+", 0), ("$SYS/broker/clients/+", 0), ("$SYS/broker/load/#", 0))
    names = {name.removeprefix("$SYS/broker/") for name in figures(client)}
    assert {"version", "uptime", "clients/total", "clients/maximum", "clients/disconnected", "clients/connected",
            "load/messages/sent/5min", "load/publish/dropped/15min", "load/bytes/received/1min"} <= names


def test_who_sleeps_is_counted_and_figures_go_on_when_a_session_wakes() -> None:
    hub = FakeHub()
    leave(sleeper(hub, ("plant/#", 1), client_id="asleep"))
    client = sleeper(hub)
    client.subscribe(("$SYS/broker/clients/disconnected", 1))
    assert figures(client) == {"$SYS/broker/clients/disconnected": b"1"}
    leave(client)
    client = sleeper(hub)
    assert figures(client) == {"$SYS/broker/clients/disconnected": b"1"}
    leave(Client(hub, "asleep", clean=True))
    pass_interval(client)
    assert figures(client) == {"$SYS/broker/clients/disconnected": b"0"}


def test_unsubscribe_ends_them() -> None:
    client = Client(FakeHub())
    client.subscribe(("$SYS/#", 0))
    assert client.ask(unsubscribe_packet(3, "$SYS/#"))[0].reasons == [reasons.SUCCESS]
    Client(client.hub, "other")
    pass_interval(client)
    assert client.received() == []


def test_they_stand_behind_a_right_of_their_own() -> None:
    def decide(who: object, operation: Operation, address: str) -> bool:
        return address in ("#", "plant/#")

    assert Client(FakeHub(decision=decide)).subscribe(("$SYS/#", 0), ("#", 0)) == [reasons.NOT_AUTHORIZED, 0]


@pytest.mark.parametrize("topic_filter", ["$SYS/#", "$SYS/broker/uptime"])
def test_a_hub_that_has_none(topic_filter: str) -> None:
    client = Client(FakeHub(), config=MqttConfig(sys_interval_s=0))
    assert client.subscribe((topic_filter, 0)) == [reasons.NOT_AUTHORIZED]


def test_nobody_publishes_there() -> None:
    client = Client(FakeHub())
    client.subscribe(("$SYS/#", 0))
    [puback] = client.ask(publish_packet("$SYS/broker/uptime", b"0", 1))
    assert puback.reason == reasons.NOT_AUTHORIZED and client.received() == []
