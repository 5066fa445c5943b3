"""Connections by id: pages, epochs, ids that are none."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.connections.open_connections import OpenConnections


class Peer:
    def describe(self) -> dict[str, Any]:
        return {}

    def end(self, reason: str) -> None: ...


def test_pages_go_on_over_those_that_leave() -> None:
    connections = OpenConnections(7)
    peers = [Peer() for _ in range(5)]
    ids = [connections.add(peer) for peer in peers]
    assert ids == ["7-1", "7-2", "7-3", "7-4", "7-5"]
    assert connections.page(limit=2) == (peers[:2], "7-2")
    connections.remove("7-2")
    connections.remove("7-3")
    assert connections.page("7-2", 2) == (peers[3:], None)
    assert connections.add(Peer()) == "7-6" and len(connections) == 4


@pytest.mark.parametrize("unknown", ["", "7", "7-", "7-9", "6-1", "-1", "7--1", "7-1x", "7-\u0661", "x" * 1000])
def test_what_is_no_id_finds_nobody(unknown: str) -> None:
    connections = OpenConnections(7)
    peer = Peer()
    connections.add(peer)
    assert connections.find(unknown) is None
    connections.remove(unknown)
    assert connections.find("7-1") is peer
