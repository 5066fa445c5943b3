"""Streams over pika: what stays, where reading begins, RabbitMQ 3.10.8's refusals to the letter; topics as streams."""
from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError, ChannelClosedByBroker, ConnectionClosedByBroker

from tests.interop.guarded_hub import PASSWORD, GuardedHub, guarded_hub
from tests.running_hub import DEADLINE_S, RunningHub, running_hub

STREAM = {"x-queue-type": "stream"}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "http", "amqp") as hub:
        yield hub
        code, said = hub.stop()
        assert code == 0
        assert "Traceback" not in said, said


def connect(hub: RunningHub, port: int = 0, user: str = "guest", password: str = "guest") -> Any:
    return pika.BlockingConnection(pika.ConnectionParameters(
        "127.0.0.1", port or hub.port("amqp"), credentials=pika.PlainCredentials(user, password)))


@pytest.fixture
def channel(hub: RunningHub) -> Iterator[Any]:
    with connect(hub) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def stream(channel: Any, name: str, *bodies: bytes, **arguments: Any) -> None:
    channel.queue_declare(name, durable=True, arguments={**STREAM, **arguments})
    for number, body in enumerate(bodies):
        channel.basic_publish("", name, body, pika.BasicProperties(headers={"n": number}, message_id=f"id{number}"))


def read(hub: RunningHub, name: str, count: int, start: Any = "first", prefetch: int = 2, more: float = 0.0
         ) -> list[Any]:
    """(method, properties, body) of so many; `more`: wait so long for one too many."""
    with connect(hub) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=prefetch)
        got: list[Any] = []

        def take(_: Any, method: Any, properties: Any, body: bytes) -> None:
            got.append((method, properties, body))
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume(name, take, arguments={} if start is None else {"x-stream-offset": start})
        end_s = time.monotonic() + DEADLINE_S
        while len(got) < count:
            assert time.monotonic() < end_s, got
            connection.process_data_events(0.1)
        connection.process_data_events(more)
        return got


def bodies(got: list[Any]) -> list[bytes]:
    return [body for _, _, body in got]


def test_everybody_reads_all_of_it_from_any_place(hub, channel):
    stream(channel, "log", *(b"m%d" % number for number in range(5)))
    everything = [b"m0", b"m1", b"m2", b"m3", b"m4"]
    for _ in range(2):
        got = read(hub, "log", 5)
        assert bodies(got) == everything
    assert [properties.headers for _, properties, _ in got] == [
        {"n": number, "x-stream-offset": number} for number in range(5)]
    assert {(method.exchange, method.routing_key, method.redelivered) for method, _, _ in got} == {("", "log", False)}
    assert [properties.message_id for _, properties, _ in got] == [f"id{number}" for number in range(5)]
    hour = timedelta(hours=1)
    for start, expected in (("last", [b"m4"]), (3, [b"m3", b"m4"]), (-1, everything), ("1h", everything),
                            (datetime.now(UTC) - hour, everything), ("2D", everything)):
        assert bodies(read(hub, "log", len(expected), start, more=0.2)) == expected, start
    for start in ("next", None, 99, datetime.now(UTC) + hour):
        assert bodies(read(hub, "log", 0, start, more=0.5)) == [], start
    assert channel.queue_declare("log", passive=True).method.message_count == 5


def test_what_comes_is_delivered_as_far_as_the_prefetch_goes(hub, channel):
    stream(channel, "live", b"before")
    with connect(hub) as connection:
        reader = connection.channel()
        reader.basic_qos(prefetch_count=3)
        got: list[Any] = []
        reader.basic_consume("live", lambda _, method, properties, body: got.append((method, properties, body)))
        for number in range(5):
            channel.basic_publish("", "live", b"%d" % number)
        end_s = time.monotonic() + DEADLINE_S
        while len(got) < 3 and time.monotonic() < end_s:
            connection.process_data_events(0.1)
        connection.process_data_events(0.3)
        assert bodies(got) == [b"0", b"1", b"2"]
        reader.basic_nack(got[1][0].delivery_tag, multiple=True, requeue=True)       # makes room, and nothing more
        while len(got) < 5 and time.monotonic() < end_s:
            connection.process_data_events(0.1)
        assert bodies(got)[3:] == [b"3", b"4"]


