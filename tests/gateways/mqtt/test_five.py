"""MQTT 5, one rule a test: each begins with the clause it shows, of MQTT Version 5.0 (OASIS, 2019)."""
from __future__ import annotations

import pytest

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.own_topics import ROUTES as OWN_ROUTES
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.kit import ROUTES, FakeHub
from gatehouse.gateways.mqtt import properties as P
from gatehouse.gateways.mqtt import reasons
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.packets import NO_LOCAL, RETAIN_AS_PUBLISHED, SEND_IF_NEW, SEND_NOT
from gatehouse.gateways.mqtt.properties import Packet
from gatehouse.kernel.settings import JourneySettings
from tests.gateways.mqtt.five import (
    Client,
    ack_packet,
    connect_packet,
    packet,
    publish_packet,
    subscribe_packet,
    unsubscribe_packet,
)


def values(client: Client) -> list[bytes]:
    return [seen.value for seen in client.received()]


# --- CONNECT and CONNACK

def test_3_2_2_3_connack_tells_the_limits() -> None:
    given = Client(FakeHub()).connack.properties.values
    assert given[P.RECEIVE_MAXIMUM] == MqttConfig().receive_maximum
    assert given[P.ALIAS_MAXIMUM] == MqttConfig().max_topic_aliases
    assert given[P.MAXIMUM_PACKET] > 1 << 20
    assert given.keys() == {P.RECEIVE_MAXIMUM, P.ALIAS_MAXIMUM, P.MAXIMUM_PACKET}, "what is not said is the default"


def test_3_2_2_3_every_limit_is_a_setting() -> None:
    config = MqttConfig(receive_maximum=7, max_qos=1, retain_available=False, max_packet_bytes=1000,
                        max_topic_aliases=0, wildcards_available=False, identifiers_available=False,
                        shared_available=False, max_keep_alive_s=60)
    given = Client(FakeHub(), config=config, keep_alive_s=100).connack.properties.values
    assert given == {P.RECEIVE_MAXIMUM: 7, P.MAXIMUM_QOS: 1, P.RETAIN_AVAILABLE: 0, P.MAXIMUM_PACKET: 1000,
                     P.WILDCARDS_AVAILABLE: 0, P.IDS_AVAILABLE: 0, P.SHARED_AVAILABLE: 0, P.SERVER_KEEP_ALIVE: 60}


@pytest.mark.parametrize(("wanted", "told"), [(0, 60), (59, None), (61, 60)])
def test_mqtt_3_2_2_21_server_keep_alive(wanted: int, told: int | None) -> None:
    client = Client(FakeHub(), config=MqttConfig(max_keep_alive_s=60), keep_alive_s=wanted)
    assert client.connack.properties.values.get(P.SERVER_KEEP_ALIVE) == told


def test_mqtt_3_2_2_16_a_client_id_that_was_given_is_told() -> None:
    hub = FakeHub()
    client = Client(hub, "")
    assert client.connack.properties.values[P.ASSIGNED_ID] == client.session.describe()["client_id"]
    assert P.ASSIGNED_ID not in Client(hub, "own").connack.properties.values


def test_3_1_2_11_7_response_information_is_given_to_who_asks() -> None:
    hub = FakeHub()
    asked = Client(hub, "me", properties=[(P.ASK_RESPONSE, 1)]).connack.properties.values
    assert asked[P.RESPONSE_INFORMATION] == "reply/me"
    assert P.RESPONSE_INFORMATION not in Client(hub, "other").connack.properties.values


def test_mqtt_4_12_0_1_an_unknown_authentication_method_is_refused() -> None:
    client = Client(FakeHub(), connects=False)
    client.send(connect_packet(properties=[(P.AUTH_METHOD, "MAGIC")]))
    assert (client.ended().kind, client.link.reason.partition(":")[0]) == (Packet.CONNACK, "connect_refused")


def test_mqtt_3_1_4_1_a_malformed_connect_is_answered_with_its_reason() -> None:
    client = Client(FakeHub(), connects=False)
    client.send(connect_packet(properties=[(P.RECEIVE_MAXIMUM, 0)]))
    ended = client.ended()
    assert (ended.kind, ended.reason) == (Packet.CONNACK, reasons.PROTOCOL_ERROR)


def test_mqtt_3_2_2_12_a_will_beyond_the_highest_qos_is_refused() -> None:
    client = Client(FakeHub(), config=MqttConfig(max_qos=1), connects=False)
    client.send(connect_packet(will=("t", b"x", 2, False, [])))
    assert client.ended().reason == reasons.NO_QOS


def test_mqtt_3_2_2_13_a_will_with_retain_is_refused_where_nothing_is_retained() -> None:
    client = Client(FakeHub(), config=MqttConfig(retain_available=False), connects=False)
    client.send(connect_packet(will=("t", b"x", 0, True, [])))
    assert client.ended().reason == reasons.NO_RETAIN


# --- publishing

