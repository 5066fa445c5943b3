"""A door's own WebSocket listener: the HTTP request that opens the WebSocket (RFC 6455, section 4.2), then the door.

    listen = [{ address = "0.0.0.0:8083", websocket = true, origins = ["https://app.example"] }]

Any path is taken. A page of a browser says where it comes from, for a browser connects to wherever a page tells it: it
is let in where `origins` names that, or where it is this very address (some clients that are no browsers say so, too).
"""
from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping
from hashlib import sha1
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.connections.open_connections import held_by
from gatehouse.gateways.door_side import Timers
from gatehouse.gateways.websocket.session import WebSocketSession

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Link, Listen, Session

VERSION: Final = "13"
KEY_BYTES: Final = 16
ACCEPT_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"      # of section 1.3
HEAD_BYTES_MAX: Final = 16_384
OPENING_MS: Final = 10_000             # in which the request is to be whole
ANY_ORIGIN: Final = "*"
END_OF_HEAD: Final = b"\r\n\r\n"


def is_key(key: str) -> bool:
    """Whether it is 16 bytes in base64."""
    try:
        return len(b64decode(key, validate=True)) == KEY_BYTES
    except ValueError:
        return False


def accept_of(key: str) -> str:
    """`Sec-WebSocket-Accept` for a client's key (4.2.2)."""
    return b64encode(sha1(key.encode() + ACCEPT_GUID).digest()).decode()


def choose_protocol(fields: Mapping[str, str], spoken: Collection[str]) -> str:
    """The first of these that the client offers; "" where there is none."""
    offered = {word.strip() for word in fields.get("sec-websocket-protocol", "").split(",")}
    return next((protocol for protocol in spoken if protocol in offered), "")


class NotOpened(Exception):
    """The request opens no WebSocket here; `status` is what it is answered with."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


def answer_to(head: bytes, spoken: Collection[str], listen: Listen) -> bytes:
    """The whole answer to a request whose head this is, without its end. Raises NotOpened."""
    first, fields = _read_head(head)
    if not first.startswith("GET ") or not first.rpartition(" ")[2].startswith("HTTP/1."):
        raise NotOpened("405 Method Not Allowed", "a WebSocket is opened by GET (RFC 6455, 4.1)")
    connection = {word.strip().lower() for word in fields.get("connection", "").split(",")}
    if fields.get("upgrade", "").lower() != "websocket" or "upgrade" not in connection \
            or fields.get("sec-websocket-version") != VERSION:
        raise NotOpened("426 Upgrade Required", "this address speaks WebSocket alone (RFC 6455, 4.2.1)")
    key = fields.get("sec-websocket-key", "")
    if not is_key(key) or "host" not in fields:
        raise NotOpened("400 Bad Request", "a WebSocket is opened with a key and a host (RFC 6455, 4.2.1)")
    origin = fields.get("origin")          # decision 174
    if origin is not None and not _may_come(origin.lower(), fields["host"].lower(), listen):
        raise NotOpened("403 Forbidden", f"pages of {origin[:200]!r} may not connect; see origins of this listener")
    protocol = choose_protocol(fields, spoken)
    if not protocol:
        raise NotOpened("400 Bad Request", f"Sec-WebSocket-Protocol offers none of {', '.join(spoken)} [MQTT-6.0.0-3]")
    return "\r\n".join(("HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade",
                        f"Sec-WebSocket-Accept: {accept_of(key)}", f"Sec-WebSocket-Protocol: {protocol}", "", "")
                       ).encode()


def _may_come(origin: str, host: str, listen: Listen) -> bool:
    """Whether a page of this origin may connect. On an address of this machine alone, where everybody may be let in
    without a login, a name is not enough: it can be pointed at this machine by whoever owns it."""
    if ANY_ORIGIN in listen.origins or origin in listen.origins:
        return True
    if origin.partition("://")[2] != host:
        return False
    return not listen.loopback or _is_fixed(host)


def _is_fixed(host: str) -> bool:
    """Whether `HOST` or `HOST:PORT` is no name that somebody could point elsewhere."""
    name = host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return name == "localhost"
    return True


def _read_head(head: bytes) -> tuple[str, dict[str, str]]:
    """Request line and fields by lower-case name. A field that comes in several lines is one list (RFC 9110, 5.3): so
    may those be that ask for a WebSocket. What is no ASCII is taken as it is (5.5): browsers send such cookies."""
    first, *lines = head.decode("latin-1").split("\r\n")
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise NotOpened("400 Bad Request", "a field of a request is NAME: VALUE (RFC 9112, 5)")
        name, value = name.lower(), value.strip()
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return first, fields


class WebSocketOpening:
    """A connection to such a listener until its WebSocket is open, and what passes it on from then on; see
    `contract.Session`. `make` makes the door's session on the link that it is given."""

    def __init__(self, link: Link, make: Callable[[Link], Session], spoken: Collection[str], now_ms: int) -> None:
        self._link = link
        self._make = make
        self._spoken = spoken
        self._inner: WebSocketSession | None = None
        self._head = b""
        self._closed = False
        self._timers = Timers(link)
        self._timers.add(self._on_late).at(now_ms + OPENING_MS)

    def handle_data(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.handle_data(data)
            return
        if self._closed:
            return
        head, end, rest = (self._head + data).partition(END_OF_HEAD)
        if len(head) > HEAD_BYTES_MAX:
            self._refuse(NotOpened("431 Request Header Fields Too Large", f"a head has {HEAD_BYTES_MAX} bytes at most"))
        elif not end:
            self._head = head
        else:
            self._open(head, rest)

    def _open(self, head: bytes, rest: bytes) -> None:
        try:
            answer = answer_to(head, self._spoken, self._link.listen)
        except NotOpened as refusal:
            self._refuse(refusal)
            return
        self._head = b""
        self._timers.stop()
        self._link.write(answer)
        self._inner = WebSocketSession(self._link, self._make)
        if rest:
            self._inner.handle_data(rest)

    def _refuse(self, refusal: NotOpened) -> None:
        body = f"{refusal}\n".encode()
        self._link.write(f"HTTP/1.1 {refusal.status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
                         "Upgrade: websocket\r\nConnection: Upgrade, close\r\n\r\n".encode() + body)
        self._close(f"websocket: {refusal}")

    def _close(self, reason: str) -> None:
        self._closed = True
        self._head = b""
        self._timers.stop()
        self._link.close(reason)

    def _on_late(self, now_ms: int) -> None:
        self._close("connect_timeout: no request came")

    def handle_drained(self) -> None:
        if self._inner is not None:
            self._inner.handle_drained()

    def handle_timer(self, now_ms: int) -> None:
        if self._inner is not None:
            self._inner.handle_timer(now_ms)
        else:
            self._timers.handle_timer(now_ms)

    def handle_closed(self) -> None:
        self._closed = True
        self._timers.stop()
        if self._inner is not None:
            self._inner.handle_closed()

    def handle_stopping(self) -> None:
        if self._inner is not None:
            self._inner.handle_stopping()
        else:
            self._close("stopping")

    def on_principal_ended(self, reason: str) -> None:
        if self._inner is not None:
            self._inner.on_principal_ended(reason)
        else:
            self._close(f"principal_ended: {reason}")

    def held_bytes(self) -> int:
        """What waits for the rest of the request; once that is there, what waits in the WebSocket."""
        return len(self._head) if self._inner is None else held_by(self._inner)

    def describe(self) -> dict[str, Any]:
        return {"transport": "websocket"} if self._inner is None else self._inner.describe()
