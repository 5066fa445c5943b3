"""Sessions that outlive their connection, at the door: what a client that comes back is sent, and when it is told."""
from __future__ import annotations

import pytest

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import GATEWAY
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.durable import OWN_IDS
from gatehouse.gateways.mqtt.outbox import LAST_ID, Window
from gatehouse.gateways.mqtt.properties import ALIAS, ALIAS_MAXIMUM, SESSION_EXPIRY, SUBSCRIPTION_ID, WILL_DELAY, Packet
from gatehouse.kernel.log.log import LogFull
from gatehouse.kernel.settings import KernelSettings
from tests.gateways.garbage import left_to_the_collector
from tests.gateways.mqtt.conversations import connect as connect_clean
from tests.gateways.mqtt.five import (
    Client,
    Seen,
    ack_packet,
    connect_packet,
    packet,
    publish_packet,
    sized,
    subscribe_packet,
    unsubscribe_packet,
)

KEEPS = [(SESSION_EXPIRY, 3_600)]
PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70


def sleeper(hub: FakeHub, *filters: tuple[str, int], client_id: str = "c", **said: object) -> Client:
    """A client with a session that outlives its connection, and these filters."""
    said.setdefault("properties", KEEPS)
    client = Client(hub, client_id, clean=False, **said)
    if filters:
        client.send(subscribe_packet(1, *filters))
        hub.kernel.flush()
        [suback] = client.take()
        assert suback.kind is Packet.SUBACK and suback.reasons == [qos & 3 for _, qos in filters]
    return client


def leave(client: Client) -> None:
    client.hub.cut(client.session)
    client.hub.kernel.flush()


def publish(hub: FakeHub, topic: str, *values: bytes, qos: int = 1) -> None:
    other = Client(hub, "publisher")
    for at, value in enumerate(values, 1):
        other.send(publish_packet(topic, value, at, qos=qos))
    hub.kernel.flush()
    other.take()
    leave(other)


def messages(client: Client) -> list[Seen]:
    client.hub.kernel.flush()
    return [seen for seen in rest(client) if seen.kind is Packet.PUBLISH]


def rest(client: Client) -> list[Seen]:
    """Everything that came, also what came right behind CONNACK."""
    behind, client.behind = client.behind, []
    return behind + client.take()


def test_qos_0_waits_where_the_hub_is_set_so_and_comes_once_and_in_order() -> None:
    hub = FakeHub(settings=KernelSettings(default_partitions=1, session_keeps_transient=True))
    client = sleeper(hub, ("plant/#", 1), ("fleet/#", 0))
    publish(hub, "plant/1", b"awake", qos=0)
    assert [(seen.value, seen.qos) for seen in messages(client)] == [(b"awake", 0)], "once"
    leave(client)
    publish(hub, "plant/1", b"a", qos=0)
    publish(hub, "plant/1", b"b", qos=1)
    publish(hub, "fleet/1", b"c", qos=1)
    client = Client(hub, "c", clean=False, properties=KEEPS)
    assert [(seen.value, seen.qos) for seen in messages(client)] == [(b"a", 0), (b"b", 1), (b"c", 0)]


def test_what_was_missed_comes_when_the_client_comes_back() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 2))
    assert not client.connack.session_present
    leave(client)
    publish(hub, "plant/1", b"a", b"b", qos=2)
    publish(hub, "plant/1", b"c", qos=1)
    client = Client(hub, "c", clean=False, properties=KEEPS, connects=False)
    client.send(connect_packet("c", clean=False, properties=KEEPS))
    assert client.take() == [], "the session is durable before its client is let in"
    hub.kernel.flush()
    connack, *sent = client.take()
    assert connack.kind is Packet.CONNACK and connack.session_present
    assert [(seen.value, seen.qos, seen.packet_id) for seen in sent] == [(b"a", 2, 1), (b"b", 2, 2), (b"c", 1, 3)]


