"""What a door declares and what it is given. Third parties add doors by the entry point group `gatehouse.gateways`.

A door is a folder with one `GATEWAY = GatewaySpec(...)`. It is one of two kinds:

    byte-stream doors   give `session`: a state machine fed with bytes; the shared connection does the socket work
    service doors       give `service`: something with its own server (the HTTP door), started and stopped whole

A session has no socket, no clock of its own and never awaits: bytes come in by `handle_data`, go out by `Link.write`,
time is an argument. So a test joins two machines with a list of bytes, and the simulator runs the real session.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from aiohttp import web

    from gateways.admission.admission import Admission
    from kernel.kernel import Kernel


class Link(Protocol):
    """A session's way to its peer. Writes of one turn leave in one system call."""

    peer: str
    """Address of the peer, for logs and people."""

    @property
    def unsent_bytes(self) -> int:
        """Written but not yet taken by the peer's socket. Above `high_water_bytes` the peer's requests are not read."""

    @property
    def write(self) -> Callable[[bytes], None]:
        """Queue bytes for the peer; they leave at the end of this turn. Call it as `link.write(data)`, never keep it:
        it changes with the state of the connection, so that the common case is the transport's own method."""

    @property
    def write_many(self) -> Callable[[list[bytes]], None]:
        """Queue several buffers without joining them first."""

    def close(self, reason: str = "") -> None:
        """Send what is queued, then close. `reason` goes to the log and the metrics; nothing further is read."""

    def pause(self) -> None:
        """Stop reading from the peer (the session is waiting for something); nests not, `resume` undoes it."""

    def resume(self) -> None: ...

    def wake_at(self, when_ms: int) -> None:
        """Call the session's `handle_timer` once at that time; replaces an earlier wish, 0 cancels it."""


class Session(Protocol):
    """One peer's protocol state. Every method runs on the hub's thread, does its work and returns."""

    def handle_data(self, data: bytes) -> None:
        """Bytes from the peer, cut anywhere. Never raises: a peer's fault ends in the protocol's error and `close`."""

    def handle_drained(self) -> None:
        """What was queued has been taken by the peer (`unsent_bytes` fell below the low-water mark)."""

    def handle_timer(self, now_ms: int) -> None:
        """The time asked for by `Link.wake_at` has come."""

    def handle_closed(self) -> None:
        """The connection is gone, whoever ended it. Called exactly once, last; release everything."""

    def handle_stopping(self) -> None:
        """The hub is shutting down: say goodbye in the protocol's words, answer what is in flight, then close."""

    def describe(self) -> dict[str, Any]:
        """For people: client id, user, subscriptions; shown by `gatehouse connections`."""


class Service(Protocol):
    """A door that runs its own server."""

    async def start(self) -> list[str]:
        """Open the listeners; returns the addresses it listens on."""

    async def stop(self) -> None:
        """Stop taking requests, answer what is in flight, close."""


@dataclass(slots=True)
class Services:
    """What every door is given."""

    hub_name: str
    kernel: Kernel
    admission: Admission
    now_ms: Callable[[], int]
    specs: tuple[GatewaySpec, ...] = ()
    """Every door that is open, so that the HTTP door can mount their routes without seeing them."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of each open door (an instance of its `GatewaySpec.config`) by its name."""

    connections: Callable[[], list[dict[str, Any]]] = list
    """Descriptions of every open connection of every door."""

    render_metrics: Callable[[], bytes] = bytes
    """The Prometheus page."""

    ready: Callable[[], bool] = bool

    shared: dict[str, Any] = field(default_factory=dict)
    """What the sessions of one door share (MQTT's client ids), by the door's name; the door makes it at first use."""


@dataclass(frozen=True, slots=True)
class GatewaySpec:
    """One door's declaration."""

    name: str
    """Its table in `gateways.toml` is `[gateways.NAME]`."""

    door: int
    """Number kept in the attributes of each record that came in here, 0 to 15, never reused for another protocol."""

    config: type
    """A dataclass of its settings beside `listen` and `tls`; each field carries metadata {"help": ...}."""

    default_listen: tuple[str, ...]
    session: Callable[[Link, Services, Any], Session] | None = None
    service: Callable[[Services, Any, list[str]], Service] | None = None
    opened: Callable[[Services], None] | None = None
    """Called once, before the door listens: what must work even while nobody is connected."""

    http_routes: Callable[[Services, Any], list[web.RouteDef]] | None = None
    """Routes for the HTTP door to mount (a WebSocket, a management page)."""
