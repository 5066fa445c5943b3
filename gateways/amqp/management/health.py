"""Health checks of tools and of operators: of a node, which is the hub, and of its queues."""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.amqp.management.asking import Asking, bad_request, nothing_there
from gatehouse.gateways.amqp.management.changing import declare_queue
from gatehouse.gateways.amqp.management.hub import listeners_of
from gatehouse.gateways.amqp.management.messages import send, take
from gatehouse.gateways.amqp.management.shown import node_name
from gatehouse.gateways.amqp.properties import write
from gatehouse.gateways.amqp.tables import Table
from gatehouse.gateways.contract import HttpAnswer

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
