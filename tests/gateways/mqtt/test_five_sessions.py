"""MQTT 5 over connections: what a session keeps, what ends with a connection, wills, what comes again."""
from __future__ import annotations

import string
import time
from typing import Any

import pytest

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import properties as P
from gatehouse.gateways.mqtt import reasons
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.packets import NO_LOCAL
from gatehouse.gateways.mqtt.properties import Packet, encode_properties
from gatehouse.kernel.addresses import audience
from tests.gateways.mqtt.five import (
    Client,
    ack_packet,
    connect_packet,
    packet,
    publish_packet,
    subscribe_packet,
    unsubscribe_packet,
)
from tests.gateways.mqtt.test_durable import PUBACK, PUBCOMP, PUBREC, PUBREL, leave, messages, publish, rest, sleeper

SIGNS = string.digits + string.ascii_letters


@pytest.mark.parametrize("client_id", ["0", SIGNS[:23], SIGNS[23:46], SIGNS[39:]])
def test_mqtt_3_1_3_5_client_ids_that_every_server_takes(client_id: str) -> None:
    client = Client(FakeHub(), client_id)
    assert P.ASSIGNED_ID not in client.connack.properties.values
    assert client.session.describe()["client_id"] == client_id


def test_mqtt_3_1_2_4_a_clean_start_ends_the_session_that_was_there() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 2))
    client.send(publish_packet("other", b"half sent", 7, qos=2))
    leave(client)
    publish(hub, "plant/1", b"a", qos=2)
    client = Client(hub, "c", clean=True, properties=[(P.SESSION_EXPIRY, 3_600)])
    assert not client.connack.session_present and messages(client) == []
    publish(hub, "plant/1", b"b", qos=2)
    assert messages(client) == [], "its filters are gone, too"
    [completed] = client.ask(ack_packet(PUBREL, 7))
    assert (completed.kind, completed.reason) == (Packet.PUBCOMP, reasons.ID_NOT_FOUND)


@pytest.mark.parametrize("properties", [[], [(P.SESSION_EXPIRY, 3_600)]])
def test_what_is_not_in_flight_is_answered_once(properties: list[tuple[int, int]]) -> None:
    client = Client(FakeHub(), properties=properties)
    seen = client.ask(ack_packet(PUBREC, 7), ack_packet(PUBREL, 8))
    assert [(each.kind, each.packet_id, each.reason) for each in seen] == [
        (Packet.PUBREL, 7, reasons.ID_NOT_FOUND), (Packet.PUBCOMP, 8, reasons.ID_NOT_FOUND)]


def test_a_repetition_says_what_an_alias_stands_for() -> None:
    hub = FakeHub()
    other = Client(hub, "other")
    other.subscribe(("plant/#", 2))
    client = sleeper(hub)
    client.ask(publish_packet("plant/line1", b"once", 7, qos=2))
    leave(client)
    client = sleeper(hub)
    named, aliased = [(P.ALIAS, 3)], [(P.ALIAS, 4)]
    seen = client.ask(publish_packet("plant/line1", b"once", 7, qos=2, dup=True, properties=named),
                      publish_packet("", b"behind it", 8, properties=named))
    assert [(each.kind, each.packet_id, each.reason) for each in seen] == [(Packet.PUBREC, 7, 0), (Packet.PUBACK, 8, 0)]
    client.send(publish_packet("plant/line2", b"not answered yet", 9))
    seen = client.ask(publish_packet("plant/line2", b"not answered yet", 9, dup=True, properties=aliased),
                      publish_packet("", b"behind that", 10, properties=aliased))
    assert [(each.kind, each.packet_id, each.reason) for each in seen] == [
        (Packet.PUBACK, 9, 0), (Packet.PUBACK, 10, 0)]
    assert [(each.topic, each.value) for each in messages(other)] == [
        ("plant/line1", b"once"), ("plant/line1", b"behind it"),
        ("plant/line2", b"not answered yet"), ("plant/line2", b"behind that")]


@pytest.mark.parametrize("first", [PUBREC, PUBREL])
def test_many_acknowledgements_at_once_hold_up_nobody(first: int) -> None:
    """Each was looked for among all others: a minute and more for as many as one read may bring."""
    client = Client(FakeHub(), properties=[(P.SESSION_EXPIRY, 3_600)])
    data = b"".join([ack_packet(first, number) for number in range(1, 65_536)])
    begin_s = time.process_time()
    assert len(client.ask(data)) == 65_535
    assert time.process_time() - begin_s < 15


