"""The library's server, taught this door's manners: problem documents for broken requests, and bounds on slow peers.

- What is no HTTP is answered with a problem document and closed, and is not a traceback in the log.
- A client that takes nothing of its answer for `stall_timeout_s` is cut off; until then it is asked for nothing more.
- A connection beyond `max_connections`, beyond what its address may have, or beyond what the descriptors allow all
  doors together, is answered 503 and closed. Where the other doors have taken all of them, a few are left for whoever
  looks after the hub.

Time for headers and between requests is the library's keep-alive timeout: it runs from the end of the last answer and
does not start again with every byte, so a header that trickles in is bounded too.
"""
from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from gatehouse.gateways.connections.capacity import Room
from gatehouse.gateways.connections.connection import peer_name
from gatehouse.gateways.connections.endings import Endings
from gatehouse.gateways.connections.hang_ups import has_hung_up
from gatehouse.gateways.http.answers import SERVER, problem_answer
from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.direct import DirectCalls, Line
from gatehouse.gateways.http.door import NAME
from gatehouse.gateways.http.problems import CONTENT_TYPE, encode_problem
from gatehouse.gateways.http.websocket.guard import FrameGuard
from gatehouse.gateways.tls.certificates import ends_ms_of, name_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from gatehouse.gateways.contract import Listen, Services

log = logging.getLogger("gatehouse.gateways.http")

MAX_LINE_BYTES: Final = 8190
"""The most bytes of a request line or header field: what common proxies allow."""

MAX_HEADERS: Final = 128
TOO_MANY_HEADERS: Final = "Too many headers received"
HTTP_2: Final = "Pause on PRI/Upgrade"
"""What the parser says where a status of its own is due."""

SPARE: Final = 32
"""Connections that this door may still take, of the hub's own reserve, where all doors together have taken all: for
metrics, health, the console."""

END_GRACE_S: Final = 2.0
"""What a request is given to finish when somebody in charge closes its connection."""

LINGER_S: Final = 2.0
"""How long an unread body is still taken and thrown away, so that the client sees why it was refused."""


class Connections:
    """What is open, for the bound, the metrics and people; the doorstep of handshakes."""

    def __init__(self, config: HttpConfig, services: Services) -> None:
        self.config = config
        self.services = services
        self.open: set[DoorProtocol] = set()
        self.counts: Counter[str] = Counter()
        """accepted, refused, faults, closed_stalled; the names that the shared listener of the other doors uses."""
        self._endings = Endings(NAME, self.counts, services.now_ms)
        self._room = Room(services.capacity, self.counts, config.max_connections_per_address,
                          most=config.max_connections, spare=SPARE)

    def add(self, connection: DoorProtocol) -> str:
        """Count a connection in. Returns why there is no place for it, `code: text`; "" where there is."""
        refusal = self._take_place(connection.peer)
        if not refusal:
            self.open.add(connection)
            self.counts["accepted"] += 1
        return refusal

    def remove(self, connection: DoorProtocol) -> None:
        """Remove a connection that has ended, or speaks another protocol now. One that was refused was never added."""
        if connection in self.open:
            self.open.remove(connection)
            self._room.give(connection.peer)

    def begin_handshake(self, peer: str) -> bool:
        """See `tls_transport.Doorstep`."""
        return not self._take_place(peer)

    def end_handshake(self, peer: str, reason: str) -> None:
        self._room.give(peer)
        if reason:
            self._endings.note(peer, reason)
        else:
            self.counts["tls_handshakes"] += 1

    def note_broken(self, peer: str, reason: str) -> None:
        self._endings.note(peer, reason)

    def _take_place(self, peer: str) -> str:
        refusal = self._room.take(peer)
        if refusal:
            self._endings.log(peer, refusal)
        return refusal


class Stream(Protocol):
    """An answer that goes on for as long as its client wants: what it tells of itself, and how it is ended."""

    def describe(self) -> dict[str, Any]: ...

    def on_principal_ended(self, reason: str) -> None:
        """End it in the words of whatever is streamed."""