def test_exchanges_feed_streams_and_queues(hub, channel):
    stream(channel, "fed")
    channel.queue_declare("beside", durable=True)
    channel.exchange_declare("feeding", "topic", durable=True)
    for queue in ("fed", "beside"):
        channel.queue_bind(queue, "feeding", "a.#")
    for number in range(3):
        channel.basic_publish("feeding", f"a.{number}", b"%d" % number, mandatory=True)
    assert [(method.exchange, method.routing_key, body) for method, _, body in read(hub, "fed", 3)] == [
        ("feeding", f"a.{number}", b"%d" % number) for number in range(3)]
    assert channel.queue_declare("beside", passive=True).method.message_count == 3


def test_dead_letters_into_a_stream(hub, channel):
    stream(channel, "graveyard")
    channel.queue_declare("dying", durable=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graveyard"})
    channel.basic_publish("", "dying", b"gone")
    method, _, _ = channel.basic_get("dying")
    channel.basic_reject(method.delivery_tag, requeue=False)
    ((_, properties, body),) = read(hub, "graveyard", 1)
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"gone", "rejected")


def test_a_transaction_and_a_delay_reach_streams(hub, channel):
    stream(channel, "both")
    channel.exchange_declare("both.later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    channel.queue_bind("both", "both.later")
    with connect(hub) as connection:
        tx = connection.channel()
        tx.tx_select()
        tx.basic_publish("both.later", "k", b"committed")
        tx.tx_commit()
    channel.basic_publish("both.later", "k", b"late", pika.BasicProperties(headers={"x-delay": 300}))
    assert bodies(read(hub, "both", 2)) == [b"committed", b"late"]


def test_partitions_of_topics_are_read_as_streams(hub, channel):
    url = f"http://127.0.0.1:{hub.port('http')}/v1"
    wish = urllib.request.Request(f"{url}/topics/wide", b'{"partitions": 3}', {"Content-Type": "application/json"},
                                  method="PUT")
    urllib.request.urlopen(wish, timeout=60)
    for number in range(30):
        urllib.request.urlopen(urllib.request.Request(f"{url}/publish/wide/k{number}", b"%d" % number, {
            "Content-Type": "text/plain"}, method="POST"), timeout=60)
    with urllib.request.urlopen(f"{url}/topics/wide", timeout=60) as answer:
        counts = [one["high_watermark"] for one in json.loads(answer.read())["bounds"]]
    got = [read(hub, f"wide-{number}", count) for number, count in enumerate(counts) if count]
    assert sorted(int(body) for part in got for body in bodies(part)) == list(range(30))
    method, properties, body = got[0][0]
    assert (method.exchange, method.routing_key, properties.content_type) == ("wide", f"k{int(body)}", "text/plain")
    for name in ("wide-3", "wide-x", "nothing-0"):
        with pytest.raises(ChannelClosedByBroker, match="NOT_FOUND"):
            read(hub, name, 1)


def test_other_doors_see_a_stream_as_a_topic(hub, channel):
    stream(channel, "seen", b"1", b"2")
    url = f"http://127.0.0.1:{hub.port('http')}/v1/topics/seen/messages?from=earliest"
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert [one["value"] for one in json.loads(answer.read())["messages"]] == ["1", "2"]
    channel.queue_delete("seen")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url, timeout=60)


