"""The MQTT door on the real kernel, in a world of one thread: what a slow client is owed comes whole and in order."""
from __future__ import annotations

import random
from collections import defaultdict

import pytest

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.decision import Decide, Operation
from gatehouse.gateways.contract import Services
from gatehouse.gateways.kit import FakeLink
from gatehouse.gateways.mqtt import GATEWAY
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.session import MqttSession
from gatehouse.kernel.groups.group_settings import GroupSettings, Retry
from gatehouse.kernel.settings import KernelSettings
from tests.gateways.mqtt.test_codec import publish
from tests.gateways.mqtt.test_window import acks
from tests.kernel.rig import Rig

SLOW = MqttConfig(max_inflight=7, max_unsent_bytes=400, max_waiting_bytes=200, max_waiting_ranges=10_000)


class Door:
    """Clients on one kernel."""

    def __init__(self, decision: Decide | None = None, max_auto_topics: int = 100) -> None:
        self.rig = Rig(settings=KernelSettings(segment_bytes=1 << 20, max_auto_topics=max_auto_topics))
        kernel = self.rig.kernel
        now_ms = self.rig.world.loop.now_ms
        self.services = Services("hub", kernel, Admission(kernel, now_ms, decision=decision), now_ms)

    def connect(self, client_id: bytes, config: MqttConfig) -> tuple[MqttSession, FakeLink]:
        link = FakeLink()
        assert GATEWAY.session is not None
        session = GATEWAY.session(link, self.services, config)
        assert isinstance(session, MqttSession)
        session.handle_data(b"\x10" + bytes([12 + len(client_id)]) + b"\0\4MQTT\4\2\0\0" +
                            len(client_id).to_bytes(2, "big") + client_id)
        assert link.take() == b"\x20\2\0\0"
        return session, link


def split(data: bytes) -> list[tuple[bytes, bytes, int]]:
    """(topic, payload, packet id) of every PUBLISH with QoS 1."""
    found, at = [], 0
    while at < len(data):
        assert data[at] == 0x32 and data[at + 1] < 128
        end = at + 2 + data[at + 1]
        topic_end = at + 4 + int.from_bytes(data[at + 2:at + 4], "big")
        found.append((data[at + 4:topic_end], data[topic_end + 2:end],
                      int.from_bytes(data[topic_end:topic_end + 2], "big")))
        at = end
    return found


@pytest.mark.parametrize("seed", range(12))
def test_a_slow_client_gets_everything_once_and_in_order_per_topic(seed: int) -> None:
    chance = random.Random(seed)
    door = Door()
    publisher, publisher_link = door.connect(b"publisher", MqttConfig())
    subscriber, link = door.connect(b"slow", SLOW)
    subscriber.handle_data(b"\x82\x06\0\1\0\1#\1")
    assert link.take() == b"\x90\3\0\1\1"
    topics = [b"plant/%d" % n for n in range(5)] + [b"other", b"third/x/y"]
    sent, got = defaultdict(list), defaultdict(list)
    in_flight: list[int] = []
    number, published = 0, 0
    while published < 1500 or in_flight:
        if published < 1500 and chance.random() < 0.6:
            burst = []
            for _ in range(chance.choice((1, 3, 40))):
                topic, payload = chance.choice(topics), b"%d" % published
                number = number % 65535 + 1
                burst.append(publish(topic, payload, number))
                sent[topic].append(payload)
                published += 1
            publisher.handle_data(b"".join(burst))
        if chance.random() < 0.7:
            door.rig.run()
        link.stalled = chance.random() < 0.3
        if not link.stalled:
            link.drain(subscriber)
        for topic, payload, packet_id in split(link.take()):
            got[topic].append(payload)
            assert packet_id not in in_flight
            in_flight.append(packet_id)
        assert len(in_flight) <= SLOW.max_inflight
        if in_flight and chance.random() < 0.8:
            if chance.random() < 0.2:
                chance.shuffle(in_flight)
            count = chance.randint(1, len(in_flight))
            subscriber.handle_data(acks(*in_flight[:count]))
            del in_flight[:count]
        if published >= 1500:
            link.stalled = False
            link.drain(subscriber)
            door.rig.run()
            for topic, payload, packet_id in split(link.take()):
                got[topic].append(payload)
                in_flight.append(packet_id)
    assert not link.closed and not publisher_link.closed
    assert len(publisher_link.take()) == 4 * published
    assert got == sent
    assert subscriber.describe()["waiting_ranges"] == 0


