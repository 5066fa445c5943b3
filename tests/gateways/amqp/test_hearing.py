"""Messages of other doors pass headers, hashing and chained exchanges as AMQP's own do; on the real kernel."""
from __future__ import annotations

import time
from typing import Any

import pytest

from gatehouse.gateways.amqp.broker import Broker
from gatehouse.gateways.amqp.exchanges import EXCHANGE, QUEUE, Destination
from gatehouse.gateways.amqp.hearing import Hearing
from gatehouse.kernel.errors import QueueFull
from gatehouse.kernel.message import When
from gatehouse.kernel.records.batch import encode_headers
from tests.gateways.amqp.fakes import Client
from tests.gateways.amqp.test_with_kernel import KernelHub, taken

RED: list[tuple[bytes, bytes | None]] = [(b"colour", b"red")]
BLUE: list[tuple[bytes, bytes | None]] = [(b"colour", b"blue")]


@pytest.fixture
def hub() -> KernelHub:
    return KernelHub()


@pytest.fixture
def client(hub: KernelHub) -> Client:
    client = hub.client()
    for queue in ("q", "other"):
        client.ask("queue.declare", queue=queue, durable=True)
    return client


def exchange(client: Client, name: str, kind: str, **arguments: Any) -> None:
    assert client.ask("exchange.declare", exchange=name, type=kind, durable=True, arguments=arguments)[0][1] \
        == "exchange.declare-ok"


def bind(client: Client, queue: str, source: str, key: str = "", **arguments: Any) -> None:
    assert client.ask("queue.bind", queue=queue, exchange=source, routing_key=key, arguments=arguments)[0][1] \
        == "queue.bind-ok"


def chain(client: Client, source: str, destination: str, key: str = "") -> None:
    assert client.ask("exchange.bind", source=source, destination=destination, routing_key=key)[0][1] \
        == "exchange.bind-ok"


def test_a_headers_exchange_looks_at_each_message(hub: KernelHub, client: Client) -> None:
    exchange(client, "plant", "headers")
    bind(client, "q", "plant", colour="red")
    bind(client, "other", "plant", colour="blue")
    hub.rig.publish("plant/line1", b"a", headers=RED)
    hub.rig.publish("plant/line1", b"b", headers=BLUE)
    hub.rig.publish("plant/line1", b"c")
    hub.rig.publish("plant/line1", b"d", headers=RED)
    assert taken(client) == [b"a", b"d"] and taken(client, "other") == [b"b"]
    assert hub.rig.values("plant") == [b"a", b"b", b"c", b"d"]             # stored once, and by reference in queues


def test_messages_of_one_call_go_different_ways(hub: KernelHub, client: Client) -> None:
    exchange(client, "plant", "headers")
    bind(client, "q", "plant", colour="red")
    place = hub.rig.kernel.place("plant/line1")
    hub.rig.kernel.append([(place, value, encode_headers(headers), 2, 0)
                           for value, headers in ((b"a", RED), (b"b", BLUE), (b"c", RED))], hub.rig.witness, None)
    hub.rig.run()
    assert taken(client) == [b"a", b"c"] and hub.rig.values("plant") == [b"a", b"b", b"c"]


def test_exchanges_bound_to_exchanges_are_passed(hub: KernelHub, client: Client) -> None:
    exchange(client, "second", "direct")
    exchange(client, "third", "fanout")
    chain(client, "amq.topic", "second", "plant.#")
    chain(client, "second", "third", "plant.line1")
    bind(client, "q", "third")
    for address in ("plant/line1", "plant/line2", "fleet/line1"):
        hub.rig.publish(address, address.encode())
    got = client.ask("basic.get", queue="q", no_ack=True)
    assert got[2][2]["body"] == b"plant/line1"
    assert (got[0][2]["exchange"], got[0][2]["routing_key"]) == ("amq.topic", "plant.line1")
    assert taken(client) == []


def test_the_way_between_exchanges_ends_with_its_binding(hub: KernelHub, client: Client) -> None:
    exchange(client, "plant", "topic")
    exchange(client, "second", "fanout")
    bind(client, "q", "second")
    chain(client, "plant", "second", "#")
    hub.rig.publish("plant/line1", b"a")
    client.ask("exchange.unbind", source="plant", destination="second", routing_key="#")
    hub.rig.publish("plant/line1", b"b")
    chain(client, "plant", "second", "#")
    hub.rig.publish("plant/line1", b"c")
    client.ask("exchange.delete", exchange="second")
    hub.rig.publish("plant/line1", b"d")
    assert taken(client) == [b"a", b"c"]


def test_a_queue_further_on_is_bound_later(hub: KernelHub, client: Client) -> None:
    exchange(client, "plant", "topic")
    exchange(client, "second", "topic")
    chain(client, "plant", "second", "#")
    hub.rig.publish("plant/line1", b"a")
    bind(client, "q", "second", "line1")
    hub.rig.publish("plant/line1", b"b")
    client.ask("queue.delete", queue="q")
    hub.rig.publish("plant/line1", b"c")
    client.ask("queue.declare", queue="q", durable=True)
    assert taken(client) == []
    bind(client, "q", "second", "line1")
    hub.rig.publish("plant/line1", b"d")
    assert taken(client) == [b"d"]


