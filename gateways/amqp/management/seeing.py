"""What is there, as far as who asks may know of it: exchanges, queues, bindings, consumers, connections, channels.

Connections and channels of others are for administrators.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.amqp.broker import DOOR_NAME
from gatehouse.gateways.amqp.errors import ChannelFault
from gatehouse.gateways.amqp.exchanges import EXCHANGE, QUEUE, Destination
from gatehouse.gateways.amqp.management.asking import Asking, Host, ManagementError, nothing_there
from gatehouse.gateways.amqp.management.listing import listed, one
from gatehouse.gateways.amqp.management.shown import (
    DEFAULT_NAME,
    Row,
    arguments_of,
    properties_key,
    show_binding,
    show_channels,
    show_connection,
    show_consumers,
    show_default_binding,
    show_default_exchange,
    show_exchange,
    show_queue,
)
from gatehouse.gateways.amqp.rights import READ
from gatehouse.gateways.contract import HttpAnswer

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.exchanges import Binding, Exchange
    from gatehouse.gateways.amqp.vhost import AmqpQueue

KINDS: Final = {"q": QUEUE, "e": EXCHANGE}
CONNECTIONS_AT_ONCE: Final = 250


# ---- exchanges

async def exchanges(asking: Asking, vhost: str | None = None) -> HttpAnswer:
    rows = []
    for host in asking.chosen(vhost):
        rows.append(show_default_exchange(host.vhost.name))
        rows += [show_exchange(exchange, host.vhost.name) for exchange in sorted(
            host.vhost.exchanges.values(), key=lambda exchange: exchange.name)
            if host.rights.sees_exchange(exchange.name)]
    return HttpAnswer(200, listed(rows, asking.query))


def exchange_of(host: Host, name: str) -> Exchange:
    """One that who asks may know of. Raises ManagementError 404."""
    exchange = host.vhost.exchanges.get(name)
    if exchange is None or not host.rights.sees_exchange(name):
        raise nothing_there()
    return exchange


async def exchange(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    host = asking.host(vhost)
    if name == DEFAULT_NAME:
        return HttpAnswer(200, one(show_default_exchange(vhost), asking.query))
    row = show_exchange(exchange_of(host, name), vhost)
    return HttpAnswer(200, one({**row, "incoming": [], "outgoing": []}, asking.query))


async def bindings_of_source(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    host = asking.host(vhost)
    if name == DEFAULT_NAME:
        return HttpAnswer(200, listed([show_default_binding(queue) for queue in queues_of(host)], asking.query))
    exchange = exchange_of(host, name)
    return HttpAnswer(200, listed([show_binding(binding, arguments, vhost)
                                   for binding, arguments in exchange.bindings.items()], asking.query))


async def bindings_of_destination(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    host = asking.host(vhost)
    exchange_of(host, name)
    return HttpAnswer(200, listed(_shown(host, host.vhost.leading_to(Destination(EXCHANGE, name))), asking.query))


# ---- queues

def queues_of(host: Host) -> Iterator[AmqpQueue]:
    """Those that who asks may know of, by name; other doors' too."""
    for name in sorted({*host.vhost.queues, *host.vhost.names_of_others()}):
        queue = host.vhost.find_queue(name)
        if queue is not None and _is_seen(host, queue):
            yield queue


def _is_seen(host: Host, queue: AmqpQueue) -> bool:
    try:
        host.rights.require_sight(queue.name, READ)
    except ChannelFault:
        return False
    return True


def queue_of(host: Host, name: str) -> AmqpQueue:
    """One that who asks may know of. Raises ManagementError 404."""
    queue = host.vhost.find_queue(name)
    if queue is None or not _is_seen(host, queue):
        raise nothing_there()
    return queue


async def queues(asking: Asking, vhost: str | None = None) -> HttpAnswer:
    counted = asking.query.get("disable_stats") != "true"
    totals = counted or asking.query.get("enable_queue_totals") == "true"
    rows = [show_queue(asking, queue, counted=counted, totals=totals)
            for host in asking.chosen(vhost) for queue in queues_of(host)]
    return HttpAnswer(200, listed(rows, asking.query))


async def queues_of_all(asking: Asking) -> HttpAnswer:
    return await queues(asking)


