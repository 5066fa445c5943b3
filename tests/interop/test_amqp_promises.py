"""What the AMQP door says and means, seen by pika on a real hub: confirms, limits, times, secrets, rights, goodbyes."""
from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import amqp
import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from pika.adapters.blocking_connection import BlockingChannel
from pika.credentials import PlainCredentials
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from gatehouse.gateways.amqp import codec
from gatehouse.gateways.amqp.methods import decode_method, encode_method
from tests.interop.guarded_hub import PASSWORD, GuardedHub, guarded_hub
from tests.interop.test_amqp import WAIT_S, bodies, connect, declare, take
from tests.running_hub import RunningHub, running_hub
from tests.waiting import until


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("promises"), "amqp", "mqtt", "http") as running:
        yield running
        code, said = running.stop()
        assert code == 0 and "Traceback" not in said, said


@pytest.fixture
def channel(hub: RunningHub) -> Iterator[BlockingChannel]:
    connection = connect(hub)
    yield connection.channel()
    if connection.is_open:
        connection.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedHub]:
    with guarded_hub(tmp_path_factory.mktemp("secrets")) as running:
        yield running


def test_confirms_count_from_where_they_were_asked_for(channel: BlockingChannel) -> None:
    queue = declare(channel, exclusive=True)
    acks: list[tuple[int, bool]] = []
    channel._impl.add_callback(lambda frame: acks.append((frame.method.delivery_tag, frame.method.multiple)),
                               [pika.spec.Basic.Ack], one_shot=False)
    for _ in range(5):
        channel.basic_publish("", queue, b"before")
    channel.confirm_delivery()
    for number in (1, 2):
        channel.basic_publish("", queue, b"after")
        assert acks[-1] == (number, False)
    assert len(bodies(channel, queue)) == 7


def test_a_client_may_publish_while_it_takes_no_deliveries(hub: RunningHub) -> None:
    """It has one thread, which writes and reads in turn, and the system keeps little for it."""
    body, count = "x" * 100_000, 200
    small = {socket.SO_RCVBUF: 1 << 16, socket.SO_SNDBUF: 1 << 16}
    with amqp.Connection(f"127.0.0.1:{hub.port('amqp')}", write_timeout=WAIT_S) as connection:
        for option, size in small.items():
            connection.transport.sock.setsockopt(socket.SOL_SOCKET, option, size)
        channel = connection.channel()
        waiting, results = (channel.queue_declare(exclusive=True).queue for _ in range(2))
        for _ in range(count):
            channel.basic_publish(amqp.Message(body), routing_key=waiting)
        taken: list[amqp.Message] = []
        channel.basic_consume(waiting, no_ack=True, callback=taken.append)
        while not taken:
            connection.drain_events(WAIT_S)
        for _ in range(count):
            channel.basic_publish(amqp.Message(body), routing_key=results)
        while len(taken) < count:
            connection.drain_events(WAIT_S)
        until(lambda: channel.queue_declare(results, passive=True).message_count == count)


# ---- limits and times

