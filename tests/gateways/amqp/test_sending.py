"""Where a publish goes is found out once, and anew when something has changed; on the real kernel."""
from __future__ import annotations

from typing import Any, cast

import pytest

from gatehouse.gateways.amqp.properties import write as written
from gatehouse.gateways.amqp.tables import typed
from gatehouse.gateways.amqp.vhost import VirtualHost
from gatehouse.kernel.groups.group_settings import QueueSettings
from tests.gateways.amqp.fakes import Client, publish
from tests.gateways.amqp.test_with_kernel import KernelHub, taken

TYPED = written({"content_type": "text/plain"})
"""Properties that a topic's readers see: such a publish is looked at one by one."""


@pytest.fixture
def routed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The exchanges whose queues were looked up, one entry a time."""
    exchanges: list[str] = []
    route = VirtualHost.route

    def counted(self: VirtualHost, exchange: str, *arguments: Any, **options: Any) -> Any:
        exchanges.append(exchange)
        return route(self, exchange, *arguments, **options)

    monkeypatch.setattr(VirtualHost, "route", counted)
    return exchanges


@pytest.fixture
def client() -> Client:
    client = KernelHub().client()
    client.ask("exchange.declare", exchange="news", type="fanout")
    for queue in ("q", "other"):
        client.ask("queue.declare", queue=queue, durable=True)
        client.ask("queue.bind", queue=queue, exchange="news")
    return client


def test_queues_are_looked_up_once_whatever_the_properties(client: Client, routed: list[str]) -> None:
    for body in (b"a", b"b", b"c"):
        client.publish("news", "", body, TYPED)
    assert routed == ["news"]
    assert taken(client) == taken(client, "other") == [b"a", b"b", b"c"]


def test_a_change_of_bindings_counts_at_once(client: Client) -> None:
    client.publish("news", "", b"a", TYPED)
    client.ask("queue.declare", queue="third", durable=True)
    client.ask("queue.bind", queue="third", exchange="news")
    client.ask("queue.unbind", queue="other", exchange="news")
    client.publish("news", "", b"b", TYPED)
    client.ask("queue.delete", queue="q")
    client.publish("news", "", b"c", TYPED)
    assert taken(client, "third") == [b"b", b"c"] and taken(client, "other") == [b"a"]


def test_queues_of_other_doors_are_met_within_one_read(client: Client) -> None:
    """What was decoded before them is appended behind them."""
    names = ["q", "first", "second", "third"]
    for name in names[1:]:
        cast(Any, client.hub).rig.kernel.groups.declare_queue(name, QueueSettings())
    client.publish("", "q", b"known by now")
    client.send(b"".join([publish("", name, b"x") for name in names]))
    assert [taken(client, name) for name in names] == [[b"known by now", b"x"], [b"x"], [b"x"], [b"x"]]


def test_further_keys_count(client: Client) -> None:
    client.ask("exchange.declare", exchange="mail", type="direct")
    for key, queue in (("ann", "q"), ("bob", "other")):
        client.ask("queue.bind", queue=queue, exchange="mail", routing_key=key)
    client.publish("mail", "ann", b"a", TYPED)
    client.publish("mail", "ann", b"b", written({"headers": {"CC": typed(["bob"])}}))
    client.publish("mail", "ann", b"c", TYPED)
    assert taken(client) == [b"a", b"b", b"c"] and taken(client, "other") == [b"b"]


def test_what_follows_on_a_publish_with_further_keys_goes_by_its_own_key_alone(client: Client) -> None:
    copied = written({"headers": {"CC": typed(["other"])}})
    client.ask("exchange.declare", exchange="mail", type="direct")
    for queue in ("q", "other"):
        client.ask("queue.bind", queue=queue, exchange="mail", routing_key=queue)
    client.publish("mail", "q", b"a", copied)
    client.publish("mail", "q", b"b")
    assert taken(client) == [b"a", b"b"] and taken(client, "other") == [b"a"]
    client.publish("", "nobody", b"c", copied)
    client.publish("", "nobody", b"d")
    assert taken(client, "other") == [b"c"]
