"""What the byte conversations cannot show: several clients, rights, quotas, back-pressure."""
from __future__ import annotations

import gc
import logging

import pytest

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.limits.limit import Quota
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.door_side import FLOOR_BYTES
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import GATEWAY
from gatehouse.gateways.mqtt.codec import fixed_header
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.inbox import LATE_ACKS_MAX
from gatehouse.gateways.mqtt.packets import FILTERS_MAX
from gatehouse.gateways.mqtt.session import SLOW_STEPS_PER_TURN
from gatehouse.gateways.runtime import TICK_MS
from gatehouse.kernel.addresses.address import MAX_LEVELS
from tests.gateways.limiting import stored
from tests.gateways.mqtt.conversations import connect
from tests.gateways.mqtt.test_codec import publish
from tests.gateways.mqtt.test_outbox import received, subscriber


def test_mqtt_3_1_4_2_a_second_client_with_the_same_id_ends_the_first_and_takes_its_place() -> None:
    hub = FakeHub()
    first, first_link = connect(hub, "same")
    first.handle_data(b"\x82\x06\0\1\0\1t\0")
    first_link.take()
    second, second_link = connect(hub, "same")
    assert first_link.closed and first_link.reason.startswith("taken_over")
    assert hub.kernel.subscriptions == 0, "a new clean session begins empty"
    hub.cut(first)
    third, _ = connect(hub, "same")
    assert second_link.closed, "the end of the first must not have forgotten the second"
    hub.cut(second)
    hub.cut(third)


def test_the_will_of_a_client_that_was_taken_over_is_published() -> None:
    hub = FakeHub()
    session, _ = hub.open(GATEWAY, MqttConfig())
    session.handle_data(b"\x10\x15\0\4MQTT\4\x06\0\0\0\1c\0\1w\0\3bye")
    _, link = subscriber(hub, "w", 0, MqttConfig())
    connect(hub, "c")
    hub.cut(session)
    hub.kernel.flush()
    assert received(link) == [(b"bye", 0)]


def test_given_client_ids_differ() -> None:
    hub = FakeHub()
    ids = []
    for _ in range(3):
        session, link = hub.open(GATEWAY, MqttConfig())
        session.handle_data(b"\x10\x0c\0\4MQTT\4\2\0\0\0\0")
        assert link.take() == b"\x20\2\0\0"
        ids.append(session.describe()["client_id"])
    assert len(set(ids)) == 3


def only(*allowed: tuple[Operation, str]) -> FakeHub:
    def decision(principal: Principal, operation: Operation, address: str) -> bool:
        return (operation, address) in allowed
    hub = FakeHub(decision=decision)
    hub.kernel.create_topic("yes")
    hub.kernel.flush()
    return hub


def test_mqtt_3_3_5_2_a_denied_publish_is_acknowledged_in_turn_and_dropped() -> None:
    hub = only((Operation.PUBLISH, "yes"))
    session, link = connect(hub)
    session.handle_data(publish(b"no", b"1", 1))
    assert link.take() == b"\x40\2\0\1", "nothing is before it: at once"
    session.handle_data(publish(b"yes", b"2", 2) + publish(b"no", b"3", 3) + publish(b"yes", b"4", 4))
    session.handle_data(publish(b"no", b"5", 5))
    session.handle_data(publish(b"no", b"6", 6) + publish(b"no", b"7"))
    assert link.take() == b""
    hub.kernel.flush()
    assert link.take() == b"\x40\2\0\2\x40\2\0\3\x40\2\0\4\x40\2\0\5\x40\2\0\6"
    assert hub.admission.trace.counts["mqtt", "publish_denied"] == 5
    assert [record[3] for record in hub.kernel.records()] == [b"2", b"4"]
    assert not link.closed


def test_refused_publishes_behind_a_slow_disk_are_bounded() -> None:
    hub = only((Operation.PUBLISH, "yes"))
    session, link = connect(hub)
    session.handle_data(publish(b"yes", b"1", 1))
    for _ in range(LATE_ACKS_MAX):
        session.handle_data(publish(b"no", b"2", 2))
    assert not link.closed
    session.handle_data(publish(b"no", b"2", 2))
    assert link.closed and link.reason.startswith("too_many_refused")


def test_a_denied_subscription_is_refused_and_the_others_stand() -> None:
    hub = only((Operation.CONSUME, "yes/#"))
    session, link = connect(hub)
    session.handle_data(b"\x82\x11\0\1\0\4no/#\1\0\5yes/#\1")
    assert link.take() == b"\x90\4\0\1\x80\1"
    assert hub.kernel.subscriptions == 1