def test_what_fails_too_often_is_a_dead_letter(channel: BlockingChannel) -> None:
    dead = declare(channel, exclusive=True)
    queue = declare(channel, "limited", durable=True, arguments={
        "x-queue-type": "quorum", "x-delivery-limit": 2, "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead})
    channel.basic_publish("", queue, b"poison")
    seen = []
    for method, _, _ in channel.consume(queue, inactivity_timeout=0.5):
        if method is None:
            break
        seen.append(method.redelivered)
        channel.basic_nack(method.delivery_tag, requeue=True)
    assert seen == [False, True, True]
    _, properties, body = take(channel, dead)
    assert (body, properties.headers["x-first-death-reason"]) == (b"poison", "delivery_limit")


def test_a_queue_that_holds_nothing(channel: BlockingChannel) -> None:
    dead = declare(channel, exclusive=True)
    queue = declare(channel, exclusive=True, arguments={
        "x-max-length": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"x")
    assert bodies(channel, queue) == []
    assert take(channel, dead)[1].headers["x-first-death-reason"] == "maxlen"


def test_a_consumer_that_never_acknowledges_loses_its_channel_and_another_gets_the_message(channel: BlockingChannel
                                                                                           ) -> None:
    other = channel.connection.channel()
    queue = declare(channel, "slow", arguments={"x-consumer-timeout": 500})
    channel.basic_publish("", queue, b"x")
    ends: list[ChannelClosedByBroker] = []
    channel._impl.add_on_close_callback(lambda _, end: ends.append(end))
    channel.basic_consume(queue, lambda *_: None)
    until(lambda: (channel.connection.process_data_events(0.05), bool(ends))[1])
    assert ends[0].reply_code == 406
    assert "delivery acknowledgement on channel 1 timed out. Timeout value used: 500 ms." in ends[0].reply_text
    assert take(other, queue)[0].redelivered


def test_a_group_waits_between_attempts_whichever_door_its_members_come_by(hub: RunningHub) -> None:
    """What a member gives back over AMQP, or leaves over MQTT, comes to the other once the group's retry says."""
    from gatehouse_client import SyncClient

    with SyncClient(f"http://127.0.0.1:{hub.port('http')}") as client:
        client.group("crew", "jobs").define(retry=[700], start="latest")
        client.publish("jobs/a", b"first")
        channel = connect(hub).channel()
        given: list[tuple[float, bytes]] = []
        device = paho.Client(CallbackAPIVersion.VERSION2, manual_ack=True)
        device.on_message = lambda _client, _data, message: given.append((time.monotonic(), message.payload))
        subscribed = threading.Event()
        device.on_subscribe = lambda *_: subscribed.set()
        device.on_connect = lambda *_: device.subscribe("$share/crew/jobs/#", 1)
        device.connect("127.0.0.1", hub.port("mqtt"))
        device.loop_start()
        assert subscribed.wait(WAIT_S)
        client.publish("jobs/a", b"second")
        until(lambda: bool(given))
        device.loop_stop()
        device.disconnect()
        got: list[float] = []
        left = time.monotonic()

        def take_it(consumer: Any, method: Any, _: Any, body: bytes) -> None:
            got.append(time.monotonic())
            if len(got) == 1:
                consumer.basic_nack(method.delivery_tag, requeue=True)
            else:
                consumer.basic_ack(method.delivery_tag)

        channel.basic_consume("$share/crew/jobs/#", take_it)
        until(lambda: (channel.connection.process_data_events(0.05), len(got) == 2)[1])
        assert got[0] - left > 0.5 and got[1] - got[0] > 0.5
        channel.connection.close()


# ---- secrets

def open_as(guarded: GuardedHub, token: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters(
        "127.0.0.1", guarded.ports("amqp")[0], credentials=PlainCredentials("ada", token)))


def test_a_token_that_is_renewed_in_time_keeps_the_connection(guarded: GuardedHub) -> None:
    ends_s = int(time.time()) + 8
    connection = open_as(guarded, guarded.token("ada", 7))
    connection.update_secret(guarded.token("ada", 600), "renewed")
    while time.time() < ends_s + 1:
        connection.process_data_events(0.2)
    assert declare(connection.channel(), exclusive=True).startswith("amq.gen-")
    connection.close()


@pytest.mark.parametrize("secret", ["not hers", "bob", ""])
def test_a_secret_that_is_not_hers_ends_it(guarded: GuardedHub, secret: str) -> None:
    connection = open_as(guarded, guarded.token("ada"))
    with pytest.raises(ConnectionClosedByBroker) as closed:
        connection.update_secret(guarded.token("bob") if secret == "bob" else secret, "renewed")
        connection.process_data_events(1)
    assert (closed.value.reply_code, closed.value.reply_text) == (
        530, "NOT_ALLOWED - New secret was refused by one of the backends")


# ---- who learns what is there

def test_who_has_no_right_to_an_exchange_learns_nothing_of_it(guarded: GuardedHub) -> None:
    root = pika.BlockingConnection(pika.ConnectionParameters(
        "127.0.0.1", guarded.ports("amqp")[0], credentials=PlainCredentials("root", PASSWORD)))
    root.channel().exchange_declare("payroll", "topic")
    root.channel().exchange_declare("open", "topic")

    def told(name: str) -> set[str]:
        said = set()
        connection = open_as(guarded, guarded.token("ada"))
        for ask in (lambda on: on.exchange_declare(name, passive=True), lambda on: on.exchange_delete(name),
                    lambda on: on.queue_bind(declare(on, exclusive=True), name, "#"),
                    lambda on: on.exchange_bind("amq.fanout", name), lambda on: on.exchange_bind(name, "amq.fanout"),
                    lambda on: (on.confirm_delivery(), on.basic_publish(name, "a", b"x"))):
            with pytest.raises(ChannelClosedByBroker) as closed:
                ask(connection.channel())
            said.add(f"{closed.value.reply_code} {closed.value.reply_text}".replace(name, "NAME"))
        connection.close()
        return said

    assert told("payroll") == told("missing")
    assert all(text.startswith("403 ") for text in told("missing"))
    ada = open_as(guarded, guarded.token("ada"))
    ada.channel().exchange_declare("open", passive=True)
    ada.close()
    root.close()


# ---- goodbyes

def test_a_client_that_is_still_sending_learns_why_it_was_closed(hub: RunningHub) -> None:
    """Closing a socket with bytes unread resets it, and what was said last is lost."""
    with socket.create_connection(("127.0.0.1", hub.port("amqp")), timeout=WAIT_S) as peer:
        said = peer.makefile("rb")
        peer.sendall(b"AMQP\0\0\x09\x01")
        read_method(said)
        for number, method in ((0, encode_method("connection.start-ok", mechanism="PLAIN",
                                                 response=b"\0guest\0guest")),
                               (0, encode_method("connection.tune-ok", channel_max=10, frame_max=131_072))):
            peer.sendall(codec.frame(codec.METHOD, number, method))
        peer.sendall(codec.frame(codec.METHOD, 0, encode_method("connection.open", virtual_host="/")))
        assert [read_method(said)[0] for _ in range(2)] == ["connection.tune", "connection.open-ok"]
        peer.sendall(codec.frame(codec.METHOD, 1, encode_method("channel.open"))[:-1] + b"\0")
        for _ in range(256):                               # more than sockets hold
            peer.sendall(bytes(64 << 10))
        name, arguments = read_method(said)
        assert (name, arguments["code"]) == ("connection.close", 501)
        peer.sendall(codec.frame(codec.METHOD, 0, encode_method("connection.close-ok")))
        assert said.read() == b""


def read_method(said: Any) -> tuple[str, dict[str, Any]]:
    head = said.read(7)
    payload = said.read(int.from_bytes(head[3:7], "big"))
    assert said.read(1) == b"\xce"
    return decode_method(payload)
