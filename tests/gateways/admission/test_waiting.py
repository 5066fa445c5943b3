"""A door lets its peer wait while a password is checked, and goes on with what came meanwhile."""
from __future__ import annotations

from typing import Any

from gatehouse.gateways.admission.admission import NotAuthenticated
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import GATEWAY as MQTT
from gatehouse.gateways.mqtt.config import MqttConfig

CONNECT = b"\x10\x13\0\4MQTT\4\xc2\0\0\0\1c\0\1u\0\1p"
PING = b"\xc0\0"


def waiting(hub: FakeHub) -> list[Any]:
    """What will be told who has logged in; nobody is told by itself."""
    told: list[Any] = []
    hub.admission.authenticate = lambda door, peer, credentials, on_done, gone: told.append(on_done)  # type: ignore
    return told


def test_mqtt_answers_nothing_before_it_knows_who_asks() -> None:
    hub = FakeHub()
    told = waiting(hub)
    session, link = hub.open(MQTT, MqttConfig())
    session.handle_data(CONNECT + PING)
    session.handle_data(PING)
    assert link.paused and link.take() == b""
    told.pop()(hub.admission.anonymous)
    assert not link.paused and link.take() == b"\x20\2\0\0\xd0\0\xd0\0"


def test_mqtt_refuses_late_and_is_not_confused_by_a_peer_that_has_gone() -> None:
    hub = FakeHub()
    told = waiting(hub)
    session, link = hub.open(MQTT, MqttConfig())
    session.handle_data(CONNECT)
    told.pop()(NotAuthenticated("no"))
    assert link.take() == b"\x20\2\0\4" and link.closed
    session, link = hub.open(MQTT, MqttConfig())
    session.handle_data(CONNECT)
    hub.cut(session)
    told.pop()(hub.admission.anonymous)
    assert link.take() == b""