def test_an_address_that_the_kernel_refuses_is_acknowledged_and_counted() -> None:
    hub = FakeHub()
    session, link = connect(hub)
    session.handle_data(publish(b"/".join([b"t"] * (MAX_LEVELS + 1)), b"x", 7))
    assert link.take() == b"\x40\2\0\7"
    assert hub.admission.trace.counts["mqtt", "publish_invalid_address"] == 1


def test_subscriptions_of_one_client_are_bounded() -> None:
    hub = FakeHub()
    session, link = connect(hub, "c", MqttConfig(max_subscriptions=2))
    session.handle_data(b"\x82\x0e\0\1\0\1a\0\0\1b\0\0\1c\0")
    assert link.take() == b"\x90\5\0\1\0\0\x80"
    session.handle_data(b"\x82\x06\0\2\0\1a\1")
    assert link.take() == b"\x90\3\0\2\1", "one that exists may be changed"


def test_filters_of_one_packet_are_bounded() -> None:
    hub = FakeHub()
    session, link = connect(hub)
    body = b"\0\1" + b"\0\1a\0" * (FILTERS_MAX + 1)
    session.handle_data(fixed_header(0x82, len(body)) + body)
    assert link.closed and link.reason.startswith("not_supported")


@pytest.mark.parametrize("topic", [b"t/%d", b"$t/%d"], ids=["new topics", "refused topics"])
def test_a_flood_of_slow_packets_leaves_the_others_their_turn_and_loses_nothing(topic: bytes) -> None:
    hub = FakeHub()
    session, link = connect(hub)
    count = 2 * SLOW_STEPS_PER_TURN + 10
    flood = b"".join(publish(topic % n, b"x", n + 1) for n in range(count))
    session.handle_data(flood)
    assert link.paused
    hub.advance(1)
    assert not link.paused
    hub.kernel.flush()
    assert link.take() == b"".join(b"\x40\2" + (n + 1).to_bytes(2, "big") for n in range(count))
    session.handle_data(b"\xc0\0")
    assert link.take() == b"\xd0\0"


def test_a_flood_that_is_cut_within_a_packet_goes_on_where_it_was_cut() -> None:
    hub = FakeHub()
    session, link = connect(hub)
    flood = b"".join(publish(b"t/%d" % n, b"x", n + 1) for n in range(SLOW_STEPS_PER_TURN + 5))
    session.handle_data(flood[:-3])
    hub.advance(1)
    assert not link.paused
    session.handle_data(flood[-3:])
    hub.kernel.flush()
    assert len(link.take()) == 4 * (SLOW_STEPS_PER_TURN + 5)


def test_without_anonymous_access_a_client_without_credentials_is_refused_with_5() -> None:
    hub = FakeHub(allow_anonymous=False)
    session, link = hub.open(GATEWAY, MqttConfig())
    session.handle_data(b"\x10\x0d\0\4MQTT\4\2\0\0\0\1c")
    assert link.take() == b"\x20\2\0\5"
    assert link.closed


def test_a_password_that_is_no_utf_8_is_wrong_and_no_fault() -> None:
    hub = FakeHub()
    session, link = hub.open(GATEWAY, MqttConfig())
    session.handle_data(b"\x10\x13\0\4MQTT\4\xc2\0\0\0\1c\0\1u\0\1\xff")
    assert link.take() == b"\x20\2\0\4"


def test_what_a_publisher_sends_over_its_quota_waits() -> None:
    hub = FakeHub(quotas={"anonymous": Quota(messages_per_s=10)})
    session, link = connect(hub)
    session.handle_data(publish(b"t", b"x") * 10)
    session.handle_data(publish(b"t", b"x") * 5)
    hub.advance(150)
    assert len(stored(hub, "t")) in (11, 12)
    hub.advance(400)
    assert len(stored(hub, "t")) == 15 and not link.paused


def test_a_client_that_is_not_read_is_not_called_silent() -> None:
    hub = FakeHub()
    session, link = hub.open(GATEWAY, MqttConfig())
    session.handle_data(b"\x10\x0d\0\4MQTT\4\2\0\x0a\0\1c")
    hub.kernel.congest()
    hub.advance(60_000)
    assert not link.closed
    hub.kernel.relieve()
    link.stalled = True
    link.write(bytes(FLOOR_BYTES + 1))
    hub.advance(60_000)
    assert not link.closed
    link.drain(session)
    hub.advance(30_000)
    assert link.closed and link.reason.startswith("keep_alive_timeout")


