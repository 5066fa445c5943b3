"""What a door declares and what it is given. Third parties add doors by the entry point group `gatehouse.gateways`.

A door is a folder with one `GATEWAY = GatewaySpec(...)`. It gives `session`, a state machine that is fed with bytes;
the shared connection does the socket work. A session has no socket, no clock of its own and never awaits: bytes come in
by `handle_data`, go out by `Link.write`, time is an argument. So a test joins two machines with a list of bytes, and
the simulator runs the real session.
"""
from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, cast

from gatehouse.gateways.addresses import Spelling
from gatehouse.gateways.admission.guard import Guard
from gatehouse.gateways.circuits import Circuits
from gatehouse.gateways.connections.capacity import Capacity, descriptor_capacity
from gatehouse.gateways.connections.open_connections import OpenConnections
from gatehouse.gateways.connections.settings import ConnectionSettings, Framing
from gatehouse.gateways.door_numbers import DoorNumbers
from gatehouse.gateways.door_side import Switchboard, UnsentBudget
from gatehouse.gateways.not_honoured import NotHonoured
from gatehouse.gateways.properties.envelope import Column

if TYPE_CHECKING:
    from gatehouse.gateways.admission.administration import Administration
    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.gateways.admission.audit import By
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.admission.session_registry import RegisteredSession
    from gatehouse.gateways.connections.listener import Listener
    from gatehouse.gateways.connections.native_sockets import Reader
    from gatehouse.gateways.tls.tls import TlsSettings
    from gatehouse.kernel.api import HubPort
    from gatehouse.kernel.backup.backups import Backups
    from gatehouse.kernel.ports import Worker
    from gatehouse.transactions.coordinator import Transactions


Shared = TypeVar("Shared")

CONTRACT: Final = 1
"""The version of what this file and `gateways.kit` promise to doors of others. It grows when a door that was written
for the one before would no longer work."""


@dataclass(frozen=True, slots=True)
class Listen:
    """One address that a door listens on; port 0 takes a free one, an empty host is every address of the machine."""

    host: str
    port: int
    tls: TlsSettings | None = None
    advertise: str | None = None
    """HOST:PORT that clients which came by this address are sent to, on doors that send them somewhere (Kafka)."""

    websocket: bool = False
    """Whether clients speak inside a WebSocket there, as at the door's paths of the HTTP door."""

    origins: tuple[str, ...] = ()
    """Where pages come from that may connect there, in lower case, or `*`."""

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host or '*'}:{self.port}"


class Link(Protocol):
    """A session's way to its peer. Writes of one turn leave in one system call."""

    peer: str
    """Address of the peer, for logs and people."""

    listen: Listen
    """The address that the peer came by, as configured."""

    certificate: str | None
    """The user's name in the peer's verified certificate, as `[auth] certificate_user` reads it; None without TLS, or
    without a certificate."""

    certificate_ends_ms: int
    """When that certificate is no longer good, in ms since 1970; 0 without one."""

    @property
    def gone(self) -> bool:
        """Whether the peer has hung up, or is being closed: asked of the system, so also of a peer that is not read."""

    @property
    def unsent_bytes(self) -> int:
        """Written but not yet taken by the peer's socket. Above `high_water_bytes`, or `read_on_bytes` where that is
        more, the peer's requests are not read."""

    @property
    def is_read(self) -> bool:
        """Whether the hub hears what the peer sends: not while that waits for the peer to take its answers, for the
        kernel, or for the session."""

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

    def read_through(self, reader: Reader | None) -> bool:
        """Offer what the peer sends to a native reader first; what that does not take comes to `handle_data` as ever.
        None: no longer. False: this link has no native sockets under it, and everything comes to `handle_data`."""

    def hand_over(self, door: str, framing: Framing, greeting: bytes, rest: bytes) -> bool:
        """Let another session have this connection from now on, one of the open door of that name: what `framing`
        makes is sent nothing before `greeting`, and is handed `rest` first. The session that was here is called no
        more. False: that door is not open or has no place, and nothing has changed."""


# decision 54: no socket, no clock, no coroutine
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

    def on_principal_ended(self, reason: str) -> None:
        """Whoever is in charge wants this connection ended: say so in the protocol's words, and close. Admission calls
        it too, for those who have a registration there (see `session_registry.RegisteredSession`)."""

    def describe(self) -> dict[str, Any]:
        """For people: client id, user, subscriptions; shown by `gatehouse connections`."""


class Status(Protocol):
    """What the hub says of itself; its documents are JSON's types."""

    def summary(self) -> dict[str, Any]:
        """What everybody may know."""

    async def document(self) -> dict[str, Any]:
        """Everything, for administrators."""

    def history(self) -> dict[str, Any]:
        """The doors' rates of the last minutes."""