def test_more_queues_while_a_client_is_behind_lose_nothing() -> None:
    door = Door()
    publisher, _ = door.connect(b"publisher", MqttConfig())
    subscriber, link = door.connect(b"slow", SLOW)
    subscriber.handle_data(b"\x82\x06\0\1\0\1#\1")
    link.take()
    sent = [b"%03d" % n for n in range(400)]
    for n, payload in enumerate(sent):
        publisher.handle_data(publish(b"plant/1", payload, 1))
        door.rig.run()
        if n == 200:
            door.rig.kernel.change_topic("plant", partitions=16)
            door.rig.run()
    got = []
    while batch := split(link.take()):
        got += [payload for _, payload, _ in batch]
        subscriber.handle_data(acks(*[packet_id for _, _, packet_id in batch]))
        door.rig.run()
    assert got == sent


def test_a_topic_deleted_while_a_client_is_behind_ends_nothing() -> None:
    door = Door()
    publisher, _ = door.connect(b"publisher", MqttConfig())
    subscriber, link = door.connect(b"slow", SLOW)
    subscriber.handle_data(b"\x82\x06\0\1\0\1#\1")
    link.take()
    for n in range(200):
        publisher.handle_data(publish(b"plant/1", b"%03d" % n, 1))
    door.rig.run()
    door.rig.kernel.delete_topic("plant")
    door.rig.run()
    publisher.handle_data(publish(b"other", b"after", 1) + publish(b"plant/1", b"again", 2))
    door.rig.run()
    got = []
    while batch := split(link.take()):
        got += [payload for _, payload, _ in batch]
        subscriber.handle_data(acks(*[packet_id for _, _, packet_id in batch]))
        door.rig.run()
    assert got[-2:] == [b"after", b"again"] and not link.closed


def test_delayed_publishes_are_acknowledged_in_turn_and_come_later() -> None:
    door = Door()
    client, link = door.connect(b"c", MqttConfig())
    topics = (b"t/k", b"$delayed/1.5/t/k", b"$delayed/x/t/k", b"$delayed/400000000/t/k", b"$delayed/1/$SYS/x", b"t/k")
    client.handle_data(b"".join(publish(topic, b"%d" % n, n) for n, topic in enumerate(topics, 1)))
    client.handle_data(publish(b"$delayed/1/t/k", b"qos 0"))
    assert link.take() == b""
    door.rig.run()
    assert link.take() == acks(1, 2, 3, 4, 5, 6)
    assert door.rig.values("t") == [b"1", b"6"]
    door.rig.world.advance(1_400)
    door.rig.world.advance(100)
    assert door.rig.values("t") == [b"1", b"6", b"qos 0", b"2"]


def test_a_delayed_publish_that_breaks_the_protocol_ends_the_connection() -> None:
    for packet in (publish(b"$delayed/1/t/+", b"", 1), b"\x32\x10\0\x0c$delayed/1/t\0\0"):
        client, link = Door().connect(b"c", MqttConfig())
        client.handle_data(packet)
        assert link.closed, packet


# ---- members of shared groups

def subscribe(session: MqttSession, topic_filter: bytes) -> None:
    body = b"\0\1" + len(topic_filter).to_bytes(2, "big") + topic_filter + b"\1"
    session.handle_data(b"\x82" + bytes([len(body)]) + body)


def given(link: FakeLink) -> list[tuple[bytes, bytes, int]]:
    """What it was sent; its own publish was acknowledged."""
    return split(link.take().replace(b"\x40\2\0\x09", b""))


def member(door: Door, client_id: bytes, topic_filter: bytes, config: MqttConfig | None = None
           ) -> tuple[MqttSession, FakeLink]:
    session, link = door.connect(client_id, config or MqttConfig())
    subscribe(session, topic_filter)
    assert link.take() == b"\x90\3\0\1\1"
    return session, link


@pytest.mark.parametrize("topic_filter", [b"jobs/#", b"jobs/+"])
def test_what_a_member_leaves_unacknowledged_comes_again_as_the_groups_retry_says(topic_filter: bytes) -> None:
    door = Door()
    door.rig.kernel.groups.define("crew", GroupSettings(retry=Retry((5_000,)), max_attempts=2))
    first, link = member(door, b"first", b"$share/crew/" + topic_filter)
    first.handle_data(publish(b"jobs/a", b"1", 9))
    door.rig.run()
    assert len(given(link)) == 1
    _, heir = member(door, b"heir", b"$share/crew/" + topic_filter)
    first.handle_closed()
    door.rig.world.advance(4_900)
    assert heir.take() == b""
    door.rig.world.advance(200)
    assert [payload for _, payload, _ in given(heir)] == [b"1"]


