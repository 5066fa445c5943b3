"""How many connections somebody may have: counted while they last, refused in each door's words."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.admission.errors import InvalidLimit, TooManyConnections
from gatehouse.gateways.admission.limits.limit import read_limit
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import reasons
from gatehouse.gateways.mqtt.config import MqttConfig
from tests.gateways.admission.limits.test_charging import Limited
from tests.gateways.admission.test_guard import Client
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
