"""A client that publishes more than it may: what waits, what goes on, and what is refused in AMQP's words."""
from __future__ import annotations

import pytest

from gatehouse.gateways.amqp import codec
from gatehouse.gateways.amqp.methods import encode_method
from tests.gateways.amqp.fakes import Client, Hub, publish
from tests.gateways.limiting import make_fast, set_limit, stored


@pytest.fixture
def hub() -> Hub:
    hub = Hub()
    make_fast(hub)
    return hub


@pytest.fixture
def client(hub: Hub) -> Client:
    client = hub.client().login(channels=2)
    client.ask("exchange.declare", exchange="slow", type="topic")
    client.ask("exchange.declare", exchange="fast", type="topic")
    return client


def test_what_is_too_much_waits_in_order_on_each_channel(hub: Hub, client: Client) -> None:
    set_limit(hub, "user:anonymous", messages_per_s=10)
    client.send(b"".join(publish("slow", "a", b"%d %d" % (number, channel), channel=channel)
                         for number in range(20) for channel in (1, 2)))
    assert len(stored(hub, "slow")) == 10
    hub.advance(1_000)
    assert 18 <= len(stored(hub, "slow")) <= 22
    hub.advance(3_000)
    for channel in (1, 2):
        assert [value for value in stored(hub, "slow") if value and value.endswith(b" %d" % channel)] == [
            b"%d %d" % (number, channel) for number in range(20)]


def test_far_from_every_limit_a_whole_read_is_taken_at_once(hub: Hub, client: Client) -> None:
    set_limit(hub, "topic:slow", messages_per_s=1_000_000)
    client.send(b"".join(publish("slow", "a", b"%d" % number) for number in range(1_000)))
    hub.advance(1)                           # the first told which limits there are
    assert stored(hub, "slow") == [b"%d" % number for number in range(1_000)]


def test_a_slowed_client_goes_on_consuming(hub: Hub, client: Client) -> None:
    client.ask("queue.declare", queue="q")
    for number in range(5):
        client.publish("", "q", b"%d" % number)
    client.ask("basic.qos", prefetch_count=1)
    set_limit(hub, "user:anonymous", messages_per_s=1)
    client.send(b"".join(publish("slow", "a", b"x") for _ in range(10)))
    client.send(codec.frame(codec.METHOD, 2, encode_method("basic.qos", prefetch_count=1)))
    answers = client.ask("basic.consume", channel=2, queue="q", consumer_tag="c")
    for number in range(5):
        hub.advance(1)
        answers += client.got()
        *_, delivery = [arguments for _, name, arguments in answers if name == "basic.deliver"]
        assert [arguments["body"] for _, name, arguments in answers if name == "body"][-1] == b"%d" % number
        answers = client.ask("basic.ack", channel=2, delivery_tag=delivery["delivery_tag"])
    assert len(stored(hub, "slow")) <= 2 and not client.link.paused


def test_what_was_asked_behind_a_publish_is_answered_behind_it(hub: Hub, client: Client) -> None:
    set_limit(hub, "user:anonymous", messages_per_s=10)
    client.ask("confirm.select")
    client.send(b"".join(publish("slow", "a", b"x") for _ in range(15)))
    client.send(codec.frame(codec.METHOD, 1, encode_method("channel.close")))
    hub.kernel.flush()
    assert "channel.close-ok" not in client.names()
    hub.advance(2_000)
    assert client.names()[-1] == "channel.close-ok" and len(stored(hub, "slow")) == 15


def test_a_goodbye_waits_for_what_was_published_before_it(hub: Hub, client: Client) -> None:
    set_limit(hub, "user:anonymous", messages_per_s=10)
    client.send(b"".join(publish("slow", "a", b"x") for _ in range(15)))
    client.send(codec.frame(codec.METHOD, 0, encode_method("connection.close")))
    assert not client.link.closed
    hub.advance(2_000)
    assert client.link.closed and len(stored(hub, "slow")) == 15


