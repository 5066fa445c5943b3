"""Retained values on the real kernel: paced by socket and window, and never older than what was delivered."""
from __future__ import annotations

import pytest

from gatehouse.gateways.kit import FakeLink
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.session import MqttSession
from gatehouse.kernel.message import RETAIN
from tests.gateways.mqtt.test_window import acks
from tests.gateways.mqtt.test_with_kernel import Door

COUNT = 700
DOOR = 1


def packets_of(data: bytes) -> list[tuple[int, bytes, bytes, int]]:
    """(first byte, topic, payload, packet id) of every PUBLISH."""
    found, at = [], 0
    while at < len(data):
        assert data[at] >> 4 == 3 and data[at + 1] < 128
        end = at + 2 + data[at + 1]
        topic_end = at + 4 + int.from_bytes(data[at + 2:at + 4], "big")
        id_end = topic_end + 2 if data[at] & 6 else topic_end
        found.append((data[at], data[at + 4:topic_end], data[id_end:end],
                      int.from_bytes(data[topic_end:id_end], "big")))
        at = end
    return found


def subscribe(session: MqttSession, link: FakeLink, filter_text: bytes, qos: int) -> None:
    session.handle_data(b"\x82" + bytes([5 + len(filter_text)]) + b"\0\1" + len(filter_text).to_bytes(2, "big") +
                        filter_text + bytes([qos]))
    assert link.take() == b"\x90\3\0\1" + bytes([qos])


def retain(door: Door, address: str, value: bytes, transient: bool = False) -> None:
    placement = door.rig.kernel.place(address)
    door.rig.kernel.append([(placement, value, b"\0", DOOR | RETAIN | (0x10 if transient else 0), 0)], None)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_value_that_is_on_its_way_when_a_client_subscribes_reaches_it(sealed: bool) -> None:
    """It was appended before the filter was there, and is no value yet when values are looked up: the disk is slow."""
    door = Door()
    loop, reader = door.rig.world.loop, door.rig.world.reader_worker
    retain(door, "plant/0", b"known")
    door.rig.run()
    retain(door, "plant/1", b"on its way")
    while sealed and loop.step():
        pass
    session, link = door.connect(b"c", MqttConfig())
    subscribe(session, link, b"plant/+", 1)
    while reader.step() or loop.step():
        pass
    door.rig.run()
    assert sorted(payload for _, _, payload, _ in packets_of(link.take())) == [b"known", b"on its way"]


def test_thousands_come_as_the_window_allows() -> None:
    door = Door()
    for i in range(COUNT):
        retain(door, f"plant/{i}", b"%d" % i)
    door.rig.run()
    session, link = door.connect(b"c", MqttConfig(max_inflight=7))
    subscribe(session, link, b"plant/+", 1)
    values: dict[bytes, bytes] = {}
    while len(values) < COUNT:
        door.rig.run()
        got = packets_of(link.take())
        assert 0 < len(got) <= 7 and all(first == 0x33 for first, _, _, _ in got)
        for _, topic, payload, _ in got:
            assert topic not in values, "each once"
            values[topic] = payload
        session.handle_data(acks(*[packet_id for _, _, _, packet_id in got]))
    door.rig.run()
    assert link.take() == b""
    assert values == {b"plant/%d" % i: b"%d" % i for i in range(COUNT)}


def test_a_full_socket_holds_them_back() -> None:
    door = Door()
    for i in range(COUNT):
        retain(door, f"plant/{i}", b"x" * 50)
    door.rig.run()
    session, link = door.connect(b"c", MqttConfig(max_unsent_bytes=400))
    link.stalled = True
    subscribe_without_answer(session)
    door.rig.run()
    assert link.unsent_bytes < 600
    total = b""
    while link.unsent_bytes:
        total += link.take()
        link.drain(session)
        link.stalled = True
        door.rig.run()
        assert link.unsent_bytes < 600
    assert len(packets_of(total[5:])) == COUNT


