"""What one client is still owed: order, bounds, and nothing lost with QoS 1, however slow it is."""
from __future__ import annotations

from gatehouse.gateways.contract import Session
from gatehouse.gateways.kit import FakeHub, FakeLink
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.kernel.errors import StorageFailed
from gatehouse.kernel.state.topics import TopicSettings
from tests.gateways.mqtt.conversations import connect
from tests.gateways.mqtt.test_codec import publish
from tests.gateways.mqtt.test_window import acks

SLOW = MqttConfig(max_inflight=2, max_unsent_bytes=100, max_waiting_bytes=10, max_waiting_ranges=3)


def subscriber(hub: FakeHub, topic_filter: str, qos: int, config: MqttConfig = SLOW,
               client_id: str = "sub") -> tuple[Session, FakeLink]:
    session, link = connect(hub, client_id, config)
    name = topic_filter.encode()
    session.handle_data(b"\x82" + bytes([5 + len(name)]) + b"\0\1" + len(name).to_bytes(2, "big") + name + bytes([qos]))
    assert link.take() == b"\x90\x03\0\1" + bytes([qos])
    return session, link


def received(link: FakeLink) -> list[tuple[bytes, int]]:
    """(payload, packet id or 0) of every PUBLISH that was sent since."""
    data, found, at = link.take(), [], 0
    while at < len(data):
        assert data[at] in (0x30, 0x32) and data[at + 1] < 128
        end = at + 2 + data[at + 1]
        body = at + 4 + int.from_bytes(data[at + 2:at + 4], "big")
        packet_id = int.from_bytes(data[body:body + 2], "big") if data[at] == 0x32 else 0
        found.append((data[body + 2 if packet_id else body:end], packet_id))
        at = end
    return found


def send(hub: FakeHub, *payloads: bytes, topic: bytes = b"t", qos: int = 1, flush: bool = True) -> None:
    if not hasattr(hub, "publisher"):
        hub.publisher = connect(hub, "publisher")[0]  # type: ignore[attr-defined]
    hub.publisher.handle_data(b"".join(publish(topic, payload, qos) for payload in payloads))  # type: ignore[attr-defined]
    if flush:
        hub.kernel.flush()


def test_a_full_window_holds_back_and_acknowledgements_let_go_in_order() -> None:
    hub = FakeHub()
    session, link = subscriber(hub, "t", 1)
    send(hub, b"1", b"2", b"3", b"4", b"5")
    assert received(link) == [(b"1", 1), (b"2", 2)]
    session.handle_data(acks(1))
    assert received(link) == [(b"3", 3)]
    send(hub, b"6")
    session.handle_data(acks(2, 3))
    assert received(link) == [(b"4", 4), (b"5", 5)]
    session.handle_data(acks(4, 5))
    assert received(link) == [(b"6", 6)]
    assert session.describe()["waiting_bytes"] == 0


def test_what_memory_may_not_hold_is_read_from_the_log_again_and_nothing_is_lost() -> None:
    hub = FakeHub()
    session, link = subscriber(hub, "#", 1)
    sent = []
    for n in range(200):
        payload = b"%04d" % n
        sent.append(payload)
        send(hub, payload)
    got = []
    for _ in range(300):
        batch = received(link)
        if not batch:
            break
        got += [payload for payload, _ in batch]
        session.handle_data(acks(*[packet_id for _, packet_id in batch]))
    assert got == sent
    assert hub.kernel.fetches > 0
    assert session.describe() == {**session.describe(), "waiting_bytes": 0, "waiting_ranges": 0, "in_flight": 0}


def test_new_messages_wait_behind_what_is_read_from_the_log() -> None:
    hub = FakeHub()
    session, link = subscriber(hub, "t", 1)
    send(hub, *[b"%02d" % n for n in range(20)])
    got = [payload for payload, _ in received(link)]
    packet_id = 0
    for n in range(20, 60):
        send(hub, b"%02d" % n)
        packet_id += 1
        session.handle_data(acks(packet_id))
        got += [payload for payload, _ in received(link)]
    while len(got) < 60:
        packet_id += 1
        session.handle_data(acks(packet_id))
        got += [payload for payload, _ in received(link)]
    assert got == [b"%02d" % n for n in range(60)]


def test_topics_of_one_queue_that_lie_between_each_other_come_back_in_order() -> None:
    hub = FakeHub()
    session, link = subscriber(hub, "t/+", 1, MqttConfig(max_inflight=1, max_waiting_bytes=0))
    sent = []
    for n in range(60):
        sent.append(b"%02d" % n)
        send(hub, sent[-1], topic=b"t/%d" % (n % 3), flush=n % 7 == 0)
    send(hub, b"end", topic=b"u/x")
    got: list[bytes] = []
    for packet_id in range(1, 61):
        got += [payload for payload, _ in received(link)]
        session.handle_data(acks(packet_id))
    assert got == sent


