"""Every call of the door, one file per subject, put together in tables."""
from __future__ import annotations

from types import ModuleType

from gateways.http.door import Handler
from gateways.http.routes import (
    batches,
    bulk,
    dead_letters,
    groups,
    health,
    leases,
    messages,
    not_built,
    publish,
    queues,
    reading,
    retained,
    scheduled,
    topics,
)
from gateways.http.routing import RouteTable


def build_table() -> RouteTable[Handler]:
    """The table of all calls that are built."""
    return _table(publish, messages, reading, retained, batches, bulk, topics, groups, leases, dead_letters, queues,
                  scheduled, health)


def build_not_built_table() -> RouteTable[Handler]:
    """The table of calls that the interface names and the hub does not have yet."""
    return _table(not_built)


def _table(*modules: ModuleType) -> RouteTable[Handler]:
    table: RouteTable[Handler] = RouteTable()
    for module in modules:
        for method, pattern, handler in module.ROUTES:
            table.add(method, pattern, handler)
    return table
