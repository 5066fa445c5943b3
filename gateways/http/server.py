"""The library's server, taught this door's manners: problem documents for broken requests, and bounds on slow peers.

- What is no HTTP is answered with a problem document and closed, and is not a traceback in the log.
- A client that takes nothing of its answer for `stall_timeout_s` is cut off; until then it is asked for nothing more.
- A connection beyond `max_connections`, or beyond what the descriptors allow, is answered 503 and closed.

Time for headers and between requests is the library's keep-alive timeout: it runs from the end of the last answer and
does not start again with every byte, so a header that trickles in is bounded too.
"""
from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from gateways.connection import peer_name
from gateways.http.answers import SERVER, problem_answer
from gateways.http.config import HttpConfig
from gateways.http.problems import CONTENT_TYPE, encode_problem
from gateways.listener import descriptor_capacity

log = logging.getLogger("gatehouse.gateways.http")

MAX_LINE_BYTES: Final = 8190
"""Of a request line or header field; what common proxies allow."""

MAX_HEADERS: Final = 128
LINGER_S: Final = 2.0
"""How long an unread body is still taken and thrown away, so that the client sees why it was refused."""


class Connections:
    """What is open, for the bound, the metrics and people."""

    def __init__(self, config: HttpConfig) -> None:
        self.config = config
        self.limit = min(config.max_connections, descriptor_capacity())
        self.open: set[DoorProtocol] = set()
        self.counts: Counter[str] = Counter()
        """accepted, refused, faults, closed_stalled; the names that the shared listener of the other doors uses."""


class DoorProtocol(web.RequestHandler):
    """One client's connection."""

    __slots__ = ("peer", "_shared", "_stall_timer", "_stalled_bytes")

    def __init__(self, manager: web.Server, shared: Connections, **kwargs: Any) -> None:
        super().__init__(manager, **kwargs)
        self.peer = "unknown"
        self._shared = shared
        self._stall_timer: asyncio.TimerHandle | None = None
        self._stalled_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or say that there are too many."""
        shared = self._shared
        stream = cast(asyncio.Transport, transport)
        if len(shared.open) >= shared.limit:
            shared.counts["refused"] += 1
            self.close()
            stream.write(_refusal("busy", "too many connections are open"))
            stream.close()
            return
        shared.open.add(self)
        shared.counts["accepted"] += 1
        self.peer = peer_name(stream.get_extra_info("peername"))
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget it."""
        self._stop_stall_timer()
        self._shared.open.discard(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client is slower than its answer: give it until the stall timeout."""
        super().pause_writing()
        self._watch_stall()

    def resume_writing(self) -> None:
        """It has taken most of it."""
        self._stop_stall_timer()
        super().resume_writing()

    def handle_error(self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None,
                     message: str | None = None) -> web.StreamResponse:
        """The answer to bytes that are no request. Always closes the connection."""
        if status >= 500:
            code = "internal_error"
            self._shared.counts["faults"] += 1
            log.error("a request failed outside its handler", exc_info=exc)
        else:
            code = "headers_too_large" if isinstance(exc, LineTooLong) else "malformed_request"
            self._shared.counts["closed_" + code] += 1
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        detail = "the hub failed to handle this request" if status >= 500 else _first_line(message)
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

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


class DoorServer(web.Server):
    """Makes a `DoorProtocol` per connection."""

    def __init__(self, handler: Any, shared: Connections, **kwargs: Any) -> None:
        super().__init__(handler, **kwargs)
        self._shared = shared

    def __call__(self) -> DoorProtocol:
        return DoorProtocol(self, self._shared, loop=self._loop, **self._kwargs)


def _first_line(message: str | None) -> str:
    """What the parser said, without the copy of the client's bytes that follows it."""
    lines = (message or "").strip().splitlines()
    return lines[0].rstrip(":") if lines else "this is no HTTP request"


def _refusal(code: str, detail: str) -> bytes:
    """A whole 503 for a connection on which nothing was read yet."""
    body = encode_problem(code, detail)
    return (f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n"
            f"Server: {SERVER}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n").encode() + body
