"""Every call of the door, one file per subject, put together in tables."""
from __future__ import annotations

from gatehouse.gateways.http.declaring import Declared
from gatehouse.gateways.http.dispatch import RouteTable
from gatehouse.gateways.http.routes import (
    acl,
    backups,
    batches,
    checks,
    circuits,
    connections,
    console,
    dead_letters,
    drills,
    events,
    groups,
    leases,
    limits,
    messages,
    openapi,
    queues,
    relay,
    request,
    retained,
    scheduled,
    sessions,
    status,
    topics,
    trace,
    transactions,
    users,
    waiting_messages,
    webhooks,
    websocket,
)


def build_table() -> RouteTable[Declared]:
    """The table of all calls that are built."""
    table: RouteTable[Declared] = RouteTable()
    for module in (
        messages,
        request,
        events,
        retained,
        batches,
        topics,
        users,
        acl,
        limits,
        circuits,
        drills,
        connections,
        sessions,
        groups,
        leases,
        dead_letters,
        queues,
        waiting_messages,
        scheduled,
        transactions,
        checks,
        trace,
        websocket,
        webhooks,
        backups,
        relay,
        status,
        console,
        openapi,
    ):
        for method, pattern, handler in module.ROUTES:
            table.add(method, pattern, handler)
    return table