class DoorProtocol(web.RequestHandler):
    """One client's connection."""

    __slots__ = ("certificate", "certificate_ends_ms", "id", "line", "listen", "peer", "since_ms", "stream", "tls",
                 "user", "page", "_charged", "_ending", "_shared", "_stall_timer", "_stalled_bytes")

    def __init__(self, manager: web.Server, shared: Connections, calls: DirectCalls, listen: Listen, **kwargs: Any
                 ) -> None:
        super().__init__(manager, **kwargs)
        self.line = Line(calls, self)
        self.id = ""
        self.listen = listen
        self.peer = "unknown"
        self.certificate: str | None = None
        """See `contract.Link.certificate`, and its end likewise."""
        self.certificate_ends_ms = 0
        self.tls: str | None = None
        """The version of TLS that is spoken, None where none is."""
        self.user = ""
        self.page = ""                      # of the console that it belongs to
        """Who asked last."""
        self.since_ms = 0
        self.stream: Stream | None = None
        """What is being streamed, set by what streams it."""
        self._ending: asyncio.Future[None] | None = None     # kept, or nobody would
        self._shared = shared
        self._stall_timer: asyncio.TimerHandle | None = None
        self._stalled_bytes = 0
        self._charged = 0                # of what is unsent, to the budget of all connections; 0 while it keeps up

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or say that there are too many."""
        shared = self._shared
        stream = cast(asyncio.Transport, transport)
        self.peer = peer_name(stream.get_extra_info("peername"))
        refusal = shared.add(self)
        if refusal:
            self.close()
            stream.write(_refusal("busy", "too many connections are open, " + refusal.partition(": ")[2]))
            stream.close()
            return
        services = shared.services
        self.since_ms = services.wall_ms()
        if self.listen.tls is not None:
            self.tls = stream.get_extra_info("tls_version")
            certificate = stream.get_extra_info("peercert")
            self.certificate = name_in(certificate, services.certificate_user)
            self.certificate_ends_ms = ends_ms_of(certificate)
        self.id = services.connections.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget it."""
        self._stop_stall_timer()
        self._charge(0)
        self._shared.remove(self)
        self._shared.services.connections.remove(self.id)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """What can be begun directly is; the rest is the library's. It calls this itself, with nothing, to go on."""
        if data:
            waiter = self._waiter
            data = self.line.receive(data, waiter is not None and not waiter.done() and not self._paused)  # decision 73
            if not data:
                return
        super().data_received(data)

    def hold(self) -> None:
        """See `direct.DirectConnection`."""
        self._pause_transport_reading()

    def go_on(self) -> None:
        """See `direct.DirectConnection`. Not within the kernel's call that has answered the last one."""
        self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self.transport is not None:
            self.data_received(self.line.take_held())
            if not (self.line.held or self._reading_paused or self._buffer_paused):
                self._resume_transport_reading()

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109 (the library's)
        """End when what is under way is answered, in so many seconds at most."""
        self._pause_transport_reading()
        await self.line.when_answered(timeout)
        await super().shutdown(timeout)

    def _process_keepalive(self) -> None:
        """The library's timer: the time of direct answers counts like that of its own."""
        since = self._loop.time() if self.line.busy else self.line.answered_s
        self._next_keepalive_close_time = max(self._next_keepalive_close_time, since + self._keepalive_timeout)
        super()._process_keepalive()

    def release(self) -> tuple[asyncio.Transport, bytes]:
        """Let go of the socket, for another protocol to speak on it; also returns what came behind the request.

        The request's task is cancelled: its handler must not answer any more.
        """
        transport, rest = self.transport, bytes(self._message_tail)
        assert transport is not None, "a request that is being answered has a connection"
        self.transport = None            # or it would be closed below
        self.connection_lost(None)
        return transport, rest

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """What comes from here on are frames of a WebSocket."""
        super().set_parser(cast(Any, FrameGuard(parser)), data_received_cb)

    @property
    def gone(self) -> bool:
        """See `contract.Link`."""
        return self.transport is None or has_hung_up(self.transport)

    @property
    def certificate_der(self) -> bytes | None:
        """See `OpenConnection`."""
        certificate: bytes | None = None if self.transport is None else self.transport.get_extra_info("peercert_der")
        return certificate

    def describe(self) -> dict[str, Any]:
        """For people."""
        transport = self.transport
        return {"id": self.id, "door": NAME, "peer": self.peer, "listener": str(self.listen), "since": self.since_ms,
                "tls": self.tls, "certificate": self.certificate,
                "unsent_bytes": 0 if transport is None else transport.get_write_buffer_size(),
                "user": self.user, "client_id": self.page and f"console {self.page}",
                "busy": self._current_request is not None or self.line.busy,
                **({} if self.stream is None else self.stream.describe())}

    def end(self, reason: str) -> None:
        """Close it: a stream in its own words; a request that is under way has a moment to end."""
        self._shared.counts["closed_ended"] += 1
        if self.stream is not None:
            self.stream.on_principal_ended(reason)
        self._ending = asyncio.ensure_future(self.shutdown(END_GRACE_S))

    def pause_writing(self) -> None:
        """The client is slower than its answer: give it until the stall timeout."""
        super().pause_writing()
        self._watch_stall()

    def resume_writing(self) -> None:
        """The client has taken most of the answer."""
        self._stop_stall_timer()
        self._charge(0)
        super().resume_writing()

    async def drained(self) -> None:
        """Returns once the client has taken most of what was written. Raises ConnectionError where it has gone.

        Several tasks may wait, and be cancelled while they do: the library's own way has one future for all of them,
        which the first that is cancelled takes along.
        """
        if self.transport is None:
            raise ConnectionResetError("the client has gone")
        if self._paused:
            if self._drain_waiter is None:
                self._drain_waiter = self._loop.create_future()
            await asyncio.shield(self._drain_waiter)

    def handle_error(self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None,
                     message: str | None = None) -> web.StreamResponse:
        """The answer to bytes that are no request. Always closes the connection. Raises ConnectionError where nobody is
        left to be answered."""
        gone = self.transport is None or self.transport.is_closing()
        if isinstance(exc, ConnectionError) and (gone or request.writer.output_size > 0):
            raise exc
        if status >= 500:
            code = "internal_error"
            self._shared.counts["faults"] += 1
            log.error("a request failed outside its handler", exc_info=exc)
            detail = "the hub failed to handle this request"
        else:
            code, detail = _fault_of(exc, message)
            self._shared.counts["closed_" + code] += 1
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        speak_our_version(request)
        response = problem_answer(code, detail, {"Server": SERVER})
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """What the library could not handle: a broken body that is being thrown away is the client's fault, no news."""
        fault = kw.get("exc_info")
        if isinstance(fault, (web.RequestPayloadError, HttpProcessingError, ConnectionError)):
            log.debug("a client's request broke off: %s", fault)
        else:
            log.error(*args, **kw)

    def _watch_stall(self) -> None:
        transport = self.transport
        if transport is not None:
            self._stalled_bytes = transport.get_write_buffer_size()
            self._charge(self._stalled_bytes)
            self._stall_timer = self._loop.call_later(self._shared.config.stall_timeout_s, self._check_stall)

    def _check_stall(self) -> None:
        transport = self.transport
        if transport is None:
            return
        if transport.get_write_buffer_size() < self._stalled_bytes:
            self._watch_stall()
            return
        self._shared.counts["closed_stalled"] += 1
        transport.abort()

    def _charge(self, unsent: int) -> None:
        self._shared.services.unsent.charge(unsent - self._charged)
        self._charged = unsent

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


class DoorServer(web.Server):
    """Makes a `DoorProtocol` per connection."""

    def __init__(self, handler: Any, shared: Connections, calls: DirectCalls, **kwargs: Any) -> None:
        super().__init__(handler, **kwargs)
        self._shared = shared
        self._calls = calls

    def protocol_for(self, listen: Listen) -> DoorProtocol:
        """The protocol of a connection that came by this address."""
        return DoorProtocol(self, self._shared, self._calls, listen, loop=self._loop, **self._kwargs)


def speak_our_version(request: web.BaseRequest) -> None:
    """RFC 9112, 2.3: an answer says which version the server speaks, not which one was tried on it."""
    request._cache["version"] = HttpVersion11        # what its property has looked up, or would


def _fault_of(error: BaseException | None, message: str | None) -> tuple[str, str]:
    """Code and detail of bytes that the parser refused, without its copy of the client's bytes."""
    if isinstance(error, LineTooLong):
        if isinstance(error.args[0], bytearray):             # which is how the parser gathers a request line
            return "target_too_long", f"a path and query have at most {MAX_LINE_BYTES} bytes"
        return "headers_too_large", f"a header field has at most {MAX_LINE_BYTES} bytes"
    lines = (message or "").strip().splitlines()
    said = lines[0].rstrip(":") if lines else "this is no HTTP request"
    if said == TOO_MANY_HEADERS:
        return "headers_too_large", f"a request has at most {MAX_HEADERS} header fields"
    if said == HTTP_2:
        return "version_not_supported", "HTTP/1.1 and HTTP/1.0 are spoken here, HTTP/2 is not"
    return "malformed_request", said


def _refusal(code: str, detail: str) -> bytes:
    """A whole 503 for a connection on which nothing was read yet."""
    body = encode_problem(code, detail)
    return (f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n"
            f"Server: {SERVER}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n").encode() + body
