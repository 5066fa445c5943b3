"""Enhanced authentication (MQTT 5, 4.12): SCRAM before CONNACK, again afterwards, and clients that do it wrongly."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.admission.scram import ScramServer, make_secret
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import properties as P
from gatehouse.gateways.mqtt import reasons
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.packets import encode_auth
from gatehouse.gateways.mqtt.properties import Packet
from tests.gateways.accounts import KnownUsers
from tests.gateways.admission.test_scram import Client as Scram
from tests.gateways.mqtt.five import Client, Seen, connect_packet, packet, publish_packet

METHOD = "SCRAM-SHA-256"


class Admission(KnownUsers):
    """`wait_ms` and `delay_ms`: how long right and wrong proofs wait."""

    wait_ms = 0
    delay_ms = 0

    def scram(self, door: str, peer: str, mechanism: str) -> ScramServer:
        def accept(name: str) -> Principal:
            if name not in self.passwords:
                raise NotAuthenticated("gone")
            return Principal(name)

        return ScramServer(mechanism, "s" * 20, lambda name: make_secret(
            mechanism, self.passwords.get(name, "?").encode(), b"salt" * 4, 4096), accept,
            lambda name: NotAuthenticated("no", self.delay_ms), lambda name: self.wait_ms)


def hub_of() -> tuple[FakeHub, Admission]:
    hub = FakeHub()
    kernel: Any = hub.kernel
    admission = Admission(kernel, hub.now_ms)
    hub.admission = hub.services.admission = admission
    return hub, admission


def auth(reason: int, data: bytes, method: str = METHOD) -> bytes:
    return encode_auth(reason, method, data)


def ask(hub: FakeHub, scram: Scram, config: MqttConfig | None = None) -> tuple[Client, Seen]:
    """A client that has sent its CONNECT, and what came back."""
    client = Client(hub, config=config, connects=False)
    client.send(connect_packet(properties=[(P.AUTH_METHOD, METHOD), (P.AUTH_DATA, scram.first())]))
    [seen] = client.take()
    return client, seen


def log_in(hub: FakeHub, scram: Scram) -> tuple[Client, Seen]:
    client, challenge = ask(hub, scram)
    assert (challenge.kind, challenge.reason) == (Packet.AUTH, reasons.CONTINUE_AUTHENTICATION)
    assert challenge.properties.values[P.AUTH_METHOD] == METHOD
    client.send(auth(reasons.CONTINUE_AUTHENTICATION, scram.final(challenge.properties.values[P.AUTH_DATA])))
    [connack] = client.take()
    return client, connack


def test_mqtt_4_12_0_2_scram_before_connack() -> None:
    hub, _ = hub_of()
    scram = Scram("ada", "lovelace")
    client, connack = log_in(hub, scram)
    assert (connack.kind, connack.reason) == (Packet.CONNACK, reasons.SUCCESS)
    assert connack.properties.values[P.AUTH_METHOD] == METHOD
    assert scram.believes(connack.properties.values[P.AUTH_DATA]), "the hub knows the password, too"
    assert client.session.describe()["user"] == "ada"


def test_4_12_the_first_message_may_come_behind_connect() -> None:
    hub, _ = hub_of()
    scram = Scram("ada", "lovelace")
    client = Client(hub, connects=False)
    client.send(connect_packet(properties=[(P.AUTH_METHOD, METHOD)]))
    assert [seen.kind for seen in client.take()] == [Packet.AUTH]
    for byte in auth(reasons.CONTINUE_AUTHENTICATION, scram.first()):
        client.send(bytes((byte,)))
    [challenge] = client.take()
    final = scram.final(challenge.properties.values[P.AUTH_DATA])
    client.send(auth(reasons.CONTINUE_AUTHENTICATION, final), publish_packet("t", b"behind it", 7))
    hub.kernel.flush()
    assert [seen.kind for seen in client.take()] == [Packet.CONNACK, Packet.PUBACK]


@pytest.mark.parametrize(("user", "password"), [("ada", "wrong"), ("eve", "any")])
def test_mqtt_4_12_0_4_a_wrong_proof_is_refused_after_its_time(user: str, password: str) -> None:
    hub, admission = hub_of()
    admission.delay_ms = 500
    client, challenge = ask(hub, scram := Scram(user, password))
    client.send(auth(reasons.CONTINUE_AUTHENTICATION, scram.final(challenge.properties.values[P.AUTH_DATA])))
    client.send(publish_packet("t", b"not yet", 1))
    assert client.take() == [] and client.link.paused
    hub.advance(600)
    assert (client.ended().kind, client.link.reason.partition(":")[0]) == (Packet.CONNACK, "connect_refused")


def test_a_right_proof_that_waits_is_looked_at_again() -> None:
    hub, admission = hub_of()
    admission.wait_ms = 500
    for stays in (True, False):
        client, challenge = ask(hub, scram := Scram("ada", "lovelace"))
        client.send(auth(reasons.CONTINUE_AUTHENTICATION, scram.final(challenge.properties.values[P.AUTH_DATA])))
        assert client.take() == []
        if not stays:
            del admission.passwords["ada"]
        hub.advance(600)
        [connack] = client.take()
        assert (connack.reason == reasons.SUCCESS) is stays


@pytest.mark.parametrize("data", [
    publish_packet("t", b"x"), connect_packet(), packet(0xC0, b""),
    encode_auth(reasons.RE_AUTHENTICATE, METHOD, b"x"), encode_auth(reasons.CONTINUE_AUTHENTICATION, "OTHER", b"x"),
    encode_auth(reasons.SUCCESS, METHOD, b"x")])
def test_mqtt_3_1_2_30_nothing_but_auth_comes_before_connack(data: bytes) -> None:
    hub, _ = hub_of()
    client, _ = ask(hub, Scram("ada", "lovelace"))
    client.send(data)
    assert client.link.closed and client.link.reason.startswith("protocol_error")
    [refusal] = client.take()
    assert (refusal.kind, refusal.reason) == (Packet.CONNACK, reasons.PROTOCOL_ERROR), "not a close without a word"


def test_mqtt_4_12_0_1_a_method_that_is_not_allowed() -> None:
    hub, _ = hub_of()
    client, refusal = ask(hub, Scram("ada", "lovelace"), MqttConfig(auth_methods=("SCRAM-SHA-512",)))
    assert (refusal.kind, refusal.reason) == (Packet.CONNACK, reasons.BAD_METHOD)


def test_mqtt_4_12_1_1_a_client_logs_in_again_while_the_rest_goes_on() -> None:
    hub, _ = hub_of()
    client, _ = log_in(hub, Scram("ada", "lovelace"))
    for _ in range(2):
        scram = Scram("ada", "lovelace")
        [challenge] = client.ask(auth(reasons.RE_AUTHENTICATE, scram.first()))
        [ack] = client.ask(publish_packet("t", b"x", 1))
        assert (challenge.kind, challenge.reason, ack.kind) == (
            Packet.AUTH, reasons.CONTINUE_AUTHENTICATION, Packet.PUBACK)
        final = scram.final(challenge.properties.values[P.AUTH_DATA])
        [done] = client.ask(auth(reasons.CONTINUE_AUTHENTICATION, final))
        assert (done.kind, done.reason) == (Packet.AUTH, reasons.SUCCESS)
        assert scram.believes(done.properties.values[P.AUTH_DATA])


def test_4_12_1_who_logs_in_again_may_leave_the_first_message_to_the_next_auth() -> None:
    hub, _ = hub_of()
    client, _ = log_in(hub, Scram("ada", "lovelace"))
    scram = Scram("ada", "lovelace")
    [asked] = client.ask(auth(reasons.RE_AUTHENTICATE, b""))
    assert (asked.kind, asked.reason) == (Packet.AUTH, reasons.CONTINUE_AUTHENTICATION)
    [challenge] = client.ask(auth(reasons.CONTINUE_AUTHENTICATION, scram.first()))
    final = scram.final(challenge.properties.values[P.AUTH_DATA])
    [done] = client.ask(auth(reasons.CONTINUE_AUTHENTICATION, final))
    assert (done.kind, done.reason) == (Packet.AUTH, reasons.SUCCESS)


@pytest.mark.parametrize(("user", "password"), [("ada", "wrong"), ("bob", "builder")])
def test_mqtt_4_12_1_2_who_fails_or_is_somebody_else_then_is_disconnected(user: str, password: str) -> None:
    hub, _ = hub_of()
    client, _ = log_in(hub, Scram("ada", "lovelace"))
    scram = Scram(user, password)
    [challenge] = client.ask(auth(reasons.RE_AUTHENTICATE, scram.first()))
    client.send(auth(reasons.CONTINUE_AUTHENTICATION, scram.final(challenge.properties.values[P.AUTH_DATA])))
    hub.advance(10)
    ended = client.ended()
    assert (ended.kind, ended.reason) == (Packet.DISCONNECT, reasons.NOT_AUTHORIZED)


def test_mqtt_4_12_0_7_auth_of_who_logged_in_without() -> None:
    hub, _ = hub_of()
    client = Client(hub, user="ada", password="lovelace")
    client.send(auth(reasons.RE_AUTHENTICATE, b"n,,n=ada,r=rOprNGfwEbeRWgbNEkqO"))
    assert client.ended().reason == reasons.PROTOCOL_ERROR