@pytest.mark.parametrize("qos", [1, 2])
def test_4_3_a_publish_is_acknowledged_when_it_is_durable(qos: int) -> None:
    client = Client(FakeHub())
    client.send(publish_packet("t", b"x", 7, qos=qos))
    assert client.take() == []
    client.hub.kernel.flush()
    [ack] = client.take()
    assert (ack.kind, ack.packet_id, ack.reason) == (Packet.PUBACK if qos == 1 else Packet.PUBREC, 7, 0)
    if qos == 2:
        [done] = client.ask(ack_packet(0x62, 7, 0))
        assert (done.kind, done.packet_id, done.reason) == (Packet.PUBCOMP, 7, 0)
    assert [record[3] for record in client.hub.kernel.records()] == [b"x"]


def test_3_7_2_1_a_pubrel_of_an_id_that_is_not_in_use() -> None:
    [done] = Client(FakeHub()).ask(ack_packet(0x62, 7))
    assert (done.kind, done.reason) == (Packet.PUBCOMP, reasons.ID_NOT_FOUND)


def only(*allowed: tuple[Operation, str]) -> FakeHub:
    def decision(principal: Principal, operation: Operation, address: str) -> bool:
        return (operation, address) in allowed
    hub = FakeHub(decision=decision)
    hub.kernel.create_topic("yes")
    hub.kernel.flush()
    return hub


@pytest.mark.parametrize("qos", [1, 2])
def test_3_4_2_1_a_denied_publish_is_answered_in_its_turn_and_the_connection_stays(qos: int) -> None:
    client = Client(only((Operation.PUBLISH, "yes")))
    seen = client.ask(publish_packet("yes", b"1", 1, qos=qos), publish_packet("no", b"2", 2, qos=qos),
                      publish_packet("yes", b"3", 3, qos=qos))
    assert [(ack.packet_id, ack.reason) for ack in seen] == [(1, 0), (2, reasons.NOT_AUTHORIZED), (3, 0)]
    assert seen[1].properties.values[P.REASON_STRING]
    assert not client.link.closed
    assert [record[3] for record in client.hub.kernel.records()] == [b"1", b"3"]


def test_mqtt_3_1_2_29_no_reason_strings_for_who_does_not_want_them() -> None:
    client = Client(only(), properties=[(P.PROBLEM_INFORMATION, 0)])
    [ack] = client.ask(publish_packet("no", b"2", 2))
    assert (ack.reason, ack.properties.values, ack.user()) == (reasons.NOT_AUTHORIZED, {}, [])


def small(hub: FakeHub, **said: object) -> Client:
    """A client that takes packets up to some hundred bytes alone."""
    return Client(hub, properties=[(P.MAXIMUM_PACKET, 200)], **said)


def test_mqtt_3_4_2_2_no_reason_string_for_who_takes_small_packets_alone() -> None:
    client = small(only((Operation.CONSUME, "yes")))
    [puback] = client.ask(publish_packet("t", b"x", 1))
    [pubrec] = client.ask(publish_packet("t", b"x", 2, qos=2))
    assert (puback.reason, pubrec.reason) == (reasons.NOT_AUTHORIZED, reasons.NOT_AUTHORIZED)
    assert not puback.properties.values and not pubrec.properties.values


def test_mqtt_3_4_2_3_no_id_to_recall_by_either() -> None:
    client = small(FakeHub())
    for packet_id, qos in ((1, 1), (2, 2)):
        [seen] = client.ask(publish_packet("t/k", b"x", packet_id, qos=qos, properties=[(P.USER, ("delay", "60"))]))
        assert seen.reason == 0 and not seen.user()


def test_mqtt_3_9_2_1_suback_says_why_where_the_client_takes_it() -> None:
    hub = FakeHub()
    for client, told in ((Client(hub, "a"), True), (small(hub, client_id="b"), False)):
        client.send(subscribe_packet(1, ("$hub/#", 1), ("t", 1)), subscribe_packet(2, ("u", 1), properties=[
            (P.USER, ("from", "soon"))]))
        first, second = client.take()
        assert (first.reasons, second.reasons) == ([reasons.NOT_AUTHORIZED, 1], [reasons.IMPLEMENTATION])
        assert (P.REASON_STRING in first.properties.values) is told
        assert (P.REASON_STRING in second.properties.values) is told


def test_mqtt_3_14_2_3_nor_in_disconnect() -> None:
    hub = FakeHub()
    client = small(hub)
    client.session.handle_stopping()
    assert not client.ended().properties.values


def test_mqtt_3_2_2_19_nor_in_connack() -> None:
    client = Client(FakeHub(), config=MqttConfig(max_qos=0), connects=False)
    client.send(connect_packet("c", will=("t", b"", 1, False, []), properties=[(P.MAXIMUM_PACKET, 200)]))
    refused = client.ended()
    assert (refused.reason, refused.properties.values) == (reasons.NO_QOS, {})


def test_3_4_2_1_where_nothing_takes_it() -> None:
    client = Client(FakeHub(routes=()))
    [ack] = client.ask(publish_packet("/home/temp", b"2", 2))
    assert ack.reason == reasons.NO_MATCHING_SUBSCRIBERS and not client.link.closed
    [received] = client.ask(publish_packet("/home/temp", b"2", 3, qos=2))
    assert received.reason == reasons.NO_MATCHING_SUBSCRIBERS
    [done] = client.ask(ack_packet(0x62, 3))
    assert (done.kind, done.reason) == (Packet.PUBCOMP, 0), "0x10 is a success: the four packets go on"