def test_qos_2_out_in_four_steps_over_connections() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 2))
    publish(hub, "plant/1", b"a", qos=2)
    [message] = messages(client)
    assert (message.qos, message.first & 8) == (2, 0)
    leave(client)
    client = sleeper(hub)                            # nothing was said of it: again, with DUP
    [again] = messages(client)
    assert (again.value, again.packet_id, again.first & 8) == (b"a", message.packet_id, 8)
    client.send(ack_packet(PUBREC, message.packet_id))
    assert client.take() == [], "PUBREL leaves when PUBREC is durable"
    hub.kernel.flush()
    [release] = client.take()
    assert (release.kind, release.packet_id) == (Packet.PUBREL, message.packet_id)
    leave(client)
    client = sleeper(hub)
    hub.kernel.flush()
    [release] = rest(client)
    assert (release.kind, release.packet_id) == (Packet.PUBREL, message.packet_id)
    client.send(ack_packet(PUBCOMP, message.packet_id))
    hub.advance(100)
    leave(client)
    client = sleeper(hub)
    hub.kernel.flush()
    assert client.take() == []


def test_qos_2_in_is_stored_once_over_connections() -> None:
    hub = FakeHub()
    client = sleeper(hub)
    client.send(publish_packet("plant/1", b"a", 7, qos=2))
    leave(client)                                    # before PUBREC
    client = sleeper(hub)
    client.send(publish_packet("plant/1", b"a", 7, qos=2, dup=True))
    hub.kernel.flush()
    [received] = client.take()
    assert (received.kind, received.packet_id) == (Packet.PUBREC, 7)
    assert [record[3] for record in hub.kernel.records("plant")] == [b"a"]
    client.send(ack_packet(PUBREL, 7))
    assert client.take() == [], "PUBCOMP leaves when the release is durable"
    hub.kernel.flush()
    [completed] = client.take()
    assert (completed.kind, completed.packet_id, completed.reason) == (Packet.PUBCOMP, 7, 0)
    client.send(ack_packet(PUBREL, 7))
    hub.kernel.flush()
    [completed] = client.take()
    assert (completed.kind, completed.reason) == (Packet.PUBCOMP, 0x92)
    client.send(publish_packet("plant/1", b"b", 7, qos=2))
    hub.kernel.flush()
    assert [record[3] for record in hub.kernel.records("plant")] == [b"a", b"b"]


def test_acknowledged_is_done_with() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 1))
    publish(hub, "plant/1", b"a", b"b", b"c")
    sent = messages(client)
    client.send(b"".join(ack_packet(PUBACK, seen.packet_id) for seen in sent[:2]))
    hub.advance(100)
    leave(client)
    client = sleeper(hub)
    assert [(seen.value, seen.first & 8) for seen in messages(client)] == [(b"c", 8)]
    client.send(ack_packet(PUBACK, sent[2].packet_id, 0x80))         # refused: done with, too
    hub.advance(100)
    leave(client)
    assert messages(sleeper(hub)) == []


def test_a_client_of_3_1_1_without_clean_session() -> None:
    hub = FakeHub()
    connect = packet(0x10, b"\0\4MQTT\4\0\0\0" + sized(b"c"))
    session, link = hub.open(GATEWAY, MqttConfig())
    session.handle_data(connect)
    hub.kernel.flush()
    assert link.take() == b"\x20\2\0\0"
    session.handle_data(packet(0x82, b"\0\1" + sized(b"plant/#") + b"\1"))
    hub.kernel.flush()
    assert link.take() == b"\x90\3\0\1\1"
    session.handle_data(b"\xe0\0")
    hub.cut(session)
    publish(hub, "plant/1", b"a")
    session, link = hub.open(GATEWAY, MqttConfig())
    session.handle_data(connect)
    hub.kernel.flush()
    assert link.take() == b"\x20\2\1\0" + packet(0x32, sized(b"plant/1") + b"\0\1" + b"a")
    session.handle_data(b"\x40\2\0\1")
    session.handle_data(b"\xe0\0")
    hub.cut(session)
    connect_clean(hub, "c")                          # forgets it
    hub.kernel.flush()
    assert hub.kernel.sessions.describe("/", "c") is None


def test_qos_0_comes_live_and_does_not_wait() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 1), ("fleet/#", 0))
    publish(hub, "plant/1", b"a", qos=0)
    publish(hub, "fleet/1", b"b", qos=2)
    assert [(seen.value, seen.qos) for seen in messages(client)] == [(b"a", 0), (b"b", 0)]
    leave(client)
    publish(hub, "plant/1", b"c", qos=0)
    publish(hub, "fleet/1", b"d", qos=2)
    assert messages(sleeper(hub)) == []


