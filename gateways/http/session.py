"""One client's connection: bytes to requests, requests to calls, answers back in the order of the requests.

    bytes ─► llhttp's call-backs ─► waiting ─► begun ─► answered, in their order
                                       │          └ a coroutine, driven by hand to its first wait: for a `Reply` it
                                       │            costs nothing more, for anything else a task takes it over
                                       └ one call at a time, but for those that only add to the log (`pipelined`):
                                         these begin while others before them wait for the disk

What is no request is answered with a problem document, and the connection ends. Time for a request's head and between
requests runs from the end of the last answer and does not start again with every byte, so a head that trickles in is
bounded too.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from gatehouse.gateways.connections.wrong_port import HTTP_WORDS, what_came
from gatehouse.gateways.door_side import FLOOR_BYTES, Timers
from gatehouse.gateways.http.column import HTTP
from gatehouse.gateways.http.exchange import NO_HEAD, Call, Handover, Head, Response, encode_response, problem_answer
from gatehouse.gateways.http.problems import Refusal

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Link, Services
    from gatehouse.gateways.http.config import HttpConfig
    from gatehouse.gateways.http.dispatch import Dispatcher
    from gatehouse.gateways.http.door import KnownLogin

MAX_LINE_BYTES: Final = 8190
"""The most bytes of a request line or header field: what common proxies allow."""

MAX_HEADERS: Final = 128

MAX_SILENT_BYTES: Final = 65_536
"""The most bytes of a head, which are read in several pieces; and of what stands between and behind chunks."""

MAX_WAITING: Final = 256
"""Requests of one connection that are not answered yet; with more, nothing further is read."""

PIECE_BYTES: Final = 65_536
"""So much is parsed before the bound above is looked at."""

MAX_UNREAD_BYTES: Final = 65_536
"""Of the bodies of requests whose calls have not asked for them: they have not begun, or wait for something else. With
more, nothing further is read."""

END_GRACE_MS: Final = 2_000
"""What a request is given to finish when somebody in charge closes its connection."""

LINGER_MS: Final = 2_000
"""How long an unread body is still taken and thrown away, so that the client sees why it was refused."""

VERSION: Final = b" HTTP/1.1\r\n"
HEAD_END: Final = b"\r\n\r\n"
PLAIN: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/?&=%._~:,+-"
"""What a target is made of, behind its slash, of which every parser makes the same."""

MAX_KNOWN: Final = 4
"""Requests of one connection whose fields are remembered: it goes from one call to another and back."""

MAX_KNOWN_BYTES: Final = 1024
"""Of the head of such a request."""

MAX_KEPT_BYTES: Final = 8190
"""Of the head of a request that is remembered for the next one: ten thousand connections may rest, each with one."""

METHODS: Final = {method.encode(): method for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")}
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
HTTP_2: Final = "Pause on PRI/Upgrade"
"""What the parser says where a status of its own is due."""

NOBODYS: Final = HttpRequestParser(object())
"""The parser of a session that is over: nothing is fed to it."""

NO_PLACE: Final = "that door is not open, or has no place"


class Streaming(Protocol):
    """An answer that goes on for as long as its client wants: what it tells of itself, and how it is ended."""

    def describe(self) -> dict[str, Any]: ...

    def on_principal_ended(self, reason: str) -> None:
        """End it in the words of whatever is streamed."""


class _Before(NamedTuple):
    """A request that came whole, in one read. `size` is that of all of it, in bytes."""

    head_bytes: bytes
    size: int
    method: str
    target: bytes
    head: Head
    length: int


NOTHING_BEFORE: Final = _Before(b"", -1, "", b"", NO_HEAD, -1)


class HttpSession:  # decision 131
    """One client's connection, as the shared connection knows it (`contract.Session`) and as llhttp calls it."""

    __slots__ = ("login", "page", "stream", "user", "_before", "_begun", "_closing", "_dispatcher", "_end_timer",
                 "_going_on", "_gone", "_head", "_head_raw", "_held", "_idle_since_ms", "_idle_timer", "_incoming",
                 "_known", "_last", "_length", "_lingers", "_link", "_now_ms", "_on_drained", "_parser", "_paused",
                 "_raw", "_silent_bytes", "_skips_head", "_soon", "_target", "_timers", "_upgrading", "_waiting",
                 "_wrong_port")

    def __init__(self, link: Link, services: Services, config: HttpConfig) -> None:
        dispatcher: Dispatcher = services.shared[HTTP.name]
        self.login: KnownLogin | None = None
        """Who has shown himself last, and by what."""

        self.page = ""                       # of the console that it belongs to
        self.stream: Streaming | None = None
        """What is being streamed."""

        self.user = ""
        """Who asked last."""

        self._link = link
        self._dispatcher = dispatcher
        self._now_ms = services.now_ms
        self._parser = HttpRequestParser(self)
        self._waiting: deque[Call] = deque()         # not begun
        self._begun: deque[Call] = deque()           # not answered
        self._on_drained: Callable[[], object] | None = None
        self._gone = False
        self._closing = ""                   # why the connection ends once what is begun is answered
        self._wrong_port = ""                # why it ends once that is said; "" where it is this one
        self._last = False                   # nothing more is parsed
        self._upgrading = False              # what comes is held until a request is answered that asks for WebSocket
        self._held = b""                     # not parsed yet
        self._paused = False
        self._soon = False                   # whether `_go_on` is going to be called
        self._going_on = False               # or is running
        self._idle_since_ms = self._now_ms()
        self._timers = Timers(link)
        self._idle_timer = self._timers.add(self._on_idle)
        self._end_timer = self._timers.add(lambda _: self._close(self._closing))
        self._lingers = False                # an unread body is thrown away

        # The request that is being parsed.
        self._target = b""
        self._raw: list[tuple[bytes, bytes]] = []
        self._head = NO_HEAD                 # of the last request, its length, and what they were made of
        self._length = -1
        self._head_raw: list[tuple[bytes, bytes]] = []
        self._incoming: Call | None = None               # whose body is not whole
        self._skips_head = False             # of a request that is parsed once more for its body
        self._before: _Before | None = NOTHING_BEFORE
        self._known: tuple[tuple[bytes, Head, int], ...] = ()    # from the version on, and what the parser made of it
        self._silent_bytes = 0               # of late, without a field, a piece of a body or an end
        self._idle_timer.at(self._idle_since_ms + dispatcher.idle_ms)

    # --- what the shared connection calls -----------------------------------------------------------------------

    def handle_data(self, data: bytes) -> None:
        if self._last:
            return
        if self._held or self._upgrading:
            self._held += data
            self._pause_where_full()
            return
        before = self._before
        if before is not None and len(data) == before.size and data.startswith(before.head_bytes):
            self._repeat(before, data)
        elif len(data) > PIECE_BYTES:
            self._before = None
            self._parse_pieces(data)
        elif before is not None and self._take_known(data):
            pass
        else:
            is_first = not self._waiting
            self._parse(data)
            if before is not None:
                self._before = self._whole(data) if is_first else None
        self._go_on()

    def note_stream(self, stream: Streaming | None) -> None:
        """This is what is being streamed; None: nothing any more."""
        self.stream = stream

    def note_user(self, name: str) -> None:
        """Who asks."""
        self.user = name

    def handle_drained(self) -> None:
        self._tell_drained()
        self._go_on()

    def handle_timer(self, now_ms: int) -> None:
        self._timers.handle_timer(now_ms)

    def _on_idle(self, now_ms: int) -> None:
        idle = not (self._begun or self._waiting)
        if idle and self._incoming is None and self._idle_since_ms + self._dispatcher.idle_ms <= now_ms:
            self._close("")
        else:
            self._idle_timer.at((self._idle_since_ms if idle and self._incoming is None else now_ms)
                                + self._dispatcher.idle_ms)

    def handle_closed(self) -> None:
        self._gone = self._last = True
        if self._incoming is not None:
            self._incoming.drop()
        for call in self._begun:
            if call.cancel is not None:
                call.cancel()
        self._waiting.clear()
        self._tell_drained()
        self._timers.end()
        self._parser = NOBODYS               # it points back here  # decision 297

    def handle_stopping(self) -> None:
        """What is under way is answered, nothing else is begun."""
        self._end_soon("stopping")

    def on_principal_ended(self, reason: str) -> None:
        """End a stream in its own words; a request that is under way has a moment to end."""
        if self.stream is not None:
            self.stream.on_principal_ended(reason)
        self._end_timer.at(self._now_ms() + END_GRACE_MS)
        self._end_soon(f"ended: {reason}")

    def _end_soon(self, reason: str) -> None:
        self._closing = self._closing or reason
        self._waiting.clear()
        if not self._begun:
            self._close(self._closing)

    def describe(self) -> dict[str, Any]:
        return {"user": self.user, "client_id": self.page and f"console {self.page}", "busy": bool(self._begun),
                **({} if self.stream is None else self.stream.describe())}

    # --- what calls use -----------------------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        """The client's address."""
        return self._link.peer

    @property
    def certificate(self) -> str | None:
        """See `contract.Link`, and its end likewise."""
        return self._link.certificate

    @property
    def certificate_ends_ms(self) -> int:
        return self._link.certificate_ends_ms

    @property
    def gone(self) -> bool:
        """See `contract.Link`."""
        return self._gone or self._link.gone

    @property
    def closed(self) -> bool:
        """Whether nothing that is written reaches the client."""
        return self._gone

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for the client to take them."""
        return self._link.unsent_bytes

    def write(self, data: bytes) -> None:
        """Send bytes of a stream."""
        self._link.write(data)

    def when_drained(self, on_drained: Callable[[], object]) -> None:
        """Call this once the client has taken most of what was written, or has gone; one at a time may wait."""
        if self._gone or self._link.unsent_bytes <= FLOOR_BYTES:
            on_drained()
        else:
            self._on_drained = on_drained

    def _tell_drained(self) -> None:
        on_drained, self._on_drained = self._on_drained, None
        if on_drained is not None:
            on_drained()

    def ask_for_body(self) -> None:
        """Tell a client that waits for it to send its body (RFC 9110, 10.1.1). Its request is the oldest here."""
        self._link.write(CONTINUE)

    def date(self) -> bytes:
        """For the header of an answer."""
        return self._dispatcher.date()

    # --- bytes to requests --------------------------------------------------------------------------------------

    def _repeat(self, before: _Before, data: bytes) -> None:  # decision 135
        """Nothing but the body differs from the request before: what the parser said of it holds."""
        call = Call(self, before.method, before.target, before.head, before.length)
        if before.length > 0:
            call.feed(data[len(before.head_bytes):])
        call.complete = True
        self._waiting.append(call)

    def _take_known(self, data: bytes) -> bool:  # decision 349
        """Take a request whose fields are, byte by byte, those of one before: nothing but method, target and body
        differs. False: it is to be parsed."""
        for fields, head, length in self._known:
            line_end = len(data) - max(0, length) - len(fields)
            if line_end <= 0 or not data.startswith(fields, line_end):
                continue
            method_end = data.find(b" ", 0, line_end)
            method, target = METHODS.get(data[:method_end]), data[method_end + 1:line_end]
            if method is None or not target.startswith(b"/") or target.translate(None, PLAIN) \
                    or len(target) > MAX_LINE_BYTES:
                return False
            call = Call(self, method, target, head, length)
            if length > 0:
                call.feed(data[len(data) - length:])
            call.complete = True
            self._waiting.append(call)
            return True
        return False

    def _whole(self, data: bytes) -> _Before | None:
        """What was parsed just now, where that was one whole request and nothing else. None, to the end of the
        connection, where it was not: only then it is known that the parser stands between two requests."""
        call = self._waiting[-1] if len(self._waiting) == 1 else None
        if call is None or self._incoming is not None or self._last or call.fault is not None or call.http_10 \
                or call.head.upgrade or "transfer-encoding" in call.head.fields:
            return None
        head_end = data.find(HEAD_END) + len(HEAD_END)
        head_bytes, size = data[:head_end], head_end + max(0, call.length)
        if head_end < len(HEAD_END) or size != len(data):
            return None
        if head_end > MAX_KEPT_BYTES:
            return NOTHING_BEFORE
        line = call.method.encode() + b" " + call.target
        fields = head_bytes[len(line):]
        if head_end <= MAX_KNOWN_BYTES and head_bytes.startswith(line + VERSION) \
                and fields not in [each[0] for each in self._known]:
            self._known = ((fields, call.head, call.length), *self._known[:MAX_KNOWN - 1])
        return _Before(head_bytes, size, call.method, call.target, call.head, call.length)

    def _parse_pieces(self, data: bytes) -> None:
        at = 0
        while at < len(data) and not self._last:
            if self._is_full():
                self._held = data[at:]
                self._pause()
                return
            self._parse(data[at:at + PIECE_BYTES])
            at += PIECE_BYTES
            if self._upgrading:
                self._held += data[at:]
                return
            self._go_on()

    def _parse(self, data: bytes) -> None:
        while data:
            data = self._parse_on(data)

    def _parse_on(self, data: bytes) -> bytes:
        """Parse up to the end, or to a request that asks for another protocol; returns what is left then."""
        self._silent_bytes += len(data)      # what brings a request further sets it to 0
        rest = b""
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            rest = self._on_upgrade(data[upgrade.args[0]:])
        except HttpParserError as error:
            if self._last:                   # it has asked to end the connection, and what it sends is nobody's
                return b""
            what = "" if data.startswith(HTTP_WORDS) else what_came(data)
            self._wrong_port = what and f"malformed_request: {what} came to the HTTP port"
            self._refuse(_fault_of(error))
            return b""
        if self._silent_bytes > MAX_SILENT_BYTES:
            self._refuse(Refusal("headers_too_large", f"a head has at most {MAX_SILENT_BYTES} bytes")
                         if self._incoming is None else Refusal("malformed_request", "its chunks say too little"))
            return b""
        return rest

    def on_url(self, url: bytes) -> None:
        target = self._target = self._target + url
        if len(target) > MAX_LINE_BYTES:
            raise Refusal("target_too_long", f"a path and query have at most {MAX_LINE_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._raw.append((name, value))      # also what stands behind a body in chunks

    def on_headers_complete(self) -> None:
        if self._last:
            raise HttpParserError("nothing is read behind the last request")
        if self._skips_head:
            self._skips_head = False
            return
        parser, raw = self._parser, self._raw
        head, length = self._head, self._length
        if raw != self._head_raw:            # as most clients send what they have sent before
            head, length = self._dispatcher.heads.read(_bounded(raw))
            if sum([len(name) + len(value) for name, value in raw]) <= MAX_KEPT_BYTES:
                self._head, self._length, self._head_raw = head, length, raw
        keeps, method = parser.should_keep_alive(), parser.get_method()
        call = Call(self, METHODS.get(method) or method.decode("ascii"), self._target, head, length)
        if not keeps or head.says_connection:
            version = parser.get_http_version()          # else it is 1.1, which alone keeps connections unasked
            call.keeps, call.http_10 = keeps, version == "1.0"
            if version != "1.1":
                call.fault = _fault_of_version(head, version)
        if head.fault is not None and call.fault is None and not call.http_10:
            call.fault = head.fault
        if call.fault is not None:
            call.keeps = False
        self._target, self._raw = b"", []
        self._silent_bytes = 0
        self._incoming = call
        self._waiting.append(call)

    def on_body(self, data: bytes) -> None:
        self._silent_bytes = 0
        if self._incoming is not None:
            self._incoming.feed(data)

    def on_message_complete(self) -> None:
        call, self._incoming = self._incoming, None
        if call is None:
            return
        self._silent_bytes = 0
        if call.fault is None:
            call.complete = True
            if call.is_awaited:
                call.end()
        self._raw = []
        if not call.keeps:
            self._last = True
        if self._lingers and call.answered:
            self._lingers = False
            if not self._closing:
                self._end_timer.at(0)
            self._idle_since_ms = self._now_ms()
            if not call.keeps or self._closing:
                self._close(self._closing)

    def _on_upgrade(self, rest: bytes) -> bytes:
        """The last request asks for another protocol, so the parser has left its body alone. Returns what is to be
        parsed behind its head."""
        call = self._waiting[-1] if self._waiting else None
        if call is None or call.method == "CONNECT":
            self._last = True
            return b""
        if call.head.upgrade == "websocket" and call.method == "GET" and not call.has_body:
            self._upgrading = True
            self._held = rest
            return b""
        if call.has_body:                    # RFC 9110, 7.8: it is passed over
            self._skips_head, self._incoming, call.complete = True, call, False
            self._parser = HttpRequestParser(self)
            self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % (
                b"Content-Length: %d" % call.length if call.length >= 0 else b"Transfer-Encoding: chunked"))
            self._target, self._raw = b"", []
        return rest

    def _refuse(self, fault: Refusal) -> None:
        """What came is no request, or a broken one: it is the last."""
        self._last = True
        if not self._wrong_port:             # which the connection's end counts
            self._dispatcher.counts["closed_" + fault.code] += 1
        call, self._incoming = self._incoming, None
        if call is None:
            call = Call(self, "", b"", NO_HEAD, keeps=False)
            call.complete, call.fault = True, fault
            self._waiting.append(call)
            return
        call.keeps = False
        if call.answered:
            self._close("")
        else:
            call.end(Refusal(fault.code, f"the body cannot be read: {fault.detail}"))

    # --- requests to calls --------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Begin what can be begun, and read on if there is room."""
        if self._going_on:
            return
        self._going_on = True
        self._soon = False
        waiting, begun = self._waiting, self._begun
        while waiting and not self._closing and (not begun or self._may_overlap(waiting[0])):
            if self._link.unsent_bytes > FLOOR_BYTES:
                break                        # who takes no answers is given no more; `handle_drained` goes on
            call = waiting.popleft()
            begun.append(call)
            self._dispatcher.begin(call)
        self._going_on = False
        if waiting or self._held or self._paused or self._incoming is not None:
            self._read_on()

    def _may_overlap(self, call: Call) -> bool:  # decision 133
        """Whether it may begin while others wait: they and it only add to the log, in this order."""
        begun = self._begun
        return begun[-1].submitted and len(begun) < MAX_WAITING and call.complete \
            and self._dispatcher.is_pipelined(call)

    def _is_full(self) -> bool:
        return len(self._waiting) + len(self._begun) >= MAX_WAITING or self._unread_bytes() > MAX_UNREAD_BYTES

    def _unread_bytes(self) -> int:
        """Of the bodies that no call has asked for."""
        waiting, incoming = self._waiting, self._incoming
        unread = sum([call.received_bytes for call in waiting])
        if incoming is None or incoming.takes_body or incoming.answered or waiting and waiting[-1] is incoming:
            return unread
        return unread + incoming.received_bytes

    def held_bytes(self) -> int:
        """What has come and waits here: to be parsed, or for a call to ask for it."""
        return len(self._held) + self._unread_bytes()

    def read_on(self) -> None:
        """A call asks for its body, which may not be read."""
        if self._paused and not self._soon:
            self._soon = True
            self._dispatcher.soon(self._go_on)

    def _read_on(self) -> None:
        if self._is_full():
            self._pause()
        elif self._held and not self._upgrading:
            data, self._held = self._held, b""
            self._parse_pieces(data)
            self._go_on()
        elif self._paused and not self._held:
            self._paused = False
            self._link.resume()

    def _pause_where_full(self) -> None:
        if len(self._held) > PIECE_BYTES:
            self._pause()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._link.pause()

    # --- calls to answers ---------------------------------------------------------------------------------------

    def respond(self, call: Call, response: Response) -> None:
        """A call has its answer."""
        if self._gone:
            return
        closes = response.closes or not call.keeps or bool(self._closing) and self._begun[-1] is call
        call.closes = closes
        call.answer = encode_response(response, self._dispatcher.date(), closes=closes, http_10=call.http_10,
                                      head_alone=call.method == "HEAD")
        self._on_answer(call)

    def end_stream(self, call: Call, closes: bool) -> None:
        """A call has sent all of its answer by itself."""
        if not self._gone:
            call.answer, call.closes = b"", closes or bool(self._closing)
            self._on_answer(call)

    def hand_over(self, call: Call, handover: Handover) -> None:
        """A call gives the connection to another session."""
        if self._gone:
            return
        rest, self._held = self._held, b""
        self._upgrading = False
        if self._link.hand_over(handover.door, handover.framing, handover.greeting, rest):
            self._gone = self._last = True
            self._timers.stop()
            self._begun.clear()
            self._parser = NOBODYS
        else:
            self._held = rest
            self.respond(call, problem_answer("busy", NO_PLACE, {"Retry-After": "1"}))

    def break_off(self, reason: str) -> None:
        """A call has ended without an answer, or within it."""
        if not self._gone:
            self._close(reason)

    def _on_answer(self, call: Call) -> None:
        """Send what no longer waits for another."""
        if not call.complete:
            call.drop()
        begun, link = self._begun, self._link
        while begun and begun[0].answer is not None:
            call = begun.popleft()
            if call.answer:
                link.write(call.answer)
            if call.closes:
                begun.clear()
                self._finish(call)
                return
        if not begun:
            self._rest()

    def _rest(self) -> None:
        """Everything that was begun is answered."""
        self._idle_since_ms = self._now_ms()
        if self._closing:
            self._close(self._closing)
        elif self._incoming is not None and self._incoming.answered:
            self._linger()
        if self._upgrading and not self._waiting:
            self._upgrading = False          # it was refused: what came behind it is a request
        if (self._waiting or self._held or self._paused) and not (self._soon or self._going_on):
            self._soon = True
            self._dispatcher.soon(self._go_on)

    def _finish(self, call: Call) -> None:
        """The last answer is written. A body that is still coming is thrown away for a while: closed at once, the
        client's system would throw away the answer."""
        self._waiting.clear()
        self._closing = self._closing or self._wrong_port or "finished"
        if call is self._incoming:
            self._linger()
        else:
            self._close(self._closing)

    def _linger(self) -> None:
        if not self._lingers:
            self._lingers = True
            self._end_timer.at(self._now_ms() + LINGER_MS)
            self.read_on()

    def _close(self, reason: str) -> None:
        self._last = True
        self._waiting.clear()
        self._timers.stop()
        self._link.close("" if reason == "finished" else reason)


