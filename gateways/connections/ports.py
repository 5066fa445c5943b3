"""The addresses that a door listens on: opened together, changed while the hub runs, TLS before the door's protocol.

A change of the TLS table of an address takes effect for whoever connects next; who is connected stays, also where an
address is given up.
"""
from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.connections.accepting import Server, accept
from gatehouse.gateways.runtime import peer_name
from gatehouse.gateways.tls.certificates import validity
from gatehouse.gateways.tls.tls import Resumed, server_context
from gatehouse.gateways.tls.transport import Doorstep, TlsTransport

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

    from gatehouse.gateways.contract import GatewaySpec, Listen

KEEP_ALIVE_S: Final = (120, 30, 4)    # TCP's own: idle time, interval, probes. A peer that has vanished holds no
                                      # descriptor for longer, whatever its protocol asks for
NOT_SENT_BYTES: Final = 128 << 10     # that the system takes beyond what a peer's window allows: by itself it takes up
                                      # to 4 MiB, and some hundred that stall slow the TCP of the whole machine

Key = tuple[str, int, int]
"""Host, port, and how many of the same came before: port 0 may stand there twice."""


def _set_options(listening: socket.socket | TransportSocket) -> None:
    """Accepted sockets inherit these from the one that listens."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in zip(("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"), KEEP_ALIVE_S, strict=True):
        if hasattr(socket, option):
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOT_SENT_BYTES)


class _Port:
    """One address."""

    def __init__(self, listen: Listen, context: ssl.SSLContext | None, wall_ms: Callable[[], int]) -> None:
        self.server: Server | None = None
        self._wall_ms = wall_ms
        self.use(listen, context)

    def use(self, listen: Listen, context: ssl.SSLContext | None) -> None:
        """Whoever connects from now on is told this."""
        self.listen = listen
        self.context = context
        self.ends_s = _certificate_ends_s(listen)
        tls = listen.tls
        self.resumed = None if tls is None or tls.client_ca is None else Resumed(tls, self._wall_ms)

    def addresses(self) -> list[str]:
        """Where it listens, `HOST:PORT`; several where a name or an empty host stands for several."""
        return [] if self.server is None else [
            peer_name(server_socket.getsockname()) for server_socket in self.server.sockets]


class Ports:
    """The addresses of one door, `spec`. `make` makes the protocol of a connection."""

    def __init__(self, doorstep: Doorstep, make: Callable[[Listen], asyncio.Protocol], spec: GatewaySpec,
                 wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._doorstep = doorstep
        self._make = make
        self._spec = spec
        self._ports: dict[Key, _Port] = {}

    async def open(self, listens: Iterable[Listen]) -> list[str]:
        """Listen on every address; returns them as they were taken. Raises OSError, TlsFault with none of them open."""
        wanted = [_Port(listen, self._context(listen), self._wall_ms) for listen in listens]
        try:
            for port in wanted:
                await self._open(port)
        except OSError:
            for port in wanted:
                _close(port)
            raise
        self._ports = dict(zip(_keys(port.listen for port in wanted), wanted, strict=True))
        return self.addresses()

    async def change(self, listens: Sequence[Listen]) -> tuple[list[str], list[str]]:  # decision 97
        """Take these addresses from now on, TLS files read anew; returns those that were opened and those given up.

        Raises OSError, TlsFault with everything as it was.
        """
        wanted = dict(zip(_keys(listens), listens, strict=True))
        contexts = {key: self._context(listen) for key, listen in wanted.items()}
        added = {key: _Port(wanted[key], contexts[key], self._wall_ms) for key in wanted.keys() - self._ports.keys()}
        try:
            for port in added.values():
                await self._open(port)
        except OSError:
            for port in added.values():
                _close(port)
            raise
        gone = [self._ports.pop(key) for key in self._ports.keys() - wanted.keys()]
        given_up = [address for port in gone for address in port.addresses()]
        for port in gone:
            _close(port)
        for key, port in self._ports.items():
            port.use(wanted[key], contexts[key])
        self._ports |= added
        return [address for port in added.values() for address in port.addresses()], given_up

    def addresses(self) -> list[str]:
        """Where it listens, `HOST:PORT`."""
        return [address for port in self._ports.values() for address in port.addresses()]

    def certificate_ends_s(self) -> float | None:
        """When the first of the certificates that are shown runs out, in seconds since 1970; None without TLS. Of those
        in use: a file that was renewed and not read again makes no difference."""
        return min((port.ends_s for port in self._ports.values() if port.ends_s is not None), default=None)

    def close(self) -> None:
        """Accept nobody new; open connections go on."""
        for port in self._ports.values():
            _close(port)
        self._ports = {}

    def _context(self, listen: Listen) -> ssl.SSLContext | None:
        spec = self._spec
        return None if listen.tls is None else server_context(listen.tls, spec.alpn, tickets=spec.tls_tickets)

    async def _open(self, port: _Port) -> None:
        port.server = await accept(port.listen.host, port.listen.port, lambda: self._accept(port))
        for listening in port.server.sockets:
            _set_options(listening)

    def _accept(self, port: _Port) -> asyncio.Protocol:
        """The protocol of a connection that came just now, with what is configured just now."""
        listen, context = port.listen, port.context
        if context is None or listen.tls is None:
            return self._make(listen)
        return TlsTransport(context, listen.tls.handshake_timeout_s, self._doorstep, lambda: self._make(listen),
                            port.resumed)


def _certificate_ends_s(listen: Listen) -> float | None:
    if listen.tls is None:
        return None
    try:
        return validity(Path(listen.tls.cert))[1].timestamp()
    except (ValueError, OSError):
        return None                       # OpenSSL has taken it, so it is used; only its dates cannot be told


def _close(port: _Port) -> None:
    if port.server is not None:
        port.server.close()
        port.server = None


def _keys(listens: Iterable[Listen]) -> list[Key]:
    seen: Counter[tuple[str, int]] = Counter()
    keys = []
    for listen in listens:
        address = listen.host, listen.port
        keys.append((*address, seen[address]))
        seen[address] += 1
    return keys
