"""What a connection entrusts to its session: QoS 2 deliveries of shared groups, and retained values."""
from __future__ import annotations

import pytest

from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt.properties import SESSION_EXPIRY, SUBSCRIPTION_ID, Packet
from gatehouse.kernel.log.log import LogFull
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Kind
from tests.gateways.mqtt.five import (
    Client,
    Seen,
    ack_packet,
    packet,
    publish_packet,
    subscribe_packet,
    unsubscribe_packet,
)
from tests.gateways.mqtt.test_durable import KEEPS, PUBACK, PUBCOMP, PUBREC, leave, messages, publish, rest, sleeper

FILTERS = pytest.mark.parametrize("shared", ["$share/crew/jobs/#", "$share/crew/jobs/+"])


def letters(hub: FakeHub) -> int:
    hub.advance(3_000)
    queue = hub.kernel.groups.queue("$dead-letters/crew")
    return 0 if queue is None else hub.kernel.groups.queue_group(queue).counts().ready


def entrusted(hub: FakeHub) -> int:
    hub.kernel.flush()
    return len(list(hub.kernel.link_states(Kind.ENTRUSTED)))


def with_job(hub: FakeHub, shared: str, **said: object) -> tuple[Client, Seen]:
    """A member that was sent a job with QoS 2."""
    client = sleeper(hub, (shared, 2), **said)
    publish(hub, "jobs/a", b"1", qos=2)
    [job] = messages(client)
    assert (job.value, job.qos, job.topic) == (b"1", 2, "jobs/a")
    return client, job


@FILTERS
def test_a_qos_2_delivery_of_a_group_is_completed_by_the_session_that_comes_back(shared: str) -> None:
    hub = FakeHub()
    client, job = with_job(hub, shared)
    leave(client)
    other = sleeper(hub, (shared, 2), client_id="other")
    hub.advance(3_600_000 - 5_000)
    assert messages(other) == [], "the group's invisible time and retry are none of its concern"
    client = sleeper(hub)
    [again] = messages(client)
    assert (again.value, again.qos, again.packet_id, again.first & 8) == (b"1", 2, job.packet_id, 8)
    client.send(ack_packet(PUBREC, job.packet_id))
    hub.kernel.flush()
    [pubrel] = rest(client)
    assert (pubrel.kind, pubrel.packet_id, pubrel.reason) == (Packet.PUBREL, job.packet_id, 0)
    leave(client)
    client = sleeper(hub)
    [pubrel] = rest(client)
    assert pubrel.kind is Packet.PUBREL
    client.send(ack_packet(PUBCOMP, job.packet_id))
    hub.advance(60_000)
    assert (messages(client), messages(other), letters(hub), entrusted(hub)) == ([], [], 0, 0)
    assert client.session.describe()["in_flight"] == 0


@FILTERS
@pytest.mark.parametrize("end", ["expired", "clean", "deleted", "disconnected"])
def test_a_session_that_ends_before_pubrec_leaves_a_dead_letter(shared: str, end: str) -> None:
    hub = FakeHub()
    client, _ = with_job(hub, shared)
    other = sleeper(hub, (shared, 2), client_id="other")
    if end == "disconnected":
        client.send(packet(0xE0, b"\0\5\x11\0\0\0\0"))
    elif end == "deleted":
        hub.kernel.sessions.delete("/", "c")
    else:
        leave(client)
    if end == "expired":
        hub.advance(3_601_000)
    elif end == "clean":
        Client(hub, "c")
    assert letters(hub) == 1 and messages(other) == [] and entrusted(hub) == 0


@FILTERS
def test_a_client_that_refuses_it_makes_it_a_dead_letter_at_once(shared: str) -> None:
    hub = FakeHub()
    client, job = with_job(hub, shared)
    client.send(packet(PUBREC, job.packet_id.to_bytes(2, "big") + b"\x80"))
    assert letters(hub) == 1 and entrusted(hub) == 0
    assert client.session.describe()["in_flight"] == 0
    leave(client)
    assert messages(sleeper(hub)) == []


def test_the_session_keeps_it_though_the_groups_queue_is_deleted_and_the_client_unsubscribes() -> None:
    hub = FakeHub()
    client, job = with_job(hub, "$share/crew/jobs/+")
    leave(client)
    hub.kernel.groups.delete_queue(hub.kernel.groups.queue("$share/crew/jobs/+"))
    hub.kernel.flush()
    client = sleeper(hub)
    [again] = messages(client)
    assert (again.value, again.packet_id) == (b"1", job.packet_id)
    client.send(ack_packet(PUBREC, job.packet_id))
    hub.kernel.flush()
    assert [seen.kind for seen in client.take()] == [Packet.PUBREL] and entrusted(hub) == 0


