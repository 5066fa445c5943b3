"""The hot frames: publishes decoded in bursts, deliveries and confirms encoded, with pika as the judge."""
from __future__ import annotations

from typing import Any

import pika.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import spec

from gatehouse.gateways.amqp import codec, mapping, properties
from gatehouse.gateways.amqp.errors import ConnectionFault
from gatehouse.gateways.amqp.methods import encode_method
from gatehouse.gateways.amqp.properties import write
from gatehouse.gateways.amqp.tables import text
from gatehouse.kernel.message import TRANSIENT, Leased, Message
from gatehouse.kernel.records.batch import encode_header, varint
from gatehouse.tracing.context import Context
from tests.gateways.amqp.fakes import publish

BODY_MAX = 4088
CHANNEL = b"\0\1"
PERSISTENT = b"\x10\0\2"


def routes(*names: tuple[str, str], queue: object = "a queue") -> dict[bytes, tuple[int, bool]]:
    return {encode_method("basic.publish", exchange=exchange, routing_key=key): (7, queue is not None)
            for exchange, key in names}


def decode(data: bytes, known: dict[bytes, tuple[int, bool]], last: codec.PublishHead | None = None
           ) -> tuple[list[Message], int, int]:
    """(messages, bytes left, why)"""
    messages: list[Message] = []
    pos, why, _ = codec.decode_publishes(data, 0, CHANNEL, BODY_MAX, known, last or codec.PublishHead(), messages)
    return messages, len(data) - pos, why


def test_a_burst_of_different_shapes() -> None:
    known = routes(("", "q"), ("x", "k"))
    data = b"".join([publish("", "q", b"1"), publish("", "q", b"2", PERSISTENT), publish("", "q", b"33", PERSISTENT),
                     publish("x", "k", b"4", PERSISTENT), publish("", "q", b"5", PERSISTENT)])
    messages, left, why = decode(data, known)
    assert [message[1] for message in messages] == [b"1", b"2", b"33", b"4", b"5"]
    assert [message[3] for message in messages] == [codec.DOOR | TRANSIENT, *[codec.DOOR] * 4]
    assert [mapping.own_side(message[2]) for message in messages] == [
        b"\0\1q\0\0", b"\0\1q" + PERSISTENT, b"\0\1q" + PERSISTENT, b"\1x\1k" + PERSISTENT, b"\0\1q" + PERSISTENT]
    assert (left, why) == (0, codec.NEED_MORE)


def test_what_repeats_from_read_to_read_is_decoded_once() -> None:
    known, last = routes(("", "q")), codec.PublishHead()
    one, larger = publish("", "q", b"body", PERSISTENT), publish("", "q", b"a body", PERSISTENT)
    for data in (one, one + larger, larger, one):
        assert decode(data, known, last) == decode(data, known)
    known.clear()
    assert len(decode(one, known, last)[0]) == 1, "it is not looked up again"
    last.forget()
    assert decode(one, known, last) == ([], len(one), codec.OTHER_FRAME), "its place may be another"
    for size in range(len(one)):
        known, last = routes(("", "q")), codec.PublishHead()
        decode(one, known, last)
        assert decode(one[:size], known, last) == ([], size, codec.NEED_MORE)
    said = ("content_type", "content_encoding", "correlation_id", "message_id", "app_id")
    long = publish("", "q", b"body", write(dict.fromkeys(said, "a" * 250)))
    last = codec.PublishHead()
    assert len(decode(long, known, last)[0]) == 1 and not last.data, "it is not kept as long as the connection is open"


def test_cut_off_anywhere_it_waits_for_more() -> None:
    known = routes(("", "q"))
    one = publish("", "q", b"body", PERSISTENT)
    for size in range(len(one)):
        messages, left, why = decode(one + one[:size], known)
        assert (len(messages), left, why) == (1, size, codec.NEED_MORE)


