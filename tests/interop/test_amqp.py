"""The AMQP door with pika, a stock client, against a real hub with its log on disk."""
from __future__ import annotations

import json
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.publish
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from tests.running_hub import RunningHub, running_hub
from tests.waiting import until

WAIT_S = 60.0
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("amqp"), "amqp", "mqtt", "http") as running:
        yield running


def connect(hub: RunningHub, **options: Any) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp"), stack_timeout=WAIT_S,
                                                             **options))


@pytest.fixture
def channel(hub: RunningHub) -> Iterator[BlockingChannel]:
    connection = connect(hub)
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    if connection.is_open:
        connection.close()


def take(channel: BlockingChannel, queue: str) -> tuple[Any, Any, Any]:
    """The next message, acknowledged; waits for it."""
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        method, properties, body = channel.basic_get(queue)
        if method is not None:
            channel.basic_ack(method.delivery_tag)
            return method, properties, body
        channel.connection.process_data_events(0.01)
    raise AssertionError(f"nothing came to {queue}")


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    """All that is ready."""
    found = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append(body)


def declare(channel: BlockingChannel, name: str = "", **options: Any) -> str:
    queue: str = channel.queue_declare(name, **options).method.queue
    return queue


def test_properties_come_back_as_they_were_sent(channel: BlockingChannel) -> None:
    queue = declare(channel, exclusive=True)
    sent = pika.BasicProperties(
        content_type="text/plain", content_encoding="gzip", delivery_mode=2,
        headers={"a": 1, "b": [True, "x", {"c": None}], "d": b"\xff"},
        priority=3, correlation_id="c", reply_to="r", expiration="60000", message_id="m",
        timestamp=1_700_000_000, type="t", app_id="app", cluster_id="cl")
    channel.basic_publish("", queue, b"body", sent)
    method, properties, body = take(channel, queue)
    assert (method.exchange, method.routing_key, method.redelivered, body) == ("", queue, False, b"body")
    assert properties == sent


def test_a_large_message_and_an_empty_one(hub: RunningHub, channel: BlockingChannel) -> None:
    queue = declare(channel, exclusive=True)
    large = bytes(range(256)) * 4096
    for body in (large, b"", b"x"):
        channel.basic_publish("", queue, body)
    assert [take(channel, queue)[2] for _ in range(3)] == [large, b"", b"x"]


def test_without_confirms_what_was_published_is_seen_by_what_follows(hub: RunningHub) -> None:
    connection = connect(hub)
    channel = connection.channel()
    queue = declare(channel, exclusive=True)
    for i in range(50):
        channel.basic_publish("", queue, b"%d" % i)
        if i % 2:
            assert channel.queue_declare(queue, passive=True).method.message_count == 1
        assert channel.basic_get(queue, auto_ack=True)[2] == b"%d" % i
    connection.close()


def test_the_four_types_of_exchange(channel: BlockingChannel) -> None:
    for kind in ("direct", "fanout", "topic", "headers"):
        channel.exchange_declare(f"types.{kind}", kind, auto_delete=True)
    queues = {key: declare(channel, exclusive=True) for key in ("direct", "fanout", "topic", "headers")}
    channel.queue_bind(queues["direct"], "types.direct", "red")
    channel.queue_bind(queues["fanout"], "types.fanout", "whatever")
    channel.queue_bind(queues["topic"], "types.topic", "*.red.#")
    channel.queue_bind(queues["headers"], "types.headers", "", {"x-match": "any", "colour": "red", "size": 1})
    red = pika.BasicProperties(headers={"colour": "red"})
    channel.basic_publish("types.direct", "red", b"1")
    channel.basic_publish("types.direct", "blue", b"2")
    channel.basic_publish("types.fanout", "blue", b"3")
    channel.basic_publish("types.topic", "very.red", b"4")
    channel.basic_publish("types.topic", "red", b"5")
    channel.basic_publish("types.topic", "very.red.wine.old", b"6")
    channel.basic_publish("types.headers", "", b"7", red)
    channel.basic_publish("types.headers", "", b"8")
    assert {key: bodies(channel, queue) for key, queue in queues.items()} == {
        "direct": [b"1"], "fanout": [b"3"], "topic": [b"4", b"6"], "headers": [b"7"]}


