"""Opens a door: accepts within the limit of descriptors, counts, describes, drains and closes.

Every door of the hub shares one `Capacity`, so that none can take the descriptors that the log needs.
"""
from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.connections.capacity import Capacity, Room
from gatehouse.gateways.connections.ports import Ports
from gatehouse.gateways.connections.settings import ConnectionSettings
from gatehouse.gateways.runtime import CONGESTED, Connection, Wakeups
from gatehouse.gateways.websocket.opening import WebSocketOpening

if TYPE_CHECKING:
    from gatehouse.gateways.contract import GatewaySpec, Link, Listen, Services, Session

log = logging.getLogger("gatehouse.gateways")

RELIEVED_AT_ONCE: Final = 32          # held connections that are read again per turn: 256 KiB each at most

LOGGED_ENDS_PER_SECOND: Final = 20    # peers' faults beyond this are counted, not logged
REASONS_MAX: Final = 256              # kinds of endings counted by name; the rest is "other"


class Listener:
    """One door on its addresses. `config` is the door's own settings, handed to each session."""

    def __init__(self, spec: GatewaySpec, services: Services, config: Any, *, capacity: Capacity,
                 settings: ConnectionSettings | None = None) -> None:
        self.spec = spec
        self.kernel = services.kernel
        self.now_ms: Callable[[], int] = services.now_ms
        self.unsent = services.unsent
        self.wall_ms: Callable[[], int] = services.wall_ms
        make_settings = spec.connection_settings
        self.settings = settings or (ConnectionSettings() if make_settings is None else make_settings(config))
        self.connections: set[Connection] = set()
        self.counts: Counter[str] = Counter()
        """accepted, refused, refused_by_address (which are among the refused), faults, tls_handshakes, and
        `closed_REASON` for every reason that sessions gave."""
        self.wakeups: Wakeups
        self._endings = Endings(spec.name, self.counts, self.now_ms)
        self.reads_when_congested = spec.reads_when_congested
        self._make_session = spec.session
        self._services = services
        self._config = config
        self._room = Room(capacity, self.counts, getattr(config, "max_connections_per_address", 0),
                          most=self.settings.max_connections, spare=self.settings.spare_connections)
        self._ports = Ports(self, lambda listen: Connection(self, listen), spec, lambda: self.wall_ms())
        self._subprotocols = tuple(dict.fromkeys(each for route in spec.websockets for each in route.subprotocols))
        self.stopping = False
        self._drained = asyncio.Event()
        self._held: deque[Connection] = deque()      # not read because the kernel is congested
        self._awaits_relief = False

    # --- life --------------------------------------------------------------------------------------------------------

    async def start(self, listens: Iterable[Listen]) -> list[str]:
        """Listen on every address. Returns them as they were taken, `HOST:PORT`. Raises OSError, TlsFault with none of
        them open."""
        self.wakeups = Wakeups(asyncio.get_running_loop(), self.now_ms)
        return await self._ports.open(listens)

    async def relisten(self, listens: Sequence[Listen]) -> tuple[list[str], list[str]]:
        """See `Ports.change`."""
        return await self._ports.change(listens)

    def addresses(self) -> list[str]:
        """Where it listens, `HOST:PORT`."""
        return self._ports.addresses()

    def certificate_ends_s(self) -> float | None:
        """See `Ports.certificate_ends_s`."""
        return self._ports.certificate_ends_s()

    def close(self) -> None:
        """Accept nobody new; open connections go on."""
        self._ports.close()

    async def stop(self, grace_s: float) -> None:
        """Close, let every session say goodbye, wait up to `grace_s` until all have left, then cut what is left."""
        self.stopping = True
        self.close()
        for connection in list(self.connections):
            connection.stop()
        if self.spec.stopping is not None:
            await self.spec.stopping(self._services)
        if self.connections:
            self._drained.clear()
            try:
                await asyncio.wait_for(self._drained.wait(), grace_s)
            except TimeoutError:
                log.info("%s: %d connections did not end in time and are cut", self.spec.name, len(self.connections))
        for connection in list(self.connections):
            connection.abort("stopped")

    def __len__(self) -> int:
        return len(self.connections)

    # --- what connections call ---------------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> str:
        """Count a connection in and give it its id. Returns why there is no place for it, `code: text`; "" where there
        is."""
        refused = self._take_place(connection.peer)
        if not refused:
            self.connections.add(connection)
            self.counts["accepted"] += 1
            connection.id = self._services.connections.add(connection)
        return refused

    def _take_place(self, peer: str) -> str:
        refused = self._room.take(peer)
        if refused:
            self._endings.log(peer, refused)
        return refused

    def open_door(self, name: str) -> Listener | None:
        """The listener of another door, or this one; None where that door is not open."""
        if name == self.spec.name:
            return self
        listener = self._services.listeners.get(name)
        return None if listener is None or listener.stopping else listener

    def take_over(self, connection: Connection, before: Listener) -> bool:
        """Count in a connection that came by another door, which counts it no more; it keeps its id. False: there is no
        place for it here."""
        if self._take_place(connection.peer):
            return False
        before._count_out(connection)
        self.connections.add(connection)
        self.counts["accepted"] += 1
        return True

    def _count_out(self, connection: Connection) -> None:
        self.connections.remove(connection)
        self._room.give(connection.peer)
        if not self.connections:
            self._drained.set()

    @property
    def certificate_user(self) -> str:
        """How a user's name is read from a client's certificate."""
        return self._services.certificate_user

    def new_session(self, link: Link) -> Session:
        if link.listen.websocket:
            return WebSocketOpening(link, self._new_session, self._subprotocols, self.now_ms())
        return self._new_session(link)

    def _new_session(self, link: Link) -> Session:
        return self._make_session(link, self._services, self._config)

    def forget(self, connection: Connection) -> None:
        if connection in self.connections:
            self._count_out(connection)
            self._services.connections.remove(connection.id)

    def hold_until_relief(self, connection: Connection) -> None:
        """The kernel has more pending than is good: do not read this peer until it says otherwise."""
        connection.hold(CONGESTED)
        self._held.append(connection)
        if not self._awaits_relief:
            self._awaits_relief = True
            self.kernel.on_relief(self._relieved)

    def _relieved(self) -> None:
        """Read again from the peers that have waited longest, a few at a time: each may bring a whole buffer at
        once."""
        if self.kernel.congested:
            self.kernel.on_relief(self._relieved)
            return
        for _ in range(min(RELIEVED_AT_ONCE, len(self._held))):
            self._held.popleft().release(CONGESTED)
        self._awaits_relief = bool(self._held)
        if self._held:
            asyncio.get_running_loop().call_soon(self._relieved)

    def note_end(self, peer: str, reason: str) -> None:
        """See `Endings.note`."""
        self._endings.note(peer, reason)

    def fault(self, connection: Connection, doing: str) -> None:
        """Log our own mistake, seen in an `except`: its traceback goes to the log, once per connection."""
        self.counts["faults"] += 1
        log.exception("%s %s: a mistake of the hub while %s; this connection is closed", self.spec.name,
                      connection.peer, doing)

    # --- what handshakes call ----------------------------------------------------------------------------------------

    def begin_handshake(self, peer: str) -> bool:  # decision 97
        """See `gateways.tls.transport.Doorstep`."""
        return not self._take_place(peer)

    def end_handshake(self, peer: str, reason: str) -> None:
        """A TLS handshake is over: its place is free again, or is taken by the connection that is admitted next."""
        self._room.give(peer)
        if reason:
            self._endings.note(peer, reason)
        else:
            self.counts["tls_handshakes"] += 1

    def note_held(self, size: int) -> None:
        """See `gateways.tls.transport.Doorstep`."""
        self._services.connections.note_encrypted(size)

    def note_broken(self, peer: str, reason: str) -> None:
        self._endings.note(peer, reason)


