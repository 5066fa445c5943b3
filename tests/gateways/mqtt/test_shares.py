"""Shared subscriptions that end, or are subscribed to again, while something of them is on its way."""
from __future__ import annotations

import pytest

from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.properties import EXPIRY, Packet
from tests.gateways.mqtt.conversations import connect
from tests.gateways.mqtt.five import (
    Client,
    Seen,
    ack_packet,
    packet,
    publish_packet,
    sized,
    subscribe_packet,
    unsubscribe_packet,
)

P_RECEIVE_MAXIMUM = 0x21
SHARES = ["$share/crew/jobs/#", "$share/crew/jobs/+"]    # over a topic, and behind a queue
LONG_MS = 600_000


def begin(share: str, qos: int, **said: object) -> tuple[FakeHub, Client, list[Seen]]:
    """A member that was sent three messages."""
    hub = FakeHub()
    client = Client(hub, "first", **said)
    client.subscribe((share, qos), identifier=1)
    sender = Client(hub, "sender")
    for n in range(3):
        sender.ask(publish_packet("jobs/a", b"%d" % n, n + 1, qos=2))
    hub.kernel.flush()
    return hub, client, client.received()


def second(hub: FakeHub, share: str) -> Client:
    client = Client(hub, "second")
    client.subscribe((share, 1))
    return client


def later(hub: FakeHub, ms: int = LONG_MS) -> None:
    """So much time goes by, and everything that is due happens."""
    for _ in range(10):
        hub.advance(ms // 10)
        hub.kernel.flush()


def values(packets: list[Seen]) -> list[bytes]:
    return sorted(seen.value for seen in packets)


def has_letters(hub: FakeHub) -> bool:
    return hub.kernel.groups.queue("$dead-letters/crew") is not None


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("qos", [1, 2])
def test_3_10_4_3_what_was_sent_is_its_own_to_acknowledge_after_unsubscribe(share: str, qos: int) -> None:
    """A worker that is to stop takes nothing more, does what it has, and goes."""
    hub, client, sent = begin(share, qos)
    assert values(sent) == [b"0", b"1", b"2"]
    other = second(hub, share)
    client.ask(unsubscribe_packet(5, share))
    for seen in sent:
        if qos == 1:
            client.ask(ack_packet(0x40, seen.packet_id))
        else:
            [release] = client.ask(ack_packet(0x50, seen.packet_id))
            assert (release.kind, release.reason) == (Packet.PUBREL, 0)
            client.ask(ack_packet(0x70, seen.packet_id))
    hub.cut(client.session)
    later(hub)
    assert other.received() == [] and not has_letters(hub)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("is_cut", [False, True])
def test_what_is_not_acknowledged_after_unsubscribe_goes_to_another_member(share: str, is_cut: bool) -> None:
    hub, client, sent = begin(share, 1)
    other = second(hub, share)
    client.ask(unsubscribe_packet(5, share))
    client.ask(ack_packet(0x40, sent[0].packet_id))
    assert other.received() == []
    if is_cut:
        hub.cut(client.session)
    later(hub)
    assert {seen.value for seen in other.received()} == {b"1", b"2"}, "and again, as nobody acknowledges them"


@pytest.mark.parametrize("share", SHARES)
def test_what_was_not_sent_at_unsubscribe_goes_to_another_member_at_once(share: str) -> None:
    hub, client, sent = begin(share, 1, properties=[(P_RECEIVE_MAXIMUM, 1)])
    assert len(sent) == 1
    other = second(hub, share)
    client.ask(unsubscribe_packet(5, share), ack_packet(0x40, sent[0].packet_id))
    hub.kernel.flush()
    assert values(other.received()) == [b"1", b"2"] and client.received() == []


@pytest.mark.parametrize("share", SHARES)
def test_subscribing_again_changes_the_place_and_hands_nothing_out_twice(share: str) -> None:
    """As clients do that subscribe after each CONNACK, also where the session is there."""
    hub, client, sent = begin(share, 1)
    client.subscribe((share, 2), identifier=2)
    for seen in sent:
        client.ask(ack_packet(0x40, seen.packet_id))
    later(hub)
    assert client.received() == []
    Client(hub, "s").ask(publish_packet("jobs/a", b"new", 1, qos=2))
    hub.kernel.flush()
    [seen] = client.received()
    assert (seen.value, seen.qos, seen.properties.subscription_ids) == (b"new", 2, [2])


@pytest.mark.parametrize("share", SHARES)
def test_who_unsubscribes_and_subscribes_is_not_sent_more_than_others(share: str) -> None:
    hub = FakeHub()
    client = Client(hub)
    client.subscribe((share, 1))
    sender = Client(hub, "sender")
    for n in range(500):
        sender.send(publish_packet("jobs/a", b"%d" % n, n + 1))
    hub.kernel.flush()
    sent = client.received()
    for _ in range(5):
        client.send(unsubscribe_packet(5, share), subscribe_packet(6, (share, 1)))
        hub.kernel.flush()
        sent += client.received()
    assert len(sent) == 100
    client.send(*[ack_packet(0x40, seen.packet_id) for seen in sent[:40]])
    hub.kernel.flush()
    assert len(client.received()) == 40


def test_a_topic_that_is_deleted_and_made_again_is_shared_as_before() -> None:
    hub, client, sent = begin(SHARES[0], 1)
    hub.kernel.delete_topic("jobs")
    hub.kernel.flush()
    sender = Client(hub, "s")
    for n in range(200):
        sender.send(publish_packet("jobs/a", b"%d" % n, n + 1))
    hub.kernel.flush()
    again = client.received()
    assert values(again) == sorted(b"%d" % n for n in range(97)), "three of the hundred are not acknowledged"
    client.send(*[ack_packet(0x40, seen.packet_id) for seen in sent + again])
    hub.kernel.flush()
    assert len(client.received()) == 100
    client.ask(unsubscribe_packet(5, SHARES[0]))
    hub.kernel.delete_topic("jobs")
    sender.ask(publish_packet("jobs/a", b"nobody's", 1))
    assert client.received() == []


def test_what_was_acknowledged_before_a_fault_in_the_same_read_goes_to_nobody_else() -> None:
    hub, client, sent = begin(SHARES[0], 1)
    client.send(*[ack_packet(0x40, message.packet_id) for message in sent], ack_packet(0x40, 0))
    hub.kernel.flush()
    assert client.link.closed
    other = second(hub, SHARES[0])
    later(hub)
    assert values(other.received()) == []


@pytest.mark.parametrize("wanted", ["$share/crew/jobs/#", "jobs/#"])
def test_what_expires_as_it_waits_for_a_client_of_3_1_1_is_not_sent_to_it(wanted: str) -> None:
    hub = FakeHub()
    session, link = connect(hub, "old", MqttConfig(max_inflight=1))
    session.handle_data(packet(0x82, b"\0\1" + sized(wanted.encode()) + b"\1"))
    hub.kernel.flush()
    sender = Client(hub, "sender")
    for number, expiry_s in enumerate((5, 5, 500, 5), 1):
        sender.ask(publish_packet("jobs/a", b"%d" % number, number, properties=[(EXPIRY, expiry_s)]))
    assert link.take().endswith(b"1")
    hub.advance(10_000)
    for packet_id in (1, 2):
        session.handle_data(ack_packet(0x40, packet_id))
        hub.kernel.flush()
        assert link.take()[-1:] == (b"3" if packet_id == 1 else b"")