def test_alternate_exchanges_and_exchanges_behind_exchanges(channel: BlockingChannel) -> None:
    channel.exchange_declare("alt.rest", "fanout", auto_delete=True)
    channel.exchange_declare("alt.first", "direct", auto_delete=True, arguments={"alternate-exchange": "alt.rest"})
    channel.exchange_declare("alt.behind", "fanout", auto_delete=True)
    known, rest, behind = (declare(channel, exclusive=True) for _ in range(3))
    channel.queue_bind(known, "alt.first", "known")
    channel.queue_bind(rest, "alt.rest")
    channel.exchange_bind("alt.behind", "alt.first", "known")
    channel.queue_bind(behind, "alt.behind")
    for key in ("known", "unknown"):
        channel.basic_publish("alt.first", key, key.encode(), mandatory=True)
    assert [bodies(channel, queue) for queue in (known, rest, behind)] == [[b"known"], [b"unknown"], [b"known"]]


def test_what_goes_nowhere_is_returned_if_asked_for(channel: BlockingChannel) -> None:
    channel.basic_publish("", "nobody", b"x")
    with pytest.raises(UnroutableError) as caught:
        channel.basic_publish("", "nobody", b"x", mandatory=True)
    returned = caught.value.messages[0]
    assert (returned.method.reply_code, returned.method.reply_text, returned.body) == (312, "NO_ROUTE", b"x")


@pytest.mark.parametrize("auto_ack", [True, False])
def test_a_backlog_flows_without_limits(hub: RunningHub, auto_ack: bool) -> None:
    connection = connect(hub)
    channel = connection.channel()
    queue = declare(channel, exclusive=True)
    for i in range(3_000):
        channel.basic_publish("", queue, b"%d" % i)
    got: list[bytes] = []
    channel.basic_consume(queue, lambda ch, method, properties, body: got.append(body), auto_ack=auto_ack)
    until(lambda: connection.process_data_events(0.01) or len(got) == 3_000)
    assert got == [b"%d" % i for i in range(3_000)]
    connection.close()


def test_prefetch_bounds_what_is_not_acknowledged(channel: BlockingChannel) -> None:
    queue = declare(channel, exclusive=True)
    for i in range(10):
        channel.basic_publish("", queue, b"%d" % i)
    channel.basic_qos(prefetch_count=3)
    got: list[tuple[int, bytes]] = []
    channel.basic_consume(queue, lambda ch, method, properties, body: got.append((method.delivery_tag, body)))
    until(lambda: channel.connection.process_data_events(0.01) or len(got) == 3)
    assert channel.queue_declare(queue, passive=True).method.message_count == 7
    channel.basic_ack(got[1][0], multiple=True)
    until(lambda: channel.connection.process_data_events(0.01) or len(got) == 5)
    assert [body for _, body in got] == [b"%d" % i for i in range(5)]


def test_a_limit_of_the_whole_channel_is_shared(channel: BlockingChannel) -> None:
    busy, idle = declare(channel, exclusive=True), declare(channel, exclusive=True)
    channel.basic_qos(prefetch_count=2, global_qos=True)
    got: list[int] = []
    for queue in (idle, busy):
        channel.basic_consume(queue, lambda ch, method, properties, body: got.append(method.delivery_tag))
    for _ in range(5):
        channel.basic_publish("", busy, b"x")
    until(lambda: channel.connection.process_data_events(0.01) or len(got) == 2)
    assert channel.queue_declare(busy, passive=True).method.message_count == 3
    channel.basic_ack(got[-1], multiple=True)
    until(lambda: channel.connection.process_data_events(0.01) or len(got) == 4)