def test_ten_thousand_filters_of_one_client_come_wake_and_go_at_once() -> None:
    """None looks at all others: with ten thousand each of these took a quarter of a minute."""
    hub, config = FakeHub(), MqttConfig(max_subscriptions=10_000)
    said: dict[str, Any] = {"clean": False, "properties": [(P.SESSION_EXPIRY, 3_600)]}
    begin_s = time.process_time()
    client = Client(hub, "c", config, **said)
    for first in range(0, 10_000, 1_000):
        filters = [(f"plant/{number}/+", 1) for number in range(first, first + 1_000)]
        assert client.subscribe(*filters) == [1] * 1_000
    hub.cut(client.session)
    client = Client(hub, "c", config, **said)
    assert time.process_time() - begin_s < 15
    publish(hub, "plant/9999/a", b"a")
    assert [seen.value for seen in messages(client)] == [b"a"]


def test_mqtt_3_1_4_6_what_follows_a_connect_that_is_refused_is_not_taken() -> None:
    hub = FakeHub()
    client = Client(hub, config=MqttConfig(max_qos=1), connects=False)
    client.send(connect_packet(will=("w", b"bye", 2, False, [])) + publish_packet("t", b"x", 1))
    client.send(publish_packet("t", b"x", 2))
    hub.kernel.flush()
    [connack] = client.take()
    assert connack.reason == reasons.NO_QOS and client.link.closed
    assert hub.kernel.records() == []


def test_mqtt_3_1_2_5_a_session_is_resumed_until_its_time_is_over() -> None:
    hub = FakeHub()
    leave(sleeper(hub, ("plant/#", 1), properties=[(P.SESSION_EXPIRY, 5)]))
    publish(hub, "plant/1", b"a")
    hub.advance(4_000)
    client = sleeper(hub, properties=[(P.SESSION_EXPIRY, 5)])
    assert client.connack.session_present and [seen.value for seen in messages(client)] == [b"a"]
    leave(client)
    hub.advance(6_000)
    assert not sleeper(hub).connack.session_present


# --- wills

def test_mqtt_3_1_2_7_a_will_is_stored_before_its_client_is_let_in() -> None:
    hub = FakeHub()
    client = Client(hub, connects=False)
    client.send(connect_packet(will=("w", b"bye", 1, False, [])))
    assert client.take() == []
    hub.kernel.flush()
    assert client.take()[0].kind is Packet.CONNACK
    assert hub.kernel.sessions.statistics()["wills"] == 1


def test_mqtt_3_1_2_14_a_will_without_retain_is_not_retained() -> None:
    hub = FakeHub()
    for retain in (False, True):
        hub.cut(Client(hub, "c", will=(f"w/{retain}", b"bye", 1, retain, [])).session)
        hub.kernel.flush()
    late = Client(hub, "late")
    late.subscribe(("w/+", 1))
    assert [(seen.topic, seen.retain) for seen in late.behind] == [("w/True", True)]


def test_mqtt_3_1_3_10_user_properties_of_a_will_keep_their_order() -> None:
    hub = FakeHub()
    watcher = Client(hub, "watcher")
    watcher.subscribe(("w", 1))
    users = [("b", "1"), ("a", "2"), ("b", "1"), ("id", "mine")]
    hub.cut(Client(hub, "c", will=("w", b"bye", 1, False, [(P.USER, user) for user in users])).session)
    hub.kernel.flush()
    [seen] = watcher.received()
    assert seen.user() == users


def test_mqtt_3_1_2_10_a_will_is_published_once() -> None:
    hub = FakeHub()
    leave(sleeper(hub, will=("w", b"bye", 1, False, [])))
    assert hub.kernel.sessions.statistics()["wills"] == 0
    leave(sleeper(hub))
    hub.advance(4_000_000)
    assert [record[3] for record in hub.kernel.records()] == [b"bye"]


# --- what comes again, and what does not

def test_mqtt_4_3_3_7_what_was_sent_with_qos_2_does_not_expire_any_more() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 2))
    other = Client(hub, "publisher")
    other.ask(publish_packet("plant/1", b"a", 1, qos=2, properties=[(P.EXPIRY, 5)]))
    [message] = messages(client)
    leave(client)
    hub.advance(60_000)
    client = sleeper(hub)
    [again] = messages(client)
    assert (again.value, again.packet_id, again.first & 8) == (b"a", message.packet_id, 8)
    [release] = client.ask(ack_packet(PUBREC, again.packet_id))
    assert release.kind is Packet.PUBREL


