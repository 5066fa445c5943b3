"""Opens a byte-stream door: accepts within the limit of descriptors, counts, describes, drains and closes.

Every listener of the hub shares one `Capacity`, so that no door can take the descriptors that the log needs.
"""
from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from gateways.connection import CONGESTED, Connection, ConnectionSettings, peer_name
from gateways.wakeups import Wakeups

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

    from gateways.contract import GatewaySpec, Services, Session

log = logging.getLogger("gatehouse.gateways")

RESERVED_DESCRIPTORS: Final = 256     # for the log's segments, the index, the SQL file, listeners, the loop itself
BACKLOG: Final = 4096                 # connections that the system may hold for us before they are accepted
LOGGED_ENDS_PER_SECOND: Final = 20    # peers' faults beyond this are counted, not logged
RELIEVED_AT_ONCE: Final = 32          # held connections that are read again per turn: 256 KiB each at most
KEEP_ALIVE_S: Final = (120, 30, 4)    # TCP's own: idle time, interval, probes. A peer that has vanished holds no
                                      # descriptor for longer, whatever its protocol asks for
REASONS_MAX: Final = 256              # kinds of endings counted by name; the rest is "other"


def descriptor_capacity() -> int:
    """How many connections the soft descriptor limit allows beside what the hub itself needs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, soft - RESERVED_DESCRIPTORS)


def _keep_alive(listening: socket.socket | TransportSocket) -> None:
    """Accepted sockets inherit these from the one that listens."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in zip(("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"), KEEP_ALIVE_S, strict=True):
        if hasattr(socket, option):
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class Capacity:
    """How many connections may be open, over all doors."""

    __slots__ = ("limit", "open")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0


class Listener:
    """One door on its addresses.

    `config` is the door's own settings, handed to each session. `tls` applies to every address of this listener.
    """

    def __init__(self, spec: GatewaySpec, services: Services, config: Any, *, capacity: Capacity,
                 settings: ConnectionSettings | None = None, tls: ssl.SSLContext | None = None) -> None:
        if spec.session is None:
            raise ValueError(f"{spec.name} is not a byte-stream door")
        self.spec = spec
        self.kernel = services.kernel
        self.now_ms: Callable[[], int] = services.now_ms
        self.settings = settings or ConnectionSettings()
        self.connections: set[Connection] = set()
        self.counts: Counter[str] = Counter()
        """accepted, refused, faults, and `closed_REASON` for every reason that sessions gave."""
        self.wakeups: Wakeups
        self._make_session = spec.session
        self._services = services
        self._config = config
        self._capacity = capacity
        self._tls = tls
        self._servers: list[asyncio.Server] = []
        self._drained = asyncio.Event()
        self._held: deque[Connection] = deque()      # not read because the kernel is congested
        self._awaits_relief = False
        self._log_second = 0
        self._logged = 0

    # --- life --------------------------------------------------------------------------------------------------------

    async def start(self, addresses: Iterable[tuple[str, int]]) -> list[str]:
        """Listen on every (host, port); an empty host is every address of the machine, port 0 a free one.

        Returns the addresses as they were taken, `HOST:PORT`. Raises OSError with none of them open.
        """
        loop = asyncio.get_running_loop()
        self.wakeups = Wakeups(loop, self.now_ms)
        for host, port in addresses:
            try:
                server = await loop.create_server(lambda: Connection(self), host or None, port, ssl=self._tls,
                                                  backlog=BACKLOG, reuse_address=True)
            except OSError:
                self.close()
                raise
            self._servers.append(server)
            for listening in server.sockets:
                _keep_alive(listening)
        return [peer_name(sock.getsockname()) for server in self._servers for sock in server.sockets]

    def close(self) -> None:
        """Accept nobody new; open connections go on."""
        for server in self._servers:
            server.close()
        self._servers = []

    async def stop(self, grace_s: float) -> None:
        """Close, let every session say goodbye, wait up to `grace_s` until all have left, then cut what is left."""
        self.close()
        for connection in list(self.connections):
            connection.stop()
        if self.connections:
            self._drained.clear()
            try:
                await asyncio.wait_for(self._drained.wait(), grace_s)
            except TimeoutError:
                log.info("%s: %d connections did not end in time and are cut", self.spec.name, len(self.connections))
        for connection in list(self.connections):
            connection.abort("stopped")

    def describe(self) -> list[dict[str, Any]]:
        """One description per open connection, for people."""
        return [{"door": self.spec.name, **connection.describe()} for connection in self.connections]

    def __len__(self) -> int:
        return len(self.connections)

    # --- what connections call ---------------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> bool:
        """Count a connection in, or refuse it because no descriptor may be spent on it."""
        capacity = self._capacity
        if capacity.open >= capacity.limit:
            self.counts["refused"] += 1
            self._log_end(connection, f"too_many_connections: the limit of {capacity.limit} is reached")
            return False
        capacity.open += 1
        self.connections.add(connection)
        self.counts["accepted"] += 1
        return True

    def new_session(self, connection: Connection) -> Session:
        return self._make_session(connection, self._services, self._config)

    def forget(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
            self._capacity.open -= 1
            if not self.connections:
                self._drained.set()

    def hold_until_relief(self, connection: Connection) -> None:
        """The kernel has more pending than is good: do not read this peer until it says otherwise."""
        connection.hold(CONGESTED)
        self._held.append(connection)
        if not self._awaits_relief:
            self._awaits_relief = True
            self.kernel.on_relief(self._relieved)

    def _relieved(self) -> None:
        """Read again from those who have waited longest, a few at a time: each may bring a whole buffer at once."""
        if self.kernel.congested:
            self.kernel.on_relief(self._relieved)
            return
        for _ in range(min(RELIEVED_AT_ONCE, len(self._held))):
            self._held.popleft().release(CONGESTED)
        self._awaits_relief = bool(self._held)
        if self._held:
            asyncio.get_running_loop().call_soon(self._relieved)

    def note_end(self, connection: Connection, reason: str) -> None:
        """Count and log why we end a connection. `reason`: `code` or `code: text for people`; empty for a plain end."""
        if not reason:
            return
        name = "closed_" + reason.partition(":")[0]
        if name not in self.counts and len(self.counts) >= REASONS_MAX:
            name = "closed_other"
        self.counts[name] += 1
        self._log_end(connection, reason)

    def fault(self, connection: Connection, doing: str) -> None:
        """Our own mistake, seen in an `except`: the traceback goes to the log, once per connection."""
        self.counts["faults"] += 1
        log.exception("%s %s: a mistake of the hub while %s; this connection is closed", self.spec.name,
                      connection.peer, doing)

    def _log_end(self, connection: Connection, reason: str) -> None:
        second = self.now_ms() // 1000
        if second != self._log_second:
            if self._logged > LOGGED_ENDS_PER_SECOND:
                log.info("%s: %d more connections ended in that second", self.spec.name,
                         self._logged - LOGGED_ENDS_PER_SECOND)
            self._log_second, self._logged = second, 0
        self._logged += 1
        if self._logged <= LOGGED_ENDS_PER_SECOND:
            log.info("%s %s closed: %s", self.spec.name, connection.peer, reason)
