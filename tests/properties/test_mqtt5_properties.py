"""MQTT 5 under everything: properties come back as they were, garbage raises only the protocol's errors, and what
crosses from one client to another is what was sent."""
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import codec, packets
from gatehouse.gateways.mqtt.errors import ProtocolError
from gatehouse.gateways.mqtt.properties import (
    ALIAS,
    AUTH_DATA,
    AUTH_METHOD,
    EXPIRY,
    RESPONSE_TOPIC,
    SUBSCRIPTION_ID,
    TABLE,
    USER,
    Form,
    Packet,
    decode_properties,
    encode_properties,
    encode_property,
    shown_properties,
    stored_headers,
)
from gatehouse.gateways.mqtt.reading import variable
from tests.gateways.mqtt.five import Client, publish_packet
from tests.properties.strategies import raw_texts

texts = raw_texts.filter(lambda text: "\0" not in text and len(text.encode()) < 1000)


def values_of(number: int) -> st.SearchStrategy[Any]:
    row = TABLE[number]
    if row.form is Form.TEXT:
        return texts
    if row.form is Form.BINARY:
        return st.binary(max_size=20)
    if row.form is Form.PAIR:
        return st.tuples(texts, texts)
    return st.integers(row.lowest, row.highest)


@st.composite
def packets_with_properties(draw: st.DrawFn) -> tuple[Packet, list[tuple[int, Any]]]:
    packet = draw(st.sampled_from(list(Packet)))
    numbers = draw(st.lists(st.sampled_from([number for number, row in TABLE.items() if packet in row.packets]),
                            unique=True))
    numbers += [USER] * draw(st.integers(0, 3))
    pairs = [(number, draw(values_of(number))) for number in draw(st.permutations(numbers))]
    if AUTH_DATA in numbers and AUTH_METHOD not in numbers:
        pairs.append((AUTH_METHOD, draw(texts)))
    return packet, pairs


@given(packets_with_properties())
def test_properties_come_back_as_they_were(given_: tuple[Packet, list[tuple[int, Any]]]) -> None:
    packet, pairs = given_
    data = encode_properties(pairs)
    size, start = variable(data, 0, len(data))
    assert start + size == len(data)
    back = decode_properties(data, start, len(data), packet)
    assert back.values == {number: value for number, value in pairs if number != USER}
    assert back.user == [value for number, value in pairs if number == USER]


@given(packets_with_properties(), st.data())
def test_a_property_that_stands_twice_or_is_not_of_its_packet_is_refused(
        given_: tuple[Packet, list[tuple[int, Any]]], data: st.DataObject) -> None:
    packet, pairs = given_
    others = [number for number, row in TABLE.items() if packet not in row.packets]
    again = [number for number, _ in pairs if number != USER and (number, packet) != (SUBSCRIPTION_ID, Packet.PUBLISH)]
    number = data.draw(st.sampled_from(others + again))
    encoded = b"".join(encode_property(*pair) for pair in [*pairs, (number, data.draw(values_of(number)))])
    with pytest.raises(ProtocolError):
        decode_properties(encoded, 0, len(encoded), packet)


@given(st.binary(max_size=60), st.sampled_from(list(Packet)))
def test_garbage_raises_only_the_protocols_errors(body: bytes, packet: Packet) -> None:
    for decode in (lambda: decode_properties(body, 0, len(body), packet),
                   lambda: packets.decode_connect(b"\0\4MQTT\5" + body),
                   lambda: packets.decode_subscribe(body, 5), lambda: packets.decode_unsubscribe(body, 5),
                   lambda: packets.decode_reason(body, Packet.DISCONNECT),
                   lambda: packets.decode_ack(body, Packet.PUBREC)):
        try:
            decode()
        except ProtocolError as error:
            assert error.code and str(error) and error.reason_code >= 0x80


@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=30), st.booleans()), max_size=20),
       st.integers(1, 30))
def test_cuts_change_nothing(messages: list[tuple[int, bytes, bool]], chunk: int) -> None:
    hub = FakeHub()
    client, other = Client(hub), Client(hub, "other")
    other.subscribe(("t", 2))
    data = b"".join(publish_packet("t", value, n, qos=qos, properties=[(USER, ("n", str(n % 3)))] if dressed else [])
                    for n, (qos, value, dressed) in enumerate(messages, 1))
    for at in range(0, len(data), chunk):
        client.send(data[at:at + chunk])
    hub.kernel.flush()
    assert [(seen.qos, seen.value, seen.user()) for seen in other.received()] == [
        (qos, value, [("n", str(n % 3))] if dressed else []) for n, (qos, value, dressed) in enumerate(messages, 1)]
    assert sorted(ack.packet_id for ack in client.take()) == [n for n, each in enumerate(messages, 1) if each[0]]


@settings(max_examples=200)
@given(st.sets(st.sampled_from([number for number, row in TABLE.items() if Packet.PUBLISH in row.packets
                                and number not in (USER, ALIAS, SUBSCRIPTION_ID, RESPONSE_TOPIC)])),
       st.lists(st.tuples(texts, texts), max_size=4), st.data())
def test_what_was_said_is_what_is_heard(numbers: set[int], user: list[tuple[str, str]], data: st.DataObject) -> None:
    """But for a user property that is called as a property that was not given: then it is that (decision 168)."""
    now_ms = 1_700_000_000_000
    pairs = [(number, data.draw(values_of(number))) for number in sorted(numbers)]
    pairs = [(number, value) for number, value in pairs if (number, value) != (EXPIRY, 0)]
    own = [pair for pair in user if pair[0] not in ("content-type", "utf8", "correlation-id", "reply-to", "expires-at")]
    encoded = encode_properties([*pairs, *[(USER, pair) for pair in own]])
    _, start = variable(encoded, 0, len(encoded))
    headers, timestamp_ms = stored_headers(decode_properties(encoded, start, len(encoded), Packet.PUBLISH), now_ms)
    shown = shown_properties(headers, codec.DOOR, timestamp_ms, now_ms, address="\0")
    assert shown is not None
    back = decode_properties(shown, 0, len(shown), Packet.PUBLISH)
    assert back.values == dict(pairs)
    assert back.user == own