def test_filters_that_overlap_give_one_copy_with_all_identifiers() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("fleet/1", 0))
    for identifier, wish in ((7, ("plant/#", 0)), (9, ("plant/+", 2))):
        client.send(subscribe_packet(identifier, wish, properties=[(SUBSCRIPTION_ID, identifier)]))
    hub.kernel.flush()
    client.take()
    publish(hub, "plant/1", b"a", qos=2)
    [message] = messages(client)
    assert (message.qos, message.value) == (2, b"a")
    assert message.properties.subscription_ids in ([7, 9], [9])      # see the README: 7 does not wait


def test_retained_values_are_in_flight_with_the_session() -> None:
    hub = FakeHub()
    other = Client(hub, "p")
    other.send(publish_packet("plant/1", b"kept", 1, retain=True))
    hub.kernel.flush()
    client = sleeper(hub)
    client.send(subscribe_packet(1, ("plant/#", 1)))
    assert client.take() == [], "SUBACK leaves when the subscription is durable"
    hub.kernel.flush()
    suback, retained = client.take()
    assert suback.kind is Packet.SUBACK and retained.retain and retained.packet_id == 1
    publish(hub, "plant/1", b"new")
    [message] = messages(client)
    assert message.packet_id == 2 and not message.retain
    client.send(ack_packet(PUBACK, 1) + ack_packet(PUBACK, 2))
    hub.advance(100)
    assert client.session.describe()["in_flight"] == 0


def test_the_receive_maximum_is_shared() -> None:
    hub = FakeHub()
    for at in range(3):
        other = Client(hub, f"p{at}")
        other.send(publish_packet(f"plant/{at}", b"kept", 1, retain=True))
        hub.kernel.flush()
    client = sleeper(hub, properties=[*KEEPS, (0x21, 2)])
    client.send(subscribe_packet(1, ("plant/#", 1)))
    hub.kernel.flush()
    first = messages(client)
    assert len(first) == 2
    publish(hub, "plant/1", b"new")
    assert messages(client) == []
    client.send(b"".join(ack_packet(PUBACK, seen.packet_id) for seen in first))
    more = messages(client)
    assert sorted(seen.value for seen in more) == [b"kept", b"new"]


@pytest.mark.parametrize("receive_maximum", [1, 2, 3])
@pytest.mark.parametrize("beside", ["$share/workers/s/#", "$from/earliest/s/#"])
def test_what_comes_beside_a_session_and_what_it_sends_stay_within_the_receive_maximum_together(
        beside: str, receive_maximum: int) -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 1), properties=[*KEEPS, (0x21, receive_maximum)])
    publisher = Client(hub, "publisher")
    if beside.startswith("$from"):
        publisher.ask(*[publish_packet("s/1", b"%d" % at, at + 1) for at in range(5)])
        client.send(subscribe_packet(2, (beside, 1)))
    else:
        client.ask(subscribe_packet(2, (beside, 1)))
        publisher.send(*[publish_packet("s/1", b"%d" % at, at + 1) for at in range(5)])
    publisher.send(*[publish_packet("plant/1", b"%d" % at, at + 1) for at in range(5, 10)])
    in_flight: list[int] = []
    values: list[bytes] = []
    for _ in range(20):
        hub.kernel.flush()
        seen = client.received()
        values += [each.value for each in seen]
        in_flight += [each.packet_id for each in seen]
        assert len(in_flight) <= receive_maximum
        if in_flight:
            client.send(ack_packet(PUBACK, in_flight.pop()))
    assert sorted(values) == [b"%d" % at for at in range(10)]


def test_an_unsubscribed_filter_is_gone_when_the_client_is_told() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 1))
    client.send(unsubscribe_packet(2, "plant/#"))
    assert client.take() == []
    hub.kernel.flush()
    [unsuback] = client.take()
    assert unsuback.kind is Packet.UNSUBACK
    leave(client)
    publish(hub, "plant/1", b"a")
    assert messages(sleeper(hub)) == []


def test_what_a_client_sent_itself_does_not_wait_for_it_with_no_local() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 1 | 4))
    client.send(publish_packet("plant/1", b"own", 5))
    hub.kernel.flush()
    publish(hub, "plant/1", b"other")
    assert [seen.value for seen in messages(client)] == [b"other"]


