"""Each capability that connection.start announces is true, and none is announced without a proof here."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gatehouse.gateways.amqp import login, properties
from gatehouse.gateways.amqp.direct_reply import REPLY_TO
from gatehouse.gateways.amqp.tables import typed
from gatehouse.gateways.version import hub_version
from tests.gateways.amqp.fakes import Client, Hub

PROOFS: dict[str, Callable[[Hub, Client], None]] = {}


def proves(capability: str) -> Callable[[Callable[[Hub, Client], None]], None]:
    def keep(proof: Callable[[Hub, Client], None]) -> None:
        PROOFS[capability] = proof
    return keep


def bodies(client: Client) -> list[bytes]:
    client.hub.kernel.flush()
    return [arguments["body"] for _, name, arguments in client.got() if name == "body"]


@proves("publisher_confirms")
def _(hub: Hub, client: Client) -> None:
    client.ask("confirm.select")
    client.publish("", "q", b"x")
    assert client.got() == []
    hub.kernel.flush()
    assert client.got() == [(1, "basic.ack", {"delivery_tag": 1, "multiple": False})]


@proves("exchange_exchange_bindings")
def _(hub: Hub, client: Client) -> None:
    client.ask("queue.bind", queue="q", exchange="amq.direct", routing_key="k")
    client.ask("exchange.bind", source="amq.fanout", destination="amq.direct")
    client.publish("amq.fanout", "k", b"x")
    hub.kernel.flush()
    assert hub.ready("q") == [b"x"]


@proves("basic.nack")
def _(hub: Hub, client: Client) -> None:
    for body in (b"1", b"2"):
        client.publish("", "q", body)
    client.ask("basic.consume", queue="q")
    client.ask("basic.nack", delivery_tag=2, multiple=True, requeue=True)
    assert bodies(client) == []
    hub.kernel.flush()
    client.ask("basic.nack", delivery_tag=4, multiple=True, requeue=False)
    client.ask("channel.close")
    assert hub.ready("q") == []


@proves("consumer_cancel_notify")
def _(hub: Hub, client: Client) -> None:
    client.ask("basic.consume", queue="q", consumer_tag="t")
    hub.client().login().ask("queue.delete", queue="q")
    assert [(name, arguments["consumer_tag"]) for _, name, arguments in client.got()] == [("basic.cancel", "t")]


@proves("connection.blocked")
def _(hub: Hub, client: Client) -> None:
    hub.kernel.congest()
    client.publish("", "q", b"x")
    hub.advance(1_000)
    assert client.names() == ["connection.blocked"]
    hub.kernel.relieve()
    assert client.names() == ["connection.unblocked"]


@proves("consumer_priorities")
def _(hub: Hub, client: Client) -> None:
    low, high = client, hub.client().login()
    low.ask("basic.consume", queue="q")
    high.ask("basic.qos", prefetch_count=2)
    high.ask("basic.consume", queue="q", arguments={"x-priority": 1})
    for body in (b"1", b"2", b"3"):
        client.publish("", "q", body)
    assert (bodies(high), bodies(low)) == ([b"1", b"2"], [b"3"])


@proves("authentication_failure_close")
def _(hub: Hub, client: Client) -> None:
    stranger = hub.client()
    stranger.send(login.PROTOCOL_HEADER)
    told = stranger.ask("connection.start-ok", 0, mechanism="PLAIN", response=b"\0nobody\0secret", locale="en_US",
                 client_properties={"capabilities": typed({"authentication_failure_close": True})})
    assert [arguments["code"] for _, name, arguments in told if name == "connection.close"] == [403]


@proves("per_consumer_qos")
def _(hub: Hub, client: Client) -> None:
    client.ask("basic.qos", prefetch_count=1)
    for tag in ("a", "b"):
        client.ask("basic.consume", queue="q", consumer_tag=tag)
    for body in (b"1", b"2", b"3"):
        client.publish("", "q", body)
    hub.kernel.flush()
    tags = [arguments["consumer_tag"] for _, name, arguments in client.got() if name == "basic.deliver"]
    assert sorted(tags) == ["a", "b"]


@proves("direct_reply_to")
def _(hub: Hub, client: Client) -> None:
    client.ask("basic.consume", queue=REPLY_TO, no_ack=True)
    client.publish("", "q", b"x", properties.write({"reply_to": REPLY_TO}))
    hub.kernel.flush()
    header = client.ask("basic.get", queue="q", no_ack=True)[1][2]
    hub.client().login().publish("", properties.read(header["raw"])["reply_to"], b"answer")
    assert bodies(client) == [b"answer"]


def test_what_is_announced_is_what_is_proved_here() -> None:
    client = Hub().client()
    client.send(login.PROTOCOL_HEADER)
    capabilities: dict[str, Any] = client.got()[0][2]["server_properties"]["capabilities"].value
    assert set(capabilities) == set(PROOFS)


def test_the_version_is_that_of_the_rabbitmq_whose_behaviour_is_found() -> None:
    """Clients refuse to work with an old one, and ask a product that they do not know for other things."""
    client = Hub().client()
    client.send(login.PROTOCOL_HEADER)
    said: dict[str, Any] = client.got()[0][2]["server_properties"]
    assert (said["version"].value, said["product"].value) == (b"4.0.0", b"RabbitMQ")
    assert said["information"].value == f"Gatehouse {hub_version()}".encode()


@pytest.mark.parametrize("capability", PROOFS)
def test_a_capability(capability: str) -> None:
    hub = Hub()
    client = hub.client().login()
    client.ask("queue.declare", queue="q")
    PROOFS[capability](hub, client)