@pytest.mark.parametrize("topic", ["$SYS/x", "$other"])
def test_4_7_2_what_is_sent_to_topics_of_the_hub_is_refused(topic: str) -> None:
    """0x10 would be a success, of what is dropped. The client of Paho's suite reads no more than the code."""
    client = Client(FakeHub())
    [ack] = client.ask(publish_packet(topic, b"2", 2))
    assert ack.reason == reasons.NOT_AUTHORIZED and not client.link.closed
    assert not ack.properties.values
    assert client.hub.admission.trace.counts["mqtt", "publish_reserved"] == 1


def test_mqtt_3_3_4_7_more_than_receive_maximum_under_way_ends_the_connection() -> None:
    client = Client(FakeHub(), config=MqttConfig(receive_maximum=2))
    client.send(publish_packet("t", b"1", 1), publish_packet("t", b"2", 2, qos=2))
    assert not client.link.closed
    client.hub.kernel.flush()
    client.take()
    client.send(publish_packet("t", b"3", 3))
    assert not client.link.closed, "PUBACK gave one back"
    client.send(publish_packet("t", b"4", 4))
    assert client.ended().reason == reasons.RECEIVE_MAXIMUM


def test_mqtt_3_3_4_7_a_pubrel_in_the_same_read_does_not_hide_that_it_was_too_much() -> None:
    client = Client(FakeHub(), config=MqttConfig(receive_maximum=2))
    client.ask(publish_packet("t", b"1", 1, qos=2), publish_packet("t", b"2", 2, qos=2))
    client.send(publish_packet("t", b"3", 3, qos=2), ack_packet(0x62, 1), ack_packet(0x62, 2))
    assert client.ended().reason == reasons.RECEIVE_MAXIMUM


@pytest.mark.parametrize(("topic", "said"), [
    ("t", [(P.USER, ("delay", "60"))]), ("$delayed/60/t", []), ("$half/g/t", [])])
def test_mqtt_3_3_4_7_what_is_delayed_or_half_counts_once_and_with_qos_0_not_at_all(
        topic: str, said: list[tuple[int, tuple[str, str]]]) -> None:
    client = Client(FakeHub(), config=MqttConfig(receive_maximum=4))
    client.send(*[publish_packet(topic, b"0", properties=said) for _ in range(5)])
    client.send(*[publish_packet(topic, b"2", number, qos=2, properties=said) for number in (1, 2, 3)])
    client.send(publish_packet("t", b"4", 4))
    assert not client.link.closed, "four are under way"
    client.send(publish_packet("t", b"5", 5))
    assert client.ended().reason == reasons.RECEIVE_MAXIMUM


def test_mqtt_3_2_2_11_a_publish_beyond_the_highest_qos() -> None:
    client = Client(FakeHub(), config=MqttConfig(max_qos=1))
    client.send(publish_packet("t", b"1", 1, qos=2))
    assert client.ended().reason == reasons.NO_QOS


def test_mqtt_3_2_2_14_retain_where_it_is_not_available() -> None:
    client = Client(FakeHub(), config=MqttConfig(retain_available=False))
    client.send(publish_packet("t", b"1", retain=True))
    assert client.ended().reason == reasons.NO_RETAIN


def test_mqtt_3_2_2_15_a_packet_that_is_too_large() -> None:
    client = Client(FakeHub(), config=MqttConfig(max_packet_bytes=100))
    client.send(publish_packet("t", b"x" * 100))
    assert client.ended().reason == reasons.TOO_LARGE


def test_3_3_2_3_4_topic_aliases_of_a_client() -> None:
    client = Client(FakeHub())
    listener = Client(client.hub, "listener")
    listener.subscribe(("#", 1))
    seen = client.ask(publish_packet("long/name", b"1", 1, properties=[(P.ALIAS, 3)]),
                      publish_packet("", b"2", 2, properties=[(P.ALIAS, 3)]),
                      publish_packet("other", b"3", 3, properties=[(P.ALIAS, 3)]),
                      publish_packet("", b"4", 4, properties=[(P.ALIAS, 3)]))
    assert [ack.packet_id for ack in seen] == [1, 2, 3, 4]
    assert [(seen.topic, seen.value) for seen in listener.received()] == [
        ("long/name", b"1"), ("long/name", b"2"), ("other", b"3"), ("other", b"4")]


@pytest.mark.parametrize(("alias", "reason"), [(0, reasons.BAD_ALIAS), (65, reasons.BAD_ALIAS),
                                               (5, reasons.PROTOCOL_ERROR), (None, reasons.PROTOCOL_ERROR)])
def test_mqtt_3_3_2_8_aliases_that_stand_for_nothing(alias: int | None, reason: int) -> None:
    client = Client(FakeHub())
    client.send(publish_packet("", b"1", 1, properties=[] if alias is None else [(P.ALIAS, alias)]))
    assert client.ended().reason == reason


def test_mqtt_3_3_4_6_a_subscription_identifier_from_a_client() -> None:
    client = Client(FakeHub())
    client.send(publish_packet("t", b"1", properties=[(P.SUBSCRIPTION_ID, 1)]))
    assert client.ended().reason == reasons.PROTOCOL_ERROR


