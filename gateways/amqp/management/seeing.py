"""What is there, as far as who asks may know of it: exchanges, queues, bindings, consumers, connections, channels.

Connections and channels of others are for administrators. Each is shown with the fields that tools know.
"""
from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_plus

from gatehouse.gateways.amqp.arguments import queue_type
from gatehouse.gateways.amqp.broker import DOOR_NAME
from gatehouse.gateways.amqp.errors import ChannelFault
from gatehouse.gateways.amqp.exchanges import EXCHANGE, QUEUE, Destination
from gatehouse.gateways.amqp.management.asking import (
    Asking,
    Host,
    ManagementError,
    Row,
    listed,
    nothing_there,
    one,
    shown_table,
)
from gatehouse.gateways.amqp.policies import effective
from gatehouse.gateways.amqp.rights import READ
from gatehouse.gateways.amqp.tables import Table, decode_table
from gatehouse.gateways.contract import HttpAnswer

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.channel import Consumer
    from gatehouse.gateways.amqp.exchanges import Binding, Exchange
    from gatehouse.gateways.amqp.vhost import AmqpQueue, VirtualHost

KINDS: Final = {"q": QUEUE, "e": EXCHANGE}
CONNECTIONS_AT_ONCE: Final = 250
HASH_BYTES: Final = 5
DEFAULT_NAME: Final = "amq.default"    # of the default exchange, where a path cannot hold an empty level
COUNTED: Final = ("messages", "messages_ready", "messages_unacknowledged")
PROTOCOL: Final = "AMQP 0-9-1"


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


# ---- as the interface shows it

def node_name(asking: Asking) -> str:
    return f"gatehouse@{asking.services.hub_name}"


def rate(value: float = 0.0) -> Row:
    return {"rate": value}


def with_rates(asking: Asking, whose: tuple[str, str], counts: dict[str, int]) -> Row:
    """Counts that only grow, each with its rate since it was asked for before."""
    now_ms = asking.services.wall_ms()
    rates = asking.broker.rates
    return {**counts, **{f"{name}_details": rate(rates.of((*whose, name), count, now_ms))
                         for name, count in counts.items()}}


def show_exchange(exchange: Exchange, vhost: str) -> Row:
    return {"name": exchange.name, "vhost": vhost, "type": exchange.type, "durable": exchange.durable,
            "auto_delete": exchange.auto_delete, "internal": exchange.internal,
            "arguments": shown_table(exchange.arguments), "user_who_performed_action": "",
            "policy": exchange.policy.name if exchange.policy is not None else None}


def show_default_exchange(vhost: str) -> Row:
    return {"name": "", "vhost": vhost, "type": "direct", "durable": True, "auto_delete": False, "internal": False,
            "arguments": {}, "user_who_performed_action": "rmq-internal", "policy": None}


def show_binding(binding: Binding, arguments: Table, vhost: str) -> Row:
    return {"source": binding.source, "vhost": vhost, "destination": binding.destination.name,
            "destination_type": binding.destination.kind, "routing_key": binding.routing_key,
            "arguments": shown_table(arguments), "properties_key": properties_key(binding)}


def show_default_binding(queue: AmqpQueue) -> Row:
    return {"source": "", "vhost": queue.vhost.name, "destination": queue.name, "destination_type": QUEUE,
            "routing_key": queue.name, "arguments": {}, "properties_key": quoted(queue.name)}


def properties_key(binding: Binding) -> str:
    """Tells the bindings of one pair from each other, in a path."""
    table, _ = decode_table(binding.arguments, 0)
    key = quoted(binding.routing_key)
    if not table:
        return key or "~"
    return f"{key}~{blake2b(binding.arguments, digest_size=HASH_BYTES).hexdigest()}"


def quoted(text: str) -> str:
    return quote_plus(text, safe="").replace("_", "%5F").replace("~", "%7E")


def arguments_of(vhost: VirtualHost, binding: Binding) -> Table:
    return vhost.exchanges[binding.source].bindings[binding]


def sole_consumer(queue: AmqpQueue) -> Consumer | None:
    """The consumer that alone is given messages, as the kernel chooses it: of the highest priority the earliest. None
    where all are given some."""
    if not queue.settings.single_active or not queue.consumers:
        return None
    return max(queue.consumers, key=lambda consumer: consumer.priority)


