"""Which peers are one network, and which are neighbours."""
from __future__ import annotations

import pytest

from gatehouse.gateways.networks import is_loopback, network_of, region_of


def test_a_network_of_ipv6_is_one_peer() -> None:
    """Whoever has one address there has 2**64 of them."""
    one, same, other = "[2001:db8:1:2::7]:5000", "[2001:db8:1:2:ffff::1]:6000", "[2001:db8:1:3::7]:5000"
    assert network_of(one) == network_of(same) != network_of(other)
    assert network_of("[::ffff:192.0.2.7]:1") == network_of("192.0.2.7:2") != network_of("[::ffff:192.0.2.8]:1")
    assert network_of("[fe80::1%eth0]:1") == network_of("[fe80::1%eth0]:2")
    assert network_of("unknown") == "unknown"
    assert network_of("[::1]:7") == network_of("[::1]:8") != network_of("127.0.0.1:7")


@pytest.mark.parametrize("network, region", [
    ("203.0.113.7", "203.0.113"), ("2001:db8:1:2::/64", "2001:db8:1::/48"), ("unknown", "unknown"), ("::/64", "::/48")])
def test_neighbours(network: str, region: str) -> None:
    assert region_of(network) == region


def test_loopback() -> None:
    for peer in ("127.0.0.1:1", "127.9.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"):
        assert is_loopback(network_of(peer))
    for peer in ("128.0.0.1:1", "[1::1]:1", "unknown"):
        assert not is_loopback(network_of(peer))
