"""Every call of the door, one file per subject, put together in tables."""
from __future__ import annotations

from types import ModuleType

from gatehouse.gateways.http.declaring import Declared
from gatehouse.gateways.http.routes import (
    acl,
    backups,
    batches,
    bulk,
    checks,
    connections,
    console,
    dead_letters,
    events,
    groups,
    health,
    leases,
    messages,
    not_built,
    openapi,
    publish,
    queues,
    reading,
    relay,
    request,
    retained,
    scheduled,
    sessions,
    status,
    tickets,
    topics,
    trace,
    transactions,
    users,
    waiting_messages,
    webhooks,
    websocket,
)
from gatehouse.gateways.http.routing import RouteTable


def build_table() -> RouteTable[Declared]:
    """The table of all calls that are built."""
    return _table(
        publish,
        request,
        messages,
        reading,
        events,
        retained,
        batches,
        bulk,
        topics,
        users,
        acl,
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
        tickets,
        webhooks,
        backups,
        relay,
        status,
        console,
        health,
        openapi,
    )


def build_not_built_table() -> RouteTable[Declared]:
    """The table of calls that the interface names and the hub does not have yet."""
    return _table(not_built)


def _table(*modules: ModuleType) -> RouteTable[Declared]:
    table: RouteTable[Declared] = RouteTable()
    for module in modules:
        for method, pattern, handler in module.ROUTES:
            table.add(method, pattern, handler)
    return table
