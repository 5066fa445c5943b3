"""The MQTT door under everything: what is encoded is decoded, however it is cut; garbage hurts only its sender."""
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import GATEWAY, codec, mapping, packets
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.errors import ProtocolError
from gatehouse.gateways.mqtt.outbox import Window
from gatehouse.kernel.api import Message
from gatehouse.kernel.message import TRANSIENT
from gatehouse.kernel.records.batch import NO_HEADERS
from tests.gateways.mqtt.conversations import ONE_TOPIC, connect
from tests.gateways.mqtt.test_codec import publish
from tests.gateways.mqtt.test_outbox import subscriber

LIMIT = 1 << 20
TOPICS = ["a", "b/c", "plant/line1/temp", "ü/✓"]
payloads = st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"x" * 127, b"x" * 128, b"x" * 17_000]))
published = st.lists(st.tuples(st.sampled_from(TOPICS), payloads, st.integers(0, 65535)), max_size=30)
"""(topic, payload, packet id or 0 for QoS 0)"""


def packed(messages: list[tuple[str, bytes, int]]) -> bytes:
    return b"".join(publish(topic.encode(), payload, packet_id) for topic, payload, packet_id in messages)


@given(published)
def test_what_is_published_is_decoded(messages: list[tuple[str, bytes, int]]) -> None:
    places = {topic.encode(): place for place, topic in enumerate(TOPICS)}
    data = packed(messages)
    decoded: list[Message] = []
    packet_ids: list[bytes] = []
    assert codec.decode_publishes(data, 0, LIMIT, places, decoded, packet_ids) == (len(data), codec.NEED_MORE, 0)
    assert [(TOPICS[place], value) for place, value, _, _, _ in decoded] == [m[:2] for m in messages]
    assert [bool(attributes & TRANSIENT) for _, _, _, attributes, _ in decoded] == [not m[2] for m in messages]
    assert packet_ids == [packet_id.to_bytes(2, "big") for _, _, packet_id in messages if packet_id]


@given(st.lists(payloads, min_size=1, max_size=20), st.integers(1, 65535))
def test_what_is_delivered_is_what_a_client_would_publish(values: list[bytes], packet_id: int) -> None:
    topic = mapping.topic_field("b/c")
    messages: list[Message] = [(0, value, NO_HEADERS, codec.DOOR, 0) for value in values]
    assert codec.encode_qos0(topic, messages, 0, len(values)) == packed([("b/c", value, 0) for value in values])
    ids = [(packet_id + n - 1) % 65535 + 1 for n in range(len(values))]
    expected = packed([("b/c", value, number) for value, number in zip(values, ids, strict=True)])
    assert codec.encode_qos1(topic, messages, 0, len(values), packet_id) == expected


@given(published, st.lists(st.integers(0, 600), max_size=12))
def test_cuts_change_nothing(messages: list[tuple[str, bytes, int]], cuts: list[int]) -> None:
    """The same bytes, cut anywhere, store the same messages and get the same acknowledgements."""
    data = packed(messages)
    hub = FakeHub(routes=ONE_TOPIC)
    session, link = connect(hub)
    edges = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, stop in zip(edges, edges[1:], strict=False):
        session.handle_data(data[start:stop])
    hub.kernel.flush()
    assert not link.closed, link.reason
    assert link.take() == b"".join(b"\x40\x02" + m[2].to_bytes(2, "big") for m in messages if m[2])
    assert [record[3] for record in hub.kernel.records()] == [m[1] for m in messages]


WORDS = [b"\x10\x0d\0\4MQTT\4\2\0\0\0\1c", b"\xc0\0", b"\x82\x06\0\1\0\1t\1", b"\x82\x06\0\2\0\1#\0",
         b"\xa2\x05\0\3\0\1t", b"\x40\2\0\1", b"\x40\2\0\2", publish(b"t", b"x"), publish(b"t", b"y", 9),
         publish(b"$x", b"y", 3),
         publish(b"a/#", b"z"), b"\xe0\0", b"\x62\2\0\1", b"\x34\x05\0\1t\0\1", b"\x30\xff\xff\xff\xff\x7f"]
noise = st.one_of(st.sampled_from(WORDS), st.binary(max_size=12))


@settings(max_examples=300)
@given(st.lists(noise, max_size=25), st.booleans(), st.data())
def test_garbage_closes_only_its_own_connection(pieces: list[bytes], introduced: bool, data: st.DataObject) -> None:
    hub = FakeHub()
    other, other_link = subscriber(hub, "t", 1, MqttConfig(), "other")
    session, link = connect(hub) if introduced else hub.open(GATEWAY, MqttConfig())
    for piece in pieces:
        if link.closed:
            break
        if data.draw(st.booleans()):
            hub.kernel.flush()
        damaged = bytearray(piece)
        if damaged and data.draw(st.integers(0, 3)) == 0:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        session.handle_data(bytes(damaged))
    hub.kernel.flush()
    hub.advance(20_000)
    hub.cut(session)
    hub.kernel.flush()
    assert not other_link.closed
    assert hub.kernel.subscriptions == 1, "the client that has gone is still subscribed"
    other_link.take()
    other.handle_data(publish(b"t", b"still here", 77))
    hub.kernel.flush()
    assert b"\x40\x02\0\x4d" in other_link.take()


@given(st.binary(max_size=60))
def test_decoders_of_the_other_packets_raise_only_protocol_errors(body: bytes) -> None:
    for decode in (packets.decode_connect, packets.decode_subscribe, packets.decode_unsubscribe):
        try:
            decode(body)
        except ProtocolError as error:
            assert error.code and str(error)


@given(st.text(alphabet="a+#/$é", max_size=12))
def test_filters_follow_the_rules_of_4_7(text: str) -> None:
    levels = text.split("/")
    legal = bool(text) and all(
        level in ("+", "#") or not set("+#") & set(level) for level in levels) and "#" not in levels[:-1]
    try:
        assert mapping.decode_filter(text.encode()) == text
        assert legal
    except ProtocolError:
        assert not legal


steps_of_a_window = st.one_of(
    st.tuples(st.just("take"), st.integers(1, 12)), st.tuples(st.just("ack"), st.integers(1, 65535)),
    st.tuples(st.just("ack_nth"), st.integers(0, 8)))


@given(st.lists(steps_of_a_window, max_size=60), st.integers(1, 20))
def test_no_packet_id_is_in_flight_twice(steps: list[tuple[str, int]], inflight_max: int) -> None:
    window = Window(inflight_max)
    in_flight: list[int] = []
    for what, number in steps:
        if what == "take":
            count = min(number, window.room())
            if count <= 0:
                continue
            first = window.take(count)
            for n in range(count):
                packet_id = (first + n - 1) % 65535 + 1
                assert packet_id not in in_flight
                in_flight.append(packet_id)
        else:
            packet_id = in_flight[number % len(in_flight)] if what == "ack_nth" and in_flight else number
            if packet_id == 0:
                continue
            window.acknowledge(b"\x40\x02" + packet_id.to_bytes(2, "big"), 0)
            if packet_id in in_flight:
                in_flight.remove(packet_id)
        assert window.in_flight() == len(in_flight) <= inflight_max
