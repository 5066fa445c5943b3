"""CONNECT with credentials, answers that take their time, rights that change and principals that end."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gatehouse.gateways.admission.accounts import ApiKey, User
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.passwords import make_key
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.admission.rules import read_rule
from gatehouse.gateways.contract import Session
from gatehouse.gateways.kit import FakeHub, FakeLink
from gatehouse.gateways.mqtt import GATEWAY
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.sessions.session_values import Will
from tests.gateways.accounts import KnownUsers
from tests.gateways.mqtt.test_codec import publish

ACCEPTED, BAD_CLIENT_ID = b"\x20\2\0\0", b"\x20\2\0\2"
UNAVAILABLE = b"\x20\2\0\3"
BAD_LOGIN, NOT_AUTHORIZED = b"\x20\2\0\4", b"\x20\2\0\5"


class Rights:
    """What everybody may, until it is changed."""

    def __init__(self, *allowed: tuple[Operation, str]) -> None:
        self.allowed = set(allowed)

    def __call__(self, principal: Principal, operation: Operation, address: str) -> bool:
        return (operation, address) in self.allowed


def hub_with_users(*allowed: tuple[Operation, str]) -> tuple[FakeHub, KnownUsers, Rights]:
    hub, rights = FakeHub(), Rights(*allowed)
    kernel: Any = hub.kernel
    admission = KnownUsers(kernel, hub.now_ms, decision=rights)
    hub.admission = hub.services.admission = admission
    return hub, admission, rights


def text(value: str) -> bytes:
    return len(value.encode()).to_bytes(2, "big") + value.encode()


def packet(user: str | None = None, password: str | None = None, will: tuple[str, str] | None = None,
           client_id: str = "c") -> bytes:
    flags = 2 | (0x80 if user is not None else 0) | (0x40 if password is not None else 0) | (4 if will else 0)
    body = b"\0\4MQTT\4" + bytes((flags,)) + b"\0\0" + text(client_id)
    for value in (*(will or ()), user, password):
        body += b"" if value is None else text(value)
    return b"\x10" + bytes((len(body),)) + body


def ada(hub: FakeHub, config: MqttConfig | None = None, will: tuple[str, str] | None = None
        ) -> tuple[Session, FakeLink]:
    session, link = hub.open(GATEWAY, config or MqttConfig())
    session.handle_data(packet("ada", "lovelace", will))
    if will is not None:
        hub.kernel.flush()                   # a will is durable before its client is let in
    assert link.take() == ACCEPTED
    return session, link


@pytest.mark.parametrize(("user", "password", "certificate", "answer"), [
    ("ada", "lovelace", None, ACCEPTED), ("ada", "babbage", None, BAD_LOGIN), ("eve", "x", None, BAD_LOGIN),
    ("ada", None, None, BAD_LOGIN), (None, None, None, NOT_AUTHORIZED), (None, None, "ada", ACCEPTED),
    (None, None, "eve", NOT_AUTHORIZED)])
def test_mqtt_3_2_2_3_who_is_let_in(user: str | None, password: str | None, certificate: str | None, answer: bytes
                                    ) -> None:
    hub, _, _ = hub_with_users()
    session, link = hub.open(GATEWAY, MqttConfig())
    link.certificate = certificate
    session.handle_data(packet(user, password))
    assert link.take() == answer
    assert link.closed == (answer != ACCEPTED), "[MQTT-3.2.2-5]"
    assert "babbage" not in link.reason


def test_where_too_many_wait_a_client_is_told_to_come_again() -> None:
    hub, admission, _ = hub_with_users()
    admission.full = True
    session, link = hub.open(GATEWAY, MqttConfig())
    session.handle_data(packet("ada", "lovelace"))
    assert link.take() == UNAVAILABLE and link.closed


def test_who_has_hung_up_is_gone_for_admission() -> None:
    hub, admission, _ = hub_with_users()
    admission.late = True
    session, link = hub.open(GATEWAY, MqttConfig())
    session.handle_data(packet("ada", "lovelace"))
    gone, = admission.gone
    assert not gone()
    link.gone = True
    assert gone()


def test_a_login_by_certificate_ends_with_it_and_its_will_is_published() -> None:
    hub, admission, _ = hub_with_users((Operation.PUBLISH, "w"), (Operation.CREATE, "w"))
    session, link = hub.open(GATEWAY, MqttConfig())
    link.certificate, link.certificate_ends_ms = "ada", hub.now_ms() + 1000
    session.handle_data(packet(will=("w", "bye")))
    (principal, session), = admission.registered
    assert principal.expires_ms == link.certificate_ends_ms
    hub.advance(1000)
    session.on_principal_ended("what it logged in with has expired")
    hub.cut(session)
    hub.kernel.flush()
    assert link.closed and [record[3] for record in hub.kernel.records()] == [b"bye"]


def test_mqtt_3_1_4_2_a_client_id_is_taken_over_by_its_user_alone() -> None:
    """Who knows a client id cannot throw its owner out, nor be thrown out by the attempt."""
    hub, _, _ = hub_with_users((Operation.CONSUME, "a/#"))
    session, link = ada(hub)
    subscribe(session, link, "a/#")
    other, others = hub.open(GATEWAY, MqttConfig())
    other.handle_data(packet("bob", "builder", ("w", "bye")))
    assert others.take() == BAD_CLIENT_ID and others.closed and "another user" in others.reason
    hub.cut(other)
    assert not link.closed and session.describe()["filters"] == ["a/#"]
    again, agains = ada(hub)
    assert link.closed and link.reason.startswith("taken_over") and not agains.closed
    hub.cut(again)
    other, others = hub.open(GATEWAY, MqttConfig())
    other.handle_data(packet("bob", "builder"))
    assert others.take() == ACCEPTED, "its owner has left"


def test_client_ids_that_rules_allow() -> None:
    """Admission's decision stands at CONNECT and after every change; an id that the hub gives is nobody's claim."""
    hub, admission, _ = hub_with_users()
    allowed = {"c"}
    admission.may_have_client_id = lambda _, client_id: client_id in allowed        # type: ignore[method-assign]
    session, link = ada(hub)
    for client_id, answer in (("d", BAD_CLIENT_ID), ("", ACCEPTED)):
        other, others = hub.open(GATEWAY, MqttConfig())
        other.handle_data(packet("ada", "lovelace", client_id=client_id))
        assert others.take() == answer and others.closed == (answer != ACCEPTED)
    allowed.clear()
    session.on_rights_changed()                                                     # type: ignore[attr-defined]
    other.on_rights_changed()                                                       # type: ignore[attr-defined]
    assert link.closed and "client id" in link.reason and not others.closed


def test_packets_behind_connect_wait_until_it_is_known_who_sends_them() -> None:
    hub, admission, _ = hub_with_users((Operation.PUBLISH, "t"), (Operation.CREATE, "t"))
    admission.late = True
    session, link = hub.open(GATEWAY, MqttConfig())
    session.handle_data(packet("ada", "lovelace") + publish(b"t", b"1", 1))
    session.handle_data(publish(b"t", b"2", 2))
    assert link.take() == b"" and link.paused
    admission.tell()
    hub.kernel.flush()
    assert link.take() == ACCEPTED + b"\x40\2\0\1\x40\2\0\2" and not link.paused


def test_a_client_that_goes_while_it_is_checked() -> None:
    hub, admission, _ = hub_with_users()
    admission.late = True
    session, link = hub.open(GATEWAY, MqttConfig())
    session.handle_data(packet("ada", "lovelace", ("w", "bye")))
    hub.cut(session)
    admission.tell()
    assert admission.registered == [] and link.take() == b"" and hub.kernel.records() == []


def test_a_denied_publish_ends_the_connection_where_that_is_wanted_and_what_came_before_stands() -> None:
    hub, _, _ = hub_with_users((Operation.PUBLISH, "yes"), (Operation.CREATE, "yes"))
    session, link = ada(hub, MqttConfig(on_denied="disconnect"))
    session.handle_data(publish(b"yes", b"1", 1) + publish(b"no", b"2", 2) + publish(b"yes", b"3", 3))
    hub.kernel.flush()
    assert link.closed and link.reason.startswith("not_authorized")
    assert [record[3] for record in hub.kernel.records()] == [b"1"]


def test_a_denied_delayed_publish() -> None:
    hub, _, _ = hub_with_users()
    session, link = ada(hub)
    session.handle_data(publish(b"$delayed/5/t", b"1", 1))
    assert link.take() == b"\x40\2\0\1" and hub.admission.trace.counts["mqtt", "publish_denied"] == 1


def subscribe(session: Session, link: FakeLink, *filters: str) -> list[int]:
    body = b"\0\1" + b"".join(text(one) + b"\1" for one in filters)
    session.handle_data(b"\x82" + bytes((len(body),)) + body)
    return list(link.take()[4:])


def test_subscriptions_that_are_no_longer_allowed_end() -> None:
    hub, admission, rights = hub_with_users((Operation.CONSUME, "a/#"), (Operation.CONSUME, "b/#"))
    session, link = ada(hub)
    assert subscribe(session, link, "a/#", "b/#", "c/#") == [1, 1, 0x80]
    rights.allowed.discard((Operation.CONSUME, "b/#"))
    (_, session), = admission.registered
    session.on_rights_changed()
    assert session.describe()["filters"] == ["a/#"]
    assert hub.kernel.subscriptions == 1 and not link.closed


def test_a_share_takes_the_right_to_the_group_and_to_the_filter() -> None:
    for short in ((Operation.CONSUME, "jobs/#"), (Operation.CONSUME, "crew")):
        hub, _, _ = hub_with_users(short)
        session, link = ada(hub)
        assert subscribe(session, link, "$share/crew/jobs/#") == [0x80]


def test_topics_that_were_allowed_are_judged_anew_when_rights_change() -> None:
    hub, admission, rights = hub_with_users((Operation.PUBLISH, "t"), (Operation.CREATE, "t"))
    session, link = ada(hub)
    session.handle_data(publish(b"t", b"1", 1))
    rights.allowed.clear()
    (_, session), = admission.registered
    session.on_rights_changed()
    session.handle_data(publish(b"t", b"2", 2))
    hub.kernel.flush()
    assert [record[3] for record in hub.kernel.records()] == [b"1"]


@pytest.mark.parametrize("expired", [True, False])
def test_the_will_of_a_client_whose_token_runs_out_is_published_and_that_of_a_user_who_is_gone_is_not(expired: bool
                                                                                                      ) -> None:
    hub, admission, _ = hub_with_users((Operation.PUBLISH, "w"), (Operation.CREATE, "w"))
    admission.expires_ms = hub.now_ms() if expired else 0
    session, link = ada(hub, will=("w", "bye"))
    (_, session), = admission.registered
    session.on_principal_ended("why")
    assert link.closed and link.reason == "principal_ended: why"
    hub.cut(session)
    hub.kernel.flush()
    assert [record[3] for record in hub.kernel.records()] == [b"bye"] * expired


def test_a_will_that_may_not_be_published_is_counted() -> None:
    hub, _, _ = hub_with_users()
    session, _ = ada(hub, will=("w", "bye"))
    hub.cut(session)
    assert hub.admission.trace.counts["mqtt", "will_not_authorized"] == 1


def hub_with_an_account(pattern: str = "plant/#") -> tuple[FakeHub, str]:
    """`ada` may publish everywhere, and with the key, whose text comes too, at this pattern alone."""
    hub = FakeHub()
    id, secret_hash, key = make_key(bytes)
    accounts = hub.admission.accounts
    accounts.users["ada"] = User("ada")
    restriction = (read_rule({"who": "everyone", "operations": ["publish", "create"], "pattern": pattern}),)
    accounts.keys[id] = ApiKey(id, "ada", "k", secret_hash, restriction=restriction)
    hub.admission.configure((read_rule({"who": "user:ada", "pattern": "#"}, "file-1"),), {}, None)
    return hub, key


def test_an_api_key_may_be_restricted_to_what_is_its_clients() -> None:
    hub, key = hub_with_an_account("dev/{client_id}/#")
    session, link = hub.open(GATEWAY, MqttConfig())
    session.handle_data(packet("ada", key) + publish(b"dev/c/up", b"1", 1) + publish(b"dev/d/up", b"2", 2))
    hub.kernel.flush()
    assert [record[3] for record in hub.kernel.records()] == [b"1"]


@pytest.mark.parametrize("address", ["plant/w", "office/w"])
def test_a_will_goes_nowhere_where_the_api_key_of_its_client_may_not(address: str) -> None:
    hub, key = hub_with_an_account()
    session, link = hub.open(GATEWAY, MqttConfig())
    session.handle_data(packet("ada", key, will=(address, "bye")))
    hub.kernel.flush()
    assert link.take() == ACCEPTED
    hub.cut(session)
    hub.kernel.flush()
    may = address.startswith("plant")
    assert [record[3] for record in hub.kernel.records()] == [b"bye"] * may
    assert hub.admission.trace.counts["mqtt", "will_not_authorized"] == (not may)


@pytest.mark.parametrize("change", ["none", "disabled", "deleted"])
def test_a_will_that_waits_is_nobody_s_once_its_user_is_gone(change: str) -> None:
    hub, _ = hub_with_an_account()
    hub.open_door(GATEWAY)
    will = Will("/", "c", "ada", "plant/w", b"bye", encode_headers(()), 0, 60_000, 0, 0)
    hub.kernel.sessions.keep_will(will, None, None)
    hub.kernel.sessions.break_off("/", "c")
    users = hub.admission.accounts.users
    if change == "disabled":
        users["ada"] = replace(users["ada"], disabled=True)
    elif change == "deleted":
        del users["ada"]
    hub.advance(60_000)
    assert [record[3] for record in hub.kernel.records()] == [b"bye"] * (change == "none")
    assert hub.admission.trace.counts["mqtt", "will_not_authorized"] == (change != "none")


@pytest.mark.parametrize(("user", "password", "answer"), [("", None, ACCEPTED), ("", "", ACCEPTED),
                                                          ("", "x", BAD_LOGIN), ("eve", None, BAD_LOGIN)])
def test_an_empty_name_without_a_password_is_nobody_s(user: str, password: str | None, answer: bytes) -> None:
    session, link = FakeHub().open(GATEWAY, MqttConfig())
    session.handle_data(packet(user, password))
    assert link.take() == answer