def test_order_identifier_and_properties_are_as_they_were() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("plain/#", 2))
    client.send(packet(0x82, b"\0\2\x02\x0b\x09" + b"\0\x12$share/crew/jobs/#" + b"\2"))
    hub.kernel.flush()
    client.take()
    for at, topic in enumerate(("jobs/a", "plain/a", "jobs/b"), 1):
        publish(hub, topic, b"%d" % at, qos=2)
    before = messages(client)
    leave(client)
    again = messages(sleeper(hub))
    assert [(seen.value, seen.packet_id) for seen in again] == [(seen.value, seen.packet_id) for seen in before]
    assert [seen.value for seen in again] == [b"1", b"2", b"3"]
    assert [seen.properties.values.get(SUBSCRIPTION_ID) for seen in again] == [9, None, 9]


def test_the_receive_maximum_counts_what_was_entrusted() -> None:
    hub = FakeHub()
    client = sleeper(hub, ("$share/crew/jobs/#", 2), properties=[*KEEPS, (0x21, 3)])
    publish(hub, "jobs/a", *[b"%d" % at for at in range(5)], qos=2)
    first = messages(client)
    assert len(first) == 3
    for seen in first:
        client.send(ack_packet(PUBREC, seen.packet_id) + ack_packet(PUBCOMP, seen.packet_id))
    assert [seen.value for seen in messages(client)] == [b"3", b"4"]


def test_a_full_disk_hands_the_job_to_another_member() -> None:
    """It was never sent: the frame that entrusts it was refused."""
    hub = FakeHub()
    client = sleeper(hub, ("$share/crew/jobs/#", 2))
    publisher = Client(hub, "publisher")
    publisher.send(publish_packet("jobs/a", b"1", 1, qos=1))
    other = sleeper(hub, ("$share/crew/jobs/#", 2), client_id="other")
    client.take()
    publish(hub, "jobs/a", b"2", qos=2)
    hub.log.fault = LogFull("no space left on device")
    hub.advance(10_000)
    got = [seen.value for each in (client, other) for seen in messages(each)]
    assert sorted(got) == sorted(set(got)), "nothing twice"


# ---- retained values

def retain(hub: FakeHub, *topics: str, qos: int = 1) -> None:
    other = Client(hub, "retainer")
    for at, topic in enumerate(topics, 1):
        other.send(publish_packet(topic, topic.encode(), at, qos=qos, retain=True))
    hub.kernel.flush()
    leave(other)


