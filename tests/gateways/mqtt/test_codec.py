"""The hot packets: bursts in, bursts out."""
from __future__ import annotations

import pytest

from gatehouse.gateways.mqtt import codec
from gatehouse.gateways.mqtt.errors import MalformedPacket, PacketTooLarge
from gatehouse.kernel.api import Message
from gatehouse.kernel.message import RETAIN, TRANSIENT
from gatehouse.kernel.records.batch import NO_HEADERS

LIMIT = 1 << 20


def publish(topic: bytes, payload: bytes, packet_id: int = 0, first: int = 0x30) -> bytes:
    body = len(topic).to_bytes(2, "big") + topic + (packet_id.to_bytes(2, "big") if packet_id else b"") + payload
    return codec.fixed_header(first | (2 if packet_id else 0), len(body)) + body


def places_for(*addresses: str) -> dict[bytes, int]:
    return {address.encode(): place for place, address in enumerate(addresses, 1)}


def decode(data: bytes, places: dict[bytes, int]) -> tuple[tuple[int, int, int], list[Message], list[bytes]]:
    messages: list[Message] = []
    packet_ids: list[bytes] = []
    return codec.decode_publishes(data, 0, LIMIT, places, messages, packet_ids), messages, packet_ids


def test_a_burst_of_all_shapes_keeps_its_order() -> None:
    places = places_for("a", "b/c")
    packets = [publish(b"a", b"1"), publish(b"a", b"2"), publish(b"a", b"3", 9), publish(b"a", b"4", 10),
               publish(b"b/c", b"5" * 300, 11), publish(b"b/c", b"6" * 300, 12), publish(b"a", b"", 0, 0x31)]
    data = b"".join(packets)
    stop, messages, packet_ids = decode(data, places)
    assert stop == (len(data), codec.NEED_MORE, 0)
    assert [message[1] for message in messages] == [b"1", b"2", b"3", b"4", b"5" * 300, b"6" * 300, b""]
    a, other = places[b"a"], places[b"b/c"]
    assert [message[0] for message in messages] == [a, a, a, a, other, other, a]
    assert [message[3] for message in messages] == [1 | TRANSIENT, 1 | TRANSIENT, 1, 1, 1, 1, 1 | TRANSIENT | RETAIN]
    assert packet_ids == [b"\0\x09", b"\0\x0a", b"\0\x0b", b"\0\x0c"]
    assert all(message[2] == NO_HEADERS and message[4] == 0 for message in messages)


def test_a_payload_that_looks_like_the_head_of_the_packet_before_is_no_packet() -> None:
    head = publish(b"a", b"....")[:5]
    data = publish(b"a", head[:4]) + publish(b"a", b"zzzz")
    assert [message[1] for message in decode(data, places_for("a"))[1]] == [head[:4], b"zzzz"]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_cut_packet_is_left_with_its_size_once_that_is_known(cut: int) -> None:
    whole = publish(b"a", b"12345", 7)
    places = places_for("a")
    (pos, why, size), messages, _ = decode(whole + whole[:cut], places)
    assert (pos, why, len(messages)) == (len(whole), codec.NEED_MORE, 1)
    assert size == (len(whole) if cut >= 5 or cut >= 2 else 0)


def test_an_unknown_topic_stops_at_its_packet() -> None:
    data = publish(b"a", b"1") + publish(b"new", b"2")
    (pos, why, size), messages, _ = decode(data, places_for("a"))
    assert (pos, why, size, len(messages)) == (4 + 2, codec.UNKNOWN_TOPIC, 8, 1)
    assert codec.publish_topic(data, pos) == b"new"


def test_the_topic_and_id_of_a_packet_with_a_long_remaining_length() -> None:
    data = publish(b"topic", b"x" * 20_000, 513)
    assert codec.publish_topic(data, 0) == b"topic"
    assert codec.packet_id_of(data, 0) == b"\x02\x01"


def test_another_packet_stops_the_burst() -> None:
    data = publish(b"a", b"1") + b"\xc0\0"
    assert decode(data, places_for("a"))[0] == (6, codec.OTHER_PACKET, 0)


@pytest.mark.parametrize(("size", "header"), [
    (0, b"\x30\x00"), (127, b"\x30\x7f"), (128, b"\x30\x80\x01"), (16383, b"\x30\xff\x7f"),
    (16384, b"\x30\x80\x80\x01"), (2097151, b"\x30\xff\xff\x7f"), (2097152, b"\x30\x80\x80\x80\x01"),
    (268435455, b"\x30\xff\xff\xff\x7f")])
def test_remaining_lengths_at_the_edges_of_table_2_4(size: int, header: bytes) -> None:
    assert codec.fixed_header(0x30, size) == header
    assert codec.packet_size(header, 0, 1 << 30) == len(header) + size
    for cut in range(1, len(header)):
        assert codec.packet_size(header[:cut], 0, 1 << 30) == 0


def test_a_packet_is_refused_for_its_size_before_it_is_there() -> None:
    with pytest.raises(PacketTooLarge):
        codec.packet_size(b"\x30\xff\x7f", 0, 16_000)


def test_a_fifth_byte_of_remaining_length_is_malformed() -> None:
    with pytest.raises(MalformedPacket):
        codec.packet_size(b"\x30\xff\xff\xff\xff\x01", 0, 1 << 30)


def messages_to(address: str, *values: bytes | None, attributes: int = 1) -> list[Message]:
    return [(len(address), value, NO_HEADERS, attributes, 0) for value in values]


def test_deliveries_of_qos_0() -> None:
    messages = messages_to("t", b"a", b"bb", b"c" * 3000, None)
    expected = publish(b"t", b"bb") + publish(b"t", b"c" * 3000) + publish(b"t", b"")
    assert codec.encode_qos0(b"\0\x01t", messages, 1, 4) == expected


def test_deliveries_of_qos_1_pass_from_packet_id_65535_to_1() -> None:
    messages = messages_to("t", b"a", b"b", b"c" * 3000, None)
    expected = b"".join([publish(b"t", b"a", 65534), publish(b"t", b"b", 65535), publish(b"t", b"c" * 3000, 1),
                         publish(b"t", b"", 2)])
    assert codec.encode_qos1(b"\0\x01t", messages, 0, 4, 65534) == expected


def test_runs_of_one_level() -> None:
    messages = messages_to("t", b"a", b"b") + messages_to("t", b"c", attributes=1 | TRANSIENT) + messages_to("t", b"d")
    assert [codec.run_of(messages, at) for at in range(4)] == [2, 2, 3, 4]
    assert codec.size_of(messages, 1, 3) == 2


def test_acknowledgements() -> None:
    assert codec.encode_pubacks([b"\0\x01", b"\xff\xff"]) == b"\x40\x02\0\x01\x40\x02\xff\xff"
    assert codec.PUBACKS[4 * 513:4 * 514] == b"\x40\x02\x02\x01"
