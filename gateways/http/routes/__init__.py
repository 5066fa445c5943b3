"""Every call of the door, one file per subject; `build_table` puts them together."""
from __future__ import annotations

from gateways.http.door import Handler
from gateways.http.routes import batches, health, messages, not_built, publish, reading, topics
from gateways.http.routing import RouteTable


def build_table() -> RouteTable[Handler]:
    """The table of all calls, built and not built."""
    table: RouteTable[Handler] = RouteTable()
    for module in (publish, messages, reading, batches, topics, health, not_built):
        for method, pattern, handler in module.ROUTES:
            table.add(method, pattern, handler)
    return table
