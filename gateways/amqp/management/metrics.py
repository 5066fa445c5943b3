"""What RabbitMQ's Prometheus plug-in says, for its Grafana dashboards: `/rabbitmq/metrics`, in sums, and
`/rabbitmq/metrics/per-object`, queue by queue.

Of the queues that who asks may know of; connections and channels of others are for administrators, and so is what the
process takes of the machine. What the hub itself measures is at `/metrics`.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gatehouse.gateways.amqp.broker import DOOR_NAME
from gatehouse.gateways.amqp.login import RABBITMQ_VERSION
from gatehouse.gateways.amqp.management.asking import Asking, Row, nothing_there
from gatehouse.gateways.amqp.management.seeing import (
    described_connections,
    node_name,
    queues_of,
    show_queue,
)
from gatehouse.gateways.contract import HttpAnswer
from gatehouse.gateways.version import hub_version

if TYPE_CHECKING:
    from gatehouse.gateways.contract import HttpAsk, Services

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OF_QUEUES: Final = {
    "rabbitmq_queue_messages_ready": ("messages_ready", "Messages ready to be delivered to consumers"),
    "rabbitmq_queue_messages_unacked": ("messages_unacknowledged",
                                        "Messages delivered to consumers but not yet acknowledged"),
    "rabbitmq_queue_messages": ("messages", "Sum of ready and unacknowledged messages"),
    "rabbitmq_queue_consumers": ("consumers", "Consumers on a queue")}
PER_OBJECT: Final = ("metrics", "per-object")
ENDPOINTS: Final = {("metrics",): "aggregated", PER_OBJECT: "per-object"}      # what dashboards choose by
PROTOCOL: Final = {"protocol": "amqp091"}
COUNTER, GAUGE, UNTYPED = "counter", "gauge", "untyped"


class Sample(NamedTuple):
    """One metric with one value."""

    name: str
    kind: str
    help: str
    value: float
    labels: dict[str, str] = {}


async def serve(services: Services, ask: HttpAsk) -> HttpAnswer:
    """See `contract.HttpRoute`."""
    if ask.method != "GET" or ask.path not in ENDPOINTS:
        raise nothing_there()
    asking = Asking(services, ask)
    rows = [show_queue(asking, queue) for host in asking.hosts() for queue in queues_of(host)]
    samples = [*_identity(asking), *_of_what_is_there(asking, rows), *_of_messages(asking), *_of_changes(asking)]
    if asking.may_administer and services.status is not None:
        samples += _of_node(services, await services.status.document())
    lines: list[str] = []
    for sample in samples:
        lines += _head(sample.name, sample.help, sample.kind)
        lines.append(f"{sample.name}{_labels(sample.labels)} {sample.value}")
    lines += _of_queues(rows, each=ask.path == PER_OBJECT)
    return HttpAnswer(200, body=("\n".join(lines) + "\n").encode(), content_type=CONTENT_TYPE)


def _identity(asking: Asking) -> Iterator[Sample]:
    """Dashboards join everything with these, by the labels that Prometheus adds: `instance` and `job`."""
    cluster = asking.services.hub_name
    yield Sample("rabbitmq_identity_info", UNTYPED, "RabbitMQ node & cluster identity info", 1, {
        "rabbitmq_node": node_name(asking), "rabbitmq_cluster": cluster, "rabbitmq_cluster_permanent_id": cluster,
        "rabbitmq_endpoint": ENDPOINTS[asking.ask.path]})
    yield Sample("rabbitmq_build_info", UNTYPED, "RabbitMQ & Erlang/OTP version info", 1, {
        "rabbitmq_version": RABBITMQ_VERSION, "erlang_version": "", "prometheus_plugin_version": "",
        "prometheus_client_version": "", "product_name": "Gatehouse", "product_version": hub_version()})


def _of_what_is_there(asking: Asking, rows: list[Row]) -> Iterator[Sample]:
    open_connections = list(described_connections(asking))
    channels = [channel for connection in open_connections for channel in connection.get("channels", ())]
    consumers = sum([row["consumers"] for row in rows])
    publishers = len([channel for channel in channels if channel["publishes"]])
    yield Sample("rabbitmq_connections", GAUGE, "Connections currently open", len(open_connections))
    yield Sample("rabbitmq_channels", GAUGE, "Channels currently open", len(channels))
    yield Sample("rabbitmq_queues", GAUGE, "Queues available", len(rows))
    yield Sample("rabbitmq_consumers", GAUGE, "Consumers currently connected", consumers)
    yield Sample("rabbitmq_global_consumers", GAUGE, "Current number of consumers", consumers, PROTOCOL)
    yield Sample("rabbitmq_global_publishers", GAUGE, "Current number of publishers", publishers, PROTOCOL)


def _of_messages(asking: Asking) -> Iterator[Sample]:
    """Messages of this door since the start of the hub."""
    flow, totals = asking.services.admission.trace.flow(DOOR_NAME), asking.broker.totals
    for name, help, value in (
            ("messages_received", "Messages received from publishers", flow.messages_in + totals.nowhere),
            ("messages_received_confirm", "Messages received from publishers using confirms", totals.confirming),
            ("messages_confirmed", "Messages confirmed to publishers", totals.confirmed),
            ("messages_routed", "Messages routed to queues and topics", flow.messages_in),
            ("messages_unroutable_dropped", "Messages dropped that lead nowhere", totals.dropped),
            ("messages_unroutable_returned", "Messages returned that lead nowhere", totals.returned),
            ("messages_delivered", "Messages delivered", flow.messages_out),
            ("messages_delivered_consume_auto_ack", "Messages delivered to consumers, acknowledged by that",
             totals.consumed_auto),
            ("messages_delivered_consume_manual_ack", "Messages delivered to consumers that acknowledge",
             totals.consumed_manual),
            ("messages_delivered_get_auto_ack", "Messages fetched with basic.get, acknowledged by that",
             totals.got_auto),
            ("messages_delivered_get_manual_ack", "Messages fetched with basic.get, to be acknowledged",
             totals.got_manual),
            ("messages_get_empty", "basic.get that found no message", totals.got_nothing),
            ("messages_redelivered", "Messages given back, to be delivered again", totals.given_back),
            ("messages_acknowledged", "Messages acknowledged by consumers", totals.acknowledged)):
        yield Sample(f"rabbitmq_global_{name}_total", COUNTER, help, value, PROTOCOL)
    yield Sample("rabbitmq_message_size_bytes_sum", COUNTER, "Bytes of the messages received", flow.bytes_in, PROTOCOL)
    yield Sample("rabbitmq_message_size_bytes_count", COUNTER, "Messages received", flow.messages_in, PROTOCOL)


def _of_changes(asking: Asking) -> Iterator[Sample]:
    totals = asking.broker.totals
    for name, help, value in (
            ("queues_declared", "Queues declared, new or not", totals.queues_declared),
            ("queues_created", "Queues created", totals.queues_created),
            ("queues_deleted", "Queues deleted", totals.queues_deleted),
            ("channels_opened", "Channels opened", totals.channels_opened),
            ("channels_closed", "Channels closed", totals.channels_closed),
            ("connections_opened", "Connections opened", totals.connections_opened),
            ("connections_closed", "Connections closed or terminated", totals.connections_closed)):
        yield Sample(f"rabbitmq_{name}_total", COUNTER, f"Total number of: {help}", value)


def _of_node(services: Services, status: dict[str, Any]) -> Iterator[Sample]:
    capacity, settings = services.capacity, services.kernel.settings
    for name, help, value in (
            ("erlang_uptime_seconds", "Node uptime", (status["now"] - status["started"]) / 1_000),
            ("process_resident_memory_bytes", "Memory used in bytes", status["memory_bytes"]),
            ("resident_memory_limit_bytes", "Memory that the hub may use (hub.memory_bytes)",
             status["overload"]["memory_budget_bytes"]),
            ("process_open_fds", "Connections of all doors", capacity.open),
            ("process_max_fds", "Connections that the descriptors allow", capacity.limit),
            ("disk_space_available_bytes", "Disk space available in bytes", status["log"]["disk_free_bytes"]),
            ("disk_space_available_limit_bytes", "Free disk space below which nothing is stored "
                                                 "(kernel.reserve_bytes)", settings.reserve_bytes)):
        yield Sample(f"rabbitmq_{name}", GAUGE, help, value)


def _of_queues(rows: list[Row], *, each: bool) -> Iterator[str]:
    for name, (field, help) in OF_QUEUES.items():
        yield from _head(name, help, GAUGE)
        if each:
            for row in rows:
                labels = {"vhost": row["vhost"], "queue": row["name"]}
                yield f"{name}{_labels(labels)} {row.get(field, 0)}"
        else:
            yield f"{name} {sum([row.get(field, 0) for row in rows])}"


def _head(name: str, help: str, kind: str) -> Iterable[str]:
    return f"# TYPE {name} {kind}", f"# HELP {name} {help}"


def _labels(labels: dict[str, str]) -> str:
    pairs = ",".join([f'{name}="{_escaped(value)}"' for name, value in labels.items()])
    return f"{{{pairs}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