@pytest.mark.parametrize("topic", ["", "a/+", "#"])
def test_mqtt_3_3_2_14_a_response_topic_with_a_wildcard(topic: str) -> None:
    client = Client(FakeHub())
    client.send(publish_packet("t", b"1", properties=[(P.RESPONSE_TOPIC, topic)]))
    assert client.ended().reason == reasons.PROTOCOL_ERROR


def test_3_3_2_3_2_the_payload_format_is_checked_when_that_is_asked_for() -> None:
    client = Client(FakeHub(), config=MqttConfig(check_payload_format=True))
    seen = client.ask(publish_packet("t", b"\xff", 1, properties=[(P.FORMAT, 1)]),
                      publish_packet("t", "é".encode(), 2, properties=[(P.FORMAT, 1)]),
                      publish_packet("t", b"\xff", 3, properties=[(P.FORMAT, 0)]),
                      publish_packet("t", b"\xfe", 4, properties=[(P.FORMAT, 1)]))
    assert [ack.reason for ack in seen] == [reasons.BAD_FORMAT, 0, 0, reasons.BAD_FORMAT]


def test_3_3_2_3_a_delay_as_a_user_property_and_the_id_to_recall_by() -> None:
    hub = FakeHub()
    client = Client(hub)
    client.subscribe(("t", 1))
    [ack] = client.ask(publish_packet("t", b"later", 1, properties=[(P.USER, ("delay", "1.5"))]))
    assert ack.reason == 0 and [name for name, _ in ack.user()] == ["id"]
    [ack] = client.ask(publish_packet("t", b"when", 1, properties=[(P.USER, ("delay", "soon"))]))
    assert ack.reason == reasons.IMPLEMENTATION
    hub.advance(1400)
    hub.kernel.flush()
    assert values(client) == []
    hub.advance(200)
    hub.kernel.flush()
    assert values(client) == [b"later"]


# --- what crosses from publisher to subscriber

@pytest.mark.parametrize(("journeys", "is_told"), [
    (JourneySettings(rate=0.0, topics={"t": 1.0}), False), (JourneySettings(rate=1.0), True)],
    ids=("one topic is followed", "all is followed"))
def test_mqtt_3_3_2_17_user_properties_are_not_added_to(journeys: JourneySettings, is_told: bool) -> None:
    hub = FakeHub(journeys=journeys, routes=(*OWN_ROUTES, *ROUTES))
    client = Client(hub)
    client.subscribe(("t", 1))
    own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    for user in ([], [("a", "b")], [("traceparent", own), ("a", "b")], [("x-trace", "always")]):
        client.send(publish_packet("t", b"x", 7, properties=[(P.USER, pair) for pair in user]))
        hub.kernel.flush()
    came = [seen.properties.user for seen in client.received()]
    assert came[2] == [("traceparent", own), ("a", "b")], "a sender's own is forwarded"
    assert [[pair for pair in user if pair[0] != "traceparent"] for user in came[:2]] == [[], [("a", "b")]]
    assert [len(user) for user in came[:2]] == [is_told, 1 + is_told]
    assert [name for name, _ in came[3]] == ["x-trace", "traceparent"], "its sender has asked"
    assert all(b"traceparent" in dict(record[4]) for record in hub.kernel.records("t")), "they are followed"


ALL_PROPERTIES = [(P.FORMAT, 1), (P.CONTENT_TYPE, "text/plain"), (P.RESPONSE_TOPIC, "answers/here"),
                  (P.CORRELATION, b"\0\xff"), (P.USER, ("b", "1")), (P.USER, ("a", "2")), (P.USER, ("b", "1")),
                  (P.USER, ("id", "of mine"))]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt_3_3_2_17_properties_cross_as_they_are(qos: int) -> None:
    hub = FakeHub()
    sender, receiver = Client(hub, "s"), Client(hub, "r")
    receiver.subscribe(("t", 2))
    for _ in range(2):
        sender.send(publish_packet("t", b"x", qos and 1, qos=qos, properties=ALL_PROPERTIES))
        hub.kernel.flush()
        [seen] = receiver.received()
        assert (seen.qos, seen.topic, seen.value) == (qos, "t", b"x")
        assert seen.properties.values == {P.FORMAT: 1, P.CONTENT_TYPE: "text/plain",
                                          P.RESPONSE_TOPIC: "answers/here", P.CORRELATION: b"\0\xff"}
        assert seen.user() == [("b", "1"), ("a", "2"), ("b", "1"), ("id", "of mine")]
        sender.send(ack_packet(0x62, 1))


def test_mqtt_3_3_2_6_what_is_left_of_the_expiry_is_handed_on() -> None:
    hub = FakeHub()
    sender, live = Client(hub, "s"), Client(hub, "l")
    live.subscribe(("t", 1))
    sender.ask(publish_packet("t", b"x", 1, retain=True, properties=[(P.EXPIRY, 10)]))
    [seen] = live.received()
    assert seen.properties.values == {P.EXPIRY: 10}
    hub.advance(3500)
    late = Client(hub, "late")
    late.subscribe(("t", 1))
    [seen] = late.behind
    assert (seen.retain, seen.properties.values) == (True, {P.EXPIRY: 7})
    hub.advance(7000)
    later = Client(hub, "later")
    later.subscribe(("t", 1))
    assert later.behind == []


