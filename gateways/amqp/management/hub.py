"""What tools ask of a node: overview, memory, who they are, virtual hosts, users; as far as there is such a thing;
and health checks: of a node, which is the hub, and of its queues.
"""
from __future__ import annotations

from typing import Any, Final

from gatehouse.gateways.amqp.broker import DOOR_NAME
from gatehouse.gateways.amqp.exchanges import ROUTERS
from gatehouse.gateways.amqp.login import RABBITMQ_VERSION
from gatehouse.gateways.amqp.management.asking import Asking, Row, bad_request, listed, nothing_there, one
from gatehouse.gateways.amqp.management.changing import declare_queue
from gatehouse.gateways.amqp.management.messages import send, take
from gatehouse.gateways.amqp.management.seeing import (
    COUNTED,
    described_connections,
    node_name,
    queues_of,
    rate,
    with_rates,
)
from gatehouse.gateways.amqp.properties import write
from gatehouse.gateways.amqp.tables import Table
from gatehouse.gateways.contract import HttpAnswer
from gatehouse.gateways.version import hub_version

MEMORY: Final = (
    "connection_readers", "connection_writers", "connection_channels", "connection_other", "queue_procs",
    "quorum_queue_procs", "quorum_queue_dlx_procs", "stream_queue_procs", "stream_queue_replica_reader_procs",
    "stream_queue_coordinator_procs", "plugins", "metadata_store", "other_proc", "metrics", "mgmt_db", "mnesia",
    "quorum_ets", "metadata_store_ets", "other_ets", "binary", "msg_index", "code", "atom", "other_system",
    "allocated_unused", "reserved_unallocated")
"""What RabbitMQ's memory is made of."""

FEATURES: Final = ("implicit_default_bindings", "quorum_queue", "stream_queue")
PROTOCOLS: Final = {"amqp": "amqp", "mqtt": "mqtt", "http": "http", "kafka": "kafka"}


def _stats(asking: Asking) -> Row:
    flow = asking.services.admission.trace.flow(DOOR_NAME)
    return with_rates(asking, ("", ""), {"publish": flow.messages_in, "deliver_get": flow.messages_out})


def listeners_of(asking: Asking) -> list[Row]:
    """Where the hub listens."""
    rows = []
    for name, listener in asking.services.listeners.items():
        for address in listener.addresses():
            host, _, port = address.rpartition(":")
            rows.append({"node": node_name(asking), "protocol": PROTOCOLS.get(name, name), "ip_address": host,
                         "port": int(port) if port.isdigit() else 0})
    return rows


def _totals(asking: Asking) -> Row:
    """Messages in the queues that who asks may know of."""
    totals = dict.fromkeys(COUNTED, 0)
    for host in asking.hosts():
        for queue in queues_of(host):
            if queue.kernel_queue is not None:
                counts = asking.broker.queues.counts(queue)
                unacknowledged = counts.leased + counts.waiting
                for name, count in zip(COUNTED, (counts.ready + unacknowledged, counts.ready, unacknowledged),
                                       strict=True):
                    totals[name] += count
    return {**totals, **{f"{name}_details": rate() for name in totals}}


async def overview(asking: Asking) -> HttpAnswer:
    hosts = asking.hosts()
    open_connections = list(described_connections(asking))
    queues = [queue for host in hosts for queue in queues_of(host)]
    row: Row = {
        "management_version": RABBITMQ_VERSION, "rabbitmq_version": RABBITMQ_VERSION, "product_name": "Gatehouse",
        "product_version": hub_version(), "erlang_version": "", "erlang_full_version": "",
        "cluster_name": asking.services.hub_name, "node": node_name(asking), "rates_mode": "basic",
        "sample_retention_policies": {"global": [], "basic": [], "detailed": []}, "disable_stats": False,
        "enable_queue_totals": True, "statistics_db_event_queue": 0, "release_series_support_status": "supported",
        "exchange_types": [{"name": name, "description": "", "enabled": True} for name in sorted(ROUTERS)],
        "message_stats": _stats(asking), "churn_rates": {}, "queue_totals": _totals(asking), "contexts": [],
        "object_totals": {
            "connections": len(open_connections), "queues": len(queues),
            "channels": sum([len(one_of.get("channels", ())) for one_of in open_connections]),
            "consumers": sum([len(queue.consumers) for queue in queues]),
            "exchanges": sum([1 + len(host.vhost.exchanges) for host in hosts])},
        "listeners": listeners_of(asking) if asking.may_administer else []}
    return HttpAnswer(200, one(row, asking.query))


