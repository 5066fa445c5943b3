"""The AMQP door under everything: what is published is decoded, however it is cut; garbage hurts only its sender."""
from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.gateways.amqp import codec, properties
from gatehouse.gateways.amqp.errors import AmqpError
from gatehouse.gateways.amqp.methods import METHODS, decode_method, encode_method
from gatehouse.gateways.amqp.tables import Field, Table, decode_table, encode_table
from tests.gateways.amqp.fakes import Client, Hub, publish

KEYS = ["q", "r", "nobody"]
RAWS = [b"\0\0", b"\x10\0\2", b"\x90\0\1t\2", b"\x08\0\5", b"\x20\0\0\0\0\5\1aI\0\0", b"\1\0\0019", b"\x80\0\xff"]
messages = st.lists(st.tuples(st.sampled_from(KEYS), st.one_of(st.binary(max_size=30), st.just(b"x" * 5000)),
                              st.sampled_from(RAWS[:4])), max_size=20)

numbers = {"t": st.booleans(), "b": st.integers(-128, 127), "B": st.integers(0, 255), "s": st.integers(-32768, 32767),
           "u": st.integers(0, 65535), "I": st.integers(-2**31, 2**31 - 1), "i": st.integers(0, 2**32 - 1),
           "l": st.integers(-2**63, 2**63 - 1), "d": st.floats(allow_nan=False), "T": st.integers(0, 2**64 - 1),
           "S": st.binary(max_size=20), "x": st.binary(max_size=20), "V": st.none(),
           "D": st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1))}
plain_fields = st.one_of([st.builds(Field, st.just(kind), value) for kind, value in numbers.items()])
names = st.text(max_size=20).filter(lambda text: len(text.encode(errors="replace")) < 255 and text.isprintable())
fields = st.recursive(plain_fields, lambda inner: st.one_of(
    st.builds(Field, st.just("A"), st.lists(inner, max_size=4)),
    st.builds(Field, st.just("F"), st.dictionaries(names, inner, max_size=4))), max_leaves=12)
tables = st.dictionaries(names, fields, max_size=6)


@given(tables)
def test_tables_come_back(table: Table) -> None:
    data = encode_table(table)
    assert decode_table(b"x" + data + b"y", 1) == (table, 1 + len(data))


@given(st.sampled_from(sorted(METHODS)), st.binary(max_size=60))
def test_any_method_is_read_or_refused(ids: tuple[int, int], rest: bytes) -> None:
    payload = ids[0].to_bytes(2, "big") + ids[1].to_bytes(2, "big") + rest
    try:
        name, arguments = decode_method(payload)
    except AmqpError:
        return
    arguments.pop("_", None)
    assert decode_method(encode_method(name, **arguments))[0] == name


@given(st.binary(max_size=60))
def test_any_properties_are_read_or_refused(raw: bytes) -> None:
    try:
        found = properties.read(raw)
    except AmqpError:
        return
    assert properties.replaced(raw, None) == raw
    assert found.keys() == properties.spans(raw).keys()


def taken(client: Client, queue: str) -> list[tuple[bytes, str, str, bytes]]:
    """(body, exchange, routing key, properties as they came) of everything in a queue."""
    contents = []
    while (answer := client.ask("basic.get", queue=queue, no_ack=True))[0][1] == "basic.get-ok":
        (_, _, told), (_, _, header), *bodies = answer
        body = b"".join(frame["body"] for _, _, frame in bodies)
        contents.append((body, told["exchange"], told["routing_key"], header["raw"]))
    return contents


@settings(deadline=None)
@given(messages, st.lists(st.integers(0, 3000), max_size=12))
def test_cuts_change_nothing(published: list[tuple[str, bytes, bytes]], cuts: list[int]) -> None:
    """The same bytes, cut anywhere: the same messages in the same queues, and every one is confirmed."""
    hub = Hub()
    client = hub.client().login(frame_max=4096)
    for name in KEYS[:2]:
        client.ask("queue.declare", queue=name)
    client.ask("confirm.select")
    data = b"".join(publish("", key, body, raw, body_max=4088) for key, body, raw in published)
    edges = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, stop in zip(edges, edges[1:], strict=False):
        client.send(data[start:stop])
    hub.kernel.flush()
    answers = client.got()
    for name in KEYS[:2]:
        assert taken(client, name) == [(body, "", key, raw) for key, body, raw in published if key == name]
    confirmed: set[int] = set()
    for _, _, arguments in answers:
        tag = arguments["delivery_tag"]
        confirmed.update(range(1, tag + 1) if arguments["multiple"] else (tag,))
    assert len(confirmed) == len(published)


def method(name: str, channel: int = 1, **arguments: Any) -> bytes:
    return codec.frame(codec.METHOD, channel, encode_method(name, **arguments))


WORDS = [method("queue.declare", queue="q"), method("queue.declare"), method("queue.delete", queue="q"),
         method("basic.consume", queue="q"), method("basic.consume", queue="q", no_ack=True),
         method("basic.get", queue="q"), method("basic.ack", delivery_tag=1), method("basic.nack", multiple=True),
         method("basic.cancel", consumer_tag="c"), method("channel.open"), method("channel.open", 2),
         method("channel.close"), method("channel.close-ok"), method("confirm.select"), method("basic.recover"),
         method("exchange.declare", exchange="e", type="topic"), method("exchange.delete", exchange="e"),
         method("queue.bind", queue="q", exchange="e", routing_key="#"), method("basic.qos", prefetch_count=1),
         method("connection.close", 0), method("connection.close-ok", 0), method("queue.purge", queue="q"),
         codec.HEARTBEAT_FRAME, *[publish("", "q", b"x", raw) for raw in RAWS], publish("e", "k", b"y", mandatory=True),
         publish("", "q", b"z")[:20], codec.frame(codec.HEADER, 1, bytes(14)), codec.frame(codec.BODY, 1, b"x")]
noise = st.one_of(st.sampled_from(WORDS), st.sampled_from(WORDS), st.binary(max_size=12))


@settings(max_examples=300, deadline=None)
@given(st.lists(noise, max_size=25), st.booleans())
def test_garbage_closes_only_its_own_connection(pieces: list[bytes], introduced: bool) -> None:
    hub = Hub()
    other = hub.client().login()
    other.ask("queue.declare", queue="others")
    client = hub.client()
    if introduced:
        client.login()
    for piece in pieces:
        if not client.link.closed:
            client.send(piece)
        hub.kernel.flush()
    hub.cut(client.session)
    hub.kernel.flush()
    other.publish("", "others", b"still here")
    hub.kernel.flush()
    assert other.ask("basic.get", queue="others")[-1][2]["body"] == b"still here"
    assert not other.link.closed