def test_mqtt_3_3_4_9_the_client_s_receive_maximum_holds() -> None:
    hub = FakeHub()
    client = Client(hub, properties=[(P.RECEIVE_MAXIMUM, 2)])
    client.subscribe(("t", 2))
    sender = Client(hub, "s")
    for n in range(1, 6):
        sender.send(publish_packet("t", b"%d" % n, n, qos=2 if n % 2 else 1))
    hub.kernel.flush()
    first = client.received()
    assert [(seen.value, seen.qos) for seen in first] == [(b"1", 2), (b"2", 1)]
    [released] = client.ask(ack_packet(0x50, first[0].packet_id))
    assert released.kind is Packet.PUBREL
    assert client.received() == [], "PUBREC gives nothing back"
    [third] = client.ask(ack_packet(0x40, first[1].packet_id, 0))
    assert third.value == b"3"
    [fourth] = client.ask(ack_packet(0x70, first[0].packet_id, 0))
    assert fourth.value == b"4"
    [fifth] = client.ask(ack_packet(0x50, third.packet_id, reasons.QUOTA))
    assert fifth.value == b"5", "a PUBREC that says no ends it"


def test_mqtt_3_1_2_25_a_packet_larger_than_the_client_takes_is_left_out() -> None:
    hub = FakeHub()
    client = Client(hub, properties=[(P.MAXIMUM_PACKET, 30)])
    client.subscribe(("t", 1))
    sender = Client(hub, "s")
    for value in (b"1", b"x" * 22, b"x" * 23, b"2"):
        sender.send(publish_packet("t", value, 1))
        hub.kernel.flush()
    assert values(client) == [b"1", b"x" * 22, b"2"]
    assert hub.admission.trace.counts["mqtt", "dropped_large"] == 1


def test_3_3_2_3_4_topic_aliases_to_a_client() -> None:
    hub = FakeHub()
    client = Client(hub, properties=[(P.ALIAS_MAXIMUM, 1)])
    client.subscribe(("#", 1))
    sender = Client(hub, "s")
    for n, topic in enumerate(("quite/long", "quite/long", "also/long", "quite/long", "short"), 1):
        sender.send(publish_packet(topic, b"%d" % n, n))
        hub.kernel.flush()
    assert [(seen.topic, seen.properties.values.get(P.ALIAS)) for seen in client.received()] == [
        ("quite/long", 1), ("", 1), ("also/long", None), ("", 1), ("short", None)]


def test_3_3_2_3_4_the_topic_stands_beside_its_alias_with_qos_2() -> None:
    hub = FakeHub()
    client = Client(hub, properties=[(P.ALIAS_MAXIMUM, 5)])
    client.subscribe(("#", 2))
    sender = Client(hub, "s")
    for n, qos in enumerate((1, 2, 2, 1), 1):
        sender.send(publish_packet("quite/long", b"%d" % n, n, qos=qos))
        hub.kernel.flush()
    assert [(seen.topic, seen.qos, seen.properties.values.get(P.ALIAS)) for seen in client.received()] == [
        ("quite/long", 1, 1), ("quite/long", 2, 1), ("quite/long", 2, 1), ("", 1, 1)]


# --- subscriptions

def test_mqtt_3_3_4_4_one_copy_with_the_identifiers_of_all_filters() -> None:
    hub = FakeHub()
    client = Client(hub)
    assert client.subscribe(("a/#", 0), identifier=1) == [0]
    assert client.subscribe(("a/+", 2), identifier=200) == [2]
    assert client.subscribe(("a/b", 1)) == [1]
    Client(hub, "s").ask(publish_packet("a/b", b"y", 5, qos=2))
    [seen] = client.received()
    assert (sorted(seen.properties.subscription_ids), seen.qos) == ([1, 200], 2)


def test_3_8_4_the_identifier_that_came_last_holds() -> None:
    hub = FakeHub()
    client = Client(hub)
    client.subscribe(("t", 1), identifier=1)
    client.subscribe(("t", 1), identifier=2)
    Client(hub, "s").ask(publish_packet("t", b"y", 5))
    [seen] = client.received()
    assert seen.properties.subscription_ids == [2]


def test_mqtt_3_8_3_3_no_local() -> None:
    hub = FakeHub()
    client, other = Client(hub), Client(hub, "other")
    client.subscribe(("t", 1 | NO_LOCAL))
    for n in range(3):
        client.send(publish_packet("t", b"own", n % 2 and 1), publish_packet("t", b"own", n % 2 and 2))
        other.send(publish_packet("t", b"%d" % n, 1))
    hub.kernel.flush()
    assert values(client) == [b"0", b"1", b"2"]
    client.subscribe(("#", 1))
    client.ask(publish_packet("t", b"own", 1))
    client.send(publish_packet("t", b"wanted", 1))
    hub.kernel.flush()
    assert b"wanted" in values(client), "another filter asks for it"


def test_mqtt_3_8_3_4_no_local_on_a_shared_subscription() -> None:
    client = Client(FakeHub())
    client.send(subscribe_packet(1, ("$share/g/t/#", 1 | NO_LOCAL)))
    assert client.ended().reason == reasons.PROTOCOL_ERROR