def test_a_message_enters_a_queue_once(hub: KernelHub, client: Client) -> None:
    exchange(client, "plant", "topic")
    exchange(client, "second", "fanout")
    chain(client, "plant", "second", "#")
    chain(client, "amq.topic", "second", "#")
    bind(client, "q", "second")
    bind(client, "q", "plant", "#")
    hub.rig.publish("plant/line1", b"a")
    client.publish("plant", "line1", b"b")                                 # the door itself has routed this
    assert taken(client) == [b"a", b"b"]


def test_hashing_shares_keys_out(hub: KernelHub, client: Client) -> None:
    exchange(client, "plant", "x-consistent-hash")
    bind(client, "q", "plant", "1")
    bind(client, "other", "plant", "1")
    for number in range(50):
        hub.rig.publish(f"plant/{number}", b"%d" % number)
    first, second = taken(client), taken(client, "other")
    assert first and second and sorted(first + second) == sorted(b"%d" % number for number in range(50))


def test_alternate_exchanges_are_for_amqp_clients(hub: KernelHub, client: Client) -> None:
    exchange(client, "nets", "fanout")
    bind(client, "q", "nets")
    exchange(client, "plant", "headers", **{"alternate-exchange": "nets"})
    bind(client, "other", "plant", colour="red")
    hub.rig.publish("plant/line1", b"a", headers=BLUE)
    client.publish("plant", "line1", b"b")
    assert taken(client) == [b"b"]


def test_all_of_it_is_there_after_a_kill(hub: KernelHub, client: Client) -> None:
    exchange(client, "plant", "headers")
    bind(client, "q", "plant", colour="red")
    hub.restart()
    hub.rig.publish("plant/line1", b"a", headers=RED)
    hub.rig.publish("plant/line1", b"b", headers=BLUE)
    assert taken(hub.client()) == [b"a"]


def test_a_full_queue_refuses_what_it_would_get_alone(hub: KernelHub, client: Client) -> None:
    client.ask("queue.declare", queue="small", durable=True,
               arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    exchange(client, "plant", "headers")
    bind(client, "small", "plant", colour="red")
    hub.rig.publish("plant/line1", b"a", headers=RED)
    with pytest.raises(QueueFull):
        hub.rig.publish("plant/line1", b"b", headers=RED)
    hub.rig.publish("plant/line1", b"c", headers=BLUE)
    assert taken(client, "small") == [b"a"] and hub.rig.values("plant") == [b"a", b"c"]


def test_what_is_due_later_is_looked_at_then(hub: KernelHub, client: Client) -> None:
    exchange(client, "plant", "headers")
    bind(client, "q", "plant", colour="red")
    place = hub.rig.kernel.place("plant/line1")
    messages = [(place, value, encode_headers(headers), 2, 0) for value, headers in ((b"a", RED), (b"b", BLUE))]
    hub.rig.kernel.schedule(messages, [When(delay_ms=5_000)] * 2, hub.rig.witness, None)
    hub.rig.run()
    assert taken(client) == []
    hub.advance(6_000)
    assert taken(client) == [b"a"]


def test_an_address_is_asked_about_once_where_only_keys_count(hub: KernelHub, client: Client,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    choose = Hearing.choose
    monkeypatch.setattr(Hearing, "choose", lambda hearing, address: asked.append(address) or choose(hearing, address))
    exchange(client, "plant", "topic")
    exchange(client, "second", "fanout")
    chain(client, "plant", "second", "#")
    bind(client, "q", "second")
    place = hub.rig.kernel.place("plant/line1")
    for value in (b"a", b"b", b"c"):
        hub.rig.kernel.append([(place, value, b"\0", 2, 0)], hub.rig.witness, None)
        hub.rig.run()
    assert taken(client) == [b"a", b"b", b"c"] and asked == ["plant/line1"]


def test_a_binding_costs_the_same_however_many_exchanges_are_bound_to_others(hub: KernelHub) -> None:
    broker = Broker.of(hub.services)
    vhost = broker.vhost("/")
    began_s = time.process_time()
    for number in range(2_000):
        for name in (f"from{number}", f"to{number}"):
            made = vhost.declare_exchange(name, "fanout", durable=True, auto_delete=False, internal=False, arguments={})
            assert made is not None
            broker.store(vhost, [made], None, None)
        linked = vhost.bind(f"from{number}", Destination(EXCHANGE, f"to{number}"), "", {})
        assert linked is not None
        broker.store(vhost, [linked], None, None)
    assert time.process_time() - began_s < 3


@pytest.mark.parametrize("kind", ["fanout", "direct"])
def test_a_binding_costs_the_same_however_many_its_exchange_has(hub: KernelHub, kind: str) -> None:
    broker = Broker.of(hub.services)
    vhost = broker.vhost("/")
    vhost.declare_exchange("x", kind, durable=True, auto_delete=False, internal=False, arguments={})
    began_s = time.process_time()
    for number in range(6_000):
        queue, _ = vhost.declare_queue(f"q{number}", durable=False, auto_delete=False, owner=number, asker=number,
                                       arguments={})
        broker.open_queue(queue)
        bound = vhost.bind("x", Destination(QUEUE, queue.name), "k", {})
        assert bound is not None
        broker.store(vhost, [queue, bound], None, None)
    for number in reversed(range(6_000)):                  # their connections go
        broker.drop_exclusive(vhost, number)
    assert time.process_time() - began_s < 4
