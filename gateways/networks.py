"""Who is one peer: the network behind an address, for whatever is counted against it or bounded for it. Pure."""
from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network
from typing import Final

LOOPBACK_IPV6: Final = "::/64"


def network_of(peer: str) -> str:  # decision 88
    """The network of a peer (`host:port`): the address without its port, of IPv6 the network of 64 bits, all of which
    is one customer's (RFC 6177). As it is where it is no address."""
    host, colon, port = peer.rpartition(":")
    if not colon or not port.isdigit() or not (host.endswith("]") or ":" not in host):
        return peer
    return _network(host) if host.startswith("[") else host


def region_of(network: str) -> str:
    """What this network is a part of: the /24 of an IPv4 address, the /48 of IPv6, which is a whole site."""
    if network.endswith("/64"):
        return _site(network)
    return network.rpartition(".")[0] or network


def is_loopback(network: str) -> bool:
    """Whether it is this machine."""
    return network.startswith("127.") or network == LOOPBACK_IPV6


@lru_cache(maxsize=1024)
def _network(host: str) -> str:
    """The network of a host that is written as `[ADDRESS]`."""
    try:
        address = IPv6Address(host[1:-1])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> 64 << 64)) + "/64"


@lru_cache(maxsize=1024)
def _site(network: str) -> str:
    return str(IPv6Network(network).supernet(new_prefix=48))
