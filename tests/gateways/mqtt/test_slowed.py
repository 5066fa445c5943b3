"""A client that publishes more than it may: what waits, what goes on, and what is refused in MQTT's words."""
from __future__ import annotations

import pytest

from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import reasons
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.properties import Packet
from tests.gateways.limiting import drop_limit, make_fast, set_limit, stored
from tests.gateways.mqtt.conversations import connect
from tests.gateways.mqtt.five import Client, ack_packet, publish_packet
from tests.gateways.mqtt.test_codec import publish
from tests.gateways.mqtt.test_durable import KEEPS
from tests.gateways.mqtt.test_outbox import received, send, subscriber

PING, PONG = b"\xc0\0", b"\xd0\0"


def test_what_is_too_much_waits_in_order_and_pings_are_answered() -> None:
    hub = FakeHub()
    set_limit(hub, "user:anonymous", messages_per_s=10)
    session, link = connect(hub)
    session.handle_data(b"".join(publish(b"t", b"%d" % number, number + 1) for number in range(25)))
    hub.kernel.flush()
    assert stored(hub, "t") == [b"%d" % number for number in range(10)]
    assert link.take().count(b"\x40\2") == 10
    session.handle_data(PING)
    assert link.take() == PONG and not link.paused
    hub.advance(1_000)
    assert 18 <= len(stored(hub, "t")) <= 22
    hub.advance(1_000)
    assert stored(hub, "t") == [b"%d" % number for number in range(25)]
    assert not link.closed


def test_the_rate_holds_however_much_comes_at_once() -> None:
    hub = FakeHub()
    set_limit(hub, "user:anonymous", messages_per_s=50)
    session, link = connect(hub)
    for _ in range(4):
        session.handle_data(publish(b"t", b"x") * 200)
    hub.advance(10_000)
    assert 530 <= len(stored(hub, "t")) <= 560


def test_four_clients_of_one_user_share_what_there_is_in_turns() -> None:
    hub = FakeHub()
    set_limit(hub, "user:anonymous", messages_per_s=40)
    for number in range(4):
        session, _ = connect(hub, f"c{number}")
        session.handle_data(publish(b"t", b"%d" % number) * 500)
    hub.advance(10_000)
    values = stored(hub, "t")
    assert 420 <= len(values) <= 460
    counts = [values.count(b"%d" % number) for number in range(4)]
    assert min(counts) >= 80, counts


def test_a_slowed_client_goes_on_consuming_and_is_not_called_silent() -> None:
    hub = FakeHub()
    set_limit(hub, "client:sub", messages_per_s=1)
    session, link = subscriber(hub, "t", 1)
    session.handle_data(publish(b"u", b"x") * 5)
    for number in range(40):
        send(hub, b"%d" % number)
        [(_, packet_id)] = received(link)
        session.handle_data(b"\x40\2" + packet_id.to_bytes(2, "big"))
    assert len(stored(hub, "u")) == 1


def test_a_goodbye_waits_for_what_was_published_before_it() -> None:
    hub = FakeHub()
    set_limit(hub, "user:anonymous", messages_per_s=10)
    session, link = connect(hub)
    session.handle_data(publish(b"t", b"x") * 15 + b"\xe0\0")
    assert not link.closed
    hub.advance(1_500)
    assert link.closed and len(stored(hub, "t")) == 15


def test_a_limit_that_goes_lets_everything_go() -> None:
    hub = FakeHub()
    set_limit(hub, "user:anonymous", messages_per_s=1)
    session, link = connect(hub)
    session.handle_data(publish(b"t", b"x") * 100)
    hub.advance(3_000)
    assert len(stored(hub, "t")) < 10
    drop_limit(hub)
    hub.advance(1_100)
    assert len(stored(hub, "t")) == 100


def test_a_broken_packet_behind_what_waits_ends_the_connection_in_its_turn() -> None:
    hub = FakeHub()
    set_limit(hub, "user:anonymous", messages_per_s=10)
    session, link = connect(hub)
    session.handle_data(publish(b"t", b"x") * 12 + b"\x30\xff\xff\xff\xff\x7f")
    assert not link.closed
    hub.advance(1_000)
    assert link.closed and len(stored(hub, "t")) == 12


def test_mqtt_5_tells_of_each_message_that_a_topic_refuses() -> None:
    hub = FakeHub()
    make_fast(hub)
    set_limit(hub, "topic:fast", messages_per_s=5)
    client = Client(hub)
    seen = client.ask(*[publish_packet("fast", b"%d" % number, number) for number in range(1, 21)])
    hub.advance(50)
    hub.kernel.flush()
    seen += client.take()
    assert {one.kind for one in seen} == {Packet.PUBACK}
    answers = {one.packet_id: one.reason for one in seen}
    assert len(answers) == 20
    kept = [b"%d" % packet_id for packet_id, reason in answers.items() if not reason]
    assert set(answers.values()) == {0, reasons.QUOTA} and 5 <= len(kept) <= 6
    assert stored(hub, "fast") == kept
    hub.advance(1_000)
    [again] = client.ask(publish_packet("fast", b"again", 30))
    assert again.reason == 0


