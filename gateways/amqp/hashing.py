"""The consistent-hash exchange: each message goes to one of the bindings, those with the same key to the same. Pure.

    x-consistent-hash     the routing key is hashed; with the argument `hash-header` that header, with `hash-property`
                          `message_id`, `correlation_id` or `timestamp`
    a binding's key       its weight: a whole number from 1 on

Every binding draws a number for the key, the larger its weight the better, and the highest wins (rendezvous hashing).
So a binding that comes or goes moves the keys that it wins or had, and no others.
"""
from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from math import log
from typing import Final

from gatehouse.gateways.amqp.errors import precondition
from gatehouse.gateways.amqp.routing import Binding, Destination, Properties
from gatehouse.gateways.amqp.tables import Table, described, plain

HASHING: Final = "x-consistent-hash"
BY_HEADER: Final = "hash-header"
BY_PROPERTY: Final = "hash-property"
PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")
WEIGHT: Final = re.compile(r"[+-]?\d{1,9}", re.ASCII)
DRAWN_BYTES: Final = 8


class HashingRouter:  # decision 195
    """Looks at every binding for every message, as a headers exchange does."""

    def __init__(self, arguments: Table) -> None:
        """Raises ChannelFault 406."""
        self._header, self._property = _text(arguments, BY_HEADER), _text(arguments, BY_PROPERTY)
        if self._header is not None and self._property is not None:
            raise precondition("hash-header and hash-property are mutually exclusive")
        if self._property is not None and self._property not in PROPERTIES:
            raise precondition(f"Unsupported property: {self._property}")
        self._weights: dict[Binding, tuple[int, bytes]] = {}           # with what its numbers are drawn of
        self.looks_inside = self._header is not None or self._property is not None

    def add(self, binding: Binding, arguments: Table) -> None:
        self._weights[binding] = weight_of(binding), f"{binding.destination.kind} {binding.destination.name}".encode()

    def remove(self, binding: Binding) -> None:
        del self._weights[binding]

    def route(self, routing_key: str, headers: Table, properties: Properties) -> Iterable[Destination]:
        if not self._weights:
            return ()
        hashed = blake2b(self._said(routing_key, headers, properties), digest_size=16).digest()
        best = max(self._weights, key=lambda binding: _draw(hashed, *self._weights[binding]))
        return (best.destination,)

    def _said(self, routing_key: str, headers: Table, properties: Properties) -> bytes:
        """What is hashed; what is not there is as good as empty."""
        if self._property is not None:
            said = properties.get(self._property)
        elif self._header is not None:
            field = headers.get(self._header)
            said = None if field is None else plain(field)
        else:
            said = routing_key
        return b"" if said is None else str(said).encode(errors="replace")


def weight_of(binding: Binding) -> int:
    """Raises ChannelFault 406 where a binding's key is no weight."""
    key = binding.routing_key
    if WEIGHT.fullmatch(key) is None:
        raise precondition("The binding key must be an integer: " + (f'<<"{key}">>' if key else "<<>>"))
    if int(key) < 1:
        raise precondition("The binding key must be greater than 0")
    return int(key)


def _draw(hashed: bytes, weight: int, name: bytes) -> float:
    """A number for a binding: the chance to be the highest is in proportion to its weight."""
    drawn = int.from_bytes(blake2b(name, digest_size=DRAWN_BYTES, key=hashed).digest(), "big")
    return -weight / log((drawn + 0.5) / (1 << 8 * DRAWN_BYTES))


def _text(arguments: Table, name: str) -> str | None:
    field = arguments.get(name)
    if field is None:
        return None
    if field.type != "S":
        raise precondition(f"Invalid argument '{name}': {described(field)}")
    return str(field.value.decode(errors="replace"))