@pytest.mark.parametrize(("data", "why"), [
    (publish("", "other", b"x"), "an unknown name"),
    (publish("", "q", b""), "no body frame"),
    (publish("", "q", b"x" * 5000, body_max=BODY_MAX), "two body frames"),
    (publish("", "q", b"x", b"\x08\0\5"), "a priority"),
    (publish("", "q", b"x", b"\x20\0\0\0\0\0"), "headers"),
    (publish("", "q", b"x", b"\1\0\0011"), "an expiration"),
    (publish("", "q", b"x", b"\0\x10\1u"), "a user id"),
    (publish("", "q", b"x", b"\x80\0\5a"), "a property longer than its header"),
    (publish("", "q", b"x", b"\0\1"), "flags that go on"),
    (publish("", "q", b"x", b"\0\0more"), "a header longer than its properties, of which there are none"),
    (publish("", "q", b"x")[:-1] + b"\0", "a body frame that does not end"),
    (publish("", "q", b"x", channel=2), "another channel"),
    (codec.HEARTBEAT_FRAME, "a heartbeat"),
    (codec.frame(codec.METHOD, 1, encode_method("basic.ack", delivery_tag=1)), "another method"),
    (publish("", "q", b"x").replace(b"\x03\0\1", b"\x08\0\0"), "no body where one must be"),
])
def test_what_is_not_plain_is_left(data: bytes, why: str) -> None:
    messages, left, stopped = decode(publish("", "q", b"first") + data, routes(("", "q")))
    assert (len(messages), left, stopped) == (1, len(data), codec.OTHER_FRAME), why


def test_a_topic_wants_its_headers() -> None:
    known = routes(("x", "k"), queue=None)
    assert len(decode(publish("x", "k", b"1", PERSISTENT), known)[0]) == 1
    assert decode(publish("x", "k", b"1", b"\x80\0\4text"), known)[0] == []


def test_a_frame_larger_than_agreed() -> None:
    assert codec.frame_size(codec.frame(codec.BODY, 1, b"x" * 92), 0, 100) == 100
    with pytest.raises(ConnectionFault, match="FRAME_ERROR"):
        codec.frame_size(codec.frame(codec.BODY, 1, b"x" * 93), 0, 100)
    assert codec.frame_size(b"\1\0\1\0\0\0", 0, 100) == 0


def test_acks_in_a_burst() -> None:
    def ack(tag: int, multiple: bool = False, channel: int = 1) -> bytes:
        return codec.frame(codec.METHOD, channel, encode_method("basic.ack", delivery_tag=tag, multiple=multiple))
    tags: list[int] = []
    data = ack(1) + ack(7, True) + ack(3)
    assert codec.decode_acks(data + ack(0, True), 0, CHANNEL, tags) == len(data)
    assert codec.decode_acks(data + ack(4)[:-1], 0, CHANNEL, []) == len(data)
    assert codec.decode_acks(ack(1, channel=2), 0, CHANNEL, []) == 0
    assert tags == [1, -7, 3]


def read(data: bytes) -> list[Any]:
    frames = []
    while data:
        size, frame = pika.frame.decode_frame(data)
        assert frame is not None
        frames.append(frame)
        data = data[size:]
    return frames


def leased(side: bytes, body: bytes | None, attempt: int = 1) -> Leased:
    headers = codec.stored_headers(side, b"")
    return (None, 0, attempt, 0, 0, None, body, headers, codec.DOOR)


def test_deliveries_are_what_pika_reads() -> None:
    sides = [b"\0\1q\0\0", b"\0\1q\0\0", b"\1x\2kk" + PERSISTENT]
    messages = [leased(sides[0], b"one"), leased(sides[1], b"two", 2), leased(sides[2], b""),
                leased(sides[2], b"x" * (BODY_MAX + 1)), leased(sides[2], None)]
    data = codec.encode_deliveries(CHANNEL, b"\2ct", 41, BODY_MAX, messages, lambda one: mapping.own_side(one[7]))
    frames = read(data)
    methods = [frame.method for frame in frames if isinstance(frame, pika.frame.Method)]
    found = [(one.consumer_tag, one.delivery_tag, one.redelivered, one.exchange, one.routing_key) for one in methods]
    assert found == [
        ("ct", 41, False, "", "q"), ("ct", 42, True, "", "q"), ("ct", 43, False, "x", "kk"),
        ("ct", 44, False, "x", "kk"), ("ct", 45, False, "x", "kk")]
    headers = [frame for frame in frames if isinstance(frame, pika.frame.Header)]
    assert [one.body_size for one in headers] == [3, 3, 0, BODY_MAX + 1, 0]
    assert [one.properties.delivery_mode for one in headers] == [None, None, 2, 2, 2]
    assert [len(frame.fragment) for frame in frames if isinstance(frame, pika.frame.Body)] == [3, 3, BODY_MAX, 1]
    assert {frame.channel_number for frame in frames} == {1}