def test_mqtt_5_refuses_with_qos_2_by_pubrec_and_the_id_is_free() -> None:
    hub = FakeHub()
    make_fast(hub)
    set_limit(hub, "topic:fast", messages_per_s=1)
    client = Client(hub)
    [first] = client.ask(publish_packet("fast", b"1", 1, qos=2))
    [over] = client.ask(publish_packet("fast", b"2", 2, qos=2), publish_packet("fast", b"3", 3, qos=2))[:1]
    assert (first.reason, over.kind, over.reason) == (0, Packet.PUBREC, 0)
    hub.advance(20)
    [last] = client.take()[-1:]
    assert (last.kind, last.packet_id, last.reason) == (Packet.PUBREC, 3, reasons.QUOTA)
    [unknown] = client.ask(ack_packet(0x62, 3))
    assert (unknown.kind, unknown.reason) == (Packet.PUBCOMP, reasons.ID_NOT_FOUND)
    hub.advance(5_000)
    assert client.ask(publish_packet("fast", b"3", 3, qos=2))[0].reason == 0
    assert stored(hub, "fast") == [b"1", b"2", b"3"]


def test_where_there_is_no_word_for_it_fail_is_slow() -> None:
    hub = FakeHub()
    make_fast(hub)
    set_limit(hub, "topic:fast", messages_per_s=10)
    old, link = connect(hub)
    old.handle_data(b"".join(publish(b"fast", b"x", number + 1) for number in range(20)))
    new = Client(hub, "five")
    new.send(publish_packet("fast", b"qos 0") * 5)
    hub.advance(4_000)
    assert len(stored(hub, "fast")) == 25 and not link.closed and not new.link.closed


def test_a_limit_of_nothing_ends_the_connection_of_who_cannot_be_told() -> None:
    hub = FakeHub()
    set_limit(hub, "topic:t", messages_per_s=0)
    session, link = connect(hub)
    session.handle_data(publish(b"t", b"x", 1))
    assert link.closed and link.reason.startswith("over_quota")
    client = Client(hub, "five")
    assert [seen.reason for seen in client.ask(publish_packet("t", b"x", 1))] == [reasons.QUOTA]
    assert stored(hub, "t") == []


# ---- what goes out

def test_what_goes_out_is_held_back_and_nothing_of_qos_1_is_lost() -> None:
    hub = FakeHub()
    _, link = subscriber(hub, "t", 1, MqttConfig())
    set_limit(hub, "client:sub", direction="out", messages_per_s=10)
    for number in range(30):
        send(hub, b"%d" % number)
    got = received(link)
    assert 9 <= len(got) <= 11
    hub.advance(1_000)
    got += received(link)
    assert 18 <= len(got) <= 22
    hub.advance(1_500)
    assert [value for value, _ in got + received(link)] == [b"%d" % number for number in range(30)]


@pytest.mark.parametrize("asked", ["t", "$share/workers/t", "$from/earliest/t"])
def test_a_limit_of_bytes_is_little_overdrawn(asked: str) -> None:
    """Also beside one of messages that allows many."""
    hub = FakeHub()
    publisher, client = Client(hub, "publisher"), Client(hub, "sub")
    packets = [publish_packet("t", b"x" * 1_000, 0) for _ in range(60)]
    set_limit(hub, "client:sub", direction="out", messages_per_s=1_000, bytes_per_s=10_000)
    if asked.startswith("$from"):
        publisher.send(*packets)
        client.subscribe((asked, 0))
    else:
        client.subscribe((asked, 0))
        publisher.send(*packets)
    hub.kernel.flush()
    taken = hub.admission.limits.most_used("1", 1)[0]
    for second in range(1, 5):
        assert 9_000 * second <= taken.bytes_taken <= 13_000 * second
        for _ in range(10):
            hub.advance(100)


def test_a_history_is_charged_to_its_topic() -> None:
    hub = FakeHub()
    publisher, client = Client(hub, "publisher"), Client(hub, "sub")
    publisher.ask(*[publish_packet(topic, b"x", at) for at, topic in enumerate(("t/a", "t/b", "t/b"), 1)])
    set_limit(hub, "topic:t", direction="out", messages_per_s=100)
    client.subscribe(("$from/earliest/t/#", 1))
    hub.kernel.flush()
    assert hub.admission.limits.most_used("1", 1)[0].messages_taken == 3


def test_acknowledgements_and_pings_leave_while_messages_are_held_back() -> None:
    hub = FakeHub()
    session, link = subscriber(hub, "t", 0, MqttConfig())
    set_limit(hub, "topic:t", direction="out", messages_per_s=1)
    for number in range(5):
        send(hub, b"%d" % number, qos=0)
    link.take()
    session.handle_data(publish(b"u", b"x", 7) + PING)
    hub.kernel.flush()
    assert link.take() == PONG + b"\x40\2\0\7"


def test_a_shared_filter_is_a_group_of_consumers() -> None:
    hub = FakeHub()
    set_limit(hub, "consumers:workers", direction="out", messages_per_s=10)
    _, link = subscriber(hub, "$share/workers/t", 1, MqttConfig())
    for number in range(20):
        send(hub, b"%d" % number)
    hub.advance(1)
    first = received(link)
    assert 9 <= len(first) <= 21
    hub.advance(2_000)
    assert len(first) + len(received(link)) == 20


def test_a_session_that_was_away_is_given_what_it_missed_as_its_limit_allows() -> None:
    hub = FakeHub()
    away = Client(hub, "away", clean=False, properties=KEEPS)
    away.subscribe(("t", 1))
    hub.cut(away.session)
    for number in range(30):
        send(hub, b"%d" % number)
    set_limit(hub, "client:away", direction="out", messages_per_s=10)
    back = Client(hub, "away", clean=False, properties=KEEPS)
    values: list[bytes] = []
    seen = back.behind
    for _ in range(60):
        back.send(*[ack_packet(0x40, one.packet_id) for one in seen])
        values += [one.value for one in seen]
        hub.advance(100)
        seen = back.received()
    assert values == [b"%d" % number for number in range(30)]
    assert hub.admission.limits.most_used("1", 1)[0].messages_taken == 30
