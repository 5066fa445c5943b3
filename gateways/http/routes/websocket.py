"""`GET /v1/ws`: the WebSocket of messages. What its frames say stands in `docs/http-streams.md`."""
from __future__ import annotations

from functools import partial
from typing import Final

from gatehouse.gateways.http.declaring import TICKET, Answer, declare
from gatehouse.gateways.http.door import NAME, Door, Routes
from gatehouse.gateways.http.exchange import Answered, Call, Handover
from gatehouse.gateways.http.websocket.connection import open_connection
from gatehouse.gateways.http.websocket.handshake import choose_deflate, no_handshake, read_key, switching
from gatehouse.gateways.websocket.opening import choose_protocol, is_key

PROTOCOL: Final = "gatehouse.v1+json"


@declare("read", query=(TICKET,), answers=(Answer(101, f"A WebSocket of JSON frames, sub-protocol `{PROTOCOL}`."),),
         problems=("upgrade_required",))
async def websocket(door: Door, call: Call) -> Answered:
    """Open a WebSocket.

    Publish, subscribe with credit, pop and settle in JSON frames over one connection.
    """
    principal = await door.stream_principal(call, call.query())
    key, deflate = read_key(call), choose_deflate(call.headers)
    if not is_key(key):
        raise no_handshake()
    protocol = choose_protocol(call.headers, (PROTOCOL,))
    greeting = switching(key, protocol, "" if deflate is None else deflate.extension)
    return Handover(NAME, partial(open_connection, door, principal, deflate), greeting)


ROUTES: Routes = (("GET", "/v1/ws", websocket),)
