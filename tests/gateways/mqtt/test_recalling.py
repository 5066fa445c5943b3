"""`$recall`: delayed messages that their sender takes back, by the key that it gave or by their id."""
from __future__ import annotations

import pytest

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import reasons
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.errors import InvalidRecallPublish
from gatehouse.gateways.mqtt.properties import USER
from gatehouse.gateways.mqtt.recalling import read_recall
from tests.gateways.mqtt.five import Client, Seen, ack_packet, publish_packet
from tests.gateways.mqtt.test_codec import publish
from tests.gateways.mqtt.test_window import acks
from tests.gateways.mqtt.test_with_kernel import Door


def delay(client: Client, value: bytes, key: str = "", *, topic: str = "plant/1", packet_id: int = 1) -> Seen:
    properties: list[tuple[int, object]] = [(USER, ("delay", "60"))]
    if key:
        properties.append((USER, ("recall-key", key)))
    [puback] = client.ask(publish_packet(topic, value, packet_id, properties=properties))
    return puback


def recall(client: Client, payload: bytes, *, qos: int = 1) -> Seen:
    [answer] = client.ask(publish_packet("$recall", payload, 9, qos=qos))
    assert answer.packet_id == 9
    return answer


def values(hub: FakeHub) -> list[bytes | None]:
    hub.advance(120_000)
    return [record[3] for record in hub.kernel.records("plant")]


@pytest.mark.parametrize(("payload", "read"), [
    (b"k1", ("k1", -1)), (b'{"key": "k1"}', ("k1", -1)), (b'{"id": "17"}', ("", 17)),
])
def test_what_is_recalled(payload: bytes, read: tuple[str, int]) -> None:
    assert read_recall(payload) == read


@pytest.mark.parametrize("payload", [
    b"", b"\xff", b"{", b"{}", b'{"key": ""}', b'{"id": 17}', b'{"id": "-1"}', b'{"id": "1", "key": "k"}', b"x" * 256,
    b'{"id": "99999999999999999999"}', b"a\0b", '{"id": "\u0661"}'.encode(),
])
def test_what_recalls_nothing(payload: bytes) -> None:
    with pytest.raises(InvalidRecallPublish):
        read_recall(payload)


def test_by_the_key_that_its_sender_gave() -> None:
    hub = FakeHub()
    client = Client(hub)
    for n, key in enumerate(("k1", "k2", "k1")):
        assert delay(client, b"%d" % n, key).reason == 0
    assert recall(client, b"k1").reason == 0
    assert values(hub) == [b"1"], "all that has the key is recalled"


def test_by_the_id_that_puback_told() -> None:
    hub = FakeHub()
    client = Client(hub)
    [(_, message_id)] = delay(client, b"0").user()
    delay(client, b"1")
    assert recall(client, b'{"id": "%s"}' % message_id.encode()).reason == 0
    assert values(hub) == [b"1"]
    again = recall(client, b'{"id": "%s"}' % message_id.encode())
    assert again.reason == 0, "it was recalled within a day"


def test_what_is_not_there_is_told_and_the_connection_stays() -> None:
    client = Client(FakeHub())
    assert recall(client, b"nothing").reason == reasons.FAILURE
    assert recall(client, b'{"id": "17"}').reason == reasons.FAILURE
    assert recall(client, b"").reason == reasons.IMPLEMENTATION
    assert recall(client, b"nothing", qos=2).reason == reasons.FAILURE
    assert not client.link.closed


def test_what_was_delivered_is_not_recalled() -> None:
    hub = FakeHub()
    client = Client(hub)
    [(_, message_id)] = delay(client, b"0", "k1").user()
    assert values(hub) == [b"0"]
    assert recall(client, b'{"id": "%s"}' % message_id.encode()).reason == reasons.FAILURE
    assert recall(client, b"k1").reason == reasons.FAILURE


def test_an_id_takes_the_right_to_publish_there() -> None:
    may = {"plant": True}
    hub = FakeHub(decision=lambda who, operation, address: operation is not Operation.PUBLISH or may["plant"])
    client = Client(hub)
    [(_, message_id)] = delay(client, b"0").user()
    may["plant"] = False
    assert recall(client, b'{"id": "%s"}' % message_id.encode()).reason == reasons.NOT_AUTHORIZED
    assert values(hub) == [b"0"]


def test_qos_0_and_2() -> None:
    hub = FakeHub()
    client = Client(hub)
    delay(client, b"0", "k1")
    delay(client, b"1", "k2")
    assert client.ask(publish_packet("$recall", b"k1")) == []
    assert recall(client, b"k2", qos=2).reason == 0
    [pubcomp] = client.ask(ack_packet(0x62, 9))
    assert pubcomp.reason == 0 and values(hub) == []


def test_a_key_that_can_be_none_is_refused() -> None:
    hub = FakeHub()
    assert delay(Client(hub), b"0", "x" * 256).reason == reasons.IMPLEMENTATION
    assert values(hub) == []


def test_a_client_of_3_1_1_and_acknowledgements_in_turn() -> None:
    door = Door()
    client, link = door.connect(b"c", MqttConfig())
    client.handle_data(b"".join([publish(b"$delayed/60/$key/k1/t/k", b"no", 1), publish(b"t/k", b"now", 2),
                                 publish(b"$recall", b"k1", 3), publish(b"t/k", b"then", 4),
                                 publish(b"$recall", b"k1", 5), publish(b"$delayed/60/$key/t", b"", 6),
                                 publish(b"$delayed/60/$key/k2/t/k", b"later", 7)]))
    assert link.take() == b""
    door.rig.run()
    for _ in range(4):
        if link.wake_ms:
            link.wake_ms = 0
            client.handle_timer(door.rig.world.loop.now_ms())
        door.rig.run()
    assert link.take() == acks(1, 2, 3, 4, 5, 6, 7) and not link.closed
    door.rig.world.advance(61_000)
    assert door.rig.values("t") == [b"now", b"then", b"later"]
    counts = door.services.admission.trace.counts
    assert counts["mqtt", "publish_unknown_scheduled"] == 1 and counts["mqtt", "publish_invalid_delay"] == 1
