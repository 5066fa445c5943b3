"""How many connections somebody may have: counted while they last, refused in each door's words."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.admission.accounts import ApiKey, User
from gatehouse.gateways.admission.errors import InvalidLimit, TooManyConnections
from gatehouse.gateways.admission.limits.limit import read_limit
from gatehouse.gateways.admission.passwords import make_key
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import reasons
from gatehouse.gateways.mqtt.config import MqttConfig
from tests.gateways.admission.limits.test_charging import Limited
from tests.gateways.admission.test_guard import Client
from tests.gateways.amqp.fakes import Client as AmqpClient
from tests.gateways.amqp.fakes import Hub as AmqpHub
from tests.gateways.limiting import drop_limit, set_limit
from tests.gateways.mqtt.five import Client as FiveClient
from tests.gateways.mqtt.five import connect_packet


@pytest.mark.parametrize("table", [
    {"of": "user:ann", "connections": -1}, {"of": "user:ann", "connections": 1.5},
    {"of": "user:ann", "connections": True}, {"of": "topic:t", "connections": 5},
    {"of": "user:ann", "connections": 5, "direction": "out"}])
def test_what_bounds_no_connections(table: dict[str, Any]) -> None:
    with pytest.raises(InvalidLimit):
        read_limit(table)


def test_connections_are_counted_while_they_last() -> None:
    hub = Limited({"of": "user:*", "connections": 2}, {"of": "hub", "connections": 3})
    one, two = hub.guard("ann", Client()), hub.guard("ann", Client())
    assert not one.limited, "nothing that flows is limited"
    with pytest.raises(TooManyConnections):
        hub.guard("ann", Client())
    hub.services.guard("test", one.logged_in, Client(), replaces=True).leave()
    bob = hub.guard("bob", Client())
    with pytest.raises(TooManyConnections):
        hub.guard("eve", Client())
    two.leave()
    two.leave()
    assert hub.guard("ann", Client()) and hub.guard("eve", None), "who has no session has no connection"
    bob.leave()
    hub.put("1", {"of": "hub", "connections": 0, "observe": True})
    assert hub.guard("eve", Client())


def test_a_tenant_and_a_door() -> None:
    hub = Limited({"of": "tenant:/", "connections": 1}, {"of": "door:other", "connections": 0})
    guard = hub.guard("ann", Client())
    with pytest.raises(TooManyConnections):
        hub.guard("bob", Client())
    guard.leave()
    hub.guard("bob", Client())


def test_mqtt_says_so_and_a_client_that_comes_back_takes_its_own_place() -> None:
    hub = FakeHub()
    set_limit(hub, "user:anonymous", connections=1)
    first = FiveClient(hub, "c")
    other = FiveClient(hub, "other", connects=False)
    other.send(connect_packet("other"))
    assert other.ended().reason == reasons.BUSY
    FiveClient(hub, "c")
    assert first.link.closed
    drop_limit(hub)
    FiveClient(hub, "other", MqttConfig())


def test_amqp_has_a_place_in_the_tenant_of_its_virtual_host() -> None:
    hub = AmqpHub()
    id, secret_hash, key = make_key(bytes)
    accounts = hub.admission.accounts
    accounts.users["ann"] = User("ann", tenants=frozenset(("blue",)))
    accounts.keys[id] = ApiKey(id, "ann", "k", secret_hash)
    set_limit(hub, "tenant:blue", "1", connections=1)
    set_limit(hub, "tenant:/", "2", connections=1)

    def opened(virtual_host: str) -> tuple[AmqpClient, Any]:
        client = hub.client()
        client.send(b"AMQP\0\0\x09\x01")
        client.ask("connection.start-ok", 0, mechanism="PLAIN", response=f"\0ann\0{key}".encode())
        client.ask("connection.tune-ok", 0)
        return client, client.ask("connection.open", 0, virtual_host=virtual_host)[-1]

    first, (_, method, _) = opened("blue")
    assert method == "connection.open-ok"
    _, (_, method, told) = opened("blue")
    assert (method, told["code"]) == ("connection.close", 506)
    assert told["text"].startswith("RESOURCE_ERROR - the limit 1 lets tenant:blue have 1 connections")
    _, (_, method, _) = opened("/")
    assert method == "connection.open-ok", "who is in one tenant has no place in another"
    first.session.handle_closed()
    assert opened("blue")[1][1] == "connection.open-ok"
