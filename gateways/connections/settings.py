"""What a door says about its connections, beside what its sessions do. Pure."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gatehouse.gateways.door_side import FLOOR_BYTES

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Link, Session


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """What the shared connection may hold for one peer."""

    high_water_bytes: int = field(default=FLOOR_BYTES, metadata={
        "help": "bytes written but not taken by the peer above which it counts as slow, and nothing more is read from "
                "it, unless `read_on_bytes` is more"})
    low_water_bytes: int = field(default=FLOOR_BYTES // 4, metadata={"help": "bytes at which reading goes on"})
    write_timeout_ms: int = field(default=30_000, metadata={
        "help": "a peer that takes none of what is waiting for it for this long is disconnected"})
    max_connections: int = field(default=0, metadata={
        "help": "connections that one door may have open; 0: as many as the descriptors allow"})
    spare_connections: int = field(default=0, metadata={
        "help": "connections that it may still take, of the hub's own reserve, where all doors have taken all"})
    linger_ms: int = field(default=0, metadata={
        "help": "after a session has closed a connection for a reason, so long the peer is read and not listened to, "
                "unless it closes sooner: else what it has sent unread would cost it the goodbye; 0: not at all"})
    read_on_bytes: int = field(default=0, metadata={
        "help": "bytes up to which a slow peer is read all the same, as far as the budget of all connections allows: "
                "for clients that take nothing while they send"})
    drain_s: float = field(default=10.0, metadata={
        "help": "seconds that sessions get to answer and say goodbye when the hub stops"})


Framing = Callable[["Link", Callable[["Link"], "Session"]], "Session"]
"""Puts a session of its own round the door's, as a WebSocket does: (the connection, what makes the door's)."""
