"""Exchanges, queues, bindings, consumers and connections as the management interface shows them."""
from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus

from gatehouse.gateways.amqp.arguments import queue_type
from gatehouse.gateways.amqp.exchanges import QUEUE
from gatehouse.gateways.amqp.management.asking import shown_table
from gatehouse.gateways.amqp.policies import effective
from gatehouse.gateways.amqp.tables import Table, decode_table

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.consuming import Consumer
    from gatehouse.gateways.amqp.exchanges import Binding, Exchange
    from gatehouse.gateways.amqp.management.asking import Asking
    from gatehouse.gateways.amqp.vhost import AmqpQueue, VirtualHost

Row = dict[str, Any]

HASH_BYTES: Final = 5
DEFAULT_NAME: Final = "amq.default"    # of the default exchange, where a path cannot hold an empty level
COUNTED: Final = ("messages", "messages_ready", "messages_unacknowledged")
PROTOCOL: Final = "AMQP 0-9-1"


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