def test_mqtt_4_3_3_13_qos_2_goes_on_after_its_message_has_expired() -> None:
    hub = FakeHub()
    client = Client(hub)
    [received] = client.ask(publish_packet("plant/1", b"a", 3, qos=2, properties=[(P.EXPIRY, 1)]))
    hub.advance(60_000)
    [again] = client.ask(publish_packet("plant/1", b"a", 3, qos=2, dup=True, properties=[(P.EXPIRY, 1)]))
    [completed] = client.ask(ack_packet(PUBREL, 3))
    assert [(seen.kind, seen.reason) for seen in (received, again, completed)] == [
        (Packet.PUBREC, 0), (Packet.PUBREC, 0), (Packet.PUBCOMP, 0)]
    assert len(hub.kernel.records()) == 1


def test_mqtt_4_3_3_9_behind_a_pubrec_that_refuses_the_packet_id_is_free() -> None:
    def decision(principal: Principal, operation: Operation, address: str) -> bool:
        return address.startswith("yes")

    hub = FakeHub(decision=decision)
    client = Client(hub)
    [refused] = client.ask(publish_packet("no", b"1", 5, qos=2))
    [taken] = client.ask(publish_packet("yes", b"2", 5, qos=2))
    assert (refused.kind, refused.reason) == (Packet.PUBREC, reasons.NOT_AUTHORIZED)
    assert (taken.kind, taken.reason) == (Packet.PUBREC, 0)
    assert [record[3] for record in hub.kernel.records()] == [b"2"]


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt_4_4_0_2_what_was_refused_does_not_come_again(qos: int) -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", qos))
    publish(hub, "plant/1", b"a", b"b", qos=qos)
    refused, kept = messages(client)
    client.send(ack_packet(PUBACK if qos == 1 else PUBREC, refused.packet_id, reasons.FAILURE))
    hub.advance(100)
    leave(client)
    assert [(seen.value, seen.packet_id) for seen in messages(sleeper(hub))] == [(b"b", kept.packet_id)]


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt_3_10_4_3_what_was_sent_is_completed_after_unsubscribe(qos: int) -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", qos))
    publish(hub, "plant/1", b"a", qos=qos)
    [message] = messages(client)
    client.ask(unsubscribe_packet(2, "plant/#"))
    publish(hub, "plant/1", b"b", qos=qos)
    leave(client)
    client = sleeper(hub)
    [again] = messages(client)
    assert (again.value, again.packet_id, again.first & 8) == (b"a", message.packet_id, 8)
    client.send(ack_packet(PUBACK if qos == 1 else PUBREC, again.packet_id))
    if qos == 2:
        hub.kernel.flush()
        [release] = rest(client)
        assert release.kind is Packet.PUBREL
        client.send(ack_packet(PUBCOMP, again.packet_id))
    hub.advance(100)
    assert client.session.describe()["in_flight"] == 0


def test_mqtt_3_8_4_4_nothing_is_lost_while_a_subscription_is_replaced() -> None:
    hub = FakeHub()
    clients = [Client(hub, "plain"), sleeper(hub, client_id="durable")]
    other = Client(hub, "publisher")
    for client in clients:
        client.subscribe(("t", 1))
    for at in range(1, 4):
        other.send(publish_packet("t", b"before %d" % at, 2 * at))
        for client in clients:
            client.send(subscribe_packet(at, ("t", 1)))
        other.send(publish_packet("t", b"behind %d" % at, 2 * at + 1))
    for client in clients:
        assert [seen.value for seen in messages(client)] == [
            b"%s %d" % (when, at) for at in range(1, 4) for when in (b"before", b"behind")]


# --- topic aliases

def test_mqtt_3_3_2_7_an_alias_ends_with_its_connection() -> None:
    hub = FakeHub()
    client = sleeper(hub)
    client.ask(publish_packet("long/name", b"1", 1, properties=[(P.ALIAS, 3)]))
    leave(client)
    client = sleeper(hub)
    client.send(publish_packet("", b"2", 2, properties=[(P.ALIAS, 3)]))
    assert client.ended().reason == reasons.PROTOCOL_ERROR


def test_mqtt_3_3_2_12_every_alias_that_connack_allows_is_taken() -> None:
    hub = FakeHub()
    client = Client(hub, config=MqttConfig(max_topic_aliases=9))
    listener = Client(hub, "listener")
    listener.subscribe(("#", 1))
    for alias in range(1, 10):
        client.ask(publish_packet(f"t/{alias}", b"", 1, properties=[(P.ALIAS, alias)]))
    for alias in range(1, 10):
        client.ask(publish_packet("", b"", 1, properties=[(P.ALIAS, alias)]))
    assert [seen.topic for seen in listener.received()] == 2 * [f"t/{alias}" for alias in range(1, 10)]
    client.send(publish_packet("t/10", b"", 1, properties=[(P.ALIAS, 10)]))
    assert client.ended().reason == reasons.BAD_ALIAS