def test_a_client_that_hangs_and_leaves_a_little_untaken_is_silent() -> None:
    """It is read, and nothing else would ever end it: a few bytes are no reason to look whether they are taken."""
    hub = FakeHub()
    session, link = hub.open(GATEWAY, MqttConfig())
    session.handle_data(b"\x10\x0d\0\4MQTT\4\2\0\x0a\0\1c")
    link.stalled = True
    link.write(b"x")
    hub.advance(15_000 + TICK_MS)
    assert link.closed and link.reason.startswith("keep_alive_timeout")


def test_a_connect_that_trickles_in_gains_no_time() -> None:
    hub = FakeHub()
    session, link = hub.open(GATEWAY, MqttConfig(connect_timeout_ms=1000))
    for byte in b"\x10\x0d\0\4MQTT":
        session.handle_data(bytes([byte]))
        hub.advance(130)
    assert link.closed and link.reason.startswith("connect_timeout")


def test_a_large_packet_that_comes_slowly_keeps_its_client_alive() -> None:
    hub = FakeHub()
    session, link = hub.open(GATEWAY, MqttConfig())
    session.handle_data(b"\x10\x0d\0\4MQTT\4\2\0\x0a\0\1c")
    packet = publish(b"t", b"x" * 100)
    for at in range(0, len(packet), 10):
        session.handle_data(packet[at:at + 10])
        hub.advance(10_000)
    assert not link.closed
    hub.kernel.flush()
    assert len(hub.kernel.records()) == 1


def test_when_the_kernel_is_stopping_the_connection_ends() -> None:
    hub = FakeHub()
    session, link = connect(hub)
    hub.kernel.close(lambda: None)
    session.handle_data(publish(b"t", b"x", 1))
    assert link.closed and link.reason.startswith("stopping")


def test_answers_that_come_after_the_end_are_nobodys() -> None:
    hub = FakeHub()
    session, link = connect(hub)
    session.handle_data(publish(b"t", b"x", 1))
    hub.cut(session)
    hub.kernel.flush()
    assert len(hub.kernel.records()) == 1


def test_a_description_names_the_client_and_what_it_hears() -> None:
    hub = FakeHub()
    session, _ = connect(hub, "sensor-7")
    session.handle_data(b"\x82\x0a\0\1\0\1b\1\0\1a\0")
    described = session.describe()
    assert described["client_id"] == "sensor-7"
    assert described["user"] == "anonymous"
    assert described["filters"] == ["a", "b"]


@pytest.mark.parametrize("size", [1, 7, 64 * 1024])
def test_a_message_of_megabytes_in_small_pieces(size: int) -> None:
    hub = FakeHub()
    session, link = connect(hub)
    packet = publish(b"t", bytes(range(256)) * (16 if size == 1 else 8000), 1)
    for at in range(0, len(packet), size):
        session.handle_data(packet[at:at + size])
    hub.kernel.flush()
    assert link.take() == b"\x40\2\0\1"
    assert hub.kernel.records()[0][3] == packet[-len(packet) + packet.index(b"\0\x01\x02"):]


def test_what_a_3_1_1_client_cannot_be_told_is_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    hub = FakeHub(routes=())
    session, link = connect(hub, "c")
    for _ in range(2):
        session.handle_data(publish(b"$SYS/x", b"", 1) + publish(b"no topic/x", b"", 2))
        session.handle_data(b"\x82\x0b\0\1\0\6$hub/#\0")
    hub.kernel.flush()
    assert not link.closed
    said = [record.getMessage() for record in caplog.records if "mqtt refused" in record.getMessage()]
    assert len(said) == 3 and all("anonymous ('c')" in line for line in said)
    for reason in ("publish_reserved: a publish", "publish_unroutable: a publish", "subscribe_reserved: a filter"):
        assert any(reason in line for line in said), (reason, said)


@pytest.mark.parametrize(("keeps", "most"), [(False, 36), (True, 44)])
def test_an_idle_connection_is_made_of_few_objects(keeps: bool, most: int) -> None:
    """Each of them takes memory, and is looked at whenever Python's collector looks for cycles (decision 282)."""
    hub, count = FakeHub(), 200

    def idle(number: int) -> object:
        session, link = hub.open(GATEWAY, MqttConfig())
        client_id = b"c%03d" % number
        body = b"\0\4MQTT\4" + (b"\0" if keeps else b"\2") + b"\0\0" + len(client_id).to_bytes(2, "big") + client_id
        session.handle_data(b"\x10" + bytes((len(body),)) + body)
        hub.kernel.flush()
        assert link.take() == b"\x20\2\0\0"
        return session, link

    first = [idle(number) for number in range(count)]            # what the hub itself makes once
    gc.collect()
    before = len(gc.get_objects())
    more = [idle(count + number) for number in range(count)]
    gc.collect()
    assert (len(gc.get_objects()) - before) / count < most
    assert len(first) == len(more)
