"""What routers of exchanges have to do with: bindings, what they lead to, and what a message says. Pure."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Properties = Mapping[str, Any]
"""A message's properties by name, as `properties.read` gives them."""


class Destination(NamedTuple):
    kind: str                  # `exchanges.QUEUE` or EXCHANGE
    name: str


class Binding(NamedTuple):
    """One binding. Hashable, so that the same binding made twice is one."""

    source: str
    destination: Destination
    routing_key: str
    arguments: bytes           # a table as it lies on the wire
