"""`GET /v1/ws`: the WebSocket of messages. What its frames say stands in `docs/http-streams.md`."""
from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from aiohttp import WSCloseCode, web

from gatehouse.gateways.http.answers import SERVER
from gatehouse.gateways.http.declaring import Answer, declare
from gatehouse.gateways.http.door import Call, Door, Routes
from gatehouse.gateways.http.parameters import TICKET
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.websocket.connection import WebSocketConnection

logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)      # it warns of what a client offers
PROTOCOL: Final = "gatehouse.v1+json"
VERSION: Final = "13"
CLOSE_TIMEOUT_S: Final = 2.0
ASCII: Final = ("Upgrade", "Connection", "Sec-WebSocket-Key", "Sec-WebSocket-Version", "Sec-WebSocket-Protocol",
                "Sec-WebSocket-Extensions")


class Socket(web.WebSocketResponse):
    """The library's, which says that all was well after bytes that it could not decompress."""

    async def close(self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True) -> bool:
        """See `web.WebSocketResponse`."""
        if code == WSCloseCode.OK and self.exception() is not None:
            code = WSCloseCode.INVALID_TEXT
        return await super().close(code=code, message=message, drain=drain)


@declare("read", query=(TICKET,), answers=(Answer(101, f"A WebSocket of JSON frames, sub-protocol `{PROTOCOL}`."),),
         problems=("upgrade_required",))
async def websocket(door: Door, call: Call) -> web.StreamResponse:
    """Open a WebSocket.

    Publish, subscribe with credit, pop and settle in JSON frames over one connection.
    """
    request = call.request
    principal = await door.stream_principal(request, call.query())
    _check_ascii(request.headers)
    socket = Socket(protocols=(PROTOCOL,), heartbeat=door.config.heartbeat_s * 2, compress=True,
                    max_msg_size=door.config.max_body_bytes, timeout=CLOSE_TIMEOUT_S, decode_text=False)
    if not socket.can_prepare(request) or request.headers.get("Sec-WebSocket-Version") != VERSION:
        raise Refusal("upgrade_required", "this is a WebSocket (RFC 6455): ask with Upgrade: websocket, "
                      f"Sec-WebSocket-Version: {VERSION} and a Sec-WebSocket-Key",
                      headers={"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": VERSION})
    socket.headers["Server"] = SERVER
    await socket.prepare(request)
    await WebSocketConnection(door, principal, request, socket).run()
    return socket


def _check_ascii(headers: Mapping[str, str]) -> None:
    """The library takes these for ASCII, and its own fault is what comes of others."""
    for name in ASCII:
        if not headers.get(name, "").isascii():
            raise Refusal("invalid_header", f"{name} is ASCII (RFC 6455, 4.1)")


ROUTES: Routes = (("GET", "/v1/ws", websocket),)