SHARED = pytest.mark.parametrize("topic_filter", [b"$share/crew/jobs/#", b"$share/crew/jobs/+"])


def exact_member(door: Door, client_id: bytes, topic_filter: bytes, config: MqttConfig | None = None
                 ) -> tuple[MqttSession, FakeLink]:
    session, link = door.connect(client_id, config or MqttConfig())
    session.handle_data(b"\x82" + bytes([len(topic_filter) + 5]) + b"\0\1" + len(topic_filter).to_bytes(2, "big")
                        + topic_filter + b"\2")
    assert link.take() == b"\x90\3\0\1\2"
    return session, link


def send_exactly(door: Door, session: MqttSession, link: FakeLink) -> None:
    """One job with QoS 2, which the same client is given: its packet id is 1."""
    packet = publish(b"jobs/a", b"1", 9)
    session.handle_data(bytes((packet[0] + 2,)) + packet[1:])
    door.rig.run()
    session.handle_data(b"\x62\2\0\x09")
    door.rig.run()
    assert b"\x34\x0b\0\6jobs/a\0\0011" in link.take()


@SHARED
def test_what_is_not_acknowledged_in_the_invisible_time_goes_to_another_member(topic_filter: bytes) -> None:
    door = Door()
    door.rig.kernel.groups.define("crew", GroupSettings(invisible_ms=20_000))
    silent, link = member(door, b"silent", topic_filter)
    silent.handle_data(publish(b"jobs/a", b"1", 9))
    door.rig.run()
    assert [payload for _, payload, _ in given(link)] == [b"1"]
    other, other_link = member(door, b"other", topic_filter)
    door.rig.world.advance(19_999)
    assert other_link.take() == b""
    door.rig.world.advance(1_001)
    (_, payload, packet_id), = given(other_link)
    assert payload == b"1" and link.take() == b"" and not link.closed
    other.handle_data(acks(packet_id))
    door.rig.world.advance(60_000)
    assert (link.take(), other_link.take()) == (b"", b"")


@SHARED
def test_its_packet_id_stays_in_use_until_a_late_puback_which_settles_nothing(topic_filter: bytes) -> None:
    door = Door()
    first, link = member(door, b"first", topic_filter)
    first.handle_data(publish(b"jobs/a", b"1", 9))
    door.rig.run()
    (_, _, late_id), = given(link)
    other, other_link = member(door, b"other", topic_filter)
    door.rig.world.advance(31_000)
    (_, _, packet_id), = given(other_link)
    assert first.describe()["in_flight"] == 1
    first.handle_data(acks(late_id))
    assert first.describe()["in_flight"] == 0
    other.handle_closed()                                 # without an acknowledgement: the message is not settled
    door.rig.world.advance(5_000)
    assert [payload for _, payload, _ in given(link)] == [b"1"]


def test_a_key_of_an_ordered_group_is_not_held_for_ever() -> None:
    door = Door()
    door.rig.kernel.groups.define("crew", GroupSettings(ordered=True, start="latest"))
    silent, link = member(door, b"silent", b"$share/crew/jobs/#")
    silent.handle_data(publish(b"jobs/a", b"1", 9) + publish(b"jobs/a", b"2", 9))
    door.rig.run()
    assert [payload for _, payload, _ in given(link)] == [b"1"]
    other, other_link = member(door, b"other", b"$share/crew/jobs/#")
    door.rig.world.advance(31_000)
    (_, payload, packet_id), = given(other_link)
    assert payload == b"1"
    other.handle_data(acks(packet_id))
    door.rig.run()
    assert [payload for _, payload, _ in given(other_link) + given(link)] == [b"2"]


@SHARED
def test_after_its_attempts_it_is_a_dead_letter_though_nobody_else_is_there(topic_filter: bytes) -> None:
    door = Door()
    door.rig.kernel.groups.define("crew", GroupSettings(max_attempts=2))
    silent, link = member(door, b"silent", topic_filter)
    silent.handle_data(publish(b"jobs/a", b"1", 9))
    door.rig.run()
    door.rig.world.advance(31_000)
    assert [payload for _, payload, _ in given(link)] == [b"1", b"1"]
    door.rig.world.advance(31_000)
    letters = door.rig.kernel.groups.queue_group(door.rig.kernel.groups.queue("$dead-letters/crew"))
    assert letters.counts().ready == 1


