"""The HTTP request that becomes a WebSocket (RFC 6455, section 4.2), and what is agreed with it. Pure.

`dispatch.py` has looked at the page's origin. From the answer on the connection belongs to another session: one of this
door that reads JSON, or one of another door, which counts it, bounds it and lists it as its own.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.http.exchange import SERVER, Handover
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.websocket.opening import KEY_BYTES, accept_of, choose_protocol, is_key
from gatehouse.gateways.websocket.session import WebSocketSession

if TYPE_CHECKING:
    from gatehouse.gateways.contract import WebSocketRoute
    from gatehouse.gateways.http.exchange import Call

WEBSOCKET: Final = "websocket"
VERSION: Final = "13"
UPGRADE: Final = {"Upgrade": WEBSOCKET, "Connection": "Upgrade"}      # RFC 9110, 7.8: never the one without the other
ASCII: Final = ("upgrade", "connection", "sec-websocket-key", "sec-websocket-version", "sec-websocket-protocol",
                "sec-websocket-extensions")
DEFLATE: Final = "permessage-deflate"
_WINDOW: Final = re.compile(r"\"?(9|1[0-5])\"?")


class Deflate(NamedTuple):
    """What is agreed of permessage-deflate (RFC 7692, 7): the window of ours, and whether the client keeps its own."""

    window_bits: int
    client_keeps: bool
    extension: str


def read_key(call: Call) -> str:
    """The client's key, whatever it is worth. Refuses `upgrade_required` where the request is no handshake,
    `invalid_header` where it is not ASCII."""
    fields = call.headers
    for name in ASCII:
        if not fields.get(name, "").isascii():
            raise Refusal("invalid_header", f"{name} is ASCII (RFC 6455, 4.1)")
    if call.method != "GET" or call.head.upgrade != WEBSOCKET or call.has_body \
            or fields.get("sec-websocket-version") != VERSION:
        raise no_handshake()
    return fields.get("sec-websocket-key", "")


def no_handshake() -> Refusal:
    """What is said to who asks in another way."""
    return Refusal("upgrade_required", "this is a WebSocket (RFC 6455): ask with Upgrade: websocket, "
                   f"Sec-WebSocket-Version: {VERSION} and a Sec-WebSocket-Key",
                   headers={**UPGRADE, "Sec-WebSocket-Version": VERSION})


def choose_deflate(fields: Mapping[str, str]) -> Deflate | None:
    """The first of the client's offers that can be met; None where it offers none."""
    for offer in fields.get("sec-websocket-extensions", "").split(","):
        name, *parameters = [part.strip() for part in offer.split(";")]
        given = {parameter.partition("=")[0].strip(): parameter.partition("=")[2].strip() for parameter in parameters}
        if name == DEFLATE and len(given) == len(parameters) and (agreed := _agree(given)) is not None:
            return agreed
    return None


def _agree(given: Mapping[str, str]) -> Deflate | None:
    bits, agreed = 15, [DEFLATE]
    for name, value in given.items():
        if name == "server_max_window_bits":
            window = _WINDOW.fullmatch(value)
            if window is None:
                return None
            bits = int(window[1])
            agreed.append(f"{name}={bits}")
        elif name in ("server_no_context_takeover", "client_no_context_takeover") and not value:
            agreed.append(name)
        elif name != "client_max_window_bits":
            return None
    return Deflate(bits, "client_no_context_takeover" not in given, "; ".join(agreed))


def switching(key: str, protocol: str, extension: str = "") -> bytes:
    """The whole answer (4.2.2)."""
    lines = ["HTTP/1.1 101 Switching Protocols", f"Upgrade: {WEBSOCKET}", "Connection: Upgrade",
             f"Sec-WebSocket-Accept: {accept_of(key)}"]
    if protocol:
        lines.append(f"Sec-WebSocket-Protocol: {protocol}")
    if extension:
        lines.append(f"Sec-WebSocket-Extensions: {extension}")
    return "\r\n".join((*lines, f"Server: {SERVER}", "", "")).encode()


def lead_to(call: Call, door: str, route: WebSocketRoute) -> Handover:  # decision 98
    """Give the connection to another door's sessions. Refuses what is no handshake for them."""
    if call.method != "GET":
        raise Refusal("method_not_allowed", f"{route.path} has no {call.method[:32]}", headers={"Allow": "GET"})
    key = read_key(call)
    if not is_key(key):
        raise Refusal("malformed_request", f"Sec-WebSocket-Key is no base64 of {KEY_BYTES} bytes")
    protocol = choose_protocol(call.headers, route.subprotocols)
    if not protocol:
        raise Refusal("malformed_request", "Sec-WebSocket-Protocol must offer "
                                           f"{' or '.join(map(repr, route.subprotocols))} [MQTT-6.0.0-3]")
    return Handover(door, WebSocketSession, switching(key, protocol))