@pytest.mark.parametrize("said", [[], [(P.ALIAS_MAXIMUM, 0)]])
def test_mqtt_3_1_2_27_no_aliases_for_who_takes_none(said: list[tuple[int, int]]) -> None:
    hub = FakeHub()
    client = Client(hub, properties=said)
    client.subscribe(("#", 1))
    publish(hub, "quite/long", b"1", b"2", b"3")
    assert [(seen.topic, seen.properties.values.get(P.ALIAS)) for seen in client.received()] == [
        ("quite/long", None)] * 3


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize(("qos", "answer"), [(1, PUBREC), (1, PUBCOMP), (2, PUBACK), (2, PUBCOMP)])
@pytest.mark.parametrize("reason", [0, 0x80])
def test_mqtt_4_13_1_an_answer_that_is_another_qos_s_ends_the_connection(keeps: bool, qos: int, answer: int,
                                                                       reason: int) -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", qos)) if keeps else Client(hub)
    if not keeps:
        client.ask(subscribe_packet(1, ("plant/#", qos)))
    publish(hub, "plant/1", b"a", qos=qos)
    [message] = messages(client)
    client.send(ack_packet(answer, message.packet_id, reason))
    assert client.ended().reason == reasons.PROTOCOL_ERROR


@pytest.mark.parametrize("keeps", [False, True])
def test_mqtt_4_3_3_a_pubrec_may_come_again_and_an_id_that_is_free_may_have_any_answer(keeps: bool) -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 2)) if keeps else Client(hub)
    if not keeps:
        client.ask(subscribe_packet(1, ("plant/#", 2)))
    publish(hub, "plant/1", b"a", qos=2)
    [message] = messages(client)
    for _ in range(2):
        client.send(ack_packet(PUBREC, message.packet_id))
        hub.kernel.flush()
        assert [seen.kind for seen in client.take()] == [Packet.PUBREL]
    for _ in range(2):
        client.send(ack_packet(PUBCOMP, message.packet_id))
    client.send(ack_packet(PUBACK, message.packet_id))
    client.send(ack_packet(PUBREC, 9))
    assert not client.link.closed


def test_mqtt_3_3_4_all_filters_that_match_say_their_identifiers_also_those_of_qos_0() -> None:
    hub = FakeHub()
    client = sleeper(hub)
    client.ask(subscribe_packet(2, ("plant/#", 0), properties=[(P.SUBSCRIPTION_ID, 5)]))
    client.ask(subscribe_packet(3, ("plant/1", 1), properties=[(P.SUBSCRIPTION_ID, 6)]))
    for qos in (0, 1):
        publish(hub, "plant/1", b"x", qos=qos)
        [message] = messages(client)
        assert (message.qos, sorted(message.properties.subscription_ids)) == (qos, [5, 6])
    publish(hub, "plant/2", b"x")
    assert [message.properties.subscription_ids for message in messages(client)] == [[5]], "once"


def test_mqtt_3_8_3_3_no_local_of_one_filter_leaves_another_of_qos_0_what_it_matches() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 0), ("plant/1", 1 | NO_LOCAL))
    for packet_id in (0, 1):
        client.send(publish_packet("plant/1", b"own", packet_id))
        assert [(message.value, message.qos) for message in messages(client)] == [(b"own", 0)]
    publish(hub, "plant/1", b"another's")
    assert [(message.value, message.qos) for message in messages(client)] == [(b"another's", 1)]


def test_mqtt_3_8_3_3_no_local_holds_for_qos_0_when_the_client_has_come_back() -> None:
    hub = FakeHub()
    leave(sleeper(hub, ("plant/1", 1 | NO_LOCAL)))
    client = sleeper(hub)
    for packet_id in (0, 1):
        client.send(publish_packet("plant/1", b"own", packet_id))
    assert messages(client) == []


def test_mqtt_3_10_4_2_nothing_retained_comes_for_a_filter_that_went_in_the_same_read() -> None:
    hub = FakeHub()
    Client(hub, "publisher").ask(publish_packet("plant/1", b"kept", 1, retain=True))
    client = sleeper(hub)
    client.send(subscribe_packet(2, ("plant/#", 1)), unsubscribe_packet(3, "plant/#"))
    assert messages(client) == []