@SHARED
def test_what_is_sent_with_qos_2_stays_with_its_client_until_that_is_disconnected(topic_filter: bytes) -> None:
    door = Door()
    session, link = exact_member(door, b"silent", topic_filter, MqttConfig(ack_timeout_ms=90_000))
    send_exactly(door, session, link)
    _, other_link = exact_member(door, b"other", topic_filter)
    door.rig.world.advance(30_000)
    door.rig.world.advance(59_000)
    assert (link.closed, other_link.take()) == (False, b"")
    door.rig.world.advance(3_000)
    assert link.closed and link.reason.startswith("ack_timeout")
    session.handle_closed()
    door.rig.world.advance(600_000)
    assert other_link.take() == b""


def test_one_that_has_it_with_qos_2_and_says_so_stays() -> None:
    door = Door()
    session, link = exact_member(door, b"good", b"$share/crew/jobs/#", MqttConfig(ack_timeout_ms=60_000))
    send_exactly(door, session, link)
    door.rig.world.advance(50_000)
    session.handle_data(b"\x50\2\0\1")
    assert link.take() == b"\x62\2\0\1"
    door.rig.world.advance(600_000)
    assert not link.closed


# ---- topics that are missing

def creates_nothing(_: object, operation: Operation, address: str) -> bool:
    return operation is not Operation.CREATE


def send(door: Door, session: MqttSession, link: FakeLink, *packets: bytes) -> bytes:
    session.handle_data(b"".join(packets))
    door.rig.run()
    return link.take()


def test_who_may_not_create_does_not_make_a_deleted_topic_anew() -> None:
    """His connection knew it; what he publishes elsewhere in the same read is stored."""
    door = Door(creates_nothing)
    for name in ("plant", "fleet"):
        door.rig.kernel.create_topic(name, partitions=1)
    session, link = door.connect(b"ann", MqttConfig())
    assert send(door, session, link, publish(b"plant/x", b"1", 1), publish(b"fleet/x", b"1", 2)) == acks(1, 2)
    door.rig.kernel.delete_topic("plant")
    assert send(door, session, link, publish(b"plant/x", b"2", 3), publish(b"fleet/x", b"2", 4)) == acks(3, 4)
    assert send(door, session, link, publish(b"plant/x", b"3", 5)) == acks(5) and not link.closed
    assert [topic.name for topic in door.rig.kernel.topics()] == ["fleet"]
    assert door.rig.values("fleet") == [b"1", b"2"]
    assert door.services.admission.trace.counts["mqtt", "publish_denied"] == 2


@pytest.mark.parametrize("known", [True, False])
def test_where_a_denied_publish_ends_the_connection_so_does_one_to_a_missing_topic(known: bool) -> None:
    door = Door(creates_nothing)
    session, link = door.connect(b"ann", MqttConfig(on_denied="disconnect"))
    if known:
        door.rig.kernel.create_topic("plant")
        assert send(door, session, link, publish(b"plant/x", b"1", 1)) == acks(1)
        door.rig.kernel.delete_topic("plant")
    assert send(door, session, link, publish(b"plant/x", b"2", 2)) == b"" and link.closed
    assert list(door.rig.kernel.topics()) == []


@pytest.mark.parametrize(("topic", "event"), [("/home/temp", "unroutable"), ("c/x", "too_many_topics")])
@pytest.mark.parametrize("on_denied", ["acknowledge", "disconnect"])
def test_what_no_topic_takes_is_denied(topic: str, event: str, on_denied: str) -> None:
    door = Door(max_auto_topics=2)
    for name in ("a", "b"):
        door.rig.kernel.create_topic(name)
    session, link = door.connect(b"ann", MqttConfig(on_denied=on_denied))
    ends = on_denied == "disconnect"
    assert send(door, session, link, publish(topic.encode(), b"v", 1)) == (b"" if ends else acks(1))
    assert link.closed is ends
    assert [one.name for one in door.rig.kernel.topics()] == ["a", "b"]
    assert door.services.admission.trace.counts["mqtt", "publish_" + event] == 1