class Endings:
    """Why one door's connections ended: counted by reason, and logged as long as they are few. `counts` is the door's
    counter, and gets `closed_REASON`."""

    def __init__(self, door: str, counts: Counter[str], now_ms: Callable[[], int]) -> None:
        self._door = door
        self._counts = counts
        self._now_ms = now_ms
        self._second = 0
        self._logged = 0

    def note(self, peer: str, reason: str) -> None:
        """Count and log one ending. `reason`: `code` or `code: text for people`; empty for a plain end, which is not
        counted."""
        if not reason:
            return
        name = "closed_" + reason.partition(":")[0]
        if name not in self._counts and len(self._counts) >= REASONS_MAX:
            name = "closed_other"
        self._counts[name] += 1
        self.log(peer, reason)

    def log(self, peer: str, reason: str) -> None:
        """Log one ending that is counted elsewhere."""
        second = self._now_ms() // 1000
        if second != self._second:
            if self._logged > LOGGED_ENDS_PER_SECOND:
                log.info("%s: %d more connections ended in that second", self._door,
                         self._logged - LOGGED_ENDS_PER_SECOND)
            self._second, self._logged = second, 0
        self._logged += 1
        if self._logged <= LOGGED_ENDS_PER_SECOND:
            log.info("%s %s closed: %s", self._door, peer, reason)
