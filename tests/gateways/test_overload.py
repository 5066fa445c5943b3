"""What doors leave undone under overload: never an acknowledgement, and nothing that is acknowledged."""
from __future__ import annotations

import pytest

from gatehouse.gateways.admission.errors import Overloaded
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import GATEWAY
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.kernel.shedding import WAIT_MS, Rung
from gatehouse.kernel.state.topics import FAIL
from tests.gateways.admission.test_guard import Client as Owner
from tests.gateways.admission.test_guard import message
from tests.gateways.amqp.fakes import Client as AmqpClient
from tests.gateways.amqp.fakes import Hub as AmqpHub
from tests.gateways.amqp.fakes import publish as amqp_publish
from tests.gateways.limiting import make_fast, stored
from tests.gateways.mqtt.conversations import connect
from tests.gateways.mqtt.five import connect_packet
from tests.gateways.mqtt.test_codec import publish
from tests.gateways.mqtt.test_gathered import connect as connect_3
from tests.gateways.mqtt.test_outbox import received, subscriber

PING, PONG = b"\xc0\0", b"\xd0\0"


def shed(hub: FakeHub | AmqpHub, rung: Rung) -> None:
    """From now on all up to this rung is left undone."""
    hub.kernel.shedding.level = rung
    hub.services.admission.look_at_overload()


def count(hub: FakeHub, topic: str) -> int:
    """How many messages a topic holds: reading them could be left undone."""
    hub.kernel.flush()
    found = hub.kernel.topic(topic)
    assert found is not None
    return sum(hub.kernel.bounds(partition_id)[1] for partition_id in found.partition_ids())


def zero(topic: bytes, value: bytes) -> bytes:
    """A PUBLISH of QoS 0."""
    return b"\x30" + bytes([2 + len(topic) + len(value)]) + len(topic).to_bytes(2, "big") + topic + value


def test_qos_0_that_comes_in_is_dropped_and_what_is_acknowledged_is_stored() -> None:
    hub = FakeHub()
    session, link = connect(hub)
    session.handle_data(publish(b"t", b"first", 1))
    shed(hub, Rung.QOS_0)
    session.handle_data(zero(b"t", b"lost") + publish(b"t", b"kept", 2) + zero(b"t", b"lost") + PING)
    session.handle_data(zero(b"t", b"lost"))
    assert stored(hub, "t") == [b"first", b"kept"]
    assert link.take().count(b"\x40\2") == 2 and not link.closed
    assert hub.kernel.shedding.counts[Rung.QOS_0] == 3
    assert hub.admission.trace.counts["mqtt", "publish_overloaded"] == 3
    shed(hub, Rung.BULK_READS)
    session.handle_data(zero(b"t", b"again"))
    assert stored(hub, "t")[-1] == b"again"


def test_qos_0_that_goes_out_is_dropped_and_qos_1_arrives() -> None:
    hub = FakeHub()
    _, low = subscriber(hub, "t", 0)
    high_session, high = connect(hub, "high")
    high_session.handle_data(b"\x82\x06\0\x01\0\x01t\x01")
    hub.kernel.flush()
    high.take()
    publisher, _ = connect(hub, "publisher")
    shed(hub, Rung.QOS_0)
    publisher.handle_data(publish(b"t", b"x", 1))
    hub.kernel.flush()
    assert received(low) == [] and [value for value, _ in received(high)] == [b"x"]
    shed(hub, Rung.NOTHING)
    publisher.handle_data(publish(b"t", b"y", 2))
    hub.kernel.flush()
    assert [value for value, _ in received(low)] == [b"y"]


def test_nobody_new_is_let_in_and_who_is_there_or_comes_back_stays() -> None:
    hub = FakeHub()
    session, link = connect(hub, "old")
    shed(hub, Rung.NEW_CONNECTIONS)
    for packet, answer in ((connect_3(b"new"), b"\x20\2\0\3"), (connect_packet("five"), b"\x89")):
        fresh, new = hub.open(GATEWAY, MqttConfig())
        fresh.handle_data(packet)
        assert new.closed and answer in new.take(), "server unavailable, server busy"
    session.handle_data(publish(b"t", b"x", 1) + PING)
    assert stored(hub, "t") == [b"x"] and not link.closed
    _, again = connect(hub, "old")
    assert not again.closed and link.closed
    with pytest.raises(Overloaded):
        hub.services.guard("test", Principal("ann"), Owner())
    hub.services.guard("test", Principal("ann"), None)


def test_publishing_waits_on_mqtt_and_all_else_goes_on() -> None:
    hub = FakeHub()
    reader, link = subscriber(hub, "t", 1)
    session, publisher = connect(hub, "publisher")
    session.handle_data(publish(b"t", b"0", 1))
    hub.kernel.flush()
    [(_, packet_id)] = received(link)
    publisher.take()
    shed(hub, Rung.PUBLISHERS)
    session.handle_data(publish(b"t", b"1", 2) + PING)
    reader.handle_data(b"\x40\2" + packet_id.to_bytes(2, "big") + PING)
    hub.advance(10 * WAIT_MS)
    assert publisher.take() == PONG and link.take() == PONG and count(hub, "t") == 1
    assert not publisher.closed and not publisher.paused
    session.handle_data(publish(b"t", b"x" * 9_000, 3) + publish(b"t", b"x" * 9_000, 4))
    assert publisher.paused, "who goes on all the same is not read"
    shed(hub, Rung.NEW_CONNECTIONS)
    hub.advance(2 * WAIT_MS)
    shed(hub, Rung.NOTHING)
    assert [len(value or b"") for value in stored(hub, "t")] == [1, 1, 9_000, 9_000] and not publisher.paused


def test_a_topic_that_fails_waits_too_as_nothing_of_it_is_too_much() -> None:
    hub = FakeHub(decision=lambda *_: True)
    make_fast(hub)
    assert hub.kernel.topic("fast").settings.at_limit == FAIL
    guard = hub.services.guard("test", Principal("ann"), None)
    shed(hub, Rung.PUBLISHERS)
    assert guard.limited and guard.room() == (0, 0)
    assert guard.append([message(guard.place("fast/a"))], None, None, 0, refuses=True) == WAIT_MS
    shed(hub, Rung.NOTHING)
    assert not guard.limited and guard.append([message(guard.place("fast/a"))], None, None, 0) == 0


def test_publishing_waits_on_amqp_which_says_so() -> None:
    hub = AmqpHub()
    client: AmqpClient = hub.client().login(channels=1)
    client.ask("exchange.declare", exchange="slow", type="topic")
    client.ask("confirm.select")
    shed(hub, Rung.PUBLISHERS)
    client.send(amqp_publish("slow", "a", b"x"))
    hub.advance(5 * WAIT_MS)
    assert stored(hub, "slow") == [] and "basic.ack" not in client.names()
    client.ask("queue.declare", queue="q")
    shed(hub, Rung.NOTHING)
    hub.advance(2 * WAIT_MS)
    assert stored(hub, "slow") == [b"x"] and "basic.ack" in client.names()
