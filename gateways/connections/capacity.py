"""How many connections the descriptors allow, counted over all doors: none may take those that the log needs, and no
single address those of everybody else.

An address is an IPv4 address, or the /64 of an IPv6 address. By default it gets half of the places that all doors have
together; the machine's own addresses get all of them, since a proxy that runs beside the hub brings everybody by one.
Where a door's `max_connections_per_address` is set, that holds for every address, and for this door alone.
"""
from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from gatehouse.gateways.networks import is_loopback, network_of

RESERVED_DESCRIPTORS: Final = 256     # for the log's segments, the index, the SQL file, listeners, the loop itself

PER_ADDRESS_HALF: Final = 2           # an address has this part of all places, where the door does not say

PER_ADDRESS: Final[Mapping[str, Any]] = {
    "min": 0, "max": 1_000_000,
    "help": "Connections that one address (of IPv6, one /64) may have open at this door; further ones are refused. "
            "0: half of what the descriptors allow for all doors together, and no bound for this machine's own "
            "addresses. Clients behind one NAT or proxy count as one address."}
"""What `max_connections_per_address` is, on every door."""


def descriptor_capacity() -> int:
    """How many connections the soft descriptor limit allows beside what the hub itself needs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, soft - RESERVED_DESCRIPTORS)


class Capacity:
    """How many connections may be open, over all doors, and how many are, in sum and by network."""

    __slots__ = ("by_network", "limit", "open")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0
        self.by_network: Counter[str] = Counter()

    def take(self, network: str) -> None:
        """One more is open, from this network."""
        self.open += 1
        self.by_network[network] += 1

    def give(self, network: str) -> None:
        """One less."""
        self.open -= 1
        _count_down(self.by_network, network)


class Room:  # decision 120
    """One door's connections among those of all doors. `per_address` is its setting; `most` bounds them in sum (0: not
    at all), and `spare` lets it have a few more than all doors may."""

    def __init__(self, capacity: Capacity, counts: Counter[str], per_address: int = 0, *, most: int = 0,
                 spare: int = 0) -> None:
        self._capacity = capacity
        self._counts = counts
        self._per_address = per_address
        self._most = most
        self._spare = spare
        self._open = 0
        self._by_network: Counter[str] = Counter()

    def take(self, peer: str) -> str:
        """One place for this peer, until `give`. Returns why there is none, `code: text`, and counts that; "" where
        there was one."""
        network, capacity = network_of(peer), self._capacity
        if capacity.open >= capacity.limit + self._spare:
            return self._refused(f"too_many_connections: the limit of {capacity.limit} is reached")
        if self._most and self._open >= self._most:
            return self._refused(f"too_many_connections: the limit of {self._most} is reached")
        if self._is_full_for(network):
            self._counts["refused_by_address"] += 1
            return self._refused("too_many_of_address: as many as one address may have are open")
        capacity.take(network)
        self._open += 1
        self._by_network[network] += 1
        return ""

    def give(self, peer: str) -> None:
        """Give back a place that `take` gave to this peer."""
        network = network_of(peer)
        self._capacity.give(network)
        self._open -= 1
        _count_down(self._by_network, network)

    def _is_full_for(self, network: str) -> bool:
        if self._per_address:
            return self._by_network[network] >= self._per_address
        capacity = self._capacity
        return not is_loopback(network) and capacity.by_network[network] >= max(1, capacity.limit // PER_ADDRESS_HALF)

    def _refused(self, reason: str) -> str:
        self._counts["refused"] += 1
        return reason


def _count_down(counted: Counter[str], network: str) -> None:
    """One less; a network without any is not kept."""
    counted[network] -= 1
    if not counted[network]:
        del counted[network]