@pytest.mark.parametrize("fault", [ack_packet(PUBACK, 3), ack_packet(PUBACK, 0)], ids=["qos 2", "no id"])
def test_4_13_what_was_acknowledged_before_a_fault_in_the_same_read_does_not_come_again(fault: bytes) -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 2))
    publish(hub, "plant/1", b"a", b"b")
    publish(hub, "plant/1", b"c", qos=2)
    assert [message.packet_id for message in messages(client)] == [1, 2, 3]
    client.send(ack_packet(PUBACK, 1), ack_packet(PUBACK, 2), fault)
    assert client.link.closed
    hub.kernel.flush()
    assert [message.value for message in messages(sleeper(hub))] == [b"c"]


@pytest.mark.parametrize("keeps", [False, True])
def test_4_13_what_was_released_before_a_fault_in_the_same_read_is(keeps: bool) -> None:
    hub = FakeHub()
    client = sleeper(hub) if keeps else Client(hub)
    client.ask(publish_packet("t", b"first", 1, qos=2))
    client.send(publish_packet("t", b"second", 2, qos=2), ack_packet(PUBREL, 1), ack_packet(PUBREL, 2))
    assert client.link.closed
    hub.kernel.flush()
    if keeps:
        done = sleeper(hub).ask(ack_packet(PUBREL, 1), ack_packet(PUBREL, 2), ack_packet(PUBREL, 2))
        assert [(seen.packet_id, seen.reason) for seen in done] == [
            (1, reasons.ID_NOT_FOUND), (2, 0), (2, reasons.ID_NOT_FOUND)]
    else:
        assert [seen.packet_id for seen in client.take() if seen.kind is Packet.PUBCOMP] == [1]


def test_3_14_2_2_2_a_will_waits_for_its_delay_where_disconnect_lets_its_session_wait_longer() -> None:
    hub = FakeHub()
    client = Client(hub, clean=False, properties=[(P.SESSION_EXPIRY, 10)],
                    will=("wills", b"gone", 1, False, [(P.WILL_DELAY, 100)]))
    client.send(packet(0xE0, bytes((reasons.WITH_WILL,)) + encode_properties([(P.SESSION_EXPIRY, 1_000)])))
    hub.kernel.flush()
    hub.advance(90_000)
    assert hub.kernel.records() == []
    hub.advance(20_000)
    assert [record[3] for record in hub.kernel.records()] == [b"gone"]


def test_who_hears_what_where_addresses_begin_in_more_ways_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audience, "FIRST_LEVELS_MAX", 2)
    counters: audience.Audience[str] = audience.Audience()
    assert len({id(counters.first_level(name)) for name in "abcdefgh"}) == 3, "bounded"
    hub = FakeHub()
    client, sender = Client(hub, "reader"), Client(hub, "sender")
    client.subscribe(("#", 0))
    for number, heard in enumerate(("abcd", "d", "abcd", "")):
        for name in "abcd":
            sender.ask(publish_packet(f"{name}/1", b"%d" % number, 1))
        assert [(seen.topic, seen.value) for seen in client.received()] == [
            (f"{name}/1", b"%d" % number) for name in heard]
        client.ask(*[[unsubscribe_packet(1, "#"), subscribe_packet(2, ("d/#", 0))], [subscribe_packet(3, ("+/1", 0))],
                     [unsubscribe_packet(1, "d/#", "+/1")], []][number])


def test_mqtt_3_3_2_17_a_user_property_called_address_is_its_sender_s() -> None:
    """The hub notes the address of a message under this name, too: behind those of its sender."""
    hub = FakeHub()
    said = [("address", "home"), ("b", "c"), ("address", "two")]
    sender = Client(hub, "sender")
    live, session, member = Client(hub, "live"), sleeper(hub), Client(hub, "member")
    for client, topic_filter in ((live, "#"), (session, "plant/#"), (member, "$share/g/plant/#")):
        client.ask(subscribe_packet(1, (topic_filter, 1)))
    sender.ask(publish_packet("plant/1", b"x", 1, retain=True, properties=[(P.USER, pair) for pair in said]))
    late, reader = Client(hub, "late"), Client(hub, "reader")
    late.send(subscribe_packet(1, ("#", 1)))
    reader.send(subscribe_packet(1, ("#", 1), properties=[(P.USER, ("from", "earliest"))]))
    assert [[seen.user() for seen in client.behind + messages(client) if seen.kind is Packet.PUBLISH]
            for client in (live, session, member, late, reader)] == [[said]] * 5