class LinkFault(Exception):
    """What links refuse, with a stable code."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Links(Protocol):
    """The hub's links to other hubs, as administrators see them; documents are JSON's types."""

    def describe(self) -> dict[str, Any]:
        """The meeting point and every link."""

    def act(self, by: By, action: str, link: str, **given: Any) -> dict[str, Any]:
        """`invite`, `join`, `pause`, `resume`, `unlink`, `rewind`, `explain`, `rotate`, in somebody's name. Raises
        LinkFault, and what the kernel refuses."""


DRILLS: Final = ("held_disk", "full_memory", "killed_hub", "lost_link")
"""What a hub that is told to allow it does to itself."""


class Drills(Protocol):
    """A hub that may be told to be in trouble."""

    def can(self, drill: str) -> bool:
        """Whether there is what a drill is about: a link that can be lost."""

    def begin(self, drill: str, lasts_s: float) -> bool:
        """Begin one of `DRILLS`; False: another one is under way."""


class PageFile(NamedTuple):
    """One file of a page that the HTTP door serves as it is."""

    content_type: str
    body: bytes


@dataclass(slots=True)
class Services:
    """What every door is given."""

    hub_name: str
    kernel: HubPort
    admission: Admission
    now_ms: Callable[[], int]
    """Hub time in ms: durations are counted in it, no step of the wall clock moves it. See `kernel.ports`."""

    specs: tuple[GatewaySpec, ...] = ()
    """Every door that is open, so that the HTTP door can mount their routes without seeing them."""

    beside: Worker | None = None
    """A thread for what takes milliseconds and needs nothing of the hub; None in tests of one door."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of each open door (an instance of its `GatewaySpec.config`) by its name."""

    connections: OpenConnections = field(default_factory=OpenConnections)
    """Every open connection of every door."""

    capacity: Capacity = field(default_factory=lambda: Capacity(descriptor_capacity()))
    """How many connections the descriptors allow, and how many are open: one count for all doors."""

    unsent: UnsentBudget = field(default_factory=UnsentBudget)
    """What connections hold for peers that do not take it: one budget for all doors."""

    listeners: dict[str, Listener] = field(default_factory=dict)
    """The listeners of the doors that are open, by door name. A connection that came by one can join another."""

    certificate_user: str = "cn"
    """How the name of a user is read from a client's certificate, see `certificates.py`."""

    render_metrics: Callable[[], bytes] = bytes
    render_openmetrics: Callable[[], bytes] = bytes
    """The Prometheus page."""

    unready: Callable[[], str] = str
    """Why the hub takes no new work now, for people; "" where it does."""

    backups: Backups | None = None
    """Copies of the log that are being read; None where there are no files behind the kernel."""

    links: Links | None = None
    """Links to other hubs; None where the configuration has no `[relay]`."""

    drills: Drills | None = None
    """None where `hub.allow_drills` does not say so."""

    status: Status | None = None
    """None where nobody can tell, as in tests of one door."""

    console: Mapping[str, PageFile] = field(default_factory=dict)
    """The files of the console, by their names below `/ui/`; "" is the page itself."""

    circuits: Circuits = field(init=False)
    """Circuits of whatever the hub depends on."""

    not_honoured: NotHonoured = field(init=False)
    """What clients asked for without effect."""

    door_numbers: DoorNumbers = field(init=False)
    """Which number stands for which door in records."""

    holders: dict[str, Callable[[], int]] = field(default_factory=dict)
    """Who holds memory for clients, by name, and how many bytes: what of `hub.memory_bytes` is in use."""

    shared: dict[str, Any] = field(default_factory=dict)
    """What the sessions of one door share (MQTT's client ids), by a name of the door's own; see `share`."""

    accounts: Administration | None = None
    """Changes of users, keys and rules; None where there is no database behind them, as in tests of one door."""

    transactions: Transactions = cast("Transactions", None)
    """Half messages; every hub has them, and tests that need none do not."""

    wall_ms: Callable[[], int] = cast("Callable[[], int]", None)
    """Wall time in ms since 1970: for points in time that somebody named, and for what is shown. `now_ms` where a test
    has one clock."""

    _switchboards: dict[str, Switchboard] = field(default_factory=dict)

    def add(self, spec: GatewaySpec) -> None:
        """One door more that can be opened."""
        self.specs += (spec,)

    def read_certificates_by(self, rule: str) -> None:
        """Another `certificate_user`, for who connects from now on."""
        self.certificate_user = rule

    def __post_init__(self) -> None:
        if self.wall_ms is None:
            self.wall_ms = self.now_ms
        self.circuits = Circuits(self.wall_of)
        self.not_honoured = NotHonoured(self.now_ms)
        self.door_numbers = DoorNumbers(self.kernel, self.specs)

    def door(self, name: str) -> Switchboard:
        """A door's end of its port to the kernel, made at first use."""
        switchboard = self._switchboards.get(name)
        if switchboard is None:
            switchboard = self._switchboards[name] = Switchboard(self.transactions or self.kernel,
                                                                self.transactions, name)
            self.admission.settle_before_forgetting(switchboard.gathering.settle)
        return switchboard

    def gathered_bytes(self) -> int:
        """Of what sessions have published and the kernel does not know of yet, over all doors."""
        return sum(switchboard.gathering.size_bytes for switchboard in self._switchboards.values())

    def guard(self, door: str, principal: Principal, session: RegisteredSession | None, client_id: str = "", *,
              own_places: bool = False, peer: str = "", replaces: bool = False) -> Guard:
        """All that a session gets of the kernel, once its peer has logged in. It is registered with it: told when its
        principal ends or its rights change, until `Guard.leave`. `peer`: whence it came, for journeys. See there.
        Raises TooManyConnections, unless it `replaces` one that goes for it."""
        return Guard(self.admission, self.door(door), door, principal, session, client_id, own_places, peer, replaces)

    def share(self, name: str, make: Callable[[], Shared]) -> Shared:
        """What all sessions of a door have of this name in `shared`, made at first use."""
        if name not in self.shared:
            self.shared[name] = make()
        shared: Shared = self.shared[name]
        return shared

    def wall_of(self, hub_ms: int) -> int:
        """A hub time as wall time, for what is shown."""
        return self.kernel.wall_of(hub_ms)


