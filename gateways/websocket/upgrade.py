"""The HTTP request that becomes a connection of a byte-stream door (RFC 6455 section 4.2).

The HTTP door has checked the page's origin. From the answer on the socket belongs to the door's own listener, which
counts it, bounds it and lists it as one of its connections; the HTTP door knows it no more.
"""
from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import partial
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from aiohttp import web

from gatehouse.gateways.connections.connection import Connection
from gatehouse.gateways.websocket.session import WebSocketSession

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Listen, Services

VERSION: Final = "13"
UPGRADE: Final = {"Upgrade": "websocket", "Connection": "Upgrade"}      # RFC 9110, 7.8: never the one without the other
KEY_BYTES: Final = 16
ACCEPT_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"      # of section 1.3


class Releasing(Protocol):
    """A connection of the HTTP door that can be taken over."""

    listen: Listen

    def release(self) -> tuple[asyncio.Transport, bytes]:
        """Give up the connection: returns its transport, and the bytes that came behind the request. The request's task
        is cancelled."""


def websocket_route(path: str, door: str, subprotocol: str) -> Callable[[Services, Any], list[web.RouteDef]]:
    """What a door declares as its `http_routes`: its sessions at this path of the HTTP door."""
    def routes(services: Services, _config: Any) -> list[web.RouteDef]:
        return [web.get(path, partial(_upgrade, services, door, subprotocol), allow_head=False)]
    return routes


async def _upgrade(services: Services, door: str, subprotocol: str, request: web.Request) -> web.StreamResponse:
    key = _check(request, subprotocol)
    listener = services.listeners.get(door)
    if listener is None or listener.stopping:
        raise web.HTTPServiceUnavailable(text=f"the {door} door is not open", headers={"Retry-After": "1"})
    protocol = cast(Releasing, request.protocol)
    listen = protocol.listen
    transport, rest = protocol.release()  # decision 98
    transport.write(_switching(key, subprotocol))
    connection = Connection(listener, listen, WebSocketSession)
    transport.set_protocol(connection)
    connection.connection_made(transport)
    transport.resume_reading()
    if rest:
        connection.data_received(rest)
    await asyncio.get_running_loop().create_future()     # the request's task is cancelled: here it ends
    raise AssertionError("a released request goes on")


def _check(request: web.Request, subprotocol: str) -> str:
    """The client's key. Raises what the request is answered with where it is no handshake."""
    headers = request.headers
    wishes = {word.strip().lower() for word in headers.get("Connection", "").split(",")}
    if "upgrade" not in wishes or headers.get("Upgrade", "").lower() != "websocket":
        raise web.HTTPUpgradeRequired(text="this is a WebSocket", headers=UPGRADE)
    if headers.get("Sec-WebSocket-Version") != VERSION:
        raise web.HTTPUpgradeRequired(text=f"WebSocket version {VERSION} is spoken",
                                      headers={**UPGRADE, "Sec-WebSocket-Version": VERSION})
    key = headers.get("Sec-WebSocket-Key", "")
    try:
        decoded = b64decode(key, validate=True)
    except ValueError:
        decoded = b""
    if len(decoded) != KEY_BYTES:
        raise web.HTTPBadRequest(text="Sec-WebSocket-Key is no base64 of 16 bytes")
    offered = [word.strip() for value in headers.getall("Sec-WebSocket-Protocol", []) for word in value.split(",")]
    if subprotocol not in offered:
        raise web.HTTPBadRequest(text=f"Sec-WebSocket-Protocol must offer {subprotocol!r} [MQTT-6.0.0-3]")
    return key


def _switching(key: str, subprotocol: str) -> bytes:
    """The whole answer (4.2.2)."""
    accept = b64encode(sha1(key.encode() + ACCEPT_GUID).digest()).decode()
    return (f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {subprotocol}\r\nServer: Gatehouse\r\n\r\n"
            ).encode()