def show_queue(asking: Asking, queue: AmqpQueue, *, counted: bool = True, totals: bool = True) -> Row:
    """`totals`: with how many messages are in it. `counted`: also with all else that is counted there."""
    sole = sole_consumer(queue)
    row: Row = {
        "name": queue.name, "vhost": queue.vhost.name, "durable": queue.durable, "auto_delete": queue.auto_delete,
        "exclusive": queue.owner is not None, "arguments": shown_table(queue.arguments),
        "type": queue_type(queue.arguments), "node": node_name(asking), "state": "running",
        "consumers": len(queue.consumers),
        "policy": queue.policy.name if queue.policy is not None else None,
        "operator_policy": queue.operator_policy.name if queue.operator_policy is not None else None,
        "effective_policy_definition": effective(queue.policy, queue.operator_policy),
        "exclusive_consumer_tag": next((consumer.tag for consumer in queue.consumers if consumer.exclusive), None),
        "single_active_consumer_tag": None if sole is None else sole.tag}
    if queue.settings.is_quorum:
        limit = queue.settings.delivery_limit
        row["delivery_limit"] = "unlimited" if limit is None else limit
    if queue.stream is None and queue.kernel_queue is None or not (counted or totals):
        return row
    if queue.stream is not None:
        length = asking.broker.queues.ready(queue)
        row |= {"messages": length, "messages_ready": length, "messages_unacknowledged": 0}
        if counted:
            row |= {**{f"{name}_details": rate() for name in COUNTED}, "messages_persistent": length, "memory": 0}
        return row
    counts = asking.broker.queues.counts(queue)
    unacknowledged = counts.leased + counts.waiting
    values = {"messages": counts.ready + unacknowledged, "messages_ready": counts.ready,
              "messages_unacknowledged": unacknowledged}
    if not counted:
        return {**row, **values}
    settled = counts.settled + counts.dead + counts.expired + counts.dropped
    stats = {"publish": settled + values["messages"], "ack": counts.settled,
             "deliver_get": counts.settled + counts.leased, "deliver": counts.settled + counts.leased}
    row |= {**values, **{f"{name}_details": rate() for name in values}, "messages_persistent": values["messages"],
            "head_message_timestamp": counts.oldest_ms // 1000 or None, "memory": 0, "consumer_capacity": 0,
            "consumer_utilisation": 0, "message_stats": with_rates(asking, (queue.vhost.name, queue.name), stats)}
    return row


def show_consumers(asking: Asking, queue: AmqpQueue) -> list[Row]:
    sole = sole_consumer(queue)
    return [_show_consumer(asking, consumer, sole) for consumer in queue.consumers]


def _show_consumer(asking: Asking, consumer: Consumer, sole: Consumer | None) -> Row:
    channel = consumer.channel
    connection = channel.connection
    active = sole is None or consumer is sole
    return {
        "consumer_tag": consumer.tag, "ack_required": not consumer.no_ack, "exclusive": consumer.exclusive,
        "prefetch_count": consumer.limit, "active": active,
        "activity_status": "up" if sole is None else "single_active" if active else "waiting",
        "arguments": {"x-priority": consumer.priority} if consumer.priority else {},
        "queue": {"name": consumer.queue.name, "vhost": consumer.queue.vhost.name},
        "channel_details": {**peer_details(connection.peer, connection.local), "node": node_name(asking),
                            "name": f"{connection.peer} -> {connection.local} ({channel.number})",
                            "number": channel.number, "user": connection.identity.user,
                            "connection_name": f"{connection.peer} -> {connection.local}"}}


def peer_details(peer: str, local: str) -> Row:
    host, _, port = peer.rpartition(":")
    return {"name": f"{peer} -> {local}", "peer_host": host, "peer_port": int(port) if port.isdigit() else 0}


def show_connection(asking: Asking, described: Row) -> Row:
    """What `OpenConnection.describe` tells of a connection of this door."""
    peer, local = described["peer"], described["listener"]
    port = local.rpartition(":")[2]
    name = f"{peer} -> {local}"
    return {**peer_details(peer, local), "id": described["id"], "node": node_name(asking), "type": "network",
            "protocol": PROTOCOL, "user": described.get("user", ""), "vhost": described.get("vhost", ""),
            "user_who_performed_action": described.get("user", ""), "user_provided_name": described.get("client_name"),
            "state": "running" if described.get("state") == "open" else str(described.get("state", "")),
            "connected_at": described["since"], "ssl": described["tls"] is not None, "ssl_protocol": described["tls"],
            "channels": len(described.get("channels", ())), "channel_max": described.get("channel_max", 0),
            "frame_max": described.get("frame_max", 0), "timeout": described.get("heartbeat_s", 0), "name": name,
            "host": local.rpartition(":")[0], "port": int(port) if port.isdigit() else 0,
            "client_properties": described.get("client_properties", {}), "send_pend": described["unsent_bytes"],
            "auth_mechanism": described.get("mechanism", "")}


def show_channels(asking: Asking, described: Row) -> list[Row]:
    connection = show_connection(asking, described)
    details = {name: connection[name] for name in ("name", "peer_host", "peer_port")}
    return [{"name": f"{connection['name']} ({channel['channel']})", "number": channel["channel"],
             "node": node_name(asking), "user": connection["user"], "vhost": connection["vhost"], "state": "running",
             "connection_details": details, "consumer_count": channel["consumers"], "confirm": channel["confirms"],
             "messages_unacknowledged": channel["unacknowledged"], "messages_unconfirmed": 0,
             "messages_uncommitted": 0, "acks_uncommitted": 0, "transactional": channel.get("transactional", False),
             "prefetch_count": channel.get("prefetch", 0), "global_prefetch_count": channel.get("global_prefetch", 0),
             "user_who_performed_action": connection["user"]}
            for channel in described.get("channels", ())]
