"""What clients of this door publish a few at a time enters the kernel as one append, and nobody can tell."""
from __future__ import annotations

import random

import pytest

from gatehouse.gateways.amqp import codec
from gatehouse.gateways.amqp.methods import encode_method
from gatehouse.kernel.log.log import LogFull
from tests.gateways.amqp.fakes import Client, Hub, publish


def confirming(hub: Hub, count: int) -> list[Client]:
    clients = [hub.client().login() for _ in range(count)]
    for client in clients:
        client.ask("confirm.select")
    return clients


def tags(client: Client) -> list[tuple[int, bool, str]]:
    """(tag, multiple, name) of what the client was answered."""
    return [(arguments["delivery_tag"], arguments["multiple"], name) for _, name, arguments in client.got()]


def test_what_many_connections_publish_is_one_append() -> None:
    hub = Hub()
    clients = confirming(hub, 20)
    clients[0].ask("queue.declare", queue="q")
    for client in clients:
        client.publish("", "q", b"first")
    hub.kernel.flush()
    assert [tags(client) for client in clients] == [[(1, False, "basic.ack")]] * 20
    board = hub.services.door("amqp")
    before = board.submit(clients[0], None)            # numbers are given to appends, one after the other
    for n, client in enumerate(clients):
        client.publish("", "q", b"%d" % n)
    hub.kernel.flush()
    assert board.submit(clients[0], None) == before + 2
    assert [tags(client) for client in clients] == [[(2, False, "basic.ack")]] * 20


@pytest.mark.parametrize("together", [False, True])
def test_what_follows_on_the_connection_sees_what_was_published_before(together: bool) -> None:
    """Whether it comes with the same read or with the next."""
    hub = Hub()
    client, = confirming(hub, 1)
    client.ask("queue.declare", queue="q")
    client.publish("", "q", b"first")
    hub.kernel.flush()
    asked = codec.frame(codec.METHOD, 1, encode_method("queue.purge", queue="q"))
    client.got()
    for data in [publish("", "q", b"1") + asked] if together else [publish("", "q", b"1"), asked]:
        client.send(data)
    hub.kernel.flush()
    purged = client.got()
    client.publish("", "q", b"2")
    hub.kernel.flush()
    got = [(name, arguments.get("message_count")) for _, name, arguments in purged if name != "basic.ack"]
    assert got == [("queue.purge-ok", 2)]
    assert hub.ready("q") == [b"2"]


@pytest.mark.parametrize("seed", range(8))
def test_confirms_come_in_the_order_of_publishes_however_they_are_appended(seed: int) -> None:
    chance, hub = random.Random(seed), Hub()
    clients = confirming(hub, 3)
    clients[0].ask("queue.declare", queue="q")
    counts, last = [0] * 3, [0] * 3
    waiting: list[set[int]] = [set(), set(), set()]

    def look() -> None:
        for n, client in enumerate(clients):
            for tag, multiple, name in tags(client):
                assert name == "basic.ack" and tag in waiting[n], "each is confirmed once"
                assert not multiple or tag > last[n]
                last[n] = max(last[n], tag * multiple)
                waiting[n] -= set(range(tag + 1)) if multiple else {tag}

    for _ in range(200):
        n = chance.randrange(3)
        for _ in range(chance.choice((1, 1, 2, 20))):
            counts[n] += 1
            waiting[n].add(counts[n])
            clients[n].publish("", "q" if chance.random() < 0.8 else "nobody", b"x")   # that is confirmed at once
        if chance.random() < 0.2:
            hub.kernel.flush()
            look()
    hub.kernel.flush()
    look()
    assert waiting == [set(), set(), set()] and sum(counts) > 600


def test_what_the_disk_does_not_take_is_refused_for_each() -> None:
    hub = Hub()
    clients = confirming(hub, 4)
    clients[0].ask("queue.declare", queue="q")
    for client in clients:
        client.publish("", "q", b"x")
    hub.log.fault = LogFull("no space")
    hub.kernel.flush()
    assert [tags(client) for client in clients] == [[(1, False, "basic.nack")]] * 4


def test_a_full_queue_costs_its_own_publishers_alone() -> None:
    hub = Hub()
    first, second = confirming(hub, 2)
    first.ask("queue.declare", queue="small", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    first.ask("queue.declare", queue="large")
    first.publish("", "small", b"1")
    hub.kernel.flush()
    assert tags(first) == [(1, False, "basic.ack")]
    first.publish("", "small", b"2")
    second.publish("", "large", b"1")
    hub.kernel.flush()
    assert [name for _, _, name in tags(first)] == ["basic.nack"]
    assert tags(second) == [(1, False, "basic.ack")]