def test_what_is_given_back_comes_first_and_is_marked(channel: BlockingChannel) -> None:
    queue = declare(channel, exclusive=True)
    for i in range(3):
        channel.basic_publish("", queue, b"%d" % i)
    first = channel.basic_get(queue)[0]
    second = channel.basic_get(queue)[0]
    channel.basic_nack(second.delivery_tag, requeue=True)
    channel.basic_reject(first.delivery_tag, requeue=True)
    found = [take(channel, queue) for _ in range(3)]
    assert [(body, method.redelivered) for method, _, body in found] == [(b"0", True), (b"1", True), (b"2", False)]


def test_a_connection_that_ends_gives_back_what_it_held(hub: RunningHub, channel: BlockingChannel) -> None:
    queue = declare(channel, "given.back")
    channel.basic_publish("", queue, b"x")
    other = connect(hub)
    assert other.channel().basic_get(queue)[2] == b"x"
    assert channel.basic_get(queue)[0] is None
    other.close()
    assert take(channel, queue)[0].redelivered
    channel.queue_delete(queue)


def test_after_a_cancel_what_was_delivered_can_be_acknowledged(channel: BlockingChannel) -> None:
    queue = declare(channel, exclusive=True)
    for _ in range(2):
        channel.basic_publish("", queue, b"x")
    got: list[int] = []
    tag = channel.basic_consume(queue, lambda ch, method, properties, body: got.append(method.delivery_tag))
    until(lambda: channel.connection.process_data_events(0.01) or len(got) == 2)
    channel.basic_cancel(tag)
    assert channel.basic_get(queue)[0] is None
    channel.basic_ack(got[0])
    channel.basic_nack(got[1], requeue=True)
    assert take(channel, queue)[0].redelivered


def test_a_rejected_message_goes_to_the_dead_letter_exchange(channel: BlockingChannel) -> None:
    dead = declare(channel, exclusive=True)
    channel.exchange_declare("dlx", "direct", auto_delete=True)
    channel.queue_bind(dead, "dlx", "buried")
    queue = declare(channel, exclusive=True, arguments={"x-dead-letter-exchange": "dlx",
                                                        "x-dead-letter-routing-key": "buried"})
    channel.basic_publish("", queue, b"x", pika.BasicProperties(headers={"mine": 1}, expiration="60000"))
    method, _, _ = channel.basic_get(queue)
    channel.basic_reject(method.delivery_tag, requeue=False)
    method, properties, body = take(channel, dead)
    assert (method.exchange, method.routing_key, body, properties.expiration) == ("dlx", "buried", b"x", None)
    death, = properties.headers["x-death"]
    assert death.pop("time").year >= 2023
    assert death == {"count": 1, "reason": "rejected", "queue": queue, "exchange": "", "routing-keys": [queue],
                     "original-expiration": "60000"}
    assert properties.headers["x-first-death-reason"] == "rejected"
    assert properties.headers["mine"] == 1


def test_what_expires_is_not_delivered_and_goes_to_the_dead_letter_exchange(channel: BlockingChannel) -> None:
    dead = declare(channel, exclusive=True)
    queue = declare(channel, exclusive=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead,
                                                        "x-message-ttl": 60_000})
    channel.basic_publish("", queue, b"x", pika.BasicProperties(expiration="1"))
    until(lambda: channel.queue_declare(dead, passive=True).method.message_count == 1)
    assert channel.basic_get(queue)[0] is None
    assert take(channel, dead)[1].headers["x-death"][0]["reason"] == "expired"


