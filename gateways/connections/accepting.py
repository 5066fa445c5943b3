"""Accepts whoever connects to an address: by the native sockets where they were built, else by the event loop.

Both give a protocol a transport that does the same; `native_sockets.pyx` says what it costs less.
"""
from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

    from gatehouse.gateways.connections.native_sockets import Sockets

try:
    from gatehouse.gateways.connections import native_sockets as _native
except ImportError:                       # not built: a checkout, or another system than Linux
    _native = None  # type: ignore[assignment]

IS_NATIVE: Final = _native is not None and sys.platform == "linux"
"""Whether sockets are native."""

BACKLOG: Final = 4096                     # connections that the system may hold for us before they are accepted

Make = Callable[[], asyncio.Protocol]
"""Makes the protocol of a connection that came just now."""


class Server(Protocol):
    """What accepts on one address."""

    @property
    def sockets(self) -> Sequence[socket.socket | TransportSocket]:
        """Those that listen; several where a name or an empty host stands for several."""

    def close(self) -> None:
        """Accept nobody more; who is connected stays."""


class NativeServer:
    """See `Server`."""

    def __init__(self, sockets: Sockets, wires: list[socket.socket]) -> None:
        self.sockets = wires
        self._serving = sockets

    def close(self) -> None:
        """See `Server`."""
        for wire in self.sockets:
            self._serving.unlisten(wire)
            wire.close()
        self.sockets = []


_serving: Final[dict[asyncio.AbstractEventLoop, Sockets]] = {}
"""The native sockets of each event loop that has some."""


def _sockets_of(loop: asyncio.AbstractEventLoop) -> Sockets:
    sockets = _serving.get(loop)
    if sockets is None:
        sockets = _serving[loop] = _native.Sockets(loop, lambda: _serving.__delitem__(loop))
    return sockets


async def accept(host: str, port: int, make: Make) -> Server:  # decision 221
    """Listen on an address; port 0 takes a free one, an empty host is every address of the machine. Raises OSError."""
    loop = asyncio.get_running_loop()
    if not IS_NATIVE:
        return await loop.create_server(make, host or None, port, backlog=BACKLOG, reuse_address=True)
    wires = await _bind(loop, host, port)
    try:
        for wire in wires:
            wire.listen(BACKLOG)
    except OSError:
        _close(wires)
        raise
    sockets = _sockets_of(loop)
    for wire in wires:
        sockets.listen(wire, make)
    return NativeServer(sockets, wires)


async def _bind(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[socket.socket]:
    """A socket for each address that a host stands for."""
    addresses = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    wires: list[socket.socket] = []
    try:
        for family, type_, protocol, _, address in dict.fromkeys(addresses):
            wire = _socket_of(family, type_, protocol)
            if wire is not None:
                wires.append(wire)
                _bind_one(wire, address)
    except OSError:
        _close(wires)
        raise
    if not wires:
        raise OSError(f"no address of {host!r} can be listened on")
    return wires


def _socket_of(family: int, type_: int, protocol: int) -> socket.socket | None:
    """None: the system has no such family, though it names addresses of it."""
    try:
        wire = socket.socket(family, type_, protocol)
    except OSError:
        return None
    wire.setblocking(False)
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        wire.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return wire


def _bind_one(wire: socket.socket, address: Any) -> None:
    try:
        wire.bind(address)
    except OSError as error:
        raise OSError(error.errno, f"error while attempting to bind on address {address!r}: {error.strerror}"
                      ) from None


def _close(wires: list[socket.socket]) -> None:
    for wire in wires:
        wire.close()