def _bounded(raw: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The same fields. Refuses more of them, or larger ones, than there may be."""
    if len(raw) > MAX_HEADERS:
        raise Refusal("headers_too_large", f"a request has at most {MAX_HEADERS} header fields")
    if max([len(name) + len(value) for name, value in raw], default=0) > MAX_LINE_BYTES:
        raise Refusal("headers_too_large", f"a header field has at most {MAX_LINE_BYTES} bytes")
    return raw


def _fault_of(error: HttpParserError) -> Refusal:
    """What is wrong with bytes that the parser refused."""
    if isinstance(error, HttpParserCallbackError) and isinstance(error.__context__, Refusal):
        return error.__context__
    said = str(error).strip().rstrip(":")
    if said == HTTP_2:
        return Refusal("version_not_supported", "HTTP/1.1 and HTTP/1.0 are spoken here, HTTP/2 is not")
    return Refusal("malformed_request", said or "this is no HTTP request")


def _fault_of_version(head: Head, version: str) -> Refusal | None:
    """What is wrong with a request that is not HTTP/1.1. Nothing behind it is read."""
    if version != "1.0":
        return Refusal("version_not_supported", "HTTP/1.1 and HTTP/1.0 are spoken here",
                       headers={"Connection": "close"})
    if "transfer-encoding" in head.fields:
        # RFC 9112, 6.1: chunks of a sender that knows HTTP/1.0 only may be understood otherwise by whoever passed
        # them on.
        return Refusal("malformed_request", "HTTP/1.0 has no Transfer-Encoding", headers={"Connection": "close"})
    return head.fault if head.host is not None else None             # which need not be said there
