"""What a channel gets and defines: prefetch, settling, dead letters, durable definitions."""
from __future__ import annotations

import pytest

from gatehouse.gateways.amqp import codec
from gatehouse.gateways.amqp.methods import encode_method
from gatehouse.kernel.log.log import LogFull
from tests.gateways.amqp.fakes import Client, Hub
from tests.gateways.amqp.test_session import refused


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def client(hub: Hub) -> Client:
    return hub.client().login()


def test_who_deletes_a_queue_hears_of_its_consumers_after_the_answer(client: Client) -> None:
    client.ask("queue.declare", queue="q")
    client.ask("basic.consume", queue="q", consumer_tag="t")
    assert [name for _, name, _ in client.ask("queue.delete", queue="q")] == ["queue.delete-ok", "basic.cancel"]
    assert client.ask("basic.cancel", consumer_tag="t")[0][1] == "basic.cancel-ok"


# ---- consuming ------------------------------------------------------------------------------------------------------

def fill(client: Client, *bodies: bytes, queue: str = "q") -> None:
    client.ask("queue.declare", queue=queue)
    for body in bodies:
        client.publish("", queue, body)
    client.hub.kernel.flush()


def delivered(client: Client) -> list[tuple[int, bool]]:
    client.hub.kernel.flush()
    return [(arguments["delivery_tag"], arguments["redelivered"]) for _, name, arguments in client.got()
            if name == "basic.deliver"]


def test_prefetch_of_a_consumer_and_of_the_channel(client: Client) -> None:
    fill(client, *[b"x"] * 10)
    client.ask("basic.qos", prefetch_count=2)
    client.send(codec.frame(codec.METHOD, 1, encode_method("basic.consume", queue="q", consumer_tag="a")))
    assert delivered(client) == [(1, False), (2, False)]
    client.send(codec.frame(codec.METHOD, 1, encode_method("basic.ack", delivery_tag=1)))
    assert delivered(client) == [(3, False)]
    client.ask("basic.qos", prefetch_count=3, **{"global": True})
    client.send(codec.frame(codec.METHOD, 1, encode_method("basic.ack", delivery_tag=3, multiple=True)))
    client.send(codec.frame(codec.METHOD, 1, encode_method("basic.consume", queue="q", consumer_tag="b")))
    assert len(delivered(client)) == 3


def test_a_slow_client_is_given_no_more_until_it_takes(hub: Hub, client: Client) -> None:
    fill(client, *[b"x" * 10_000] * 200)
    client.link.stalled = True
    client.send(codec.frame(codec.METHOD, 1, encode_method("basic.consume", queue="q", no_ack=True)))
    for _ in range(20):
        hub.kernel.flush()
    assert 0 < len(hub.ready("q")) < 190
    client.link.drain(client.session)
    for _ in range(20):
        hub.kernel.flush()
    assert not hub.ready("q")


def test_unacknowledged_messages_go_back_when_the_channel_or_connection_ends(hub: Hub, client: Client) -> None:
    fill(client, b"1", b"2")
    client.ask("basic.get", queue="q")
    client.ask("channel.close")
    client.ask("channel.open")
    assert client.ask("basic.get", queue="q")[0][2]["redelivered"]
    hub.cut(client.session)
    other = hub.client().login()
    assert other.ask("basic.get", queue="q")[0][2]["message_count"] == 1


def test_a_get_sees_what_was_published_before_it(client: Client) -> None:
    fill(client)
    client.publish("", "q", b"1")
    assert client.ask("basic.get", queue="q")[0][1] == "basic.get-ok"
    assert client.ask("basic.get", queue="q")[0][1] == "basic.get-empty"


def test_recover_gives_everything_back(client: Client) -> None:
    fill(client, b"1", b"2")
    for _ in range(2):
        client.ask("basic.get", queue="q")
    assert client.ask("basic.recover", requeue=True)[0][1] == "basic.recover-ok"
    assert [client.ask("basic.get", queue="q")[2][2]["body"] for _ in range(2)] == [b"1", b"2"]


@pytest.mark.parametrize(("name", "arguments"), [
    ("basic.ack", {"delivery_tag": 2}), ("basic.ack", {"delivery_tag": 2, "multiple": True}),
    ("basic.nack", {"delivery_tag": 0}), ("basic.reject", {"delivery_tag": 9}),
])
def test_a_delivery_tag_that_is_not_out(client: Client, name: str, arguments: dict[str, object]) -> None:
    fill(client, b"1")
    client.ask("basic.get", queue="q")
    got = client.ask(name, **arguments)
    assert got[-1][2]["text"] == f"PRECONDITION_FAILED - unknown delivery tag {arguments['delivery_tag']}"
    assert got[-1][2]["class_id"] == 60