@dataclass(frozen=True, slots=True)
class WebSocketRoute:
    """Where browsers reach a door: at this path of the HTTP door its sessions speak in the binary frames of a
    WebSocket."""

    path: str
    subprotocols: tuple[str, ...]
    """A client has to offer one of them; the first of these that it offers is spoken."""


class HttpAnswer(NamedTuple):
    """What a call of an `HttpRoute` ends in. `document` is JSON's types; without it `body` is the body, if any."""

    status: int = 200
    document: Any = None
    headers: Mapping[str, str] = {}
    body: bytes = b""
    content_type: str = ""


class HttpAsk(Protocol):
    """One call at an `HttpRoute`, read whole. Who asks has shown himself to the HTTP door."""

    principal: Principal
    method: str

    path: tuple[str, ...]
    """The levels behind the route's path, each decoded: a `%2F` stays within its level."""

    query: Mapping[str, str]
    """Of a name that comes twice the last value counts."""

    headers: Mapping[str, str]
    """By their names in small letters."""

    body: bytes
    peer: str

    async def stored(self, change: Callable[[Any, object], object]) -> Any:
        """Run a change with an owner and a token, and wait until it is durable. Returns what the kernel told the owner
        (`message.Stored`). Raises what it was refused for."""

    async def told(self, begin: Callable[[Callable[[Any], None]], object]) -> Any:
        """Run something with a call-back, and wait for what that is told."""


@dataclass(frozen=True, slots=True)
class HttpRoute:  # decision 193
    """Calls of a door's own interface over HTTP: everything at and below this path of the HTTP door."""

    path: str
    serve: Callable[[Services, HttpAsk], Awaitable[HttpAnswer]]
    refuse: Callable[[Exception], HttpAnswer | None]
    """The answer to what a call was refused for (a wrong login, no right, a body too large), in the door's words; None:
    the HTTP door's."""

    preset: tuple[str, str] = ("", "")
    """A user and password that stand for nobody where nobody may come in: what clients show unless they are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySpec:
    """One door's declaration."""

    name: str
    """The door's name; its table in `gateways.toml` is `[gateways.NAME]`."""

    contract: int
    """The version of `CONTRACT` that the door was written for. A plugin states a number; what is built in moves with
    the hub."""

    door: int | None = None
    """The number of a door of the hub's own, kept in the attributes of each record that came in there. A door from
    outside states none: it is given one, see `door_numbers`."""

    config: type
    """A dataclass of its settings beside `listen` and `tls`; each field carries metadata {"help": ...}."""

    default_listen: tuple[str, ...]
    session: Callable[[Link, Services, Any], Session]
    """Makes the session of a connection, of the link to its peer and the door's settings."""

    opened: Callable[[Services], None] | None = None
    """Called once, before the door listens: what must work even while nobody is connected."""

    stopping: Callable[[Services], Awaitable[None]] | None = None
    """Called once when the door stops, beside its sessions' `handle_stopping`: ends what works without a connection."""

    connection_settings: Callable[[Any], ConnectionSettings] | None = None
    """Bounds of its connections, made of its settings; None: those of every door."""

    refusal: Callable[[str], bytes] | None = None
    """What a peer is told for which there is no place, made of the reason (`code: text`); None: nothing."""

    alpn: tuple[str, ...] = ()
    """The names of its protocol inside TLS."""

    tls_tickets: bool = True
    """Whether clients are given what they may resume a session of TLS 1.3 with."""

    reads_when_congested: bool = False
    """Whether its peers are read while the kernel has more pending than is good: where not all that they ask for is
    stored, and what is waits by itself."""

    columns: tuple[Column, ...] = ()
    """How its messages carry properties: its columns of the property table, one for each protocol version that differs.
    Without one, `explain` and the crossing of properties know nothing of it."""

    spelling: Spelling | None = None
    """How its clients write an address, for `gatehouse explain`."""

    websockets: tuple[WebSocketRoute, ...] = ()
    """Where the HTTP door leads to this one."""

    http: tuple[HttpRoute, ...] = ()
    """Calls of its own interface, which the HTTP door answers by them."""