def asking(hub: FakeHub, *filters: tuple[str, int], **said: object) -> tuple[Client, list[Seen]]:
    """A client with a session that subscribes, and what it is sent of retained values."""
    client = sleeper(hub, **said)
    client.send(subscribe_packet(1, *filters))
    hub.kernel.flush()
    suback, *values = rest(client)
    assert suback.kind is Packet.SUBACK
    return client, [*values, *messages(client)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_retained_value_in_flight_comes_again_as_it_was(qos: int) -> None:
    hub = FakeHub()
    retain(hub, "plant/1", qos=qos)
    client, [first] = asking(hub, ("plant/#", qos))
    assert first.retain and first.qos == qos
    leave(client)
    publish(hub, "plant/1", b"new", qos=qos)
    client = sleeper(hub)
    again, new = messages(client)
    assert (again.value, again.packet_id, again.retain, again.first & 8) == (b"plant/1", first.packet_id, True, 8)
    assert (new.value, new.retain) == (b"new", False)
    client.send(b"".join([ack_packet(PUBACK if qos == 1 else PUBREC, seen.packet_id) for seen in (again, new)]))
    hub.advance(100)
    client.take()
    leave(client)
    kinds = [seen.kind for seen in rest(sleeper(hub))]
    assert kinds == [] if qos == 1 else kinds == [Packet.PUBREL] * 2
    assert entrusted(hub) == 0


def test_retained_values_that_were_not_sent_yet_are_sent_to_the_session_that_comes_back() -> None:
    hub = FakeHub()
    topics = [f"plant/{at}" for at in range(9)]
    retain(hub, *topics)
    client, first = asking(hub, ("plant/#", 1), properties=[*KEEPS, (0x21, 4)])
    assert len(first) == 4
    client.send(ack_packet(PUBACK, first[0].packet_id))
    second = messages(client)
    leave(client)
    client = sleeper(hub, properties=[*KEEPS, (0x21, 100)])
    rest_of = messages(client)
    assert [bool(seen.first & 8) for seen in rest_of] == [True] * 4 + [False] * 4
    got = {seen.value.decode() for seen in first + second + rest_of}
    assert got == set(topics) and len(rest_of) == 8
    client.send(b"".join([ack_packet(PUBACK, seen.packet_id) for seen in rest_of]))
    hub.advance(100)
    leave(client)
    assert messages(sleeper(hub)) == [] and entrusted(hub) == 0


def test_an_unsubscribe_ends_what_is_owed_of_retained_values() -> None:
    hub = FakeHub()
    retain(hub, "plant/1", "plant/2")
    client, [first] = asking(hub, ("plant/#", 1), properties=[*KEEPS, (0x21, 1)])
    client.send(packet(0xA2, b"\0\2\0" + b"\0\7plant/#") + ack_packet(PUBACK, first.packet_id))
    hub.advance(100)
    client.take()
    leave(client)
    assert messages(sleeper(hub)) == [] and entrusted(hub) == 0


def test_a_session_that_ends_leaves_nothing_of_retained_values() -> None:
    hub = FakeHub()
    retain(hub, "plant/1", "plant/2")
    client, first = asking(hub, ("plant/#", 2), properties=[(SESSION_EXPIRY, 10), (0x21, 1)])
    assert len(first) == 1 and entrusted(hub) == 2
    leave(client)
    hub.advance(11_000)
    assert entrusted(hub) == 0


def test_transient_values_and_filters_of_qos_0_are_entrusted_to_nobody() -> None:
    hub = FakeHub(settings=KernelSettings(default_partitions=1, session_keeps_transient=True))
    retain(hub, "plant/1")
    client, values = asking(hub, ("plant/#", 0), ("$share/crew/jobs/#", 1))
    publish(hub, "jobs/a", b"1", qos=2)
    assert [(seen.value, seen.qos) for seen in values + messages(client)] == [(b"plant/1", 0), (b"1", 1)]
    assert entrusted(hub) == 0


DAY_MS = 24 * 3_600_000
NEVER_EXPIRES = [(SESSION_EXPIRY, 0xFFFFFFFF)]


def waiting_for_the_group(hub: FakeHub) -> int:
    """How many jobs wait in the queue of the shared filter; -1: it is gone."""
    queue = hub.kernel.groups.queue("$share/crew/jobs/+")
    return -1 if queue is None else hub.kernel.groups.queue_group(queue).counts().ready


def days_go_by(hub: FakeHub, count: int) -> None:
    for _ in range(count * 24):
        hub.advance(3_600_000)


def test_the_groups_queue_stays_while_a_session_that_takes_from_it_sleeps() -> None:
    hub = FakeHub()
    leave(sleeper(hub, ("$share/crew/jobs/+", 1), properties=NEVER_EXPIRES))
    publish(hub, "jobs/a", b"1")
    days_go_by(hub, 4)
    assert waiting_for_the_group(hub) == 1
    assert [seen.value for seen in messages(sleeper(hub, properties=NEVER_EXPIRES))] == [b"1"]


@pytest.mark.parametrize("end", ["expired", "deleted", "unsubscribed"])
def test_it_goes_a_day_after_the_last_such_session(end: str) -> None:
    hub = FakeHub()
    shared, keeps = "$share/crew/jobs/+", [(SESSION_EXPIRY, 4 * 86_400)] if end == "expired" else NEVER_EXPIRES
    leave(sleeper(hub, (shared, 1), client_id="first", properties=KEEPS))
    leave(sleeper(hub, (shared, 1), client_id="last", properties=keeps))
    publish(hub, "jobs/a", b"1")
    days_go_by(hub, 4)
    assert hub.kernel.sessions.owner_of("/", "first") is None and waiting_for_the_group(hub) == 1
    if end == "deleted":
        hub.kernel.sessions.delete("/", "last")
    elif end == "unsubscribed":
        client = sleeper(hub, client_id="last", properties=keeps)
        messages(client)
        client.send(unsubscribe_packet(2, shared))
        hub.kernel.flush()
        leave(client)
    days_go_by(hub, 2)
    assert waiting_for_the_group(hub) == -1