def test_mqtt_3_3_1_12_retain_as_published() -> None:
    hub = FakeHub()
    plain, kept = Client(hub, "plain"), Client(hub, "kept")
    plain.subscribe(("t", 1))
    kept.subscribe(("t", 1 | RETAIN_AS_PUBLISHED))
    sender = Client(hub, "s")
    sender.ask(publish_packet("t", b"1", 1, retain=True), publish_packet("t", b"2", 2))
    assert [seen.retain for seen in plain.received()] == [False, False]
    assert [seen.retain for seen in kept.received()] == [True, False]


def test_mqtt_3_3_1_9_retain_handling() -> None:
    hub = FakeHub()
    client = Client(hub)
    client.ask(publish_packet("t", b"1", 1, retain=True))
    client.subscribe(("t", SEND_NOT))
    assert client.behind == []
    client.subscribe(("t", SEND_IF_NEW))
    assert client.behind == [], "it is not new"
    client.subscribe(("t", 0))
    assert [seen.value for seen in client.behind] == [b"1"]
    client.ask(unsubscribe_packet(1, "t"))
    client.subscribe(("t", SEND_IF_NEW), identifier=7)
    [seen] = client.behind
    assert (seen.value, seen.retain, seen.properties.subscription_ids) == (b"1", True, [7])


def test_3_11_3_unsuback_says_of_each_filter_whether_there_was_one() -> None:
    client = Client(FakeHub())
    client.subscribe(("a", 1))
    [seen] = client.ask(unsubscribe_packet(4, "a", "b"))
    assert (seen.kind, seen.packet_id, seen.reasons) == (Packet.UNSUBACK, 4, [0, reasons.NO_SUBSCRIPTION])


def test_3_9_3_suback_says_why_not() -> None:
    client = Client(only((Operation.CONSUME, "yes/#")), config=MqttConfig(max_subscriptions=1))
    assert client.subscribe(("no", 1), ("$SYS/#", 1), ("yes/#", 1), ("more", 1)) == [
        reasons.NOT_AUTHORIZED, reasons.NOT_AUTHORIZED, 1, reasons.QUOTA]


def test_3_9_3_what_connack_said_is_not_there() -> None:
    client = Client(FakeHub(), config=MqttConfig(wildcards_available=False, shared_available=False,
                                                 identifiers_available=False, max_qos=1))
    assert client.subscribe(("a/+", 1), ("$share/g/a", 1), ("a", 2)) == [
        reasons.NO_WILDCARDS, reasons.NO_SHARED, 1]
    assert client.subscribe(("a", 1), identifier=1) == [reasons.NO_IDS]


@pytest.mark.parametrize("options", [0x03, 0x30, 0x40, 0x80])
def test_mqtt_3_8_3_5_options_that_there_are_not(options: int) -> None:
    client = Client(FakeHub())
    client.send(subscribe_packet(1, ("t", options)))
    assert client.ended().reason in (reasons.MALFORMED, reasons.PROTOCOL_ERROR)


# --- shared subscriptions

def test_4_8_2_a_shared_message_that_is_refused_is_a_dead_letter() -> None:
    hub = FakeHub()
    client = Client(hub)
    client.subscribe(("$share/g/t/#", 1), identifier=9)
    Client(hub, "s").ask(publish_packet("t", b"x", 1))
    hub.kernel.flush()
    [seen] = client.received()
    assert seen.properties.subscription_ids == [9]
    client.ask(ack_packet(0x40, seen.packet_id, reasons.FAILURE))
    Client(hub, "second").subscribe(("$share/g/t/#", 1))
    hub.advance(60_000)
    hub.kernel.flush()
    assert client.received() == []


# --- the end

def test_mqtt_3_14_4_3_a_disconnect_with_the_will() -> None:
    hub = FakeHub()
    watcher = Client(hub, "w")
    watcher.subscribe(("will", 1))
    for reason, published in ((0, []), (4, [b"bye"])):
        client = Client(hub, "c", will=("will", b"bye", 1, False, [(P.CONTENT_TYPE, "text/plain")]))
        client.send(packet(0xE0, bytes((reason,))))
        assert client.link.closed and client.link.take() == b"", "a client that goes is told nothing"
        hub.cut(client.session)
        hub.kernel.flush()
        seen = watcher.received()
        assert [each.value for each in seen] == published
        assert all(each.properties.values == {P.CONTENT_TYPE: "text/plain"} for each in seen)


def test_mqtt_3_1_2_8_without_a_will_nothing_is_published() -> None:
    hub = FakeHub()
    watcher = Client(hub, "w")
    watcher.subscribe(("#", 1))
    hub.cut(Client(hub, "c").session)
    hub.kernel.flush()
    assert watcher.received() == [] and hub.kernel.records() == []


def test_mqtt_4_7_2_1_a_leading_wildcard_takes_nothing_of_the_hubs_own() -> None:
    client = Client(FakeHub())
    client.subscribe(("#", 0), ("+/broker/uptime", 0))
    assert client.behind == []
    client.subscribe(("$SYS/broker/uptime", 0))
    assert [seen.topic for seen in client.behind] == ["$SYS/broker/uptime"]