def test_a_session_is_taken_over_from_any_connection() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 1))
    publish(hub, "plant/1", b"a")
    [message] = messages(client)
    again = sleeper(hub)
    assert client.link.closed and again.connack.session_present
    client.session.handle_data(ack_packet(PUBACK, message.packet_id))
    assert [(seen.value, seen.first & 8) for seen in messages(again)] == [(b"a", 8)]


def test_an_expiry_that_changes_with_disconnect() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 1))
    client.send(packet(0xE0, b"\0\5\x11\0\0\0\0"))
    leave(client)
    assert hub.kernel.sessions.describe("/", "c") is None
    client = sleeper(hub)
    client.send(packet(0xE0, b"\0\5\x11\0\0\0\x0a"))
    leave(client)
    hub.advance(9_000)
    assert hub.kernel.sessions.describe("/", "c") is not None
    hub.advance(2_000)
    assert hub.kernel.sessions.describe("/", "c") is None


def test_the_longest_expiry_is_told() -> None:
    hub = FakeHub()
    client = Client(hub, "c", MqttConfig(max_session_expiry_s=60), clean=False, properties=KEEPS)
    assert client.connack.properties.values[SESSION_EXPIRY] == 60
    client = Client(hub, "d", clean=False, properties=KEEPS)
    assert SESSION_EXPIRY not in client.connack.properties.values


def test_clean_start_0_resumes_a_session_that_ends_with_this_connection() -> None:
    hub = FakeHub()
    leave(sleeper(hub, ("plant/#", 1)))
    publish(hub, "plant/1", b"a")
    client = Client(hub, "c", clean=False, connects=False)
    client.send(connect_packet("c", clean=False))
    hub.kernel.flush()
    connack, message = client.take()
    assert connack.session_present and message.value == b"a"
    leave(client)
    assert hub.kernel.sessions.describe("/", "c") is None


def test_another_user_has_no_part_in_a_session() -> None:
    hub = FakeHub()
    leave(sleeper(hub, ("plant/#", 1)))
    hub.kernel.sessions._by_name["/"]["c"].user = "ada"
    client = Client(hub, "c", connects=False)
    client.send(connect_packet("c", clean=True, will=("w", b"bye", 0, False, [])))
    hub.kernel.flush()
    [connack] = client.take()
    assert connack.reason == 0x85 and client.link.closed
    hub.cut(client.session)
    hub.kernel.flush()
    assert hub.kernel.sessions.owner_of("/", "c") == "ada"
    assert hub.kernel.records() == []


def test_rights_are_looked_at_when_a_session_wakes() -> None:
    allowed = {"plant/#", "plant/1", "fleet/#", "fleet/1"}

    def decision(principal: Principal, operation: Operation, address: str) -> bool:
        return operation is not Operation.CONSUME or address in allowed

    hub = FakeHub(decision=decision)
    leave(sleeper(hub, ("plant/#", 1), ("fleet/#", 1)))
    publish(hub, "plant/1", b"a")
    publish(hub, "fleet/1", b"b")
    allowed -= {"plant/#", "plant/1"}
    client = sleeper(hub)
    assert [seen.value for seen in messages(client)] == [b"b"]
    assert client.session.describe()["filters"] == ["fleet/#"]


def test_a_session_that_is_deleted_ends_its_connection() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 1))
    hub.kernel.sessions.delete("/", "c")
    hub.kernel.flush()
    [goodbye] = client.take()
    assert (goodbye.kind, goodbye.reason) == (Packet.DISCONNECT, 0x98) and client.link.closed


def test_a_full_disk_lets_nobody_in_who_wants_a_session() -> None:
    hub = FakeHub()
    client = Client(hub, "c", connects=False)
    hub.log.fault = LogFull("no space left on device")
    client.send(connect_packet("c", clean=False, properties=KEEPS))
    hub.kernel.flush()
    assert client.link.closed and all(seen.kind is not Packet.DISCONNECT for seen in client.take())
    assert hub.kernel.sessions.describe("/", "c") is None


def test_a_shared_subscription_ends_while_the_session_sleeps_and_is_resumed() -> None:
    hub = FakeHub()
    publish(hub, "plant/0", b"before")
    leave(sleeper(hub, ("$share/g/plant/#", 1)))
    publish(hub, "plant/1", b"a")                    # kept by the group
    client = sleeper(hub)
    [message] = messages(client)
    assert message.value == b"a" and message.packet_id >= OWN_IDS


