"""What has come of peers and waits in the hub is counted for its budget of memory, on each door."""
from __future__ import annotations

from typing import Any

from gatehouse.gateways.connections.open_connections import held_by
from gatehouse.gateways.kit import FakeHub
from gatehouse.kernel.shedding import Rung
from tests.gateways.amqp.fakes import Hub as AmqpHub
from tests.gateways.amqp.fakes import publish as amqp_publish
from tests.gateways.limiting import set_limit
from tests.gateways.mqtt.conversations import connect
from tests.gateways.mqtt.test_codec import publish


def hold_publishing(hub: Any) -> None:
    hub.kernel.shedding.level = Rung.PUBLISHERS
    hub.services.admission.look_at_overload()


def test_a_packet_of_which_a_part_has_come() -> None:
    hub = FakeHub()
    session, _ = connect(hub)
    whole = publish(b"t", bytes(50_000), 1)
    session.handle_data(whole[:30_000])
    assert held_by(session) == 30_000
    session.handle_data(whole[30_000:])
    hub.kernel.flush()
    assert held_by(session) == 0


def test_packets_that_wait_for_a_limit() -> None:
    hub = FakeHub()
    set_limit(hub, "topic:t", messages_per_s=1, messages_burst=1)
    session, _ = connect(hub)
    one = publish(b"t", bytes(1_000), 1)
    for _ in range(20):
        session.handle_data(one)
        hub.kernel.flush()
    assert 15 * len(one) < held_by(session) <= 20 * len(one)
    session.handle_closed()
    assert held_by(session) == 0


def test_frames_that_wait_while_nobody_may_publish() -> None:
    hub = AmqpHub()
    client = hub.client()
    client.login()
    hold_publishing(hub)
    client.send(amqp_publish("amq.topic", "t", bytes(3_000)))
    assert held_by(client.session) > 3_000


def test_what_is_gathered_and_not_in_a_frame_yet() -> None:
    hub = FakeHub()
    session, _ = connect(hub)
    session.handle_data(publish(b"t", bytes(100), 1))
    hub.kernel.flush()
    session.handle_data(publish(b"t", bytes(100), 2))
    assert hub.services.gathered_bytes() >= 100
    hub.kernel.flush()
    assert hub.services.gathered_bytes() == 0