def test_mqtt_3_1_4_3_who_is_taken_over_is_told() -> None:
    hub = FakeHub()
    first = Client(hub, "same")
    Client(hub, "same")
    assert first.ended().reason == reasons.TAKEN_OVER


def test_mqtt_3_1_2_22_who_is_silent_is_told() -> None:
    hub = FakeHub()
    client = Client(hub, keep_alive_s=1)
    hub.advance(2000)
    assert client.ended().reason == reasons.KEEP_ALIVE


def test_3_14_2_1_a_hub_that_stops_says_so() -> None:
    client = Client(FakeHub())
    client.session.handle_stopping()
    assert client.ended().reason == reasons.SHUTTING_DOWN


def test_4_11_a_hub_that_stops_names_another_server() -> None:
    client = Client(FakeHub(), config=MqttConfig(server_reference="hub2.example:1883"))
    client.session.handle_stopping()
    told = client.ended()
    assert (told.reason, told.properties.values[P.SERVER_REFERENCE]) == (reasons.ANOTHER_SERVER, "hub2.example:1883")


@pytest.mark.parametrize(("data", "reason"), [
    (connect_packet(), reasons.PROTOCOL_ERROR),
    (packet(0xF0, b"\x18\0"), reasons.PROTOCOL_ERROR),
    (packet(0x80, b"\0\1\0\0\1t\0"), reasons.MALFORMED),
    (packet(0x36, b"\0\1t\0\1\0"), reasons.MALFORMED),
    (packet(0x30, b"\0\1t\5"), reasons.MALFORMED),
    (packet(0x30, b"\0\1t"), reasons.MALFORMED),
    (packet(0x30, b"\0\1t\4\1\1\1\1"), reasons.PROTOCOL_ERROR),
    (packet(0x30, b"\0\1t\2\x21\0"), reasons.MALFORMED),
    (packet(0x30, b"\0\1t\2\1\2"), reasons.PROTOCOL_ERROR),
    (packet(0x30, b"\0\1t\4\x03\0\1\xff"), reasons.MALFORMED),
    (packet(0x30, b"\0\1t\4\x08\0\1\xff"), reasons.MALFORMED),
    (packet(0x30, b"\0\1t\7\x26\0\1\xff\0\1v"), reasons.MALFORMED),
    (packet(0x30, b"\0\1t\7\x26\0\1k\0\1\xff"), reasons.MALFORMED),
    (packet(0x82, b"\0\1\2\x0b\0\0\1t\0"), reasons.PROTOCOL_ERROR),
    (packet(0xE0, b"\0\5\x11\0\0\0\1"), reasons.PROTOCOL_ERROR),
    (packet(0xC0, b"\0"), reasons.MALFORMED),
    (packet(0xF1, b"\x18\0"), reasons.MALFORMED),
    (packet(0x20, b"\0\0\0"), reasons.PROTOCOL_ERROR),
    (packet(0x90, b"\0\1\0\0"), reasons.PROTOCOL_ERROR),
    (packet(0xB0, b"\0\1\0\0"), reasons.PROTOCOL_ERROR),
    (packet(0xD0, b""), reasons.PROTOCOL_ERROR),
    (packet(0x21, b"\0\0\0"), reasons.MALFORMED),
    (packet(0x00, b""), reasons.MALFORMED),
    (packet(0x40, b"\0\1\x92"), reasons.PROTOCOL_ERROR),
    (packet(0x50, b"\0\1\xff\0"), reasons.PROTOCOL_ERROR),
    (packet(0x62, b"\0\1\x80"), reasons.PROTOCOL_ERROR),
    (packet(0x70, b"\0\1\x10\0"), reasons.PROTOCOL_ERROR),
    (packet(0xE0, b"\x8e"), reasons.PROTOCOL_ERROR),
])
def test_4_13_1_whoever_breaks_the_protocol_is_told_how(data: bytes, reason: int) -> None:
    client = Client(FakeHub())
    client.send(data)
    assert client.ended().reason == reason, client.link.reason


@pytest.mark.parametrize("keeps", [False, True])
def test_mqtt_3_1_2_24_a_client_that_does_not_take_connack_is_told_nothing(keeps: bool) -> None:
    hub = FakeHub()
    client = Client(hub, connects=False)
    given = [(P.MAXIMUM_PACKET, 10), *([(P.SESSION_EXPIRY, 60)] if keeps else [])]
    client.send(connect_packet("small", will=("w", b"bye", 1, False, []), properties=given))
    hub.kernel.flush()
    assert client.take() == [] and client.link.closed
    hub.kernel.flush()
    assert hub.kernel.records() == [], "nobody was there who could have died"


def test_mqtt_3_1_2_24_a_suback_larger_than_the_client_takes_is_left_out() -> None:
    hub = FakeHub()
    client = Client(hub, properties=[(P.MAXIMUM_PACKET, 30)])
    assert client.ask(subscribe_packet(1, *[(f"plant/{number}", 0) for number in range(30)])) == []
    hub.kernel.flush()
    other = Client(hub, "other")
    other.ask(publish_packet("plant/7", b"x", 1))
    assert values(client) == [b"x"], "it is as if it had been sent"
    client.send(packet(0x00, b""))
    assert client.ended().reason == reasons.MALFORMED


