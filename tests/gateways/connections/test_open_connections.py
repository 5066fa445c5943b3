"""Connections by id: pages, epochs, ids that are none."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.connections.open_connections import ASKED_AT_ONCE, OpenConnections, held_by


class Peer:
    def __init__(self, waiting_bytes: int = 0) -> None:
        self.waiting_bytes = waiting_bytes

    def held_bytes(self) -> int:
        return self.waiting_bytes

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


def test_what_all_peers_have_waiting_is_asked_of_some_at_a_time() -> None:
    connections = OpenConnections(7)
    peers = [Peer(3) for _ in range(ASKED_AT_ONCE + 10)]
    ids = [connections.add(peer) for peer in peers]
    assert connections.held_bytes() == 3 * ASKED_AT_ONCE                  # the rest with the next call
    assert connections.held_bytes() == 3 * (ASKED_AT_ONCE + 10)
    for gone in ids[5:]:
        connections.remove(gone)
    peers[0].waiting_bytes = 100
    assert connections.held_bytes() == 112
    connections.remove(ids[0])
    assert connections.held_bytes() == 12


def test_a_session_that_does_not_say_what_it_holds_holds_nothing() -> None:
    assert held_by(object()) == 0 and held_by(None) == 0 and held_by(Peer(7)) == 7


@pytest.mark.parametrize("unknown", ["", "7", "7-", "7-9", "6-1", "-1", "7--1", "7-1x", "7-\u0661", "x" * 1000])
def test_what_is_no_id_finds_nobody(unknown: str) -> None:
    connections = OpenConnections(7)
    peer = Peer()
    connections.add(peer)
    assert connections.find(unknown) is None
    connections.remove(unknown)
    assert connections.find("7-1") is peer
