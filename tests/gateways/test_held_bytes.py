"""What has come of peers and waits in the hub is counted for its budget of memory, on each door."""
from __future__ import annotations

from typing import Any

from gatehouse.gateways.connections.open_connections import held_by
from gatehouse.gateways.kit import FakeHub, FakeLink
from gatehouse.gateways.mqtt import GATEWAY
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.websocket.codec import MessageReader
from gatehouse.gateways.websocket.opening import WebSocketOpening
from gatehouse.kernel.shedding import Rung
from tests.gateways.amqp.fakes import Hub as AmqpHub
from tests.gateways.amqp.fakes import publish as amqp_publish
from tests.gateways.limiting import set_limit
from tests.gateways.mqtt.conversations import connect
from tests.gateways.mqtt.test_codec import publish
from tests.gateways.websocket.test_websocket import frame


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


def test_a_part_of_a_frame_and_of_what_is_in_frames() -> None:
    hub = FakeHub()
    hub.open_door(GATEWAY)
    opening = WebSocketOpening(
        FakeLink(), lambda framed: GATEWAY.session(framed, hub.services, MqttConfig()), ("mqtt",), 0)
    request = b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" \
              b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" \
              b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    opening.handle_data(request[:50])
    assert held_by(opening) == 50
    opening.handle_data(request[50:])
    assert held_by(opening) == 0
    whole = frame(2, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a" + publish(b"t", bytes(2_000), 1))
    opening.handle_data(whole[:3])
    assert held_by(opening) == 3, "of the frame's head"
    opening.handle_data(whole[3:1_000])
    assert 900 < held_by(opening) < 1_000, "of the publish"
    opening.handle_data(whole[1_000:])
    assert held_by(opening) == 0


def test_a_part_of_a_text_message() -> None:
    reader = MessageReader(10_000, False)
    whole = frame(1, b"x" * 5_000)
    assert reader.feed(whole[:2_000]) == [] and 1_990 < reader.held_bytes < 2_000
    assert reader.feed(whole[2_000:]) == [b"x" * 5_000] and reader.held_bytes == 0
    assert reader.feed(whole[:1]) == [] and reader.held_bytes == 1


def test_what_is_gathered_and_not_in_a_frame_yet() -> None:
    hub = FakeHub()
    session, _ = connect(hub)
    session.handle_data(publish(b"t", bytes(100), 1))
    hub.kernel.flush()
    session.handle_data(publish(b"t", bytes(100), 2))
    assert hub.services.gathered_bytes() >= 100
    hub.kernel.flush()
    assert hub.services.gathered_bytes() == 0