def test_2_4_more_user_properties_than_are_taken_is_a_quota() -> None:
    client = Client(FakeHub(), connects=False)
    client.send(connect_packet("many", properties=[(P.USER, ("a", "b"))] * (P.USER_PROPERTIES_MAX + 1)))
    assert client.ended().reason == reasons.QUOTA


# --- what is refused, and what comes in one read

@pytest.mark.parametrize("keeps", [False, True])
def test_mqtt_4_3_3_the_packet_id_of_a_delayed_publish_that_is_refused_is_free(keeps: bool) -> None:
    hub = FakeHub()
    said: dict[str, object] = {"clean": False, "properties": [(P.SESSION_EXPIRY, 3_600)]} if keeps else {}
    client = Client(hub, **said)
    [refused] = client.ask(publish_packet("$delayed/9999999999/t", b"never", 1, qos=2))
    assert refused.kind is Packet.PUBREC and refused.reason >= reasons.FAILURE
    client.ask(publish_packet("t", b"other", 2))
    if keeps:
        hub.cut(client.session)
        client = Client(hub, **said)
    client.ask(publish_packet("t", b"new", 1, qos=2))
    assert [record[3] for record in hub.kernel.records()] == [b"other", b"new"]


def test_mqtt_4_3_2_a_publish_that_comes_again_in_the_same_read_is_one() -> None:
    client = Client(FakeHub())
    for number, topic in enumerate(("new", "new"), 1):
        acks = client.ask(publish_packet(topic, b"x", number), publish_packet(topic, b"x", number, dup=True))
        assert [ack.packet_id for ack in acks] == [number]
    assert len(client.hub.kernel.records()) == 2


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("aliases", [0, 10])
@pytest.mark.parametrize("keeps", [False, True])
def test_mqtt_3_1_2_25_a_packet_as_large_as_the_client_takes_is_sent_to_it(qos: int, aliases: int, keeps: bool) -> None:
    hub = FakeHub()
    client = Client(hub, clean=False, properties=[
        (P.MAXIMUM_PACKET, 100), (P.ALIAS_MAXIMUM, aliases), (P.SESSION_EXPIRY, 3_600 * keeps)])
    client.subscribe(("a/longer/name", qos))
    other = Client(hub, "other")
    packet_id = min(qos, 1)
    room = 100 - len(publish_packet("a/longer/name", b"", packet_id, qos=qos))
    for size in (room + 1, room, 1, room, room + 10):
        other.ask(publish_packet("a/longer/name", b"x" * size, packet_id, qos=qos))
        if qos == 2:
            other.ask(ack_packet(0x62, packet_id))
    hub.kernel.flush()
    largest = room + 10 if aliases and qos < 2 else room           # the name may be left out
    sizes = [size for size in (room, 1, room, room + 10) if size <= largest]
    assert [len(value) for value in values(client)] == sizes


def test_mqtt_3_1_2_25_no_document_of_the_hub_is_larger_than_the_client_takes() -> None:
    client = Client(FakeHub(), properties=[(P.MAXIMUM_PACKET, 30)], config=MqttConfig(sys_interval_s=10))
    client.subscribe(("$SYS/#", 0))
    client.hub.advance(30_000)
    sizes = [len(publish_packet(seen.topic, seen.value)) for seen in [*client.behind, *client.received()]]
    assert sizes and max(sizes) <= 30


def test_3_4_2_1_what_went_to_a_topic_that_is_gone_is_not_said_to_be_stored() -> None:
    hub = FakeHub(decision=lambda _, operation, __: operation is not Operation.CREATE)
    client = Client(hub)

    def sent(*packets: bytes) -> list[tuple[int, int]]:
        for name in ("gone", "kept"):
            if hub.kernel.topic(name) is None:
                hub.kernel.create_topic(name)
        client.ask(publish_packet("gone/1", b"placed"), publish_packet("kept/1", b"placed"))
        hub.kernel.delete_topic("gone")
        hub.kernel.flush()
        return [(ack.packet_id, ack.reason) for ack in client.ask(*packets)]

    no = reasons.NOT_AUTHORIZED
    assert sent(publish_packet("gone/1", b"no", 1)) == [(1, no)], "gathered"
    assert sent(publish_packet("kept/1", b"1", 1), publish_packet("gone/1", b"no", 2), publish_packet("gone/1", b"no"),
                publish_packet("kept/1", b"2", 3)) == [(1, 0), (2, no), (3, 0)]
    assert sent(publish_packet("gone/1", b"no", 4, qos=2)) == [(4, no)], "by itself"
    assert sent(publish_packet("kept/1", b"3", 4, qos=2), publish_packet("gone/1", b"no", 5, qos=2),
                publish_packet("gone/1", b"no", 6), publish_packet("kept/1", b"4", 7)) == [
                    (6, no), (7, 0), (4, 0), (5, no)]
    assert [value for _, _, _, value, *_ in hub.kernel.records() if value != b"placed"] == [b"1", b"2", b"3", b"4"]
    assert client.ask(publish_packet("kept/1", b"5", 5, qos=2))[0].reason == 0, "its packet id is free"
    assert not client.link.closed