def test_all_at_once_is_no_fault_where_nothing_is_out(client: Client) -> None:
    assert client.ask("basic.ack", delivery_tag=0, multiple=True) == []
    assert client.ask("basic.qos")[0][1] == "basic.qos-ok"


def test_exclusive_consumers(hub: Hub, client: Client) -> None:
    fill(client)
    client.ask("basic.consume", queue="q", exclusive=True)
    other = hub.client().login()
    assert other.ask("basic.get", queue="q")[-1][1] == "basic.get-empty"       # as in RabbitMQ: it is no consumer
    told = other.ask("basic.consume", queue="q")[-1][2]["text"]
    assert told == "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"


def test_rejected_messages_do_not_loop_by_themselves(hub: Hub, client: Client) -> None:
    client.ask("queue.declare", queue="q", arguments={"x-dead-letter-exchange": "", "x-message-ttl": 50_000})
    client.publish("", "q", b"x")
    hub.kernel.flush()
    for count in (1, 2):
        tag = client.ask("basic.get", queue="q")[0][2]["delivery_tag"]
        client.ask("basic.reject", delivery_tag=tag)
        hub.kernel.flush()
        assert len(hub.ready("q")) == 1, count                                     # a reject is no automatic cycle
    hub.advance(60_000)
    assert hub.ready("q") == []


# ---- what is durable ------------------------------------------------------------------------------------------------

def test_replies_leave_in_order_once_changes_are_durable(hub: Hub, client: Client) -> None:
    client.send(b"".join(codec.frame(codec.METHOD, 1, encode_method(name, **arguments)) for name, arguments in (
        ("queue.declare", {"queue": "q", "durable": True}), ("basic.qos", {}),
        ("exchange.declare", {"exchange": "x", "type": "topic", "durable": True}),
        ("queue.bind", {"queue": "q", "exchange": "x"}), ("confirm.select", {}))))
    assert client.got() == []
    hub.kernel.flush()
    assert client.names() == ["queue.declare-ok", "basic.qos-ok", "exchange.declare-ok", "queue.bind-ok",
                              "confirm.select-ok"]
    assert len(hub.kernel.definitions("amqp")) == 2


def test_what_the_disk_does_not_take_is_not_there(hub: Hub, client: Client) -> None:
    client.ask("exchange.declare", exchange="old", type="fanout", durable=True)
    hub.log.fault = LogFull("no space")
    client.send(b"".join(codec.frame(codec.METHOD, 1, encode_method(name, **arguments)) for name, arguments in (
        ("queue.declare", {"queue": "q", "durable": True}), ("queue.bind", {"queue": "q", "exchange": "old"}),
        ("exchange.declare", {"exchange": "new", "type": "topic", "durable": True}))))
    hub.kernel.flush()
    assert refused(client, "connection", 506) == "RESOURCE_ERROR - the disk is full: no space"
    vhost = hub.broker.vhost("/")
    assert "q" not in vhost.queues
    assert "new" not in vhost.exchanges
    assert not vhost.exchanges["old"].bindings


def test_only_what_is_durable_at_both_ends_is_kept(hub: Hub, client: Client) -> None:
    client.ask("queue.declare", queue="kept", durable=True)
    client.ask("queue.declare", queue="lost")
    client.ask("exchange.declare", exchange="lost", type="fanout")
    for queue in ("kept", "lost"):
        for exchange in ("amq.topic", "lost"):
            client.ask("queue.bind", queue=queue, exchange=exchange, routing_key="a")
    assert len(hub.kernel.definitions("amqp")) == 1
    client.ask("queue.unbind", queue="kept", exchange="amq.topic", routing_key="a")
    assert hub.kernel.definitions("amqp") == []
    client.ask("queue.delete", queue="lost")
    client.ask("exchange.delete", exchange="lost")
    assert hub.broker.queues._heard == {}


def test_exchanges_that_delete_themselves(hub: Hub, client: Client) -> None:
    client.ask("queue.declare", queue="q", durable=True)
    client.ask("exchange.declare", exchange="first", type="fanout", auto_delete=True, durable=True)
    client.ask("exchange.declare", exchange="second", type="fanout", auto_delete=True, durable=True)
    client.ask("exchange.bind", source="first", destination="second")
    client.ask("queue.bind", queue="q", exchange="second")
    client.ask("queue.delete", queue="q")
    assert not {"first", "second"} & hub.broker.vhost("/").exchanges.keys()
    assert hub.kernel.definitions("amqp") == []