def _node(asking: Asking) -> Row:
    return {"name": node_name(asking), "type": "disc", "running": not asking.services.unready(), "partitions": [],
            "mem_alarm": False, "disk_free_alarm": False, "rates_mode": "none", "fd_used": 0, "fd_total": 0,
            "sockets_used": len(asking.services.connections), "sockets_total": 0, "mem_used": 0, "mem_limit": 0,
            "disk_free": 0, "disk_free_limit": 0, "proc_used": 0, "proc_total": 0, "uptime": 0, "run_queue": 0,
            "processors": 1, "applications": [], "auth_mechanisms": [], "contexts": [], "enabled_plugins": [],
            "being_drained": False, "exchange_types": [{"name": name, "description": "", "enabled": True}
                                                       for name in sorted(ROUTERS)]}


async def nodes(asking: Asking) -> HttpAnswer:
    return HttpAnswer(200, listed([_node(asking)], asking.query))


async def node(asking: Asking, name: str) -> HttpAnswer:
    if name != node_name(asking):
        raise nothing_there()
    return HttpAnswer(200, one(_node(asking), asking.query))


async def memory(asking: Asking, name: str, *relative: str) -> HttpAnswer:
    """One number, or 100 percent of it: what of RabbitMQ's parts there is here is not counted apart."""
    if name != node_name(asking):
        raise nothing_there()
    asking.require_administrator()
    status = asking.services.status
    used = 0 if status is None else (await status.document())["memory_bytes"]
    total = 100 if relative else {"rss": used, "allocated": used, "erlang": 0}
    return HttpAnswer(200, {"memory": {**dict.fromkeys(MEMORY, 0), "other_system": 100 if relative else used,
                                       "strategy": "rss", "total": total}})


async def version(asking: Asking) -> HttpAnswer:
    return HttpAnswer(200, RABBITMQ_VERSION)


async def enable_feature(asking: Asking, name: str) -> HttpAnswer:
    """Those that are known are enabled."""
    asking.require_administrator()
    if name not in FEATURES:
        raise bad_request("unsupported")
    return HttpAnswer(204)


async def rebalance(asking: Asking) -> HttpAnswer:
    """Queues are in balance where there is one hub."""
    asking.require_administrator()
    return HttpAnswer(204)


async def put_limit(asking: Asking, *path: str) -> HttpAnswer:
    asking.require_administrator()
    raise bad_request("limits are made with `gatehouse limits`, or at /v1/limits")


async def put_parameter(asking: Asking, *path: str) -> HttpAnswer:
    asking.require_administrator()
    raise bad_request("there are no runtime parameters: no federation, no shovels; links to other hubs are [relay]")


async def parameter(asking: Asking, *path: str) -> HttpAnswer:
    """There are none, so there is none of this name: tools look before they make one."""
    asking.require_administrator()
    raise nothing_there()


async def cluster_name(asking: Asking) -> HttpAnswer:
    return HttpAnswer(200, {"name": asking.services.hub_name})


async def nothing(asking: Asking, *path: str) -> HttpAnswer:
    """Lists of what there is none of here."""
    return HttpAnswer(200, [])


async def feature_flags(asking: Asking) -> HttpAnswer:
    return HttpAnswer(200, [{"name": name, "desc": "", "doc_url": "", "state": "enabled", "stability": "stable",
                             "provided_by": "rabbit"} for name in FEATURES])


# ---- who

async def whoami(asking: Asking) -> HttpAnswer:
    return HttpAnswer(200, {"name": asking.principal.name, "tags": _tags(asking.may_administer),
                            "is_internal_user": True})


def _tags(administers: bool) -> list[str]:
    return ["administrator"] if administers else ["management"]


async def vhosts(asking: Asking) -> HttpAnswer:
    return HttpAnswer(200, listed([_vhost(asking, host.vhost.name) for host in asking.hosts()], asking.query))


def _vhost(asking: Asking, name: str) -> Row:
    return {"name": name, "description": "", "tags": [], "metadata": {"description": "", "tags": []},
            "default_queue_type": "undefined", "tracing": False, "cluster_state": {node_name(asking): "running"}}


async def vhost(asking: Asking, name: str) -> HttpAnswer:
    asking.host(name)
    return HttpAnswer(200, one(_vhost(asking, name), asking.query))


async def put_vhost(asking: Asking, name: str) -> HttpAnswer:
    asking.require_administrator()
    if name in asking.services.admission.tenants(asking.principal):
        return HttpAnswer(204)
    raise bad_request(f"a virtual host is a tenant of users: gatehouse users change NAME --tenants {name}")


def _users(asking: Asking) -> list[Row]:
    asking.require_administrator()
    administration = asking.services.accounts
    if administration is None:
        return []
    accounts = administration.accounts
    return [{"name": name, "tags": _tags(accounts.is_administrator(name)), "password_hash": "",
             "hashing_algorithm": "", "limits": {}} for name in sorted(accounts.users)]


