"""Queues as people use them, over HTTP and by command, beside AMQP's clients: made, bound, moved, purged."""
from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from gatehouse import exits
from gatehouse_client import SyncClient
from gatehouse_client.errors import HubError
from tests.running_hub import RunningHub, gatehouse, running_hub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "http", "amqp") as hub:
        yield hub
        code, said = hub.stop()
        assert code == 0
        assert "Traceback" not in said, said


@pytest.fixture
def client(hub: RunningHub) -> Iterator[SyncClient]:
    with SyncClient(f"http://127.0.0.1:{hub.port('http')}") as client:
        yield client


@pytest.fixture
def channel(hub: RunningHub) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp"))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def test_a_binding_that_comes_slowly_is_refused_where_its_queue_was_made_anew(hub, client):
    client.declare_queue("slow")
    body = b'{"filter": "plant/#"}'
    with socket.create_connection(("127.0.0.1", hub.port("http")), 10) as slow:
        slow.sendall(b"PUT /v1/queues/slow/bindings HTTP/1.1\r\nHost: hub\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(body))
        assert slow.recv(4096).startswith(b"HTTP/1.1 100 ")          # the queue was looked for
        client.delete_queue("slow")
        client.declare_queue("slow")
        slow.sendall(body)
        assert slow.recv(4096).startswith(b"HTTP/1.1 404 ")
    assert client.queue_bindings("slow") == []
    client.delete_queue("slow")


def test_a_queue_is_made_bound_and_taken_from_by_amqp(client, channel):
    made = client.declare_queue("alarms", max_length=10)
    assert (made["name"], made["max_length"]) == ("alarms", 10)
    assert client.declare_queue("alarms", max_length=10) == made
    with pytest.raises(HubError, match="other settings"):
        client.declare_queue("alarms", max_length=11)
    client.bind_queue("alarms", "plant/+/alarm")
    assert client.queue_bindings("alarms") == [{"filter": "plant/+/alarm", "by": "filter"}]
    client.publish("plant/line1/alarm", "hot")
    method, properties, body = channel.basic_get("alarms", auto_ack=True)
    assert (method.exchange, method.routing_key, body) == ("plant", "line1.alarm", b"hot")
    client.unbind_queue("alarms", "plant/+/alarm")
    with pytest.raises(HubError, match="not bound"):
        client.unbind_queue("alarms", "plant/+/alarm")
    client.publish("plant/line1/alarm", "unheard")
    assert client.queue("alarms")["ready"] == 0
    client.delete_queue("alarms")
    with pytest.raises(HubError, match="there is no queue"):
        client.queue("alarms")


def test_looking_takes_nothing_and_shows_who_holds(client, channel):
    channel.queue_declare("looked", durable=True, arguments={"x-max-priority": 3})
    for number, priority in enumerate((0, 3, 1)):
        channel.basic_publish("", "looked", b"%d" % number, pika.BasicProperties(priority=priority))
    method, _, body = channel.basic_get("looked")
    assert body == b"1"
    for _ in range(2):
        assert [(one["value"], one["leased"]) for one in client.peek_queue("looked")] == [
            ("1", True), ("2", False), ("0", False)]
    assert [one["value"] for one in client.peek_queue("looked", 2)] == ["1", "2"]
    channel.basic_ack(method.delivery_tag)
    assert client.purge_queue("looked") == 2
    assert client.peek_queue("looked") == []


def test_what_is_moved_is_for_amqp_what_it_was(client, channel):
    channel.queue_declare("from", durable=True)
    channel.queue_declare("to", durable=True)
    channel.exchange_declare("orders", "topic", durable=True)
    channel.queue_bind("from", "orders", "eu.#")
    for number in range(5):
        channel.basic_publish("orders", f"eu.{number}", b"%d" % number, pika.BasicProperties(
            headers={"n": number}, correlation_id=f"c{number}", delivery_mode=2))
    assert client.move_messages("from", queue="to", limit=3) == (3, [])
    assert client.move_messages("from", queue="to") == (2, [])
    got = [channel.basic_get("to", auto_ack=True) for _ in range(5)]
    assert [(method.exchange, method.routing_key, properties.headers, properties.correlation_id, body)
            for method, properties, body in got] == [
        ("orders", f"eu.{number}", {"n": number}, f"c{number}", b"%d" % number) for number in range(5)]
    with pytest.raises(HubError, match="cannot be moved to that queue"):
        channel.basic_publish("", "from", b"x")
        client.move_messages("from", queue="from")
    assert client.move_messages("from", address="elsewhere/x") == (1, [])
    assert [message.value for message in client.read("elsewhere")] == [b"x"]


def test_what_a_move_itself_sends_to_the_queue_is_not_moved_again(client):
    client.declare_queue("round")
    client.bind_queue("round", "round/#")
    for number in range(3):
        client.publish("round/x", str(number))
    assert client.move_messages("round", address="round/y") == (3, [])
    assert [message["address"] for message in client.peek_queue("round")] == ["round/y"] * 3


def test_a_move_that_does_not_fit_leaves_the_rest(client, channel):
    client.declare_queue("full", max_length=1, overflow="reject")
    client.declare_queue("many", max_attempts=1)             # a try that moves nothing is none
    for number in range(3):
        channel.basic_publish("", "many", b"%d" % number)
    moved, left = client.move_messages("many", queue="full")
    assert (moved, [one["code"] for one in left]) == (1, ["queue_full"] * 2)
    assert [one["value"] for one in client.peek_queue("many")] == ["1", "2"]


def test_amqp_is_told_of_what_is_deleted(client, channel):
    channel.queue_declare("gone", durable=True)
    channel.basic_publish("", "gone", b"1")
    with pytest.raises(HubError, match="1 messages are ready"):
        client.delete_queue("gone", if_empty=True)
    cancelled = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    channel.basic_consume("gone", lambda *_: None, consumer_tag="mine")
    client.delete_queue("gone")
    while not cancelled:
        channel.connection.process_data_events(time_limit=1)
    assert cancelled == ["mine"]
    with pytest.raises(ChannelClosedByBroker, match="NOT_FOUND"):
        channel.queue_declare("gone", passive=True)


def test_by_command(hub, channel):
    def call(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        done = gatehouse(*arguments, "--url", f"http://127.0.0.1:{hub.port('http')}", stdin=stdin)
        return done.returncode, done.stdout, done.stderr

    assert call("queues", "declare", "typed", "--max-length", "5", "--ttl", "60")[0] == exits.OK
    assert json.loads(call("queues", "show", "typed", "--json")[1])["ttl_ms"] == 60_000
    assert call("queues", "bind", "typed", "typed/#") == (0, "bound typed to typed/#\n", "")
    call("publish", "typed/a", stdin="1\n2\n3\n")
    assert call("queues", "peek", "typed")[1].count("typed/a") == 3
    channel.queue_declare("second", durable=True)
    assert call("queues", "move", "typed", "second", "--max", "1") == (0, "moved: 1\n", "")
    assert call("queues", "move", "typed", "elsewhere/typed", "--address", "--max", "1") == (0, "moved: 1\n", "")
    assert call("queues", "purge", "typed") == (0, "purged: 1\n", "")
    assert call("queues", "unbind", "typed", "typed/#")[0] == exits.OK
    code, _, err = call("queues", "delete", "second", "--if-empty")
    assert (code, "queue_not_empty" in err) == (exits.FAILED, True)
    assert call("queues", "delete", "typed", "--if-empty") == (0, "deleted typed\n", "")
    assert "second" in call("queues", "list")[1]