def test_a_stream_outlives_the_hub_with_its_bindings(tmp_path: Path):
    with running_hub(tmp_path, "amqp", kernel='fsync = "commit"') as hub:
        channel = connect(hub).channel()
        channel.confirm_delivery()
        stream(channel, "kept", b"0", b"1", **{"x-max-age": "7D"})
        channel.exchange_declare("keeps", "fanout", durable=True)
        channel.queue_bind("kept", "keeps")
        channel.basic_publish("keeps", "", b"2")
        hub.kill()
    with running_hub(tmp_path, "amqp", kernel='fsync = "commit"') as hub:
        with connect(hub) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            stream(channel, "kept", **{"x-max-age": "7D"})
            channel.basic_publish("keeps", "", b"3")
            assert bodies(read(hub, "kept", 4)) == [b"0", b"1", b"2", b"3"]
        hub.stop()


def refused(hub: RunningHub, ask: Any) -> tuple[str, str]:
    connection = connect(hub)
    try:
        ask(connection.channel())
    except AMQPError as error:
        kind = {ChannelClosedByBroker: "channel", ConnectionClosedByBroker: "connection"}[type(error)]
        return kind, f"{error.reply_code} {error.reply_text}"
    finally:
        if connection.is_open:
            connection.close()
    raise AssertionError("it was not refused")


S2 = "queue 's2' in vhost '/'"
OF_TYPE = "PRECONDITION_FAILED - invalid arg '{}' for " + S2 + " of queue type rabbit_stream_queue"


@pytest.mark.parametrize(("flags", "arguments", "text"), [
    ({"durable": False}, {}, f"PRECONDITION_FAILED - invalid property 'non-durable' for {S2}"),
    ({"exclusive": True}, {}, f"PRECONDITION_FAILED - invalid property 'exclusive-owner' for {S2}"),
    ({"auto_delete": True}, {}, f"PRECONDITION_FAILED - invalid property 'auto-delete' for {S2}"),
    *(({}, {name: value}, OF_TYPE.format(name)) for name, value in (
        ("x-message-ttl", 5), ("x-max-length", 5), ("x-dead-letter-exchange", ""), ("x-expires", 5000),
        ("x-single-active-consumer", True))),
    ({}, {"x-max-age": "5x"}, f"PRECONDITION_FAILED - invalid arg 'x-max-age' for {S2}: invalid_max_age"),
    ({}, {"x-max-age": 5}, f"PRECONDITION_FAILED - invalid arg 'x-max-age' for {S2}: {{unacceptable_type,signedint}}"),
])
def test_declarations_that_are_refused(hub, flags, arguments, text):
    assert refused(hub, lambda channel: channel.queue_declare(
        "s2", **{"durable": True, **flags}, arguments={**STREAM, **arguments})) == ("channel", f"406 {text}")


def consuming(start: Any = None, prefetch: int = 1, **more: Any) -> Any:
    def ask(channel: Any) -> None:
        if prefetch:
            channel.basic_qos(prefetch_count=prefetch)
        channel.basic_consume("s1", lambda *_: None, arguments={"x-stream-offset": start} if start else {}, **more)
    return ask


@pytest.mark.parametrize(("ask", "kind", "text"), [
    (lambda channel: channel.basic_get("s1"), "connection",
     "540 NOT_IMPLEMENTED - basic.get not supported by stream queues queue 's1' in vhost '/'"),
    (consuming(prefetch=0), "channel",
     "406 PRECONDITION_FAILED - consumer prefetch count is not set for 'queue 's1' in vhost '/''"),
    (consuming(prefetch=0, auto_ack=True), "channel",
     "406 PRECONDITION_FAILED - consumer prefetch count is not set for 'queue 's1' in vhost '/''"),
    (consuming("first", auto_ack=True), "connection",
     "540 NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queues queue 's1' in vhost '/'"),
    (lambda channel: channel.queue_purge("s1"), "connection",
     "540 NOT_IMPLEMENTED - queue.purge not supported by stream queues queue 's1' in vhost '/'"),
    (consuming("5x"), "channel", "406 PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue 's1' in vhost '/': "
                                 "{invalid_stream_offset_arg,{longstr,<<\"5x\">>}}"),
    (lambda channel: channel.queue_declare("", durable=True, arguments=STREAM), "channel",
     "406 PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_stream_queue"),
])
def test_what_streams_do_not_do(hub, channel, ask, kind, text):
    stream(channel, "s1")
    assert refused(hub, ask) == (kind, text)