async def users(asking: Asking) -> HttpAnswer:
    return HttpAnswer(200, listed(_users(asking), asking.query))


async def user(asking: Asking, name: str) -> HttpAnswer:
    for row in _users(asking):
        if row["name"] == name:
            return HttpAnswer(200, one(row, asking.query))
    raise nothing_there()


async def put_user(asking: Asking, name: str) -> HttpAnswer:
    asking.require_administrator()
    raise bad_request("users and their rights are made with `gatehouse users` and `gatehouse acl`, or at /v1/users")


def permissions_of(asking: Asking) -> list[Row]:
    """What RabbitMQ says with three patterns; rules that are no patterns of names cannot be said so, and are empty."""
    administration = asking.services.accounts
    if administration is None or not asking.may_administer:
        every = ".*" if asking.may_administer else ""
        return [_permission(asking.principal.name, host.vhost.name, every) for host in asking.hosts()]
    accounts = administration.accounts
    return [_permission(name, tenant, ".*" if accounts.is_administrator(name) else "")
            for name, user in sorted(accounts.users.items()) for tenant in sorted(user.tenants | {user.tenant})]


def _permission(user: str, vhost: str, pattern: str) -> dict[str, Any]:
    return {"user": user, "vhost": vhost, "configure": pattern, "write": pattern, "read": pattern}


async def permissions(asking: Asking) -> HttpAnswer:
    return HttpAnswer(200, listed(permissions_of(asking), asking.query))


async def permissions_of_user(asking: Asking, name: str) -> HttpAnswer:
    return HttpAnswer(200, listed([row for row in permissions_of(asking) if row["user"] == name], asking.query))


async def permissions_of_vhost(asking: Asking, name: str) -> HttpAnswer:
    asking.host(name)
    return HttpAnswer(200, listed([row for row in permissions_of(asking) if row["vhost"] == name], asking.query))


async def put_permission(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    return await put_user(asking, name)


async def permission(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    for row in permissions_of(asking):
        if (row["vhost"], row["user"]) == (vhost, name):
            return HttpAnswer(200, row)
    raise nothing_there()


PROBE: Final = "aliveness-test"
OF_AMQP: Final = ("amqp", "amqp091", "amqp0.9.1", "amqp0-9-1", "amqp0_9_1")
NO_LISTENER: Final = "No active listener"


def _healthy(asking: Asking) -> HttpAnswer:
    unready = asking.services.unready()
    if not unready:
        return HttpAnswer(200, {"status": "ok"})
    return HttpAnswer(503, {"status": "failed", "reason": unready})


async def health(asking: Asking, *path: str) -> HttpAnswer:
    """Whether the hub takes new work."""
    return _healthy(asking)


async def health_of_node(asking: Asking, name: str) -> HttpAnswer:
    if name != node_name(asking):
        raise nothing_there()
    return _healthy(asking)


async def port_listener(asking: Asking, port: str) -> HttpAnswer:
    ports = sorted({row["port"] for row in listeners_of(asking)})
    if not port.isascii() or not port.isdigit():
        raise bad_request("Invalid port")
    number = int(port[:6])
    if number in ports:
        return HttpAnswer(200, {"status": "ok", "port": number})
    return HttpAnswer(503, {"status": "failed", "reason": NO_LISTENER, "missing": number, "ports": ports})


async def protocol_listener(asking: Asking, asked: str) -> HttpAnswer:
    """One protocol, or several between commas."""
    there = sorted({row["protocol"] for row in listeners_of(asking)})
    names = ["amqp" if name in OF_AMQP else name for name in asked.lower().split(",")]
    missing = sorted({name for name in names if name not in there})
    if not missing:
        return HttpAnswer(200, {"status": "ok", "protocols": there})
    return HttpAnswer(503, {"status": "failed", "reason": NO_LISTENER, "missing": missing, "protocols": there})


async def aliveness(asking: Asking, vhost: str) -> HttpAnswer:
    """A message goes into a queue and out of it."""
    host = asking.host(vhost)
    await declare_queue(asking, host, PROBE, durable=False, auto_delete=False, arguments=Table())
    queue = host.vhost.require_queue(PROBE, asking)
    host.rights.require_source(queue)
    await send(asking, host, "", PROBE, write({}), b"test_message")
    leased = await take(asking, queue)
    if leased is None:
        return HttpAnswer(503, {"status": "failed", "reason": "the message did not come back"})
    asking.broker.queues.ack(queue, [leased[:3]])
    return _healthy(asking)