def test_a_will_waits_for_its_delay_and_not_beyond_the_session() -> None:
    hub = FakeHub()
    will = ("w", b"bye", 1, False, [(WILL_DELAY, 60)])
    leave(sleeper(hub, properties=[(SESSION_EXPIRY, 3_600)], will=will))
    hub.advance(59_000)
    sleeper(hub)                                     # it is back in time
    hub.advance(10_000)
    assert hub.kernel.records() == []
    leave(sleeper(hub, client_id="d", properties=[(SESSION_EXPIRY, 10)], will=will))
    hub.advance(11_000)
    assert [record[3] for record in hub.kernel.records()] == [b"bye"]


def test_a_client_that_does_not_read_is_sent_no_more() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plant/#", 1))
    client.link.stalled = True
    publish(hub, "plant/1", *[bytes(100_000) for _ in range(20)])
    held = len(messages(client))
    assert 0 < held < 20
    client.link.drain(client.session)
    assert held + len(messages(client)) == 20


@pytest.mark.parametrize("lowest", [1, OWN_IDS, LAST_ID - 10])
def test_a_window_gives_no_id_below_its_lowest(lowest: int) -> None:
    window = Window(7, lowest)
    given = []
    for _ in range(20):
        count = window.room()
        assert count > 0
        first = window.take(count)
        ids = [(first - lowest + n) % (LAST_ID - lowest + 1) + lowest for n in range(count)]
        assert lowest == 1 or ids[-1] == first + count - 1, "in one piece"
        given += ids
        window.acknowledge_one(lowest - 1) if lowest > 1 else None
        assert window.in_flight() == count
        for packet_id in reversed(ids):
            window.acknowledge_one(packet_id)
    assert min(given) >= lowest and max(given) <= LAST_ID and len(given) > 10


def test_what_a_client_retained_stays_when_its_session_ends() -> None:
    hub = FakeHub()
    client = sleeper(hub)
    client.send(publish_packet("plant/1", b"kept", 1, retain=True))
    hub.kernel.flush()
    leave(client)
    hub.kernel.sessions.delete("/", "c")
    session, _ = connect_clean(hub, "d")
    session.handle_data(packet(0x31, sized(b"plant/2") + b"kept"))
    hub.cut(session)
    hub.kernel.flush()
    other = Client(hub, "other")
    other.subscribe(("plant/+", 0))
    assert sorted(seen.topic for seen in other.behind) == ["plant/1", "plant/2"]


def test_what_waited_comes_under_topic_aliases() -> None:
    hub = FakeHub()
    said = [*KEEPS, (ALIAS_MAXIMUM, 1)]
    leave(sleeper(hub, ("plant/#", 2), properties=said))
    publish(hub, "plant/first", b"a", b"b")
    publish(hub, "plant/second", b"c")
    publish(hub, "plant/first", b"d", qos=2)
    client = sleeper(hub, properties=said)
    assert [(seen.topic, seen.properties.values.get(ALIAS), seen.value) for seen in messages(client)] == [
        ("plant/first", 1, b"a"), ("", 1, b"b"), ("plant/second", None, b"c"), ("plant/first", 1, b"d")]
    leave(client)
    client = sleeper(hub, properties=said)
    assert [seen.topic for seen in messages(client)] == ["plant/first", "", "plant/second", "plant/first"], \
        "an alias ends with its connection"


def test_who_has_left_is_forgotten_without_the_collector() -> None:
    hub = FakeHub()
    publish(hub, "plant/kept", b"value", qos=1)
    with left_to_the_collector() as left:
        for number in range(3):
            clean = Client(hub, f"clean{number}")
            clean.send(subscribe_packet(1, ("plant/#", 1)))
            device = sleeper(hub, ("plant/#", 2), client_id=f"device{number}")
            publish(hub, "plant/1", b"on its way", qos=2)
            leave(clean)
            leave(device)
            clean, device = [sleeper(hub, client_id=f"device{number}") for _ in range(2)]    # which takes over
            leave(clean)
            leave(device)
        del clean, device
    assert not left  # decision 297