def filtered(hub: RunningHub, name: str, count: int, **arguments: Any) -> list[bytes]:
    with connect(hub) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10)
        got: list[bytes] = []

        def take(_: Any, method: Any, properties: Any, body: bytes) -> None:
            got.append(body)
            channel.basic_ack(method.delivery_tag)
        channel.basic_consume(name, take, arguments={"x-stream-offset": "first", **arguments})
        end_s = time.monotonic() + DEADLINE_S
        while len(got) < count and time.monotonic() < end_s:
            connection.process_data_events(0.1)
        connection.process_data_events(0.1)
        return got


def test_a_filter_gives_what_it_says(hub, channel):
    channel.queue_declare("filtered", durable=True, arguments=STREAM)
    for number in range(300):
        region = ("europe", "asia", None)[number % 3]
        channel.basic_publish("", "filtered", b"%d" % number, pika.BasicProperties(
            headers=None if region is None else {"x-stream-filter-value": region}))
    every = [b"%d" % number for number in range(300)]
    assert filtered(hub, "filtered", 100, **{"x-stream-filter": "asia"}) == every[1::3]
    assert filtered(hub, "filtered", 200, **{"x-stream-filter": ["asia", "europe"]}) == [
        body for number, body in enumerate(every) if number % 3 < 2]
    assert filtered(hub, "filtered", 200, **{"x-stream-filter": "europe", "x-stream-match-unfiltered": True}) == [
        body for number, body in enumerate(every) if number % 3 != 1]
    request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}/v1/publish/filtered", b"by http",
                                     {"X-Header-x-stream-filter-value": "asia"}, method="POST")
    with urllib.request.urlopen(request, timeout=DEADLINE_S):
        pass
    assert filtered(hub, "filtered", 101, **{"x-stream-filter": "asia"})[-1] == b"by http"


@pytest.mark.parametrize("arguments", [{"x-stream-filter": 5}, {"x-stream-filter": ["a", 5]}, {"x-stream-filter": []},
                                       {"x-stream-filter": "a", "x-stream-match-unfiltered": "yes"}])
def test_a_filter_that_cannot_be_is_refused(hub, channel, arguments):
    stream(channel, "s1")

    def ask(channel: Any) -> None:
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("s1", lambda *_: None, arguments=arguments)
    assert refused(hub, ask)[1].startswith("406 PRECONDITION_FAILED - invalid arg 'x-stream-")


def test_a_stream_has_its_topics_retention(hub, channel):
    channel.queue_declare("kept.short", durable=True,
                          arguments={**STREAM, "x-max-age": "7D", "x-max-length-bytes": 1_000_000,
                                     "x-stream-max-segment-size-bytes": 500_000})
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.port('http')}/v1/topics/kept.short") as answer:
        topic = json.load(answer)
    assert (topic["retention_ms"], topic["retention_bytes"]) == (7 * 86_400_000, 1_000_000)


def test_rights_of_streams_are_those_of_topics(tmp_path: Path):
    with guarded_hub(tmp_path) as guarded:
        port = guarded.ports("amqp")[0]

        def as_user(user: str) -> Any:
            return connect(guarded.hub, port, user, PASSWORD).channel()

        stream(as_user("root"), "open", b"1")
        stream(as_user("root"), "closed", b"2")
        for name in ("closed-0", "closed"):
            with pytest.raises(ChannelClosedByBroker, match="403"):
                consume = as_user("bob")
                consume.basic_qos(prefetch_count=1)
                consume.basic_consume(name, lambda *_: None)
        with pytest.raises(ChannelClosedByBroker, match="403"):
            stream(as_user("ada"), "secret")
        assert isinstance(guarded, GuardedHub)
        reader = as_user("ada")
        reader.basic_qos(prefetch_count=1)
        reader.basic_consume("open-0", lambda *_: None)