def subscribe_without_answer(session: MqttSession) -> None:
    session.handle_data(b"\x82\x0c\0\1\0\7plant/#\0")


def test_what_is_replaced_while_it_waits_comes_as_the_new_one() -> None:
    door = Door()
    for i in range(20):
        retain(door, f"plant/{i:02}", b"old")
    door.rig.run()
    session, link = door.connect(b"c", MqttConfig(max_inflight=5))
    subscribe(session, link, b"plant/+", 1)
    door.rig.run()
    first = packets_of(link.take())
    assert [payload for _, _, payload, _ in first] == [b"old"] * 5
    retain(door, "plant/19", b"new")
    retain(door, "plant/18", b"")
    door.rig.run()
    found = list(first)
    got = first
    while got:
        session.handle_data(acks(*[packet_id for _, _, _, packet_id in got]))
        door.rig.run()
        got = packets_of(link.take())
        found += got
    last = {topic: (first & 1, payload) for first, topic, payload, _ in found}
    assert last[b"plant/19"][1] == b"new" and last[b"plant/17"] == (1, b"old")
    assert [payload for first, topic, payload, _ in found if topic == b"plant/19" and first & 1] == [b"new"]
    assert not [1 for first, topic, _, _ in found if topic == b"plant/18" and first & 1], "it was ended"


def test_the_lower_qos_counts_and_leaving_ends_it() -> None:
    door = Door()
    retain(door, "plant/a", b"1", transient=True)
    retain(door, "plant/b", b"2")
    door.rig.run()
    session, link = door.connect(b"c", MqttConfig())
    subscribe(session, link, b"plant/+", 1)
    door.rig.run()
    assert [(first, payload) for first, _, payload, _ in packets_of(link.take())] == [(0x31, b"1"), (0x33, b"2")]
    session.handle_data(b"\x82\x0c\0\1\0\7plant/+\0" + b"\xa2\x0b\0\2\0\7plant/+")
    door.rig.run()
    assert link.take() == b"\x90\3\0\1\0" + b"\xb0\2\0\2"
    session.handle_data(b"\x82\x0c\0\1\0\7plant/+\0")
    session.handle_closed()
    door.rig.run()


def test_another_door_retains_for_mqtt_and_expired_values_do_not_come() -> None:
    door = Door()
    kernel, now_ms = door.rig.kernel, door.rig.world.loop.now_ms()
    from gatehouse.kernel.records.batch import encode_headers
    for name, ends_ms in (("a", now_ms + 1_000), ("b", now_ms + 99_000)):
        headers = encode_headers([(b"expires-at", b"%d" % ends_ms)])
        kernel.append([(kernel.place(f"plant/{name}"), b"v", headers, 2 | RETAIN, 0)], None)
    door.rig.run()
    door.rig.world.advance(2_000)
    session, link = door.connect(b"c", MqttConfig())
    subscribe(session, link, b"#", 0)
    door.rig.run()
    assert [topic for _, topic, _, _ in packets_of(link.take())] == [b"plant/b"]


def test_a_slow_client_is_not_sent_what_has_expired_meanwhile() -> None:
    door = Door()
    kernel = door.rig.kernel
    session, link = door.connect(b"c", MqttConfig(max_inflight=1, max_waiting_bytes=0))
    subscribe(session, link, b"plant/+", 1)
    from gatehouse.kernel.records.batch import encode_headers
    end_ms = door.rig.world.loop.now_ms() + 1_000
    for i in range(6):
        headers = encode_headers([(b"expires-at", b"%d" % end_ms)]) if i in (2, 3) else b"\0"
        kernel.append([(kernel.place("plant/a"), b"%d" % i, headers, DOOR, 0)], None)
    door.rig.run()
    door.rig.world.advance(2_000)
    found: list[bytes] = []
    for _ in range(10):
        got = packets_of(link.take())
        found += [payload for _, _, payload, _ in got]
        if got:
            session.handle_data(acks(*[packet_id for _, _, _, packet_id in got]))
        door.rig.run()
    assert found == [b"0", b"1", b"4", b"5"]