def test_with_confirms_a_topic_that_fails_refuses_by_nack(hub: Hub, client: Client) -> None:
    set_limit(hub, "topic:fast", messages_per_s=5)
    client.ask("confirm.select")
    client.send(b"".join(publish("fast", "a", b"%d" % number) for number in range(1, 16)))
    hub.advance(100)
    answers = client.got()
    acked = max(arguments["delivery_tag"] for _, name, arguments in answers if name == "basic.ack")
    nacked = [arguments["delivery_tag"] for _, name, arguments in answers if name == "basic.nack"]
    assert 5 <= acked <= 15 and 8 <= len(nacked) <= 10
    assert len(stored(hub, "fast")) == 15 - len(nacked)


def test_without_confirms_fail_is_slow(hub: Hub, client: Client) -> None:
    set_limit(hub, "topic:fast", messages_per_s=10)
    client.send(b"".join(publish("fast", "a", b"x") for _ in range(20)))
    hub.advance(2_000)
    assert len(stored(hub, "fast")) == 20 and client.got() == []


def test_a_body_in_many_frames_stays_with_its_publish(hub: Hub) -> None:
    small = hub.client().login(frame_max=4096)
    small.ask("exchange.declare", exchange="slow", type="topic")
    set_limit(hub, "user:anonymous", messages_per_s=1)
    bodies = [bytes([65 + number]) * 20_000 for number in range(4)]
    for body in bodies:
        data = publish("slow", "a", body, body_max=4088)
        for at in range(0, len(data), 3000):
            small.send(data[at:at + 3000])
    hub.advance(5_000)
    assert stored(hub, "slow") == bodies


def test_a_limit_of_nothing(hub: Hub, client: Client) -> None:
    set_limit(hub, "topic:slow", messages_per_s=0)
    client.ask("confirm.select")
    client.publish("slow", "a", b"x")
    assert client.names() == ["basic.nack"]
    client.publish("slow", "a", b"x", channel=2)
    assert client.got()[-1][1] == "connection.close" and stored(hub, "slow") == []


# ---- what goes out

def test_what_goes_out_is_held_back_and_nothing_is_lost(hub: Hub, client: Client) -> None:
    client.ask("queue.declare", queue="q")
    for number in range(30):
        client.publish("", "q", b"%d" % number)
    set_limit(hub, "user:anonymous", direction="out", messages_per_s=10)
    answers = client.ask("basic.consume", channel=2, queue="q", consumer_tag="c", no_ack=True)
    hub.advance(10)
    answers += client.got()
    bodies = [arguments["body"] for _, name, arguments in answers if name == "body"]
    assert 10 <= len(bodies) <= 21
    client.send(codec.HEARTBEAT_FRAME)
    assert client.ask("queue.declare", queue="other")[-1][1] == "queue.declare-ok"
    for _ in range(30):
        hub.advance(100)
    bodies += [arguments["body"] for _, name, arguments in client.got() if name == "body"]
    assert bodies == [b"%d" % number for number in range(30)]


def test_a_limit_of_bytes_is_little_overdrawn(hub: Hub, client: Client) -> None:
    """Also beside one of messages that allows many."""
    client.ask("queue.declare", queue="q")
    for _ in range(60):
        client.publish("", "q", b"x" * 1_000)
    set_limit(hub, "user:anonymous", direction="out", messages_per_s=1_000, bytes_per_s=10_000)
    client.ask("basic.consume", channel=2, queue="q", consumer_tag="c", no_ack=True)
    taken = hub.admission.limits.most_used("1", 1)[0]
    for second in range(1, 5):
        assert 9_000 * second <= taken.bytes_taken <= 13_000 * second
        for _ in range(10):
            hub.advance(100)


def test_a_queue_is_a_group_of_consumers(hub: Hub, client: Client) -> None:
    client.ask("queue.declare", queue="q")
    set_limit(hub, "consumers:q", direction="out", messages_per_s=1)
    for _ in range(10):
        client.publish("", "q", b"x")
    hub.kernel.flush()
    for got in (1, 2, 2, 2):
        client.ask("basic.get", queue="q", no_ack=True)
        assert hub.admission.limits.most_used("1", 1)[0].messages_taken == got, "what is too much waits, too"
    names: list[str] = []
    for _ in range(30):
        hub.advance(100)
        names += client.names()
    assert names.count("basic.get-ok") == 2, "each is answered in its time"
    client.ask("basic.get", queue="q", no_ack=True)
    client.ask("basic.get", queue="q", no_ack=True)
    assert client.ask("channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)[-1][1] == (
        "channel.close-ok"), "and holds up no end"