async def queue(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    asked_for = queue_of(asking.host(vhost), name)
    row = {**show_queue(asking, asked_for), "deliveries": [], "incoming": [],
           "consumer_details": show_consumers(asking, asked_for)}
    return HttpAnswer(200, one(row, asking.query))


async def bindings_of_queue(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    host = asking.host(vhost)
    asked_for = queue_of(host, name)
    return HttpAnswer(200, listed([show_default_binding(asked_for), *_shown(host, host.vhost.bindings_to(asked_for))],
                                  asking.query))


# ---- bindings

async def bindings(asking: Asking, vhost: str | None = None) -> HttpAnswer:
    rows: list[Row] = []
    for host in asking.chosen(vhost):
        rows += [show_default_binding(queue) for queue in queues_of(host)]
        for exchange in host.vhost.exchanges.values():
            if host.rights.sees_exchange(exchange.name):
                rows += [show_binding(binding, arguments, host.vhost.name)
                         for binding, arguments in exchange.bindings.items()]
    return HttpAnswer(200, listed(rows, asking.query))


def _shown(host: Host, candidates: list[Binding]) -> list[Row]:
    return [show_binding(binding, arguments_of(host.vhost, binding), host.vhost.name) for binding in candidates]


def between(asking: Asking, vhost: str, source: str, kind: str, name: str) -> tuple[Host, Destination, list[Binding]]:
    """The bindings of an exchange and what they lead to. Raises ManagementError 404."""
    host = asking.host(vhost)
    if kind not in KINDS:
        raise nothing_there()
    destination = Destination(KINDS[kind], name)
    if kind == "q":
        queue_of(host, name)
    else:
        exchange_of(host, name)
    if source == DEFAULT_NAME:
        return host, destination, []
    exchange = exchange_of(host, source)
    return host, destination, [binding for binding in exchange.bindings if binding.destination == destination]


async def bindings_between(asking: Asking, vhost: str, source: str, kind: str, name: str) -> HttpAnswer:
    host, _, candidates = between(asking, vhost, source, kind, name)
    rows = _shown(host, candidates)
    if source == DEFAULT_NAME and kind == "q":
        rows = [show_default_binding(queue_of(host, name))]
    return HttpAnswer(200, listed(rows, asking.query))


def found_binding(candidates: list[Binding], key: str) -> Binding:
    """The one with this properties key. Raises ManagementError 404."""
    by_both = next((binding for binding in candidates if key == properties_key(binding)), None)
    if by_both is not None:
        return by_both
    for binding in candidates:
        if key == (binding.routing_key or "~"):
            return binding
    raise nothing_there()


async def binding(asking: Asking, vhost: str, source: str, kind: str, name: str, key: str) -> HttpAnswer:
    host, _, candidates = between(asking, vhost, source, kind, name)
    return HttpAnswer(200, _shown(host, [found_binding(candidates, key)])[0])


# ---- who is connected

async def consumers(asking: Asking, vhost: str | None = None) -> HttpAnswer:
    rows = [row for host in asking.chosen(vhost) for queue in queues_of(host) for row in show_consumers(asking, queue)]
    return HttpAnswer(200, listed(rows, asking.query))


def described_connections(asking: Asking) -> Iterator[Row]:
    """Of this door: all for administrators, else the user's own."""
    connections = asking.services.connections
    after: str | None = ""
    while after is not None:
        some, after = connections.page(after, CONNECTIONS_AT_ONCE)
        for open_connection in some:
            described = open_connection.describe()
            if described["door"] == DOOR_NAME and (asking.may_administer
                                                   or described.get("user") == asking.principal.name):
                yield described


def _at(asking: Asking, vhost: str | None) -> list[Row]:
    if vhost is not None:
        asking.host(vhost)
    return [described for described in described_connections(asking)
            if vhost is None or described.get("vhost") == vhost]


async def connections(asking: Asking, vhost: str | None = None) -> HttpAnswer:
    return HttpAnswer(200, listed([show_connection(asking, described) for described in _at(asking, vhost)],
                                  asking.query))


async def connections_of_user(asking: Asking, name: str) -> HttpAnswer:
    rows = [show_connection(asking, described) for described in described_connections(asking)]
    return HttpAnswer(200, listed([row for row in rows if row["user"] == name], asking.query))


async def channels(asking: Asking, vhost: str | None = None) -> HttpAnswer:
    return HttpAnswer(200, listed([channel for described in _at(asking, vhost)
                                   for channel in show_channels(asking, described)], asking.query))


def _connection(asking: Asking, name: str) -> Row:
    for described in described_connections(asking):
        if name in (described["id"], f"{described['peer']} -> {described['listener']}"):
            return described
    raise nothing_there()


async def connection(asking: Asking, name: str) -> HttpAnswer:
    return HttpAnswer(200, one(show_connection(asking, _connection(asking, name)), asking.query))


async def channels_of_connection(asking: Asking, name: str) -> HttpAnswer:
    return HttpAnswer(200, listed(show_channels(asking, _connection(asking, name)), asking.query))


async def channel(asking: Asking, name: str) -> HttpAnswer:
    for described in described_connections(asking):
        for shown in show_channels(asking, described):
            if shown["name"] == name:
                return HttpAnswer(200, one({**shown, "consumer_details": []}, asking.query))
    raise nothing_there()


async def close_connection(asking: Asking, name: str) -> HttpAnswer:
    described = _connection(asking, name)
    if not asking.may_administer:
        raise ManagementError(401, "not_authorised", "User not administrator user")
    open_connection = asking.services.connections.find(described["id"])
    if open_connection is not None:
        open_connection.end(asking.ask.headers.get("x-reason", "Closed via management plugin"))
    return HttpAnswer(204)