def test_qos_0_to_a_stalled_client_waits_in_the_log_and_comes_in_order() -> None:
    hub = FakeHub()
    session, link = subscriber(hub, "t", 0)
    link.stalled = True
    send(hub, b"x" * 100)
    sent = [b"%02d" % n for n in range(30)]
    for payload in sent:
        send(hub, payload, qos=0)
    assert received(link) == [(b"x" * 100, 0)]
    link.drain(session)
    send(hub, b"new", qos=0)
    assert received(link) == [(payload, 0) for payload in [*sent, b"new"]]
    assert hub.kernel.fetches > 0 and not hub.admission.trace.counts["mqtt", "dropped_slow"]
    assert session.describe() == {**session.describe(), "waiting_bytes": 0, "waiting_ranges": 0}


def test_qos_0_beyond_what_may_be_owed_is_dropped_and_counted() -> None:
    hub = FakeHub()
    session, link = subscriber(hub, "#", 0)
    link.stalled = True
    send(hub, b"x" * 100)
    for n in range(10):
        send(hub, b"payload", topic=b"t/%d" % (n % 2), qos=0)
    assert not link.closed
    kept = 10 - hub.admission.trace.counts["mqtt", "dropped_slow"]
    assert 0 < kept < 10
    received(link)
    link.drain(session)
    assert len(received(link)) == kept


def test_qos_0_does_not_wait_for_acknowledgements() -> None:
    hub = FakeHub()
    _, link = subscriber(hub, "t", 1)
    send(hub, b"1", b"2", b"3")
    send(hub, b"at once", qos=0)
    assert received(link) == [(b"1", 1), (b"2", 2), (b"at once", 0)]


def test_qos_1_to_a_stalled_client_waits_for_its_socket() -> None:
    hub = FakeHub()
    session, link = subscriber(hub, "t", 1, MqttConfig(max_unsent_bytes=100))
    link.stalled = True
    send(hub, b"x" * 100)
    send(hub, b"waits")
    assert [packet_id for _, packet_id in received(link)] == [1]
    session.handle_data(acks(1))
    assert received(link) == []
    link.drain(session)
    assert received(link) == [(b"waits", 2)]


def test_a_client_that_is_owed_too_many_stretches_is_disconnected() -> None:
    hub = FakeHub()
    _, link = subscriber(hub, "#", 1)
    for n in range(20):
        send(hub, b"x" * 20, topic=b"t/%d" % (n % 2))
    assert link.closed and link.reason.startswith("slow_consumer")
    assert hub.kernel.subscriptions == 0


def test_what_retention_took_is_counted_and_the_rest_comes() -> None:
    hub = FakeHub()
    hub.kernel.create_topic("t", settings=TopicSettings(retention_ms=60_000))
    session, link = subscriber(hub, "t", 1)
    send(hub, *[b"%02d" % n for n in range(15)])
    hub.advance(40_000)
    send(hub, *[b"%02d" % n for n in range(15, 20)])
    assert [payload for payload, _ in received(link)] == [b"00", b"01"]
    hub.advance(40_000)
    assert hub.kernel.bounds(hub.kernel.place("t").partition_id) == (15, 20)
    got = []
    for packet_id in range(1, 8):
        session.handle_data(acks(packet_id))
        got += [payload for payload, _ in received(link)]
    assert got == [b"%02d" % n for n in range(15, 20)]
    assert hub.admission.trace.counts["mqtt", "lost_retention"] == 13


def test_a_topic_deleted_meanwhile_is_lost_and_what_is_behind_it_comes() -> None:
    hub = FakeHub()
    session, link = subscriber(hub, "#", 1)
    send(hub, *[b"%02d" % n for n in range(12)])
    send(hub, b"other", topic=b"u")
    received(link)
    hub.kernel.delete_topic("t")
    hub.advance(10_000)
    session.handle_data(acks(1, 2))
    assert received(link) == [(b"other", 3)]
    assert hub.admission.trace.counts["mqtt", "lost_retention"] == 10


def test_a_log_that_cannot_be_read_ends_the_connection() -> None:
    hub = FakeHub()
    session, link = subscriber(hub, "t", 1)
    send(hub, *[b"%02d" % n for n in range(12)])
    hub.kernel.read_error = StorageFailed("checksum")
    session.handle_data(acks(1, 2))
    assert link.closed and link.reason.startswith("storage_failed")


def test_messages_of_both_levels_in_one_run_keep_their_own() -> None:
    hub = FakeHub()
    _, link = subscriber(hub, "t", 1, MqttConfig())
    send(hub, b"1", flush=False)
    send(hub, b"2", b"3", qos=0, flush=False)
    send(hub, b"4", flush=False)
    hub.kernel.flush()
    assert received(link) == [(b"1", 1), (b"2", 0), (b"3", 0), (b"4", 2)]


def test_many_subscribers_of_qos_0_share_one_encoding() -> None:
    hub = FakeHub()
    links = [subscriber(hub, "t", 0, MqttConfig(), f"sub-{n}")[1] for n in range(5)]
    for payload in (b"one", b"two"):
        send(hub, payload, qos=0)
        assert [received(link) for link in links] == [[(payload, 0)]] * 5


def test_nothing_is_delivered_after_the_end() -> None:
    hub = FakeHub()
    session, link = subscriber(hub, "t", 1)
    send(hub, b"1", b"2", b"3")
    hub.cut(session)
    received(link)
    send(hub, b"4")
    assert received(link) == [] and hub.kernel.subscriptions == 0