def test_each_delivery_has_the_trace_context_that_the_hub_gave_its_message() -> None:
    asked: list[Leased] = []
    unaltered = False

    def side_of(one: Leased) -> bytes:
        asked.append(one)
        return mapping.own_side(one[7], unaltered=unaltered)

    def followed(side: bytes, number: int, attempt: int = 1) -> Leased:
        context = encode_header(b"traceparent", Context(number.to_bytes(16), number.to_bytes(8), True).header())
        headers = b"".join((varint(2), codec.stored_headers(side, b"")[1:], context))
        return (None, 0, attempt, 0, 0, None, b"x", headers, codec.DOOR)

    plain = b"\0\1q" + PERSISTENT
    rich = b"\0\1q" + write({"content_type": "text", "headers": {"a": text("b")}, "delivery_mode": 2})
    messages = [followed(plain, 1), followed(plain, 2), leased(plain, b"x"), followed(plain, 3), followed(plain, 3),
                followed(plain, 4, 2), followed(plain, 5), followed(rich, 6), followed(rich, 7)]
    data = codec.encode_deliveries(CHANNEL, b"\2ct", 1, BODY_MAX, messages, side_of)
    headers = [frame.properties for frame in read(data) if isinstance(frame, pika.frame.Header)]
    assert [int(one.headers["traceparent"][3:35], 16) if one.headers else 0 for one in headers] == [
        1, 2, 0, 3, 3, 4, 5, 6, 7]
    assert [one.delivery_mode for one in headers] == [2] * 9
    assert len(asked) == 6, "of those that differ in nothing else only the first"
    sent = b"\0\1q" + write({"headers": {"traceparent": text("no context"), "tracestate": text("a=1"), "a": text("b")}})
    assert mapping.own_side(followed(sent, 9)[7]) == sent, "what its sender said stays"
    table = properties.read(mapping.own_side(followed(sent, 9)[7], unaltered=False)[3:])["headers"]
    assert (int(table["traceparent"].value[3:35], 16), sorted(table)) == (9, ["a", "traceparent"])
    asked.clear()
    unaltered = True
    for side in (plain, rich):
        data = codec.encode_deliveries(CHANNEL, b"\2ct", 1, BODY_MAX, [followed(side, 1), followed(side, 2)], side_of)
        assert data == codec.encode_deliveries(CHANNEL, b"\2ct", 1, BODY_MAX, [leased(side, b"x")] * 2, side_of)
    assert len(asked) == 4
    asking = b"\0\1q" + write({"headers": {"x-trace": text("always")}})
    assert b"traceparent" in mapping.own_side(followed(asking, 9)[7]), "its sender has asked"


@pytest.mark.parametrize("door", [1, codec.DOOR])      # whoever writes this door's number need not have an AMQP side
def test_a_foreign_message_is_asked_for_every_time(door: int) -> None:
    asked: list[Leased] = []

    def side_of(one: Leased) -> bytes:
        asked.append(one)
        return b"\0\1q\0\0"

    foreign = [(None, at, 1, 0, 0, b"key", b"x", b"\0", door) for at in range(3)]
    codec.encode_deliveries(CHANNEL, b"\2ct", 1, BODY_MAX, foreign, side_of)
    assert len(asked) == 3


@given(st.dictionaries(st.sampled_from(["content_type", "content_encoding", "correlation_id", "reply_to", "app_id"]),
                       st.text(max_size=30)), st.booleans(), st.sampled_from([{}, {"delivery_mode": 2, "priority": 5}]))
def test_a_correlation_id_is_found_among_properties(texts: dict[str, str], table: bool, more: dict[str, int]) -> None:
    raw = write({**texts, **more, **({"headers": {"a": text("b" * 40)}} if table else {})})
    assert codec.correlation_of(raw) == texts.get("correlation_id", "").encode()


def test_confirms_are_what_pika_reads() -> None:
    ack, = read(codec.encode_confirm(CHANNEL, 7, True))
    assert isinstance(ack.method, spec.Basic.Ack)
    assert (ack.method.delivery_tag, ack.method.multiple) == (7, True)
    nack, = read(codec.encode_confirm(CHANNEL, 8, False, nack=True))
    assert isinstance(nack.method, spec.Basic.Nack)
    assert (nack.method.delivery_tag, nack.method.multiple) == (8, False)