def test_the_oldest_go_where_a_queue_is_too_long(channel: BlockingChannel) -> None:
    dead = declare(channel, exclusive=True)
    queue = declare(channel, exclusive=True, arguments={
        "x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    for i in range(5):
        channel.basic_publish("", queue, b"%d" % i)
    until(lambda: channel.queue_declare(dead, passive=True).method.message_count == 3)
    assert bodies(channel, queue) == [b"3", b"4"]
    assert take(channel, dead)[1].headers["x-death"][0]["reason"] == "maxlen"


def test_a_full_queue_refuses_where_it_is_told_to(channel: BlockingChannel) -> None:
    queue = declare(channel, exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish("", queue, b"0")
    with pytest.raises(NackError):
        channel.basic_publish("", queue, b"1")
    assert bodies(channel, queue) == [b"0"]
    channel.basic_publish("", queue, b"2")


def test_a_queue_that_nobody_uses_goes(channel: BlockingChannel) -> None:
    queue = declare(channel, arguments={"x-expires": 100})

    def is_gone() -> bool:
        try:
            channel.connection.channel().queue_declare(queue, passive=True)
        except ChannelClosedByBroker:
            return True
        time.sleep(0.2)                # asking is use
        return False

    until(is_gone)


def test_a_queue_of_another_door_is_consumed_from(hub: RunningHub, channel: BlockingChannel) -> None:
    queue = declare(channel, exclusive=True)
    url = f"http://127.0.0.1:{hub.port('http')}/v1/publish/$queue/{queue}"
    request = urllib.request.Request(url, data=b"by HTTP", headers={"Content-Type": "text/plain"}, method="POST")
    urllib.request.urlopen(request, timeout=WAIT_S).close()
    method, properties, body = take(channel, queue)
    assert (method.exchange, method.routing_key, body, properties.content_type) == ("", queue, b"by HTTP", "text/plain")


def test_other_doors_are_heard_on_amq_topic_and_the_exchange_of_the_first_level(
        hub: RunningHub, channel: BlockingChannel) -> None:
    whole, rest = declare(channel, exclusive=True), declare(channel, exclusive=True)
    channel.queue_bind(whole, "amq.topic", "crossing.*.temp")
    channel.exchange_declare("crossing", "direct", auto_delete=True)
    channel.queue_bind(rest, "crossing", "line1.temp")
    for topic in ("crossing/line1/temp", "crossing/line2/v1.2", "crossing/line3/temp"):
        paho.mqtt.publish.single(topic, topic.encode(), qos=1, port=hub.port("mqtt"))
    taken = [take(channel, whole) for _ in range(2)]
    assert [(method.exchange, method.routing_key, body) for method, _, body in taken] == [
        ("amq.topic", "crossing.line1.temp", b"crossing/line1/temp"),
        ("amq.topic", "crossing.line3.temp", b"crossing/line3/temp")]
    method, _, body = take(channel, rest)
    assert (method.exchange, method.routing_key, body) == ("crossing", "line1.temp", b"crossing/line1/temp")
    assert channel.basic_get(rest)[0] is None


def test_other_doors_read_what_is_published_to_an_exchange(hub: RunningHub, channel: BlockingChannel) -> None:
    sent = pika.BasicProperties(content_type="text/x", headers={"unit": "C"}, message_id="m1", delivery_mode=2)
    channel.basic_publish("amq.topic", "outward.line1.temp", b"21", sent)
    url = f"http://127.0.0.1:{hub.port('http')}/v1/topics/outward/messages?from=earliest"
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        message, = json.load(answer)["messages"]
    assert (message["address"], message["value"], message["content_type"], message["headers"], message["door"]) == (
        "outward/line1/temp", "21", "text/x", [["unit", "C"]], "amqp")


def test_higher_priorities_come_first(channel: BlockingChannel) -> None:
    queue = declare(channel, exclusive=True, arguments={"x-max-priority": 5})
    for priority in (None, 3, 1, 9, 0):
        channel.basic_publish("", queue, str(priority).encode(), pika.BasicProperties(priority=priority))
    assert bodies(channel, queue) == [b"9", b"3", b"1", b"None", b"0"]


def test_purge_and_delete_say_how_many(channel: BlockingChannel) -> None:
    queue = declare(channel)
    for _ in range(4):
        channel.basic_publish("", queue, b"x")
    held = channel.basic_get(queue)[0]
    assert channel.queue_purge(queue).method.message_count == 3
    channel.basic_publish("", queue, b"y")
    channel.basic_nack(held.delivery_tag, requeue=True)
    assert channel.queue_delete(queue).method.message_count == 2
    assert channel.queue_delete(queue).method.message_count == 0


def test_consumers_are_told_that_their_queue_is_gone(hub: RunningHub, channel: BlockingChannel) -> None:
    queue = declare(channel)
    gone: list[str] = []
    channel.add_on_cancel_callback(lambda method: gone.append(method.method.consumer_tag))
    tag = channel.basic_consume(queue, lambda *_: None)
    other = connect(hub)
    other.channel().queue_delete(queue)
    other.close()
    until(lambda: channel.connection.process_data_events(0.01) or gone == [tag])


def test_exclusive_and_auto_delete_queues_end(hub: RunningHub, channel: BlockingChannel) -> None:
    other = connect(hub)
    mine = declare(other.channel(), exclusive=True)
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.connection.channel().queue_declare(mine, passive=True)
    assert caught.value.reply_code == 405
    consumed = declare(channel, auto_delete=True)
    channel.basic_cancel(channel.basic_consume(consumed, lambda *_: None))
    other.close()
    for queue in (mine, consumed):
        with pytest.raises(ChannelClosedByBroker) as caught:
            channel.connection.channel().queue_declare(queue, passive=True)
        assert caught.value.args == (404, f"NOT_FOUND - no queue '{queue}' in vhost '/'")


def test_refusals_have_rabbitmqs_codes_and_words(hub: RunningHub) -> None:
    connection = connect(hub)
    channel = connection.channel()
    channel.queue_declare("refusals", arguments={"x-max-length": 1})
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.queue_declare("refusals", arguments={"x-max-length": 2})
    assert caught.value.args == (406, "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'refusals' in "
                                      "vhost '/': received '2' but current is '1'")
    channel = connection.channel()
    channel.queue_delete("refusals")
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.exchange_declare("refusals", "no such type")           # 503 on the connection in RabbitMQ 3
    assert caught.value.args == (406, "PRECONDITION_FAILED - unknown exchange type 'no such type'")


def test_a_wrong_password_is_refused(hub: RunningHub) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(hub, credentials=pika.PlainCredentials("guest", "wrong"))


def test_what_is_no_amqp_is_told_the_version(hub: RunningHub) -> None:
    with socket.create_connection(("127.0.0.1", hub.port("amqp")), timeout=WAIT_S) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert peer.recv(100) == b"AMQP\0\0\x09\x01"
        assert peer.recv(100) == b""


def test_everything_durable_outlives_the_hub(tmp_path: Path) -> None:
    with running_hub(tmp_path, "amqp") as hub:
        channel = connect(hub).channel()
        channel.confirm_delivery()
        channel.exchange_declare("kept", "topic", durable=True)
        channel.queue_declare("kept", durable=True, arguments={"x-max-priority": 2})
        channel.queue_bind("kept", "kept", "a.#")
        channel.queue_declare("lost")
        for i in range(4):
            channel.basic_publish("kept", "a.b", b"%d" % i, PERSISTENT)
        channel.basic_ack(channel.basic_get("kept")[0].delivery_tag)
        assert channel.basic_get("kept")[2] == b"1"
        channel.basic_publish("", "lost", b"x")
        hub.kill()
    with running_hub(tmp_path, "amqp") as hub:
        channel = connect(hub).channel()
        channel.confirm_delivery()
        assert channel.queue_declare("kept", durable=True, arguments={"x-max-priority": 2}).method.message_count == 3
        channel.basic_publish("kept", "a", b"4", PERSISTENT)
        assert bodies(channel, "kept") == [b"1", b"2", b"3", b"4"]
        with pytest.raises(ChannelClosedByBroker):
            channel.queue_declare("lost", passive=True)
