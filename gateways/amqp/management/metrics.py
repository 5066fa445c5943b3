"""What RabbitMQ's Prometheus plug-in says of queues, for its Grafana dashboards: `/rabbitmq/metrics`, in sums, and
`/rabbitmq/metrics/per-object`, queue by queue.

Of the queues that who asks may know of; connections and channels of others are for administrators. What the hub itself
measures is at `/metrics`.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gatehouse.gateways.amqp.management.asking import Asking, nothing_there
from gatehouse.gateways.amqp.management.hub import RABBITMQ_VERSION
from gatehouse.gateways.amqp.management.seeing import described_connections, queues_of
from gatehouse.gateways.amqp.management.shown import node_name, show_queue
from gatehouse.gateways.contract import HttpAnswer

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


async def serve(services: Services, ask: HttpAsk) -> HttpAnswer:
    """See `contract.HttpRoute`."""
    if ask.method != "GET" or ask.path not in (("metrics",), PER_OBJECT):
        raise nothing_there()
    asking = Asking(services, ask)
    rows = [show_queue(asking, queue) for host in asking.hosts() for queue in queues_of(host)]
    lines = _head("rabbitmq_identity_info", "RabbitMQ node & cluster identity info", "untyped")
    identity = _labels(rabbitmq_node=node_name(asking), rabbitmq_cluster=services.hub_name)
    lines.append(f"rabbitmq_identity_info{{{identity}}} 1")
    lines += _head("rabbitmq_build_info", "RabbitMQ & Erlang/OTP version info", "untyped")
    lines.append(f"rabbitmq_build_info{{{_labels(rabbitmq_version=RABBITMQ_VERSION)}}} 1")
    for name, (field, help) in OF_QUEUES.items():
        lines += _head(name, help, "gauge")
        if ask.path == PER_OBJECT:
            lines += [f"{name}{{{_labels(vhost=row['vhost'], queue=row['name'])}}} {row.get(field, 0)}" for row in rows]
        else:
            lines.append(f"{name} {sum([row.get(field, 0) for row in rows])}")
    open_connections = list(described_connections(asking))
    for name, help, count in (
            ("rabbitmq_connections", "Connections currently open", len(open_connections)),
            ("rabbitmq_channels", "Channels currently open",
             sum([len(connection.get("channels", ())) for connection in open_connections])),
            ("rabbitmq_queues", "Queues available", len(rows)),
            ("rabbitmq_consumers", "Consumers currently connected", sum([row["consumers"] for row in rows]))):
        lines += [*_head(name, help, "gauge"), f"{name} {count}"]
    return HttpAnswer(200, body=("\n".join(lines) + "\n").encode(), content_type=CONTENT_TYPE)


def _head(name: str, help: str, kind: str) -> list[str]:
    return [f"# TYPE {name} {kind}", f"# HELP {name} {help}"]


def _labels(**labels: str) -> str:
    return ",".join([f'{name}="{_escaped(value)}"' for name, value in labels.items()])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
