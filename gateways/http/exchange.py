"""One request and the answer to it, as HTTP has them. Pure.

    POST /v1/publish/plant HTTP/1.1 CRLF        method, target
    Host: hub CRLF Content-Length: 4 CRLF CRLF  the fields: the same in most requests of one client, so that a `Head` is
    21.5                                        made once for all that have the same, and remembers what it says

A request is aimed at a path and a query (RFC 9110, 7.1), which are decoded once and strictly. The raw path is split
first and every level is decoded for itself, so that a `%2F` inside a level stays inside the level, and `//` holds an
empty one. Captures are handed out raw: decoding is the call's business, because only it knows whether a `%2F` may stand
there. A `Call` is the request with its body as far as it has come, and its answer once there is one.

    Response    an answer that is whole; a `Fixed` one stays the same while the hub runs
    Stream      is written piece by piece (`stream.py`)
    Handover    gives the connection to another session

Whatever a call raises becomes an answer, too: always a problem document, never a traceback to the client.
"""
from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from email.utils import formatdate
from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote_to_bytes

import orjson

from gatehouse.gateways.admission.errors import AccountError, Denied, LoginsFull, NotAuthenticated, OverQuota
from gatehouse.gateways.http.login import challenges
from gatehouse.gateways.http.mapping import SAID_FROM_NOW, Publication, read_headers
from gatehouse.gateways.http.problems import CONTENT_TYPE, PROBLEMS, Refusal, document_of, encode_problem, problem_of
from gatehouse.gateways.http.representation import matches, strong_tag, tag_of
from gatehouse.kernel.errors import AlreadyDecided, KernelError, TooManyTopics
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.tracing.context import hex_of, in_a_line

if TYPE_CHECKING:
    from gatehouse.gateways.connections.settings import Framing
    from gatehouse.gateways.http.declaring import Declared
    from gatehouse.gateways.http.dispatch import Endpoint
    from gatehouse.gateways.http.session import HttpSession
    from gatehouse.gateways.http.stream import Stream

# --- what it is aimed at ----------------------------------------------------------------------------------------------

MAX_PARAMETERS: Final = 32
"""More query parameters than any call has; a bound on what one request makes us parse."""

_SECONDS: Final = re.compile(r"\d{1,9}(\.\d{1,20})?(e[+-]?\d{1,3})?", re.ASCII)
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def split_target(target: str) -> tuple[str, str]:
    """Raw path and raw query of a request target, in origin form (`/a?b`) or absolute form (`http://host/a?b`)."""
    path, _, query = target.partition("?")
    if not path.startswith("/"):
        start = path.find("/", path.find("://") + 3) if "://" in path else -1
        path = path[start:] if start >= 0 else "/" if "://" in path else path
    return path, query


def decode_level(raw: str) -> str:
    """One level of a path, percent-decoded. Refuses what is not UTF-8, a broken escape and NUL (`invalid_address`)."""
    if "%" not in raw:
        if raw.isascii() and "\0" not in raw:
            return raw
    elif _BROKEN_ESCAPE.search(raw):
        raise Refusal("invalid_address", "a '%' in the path is not followed by two hexadecimal digits")
    try:
        level = unquote_to_bytes(raw.encode("utf-8", "surrogateescape")).decode()
    except UnicodeDecodeError:
        raise Refusal("invalid_address", "the path is not UTF-8") from None
    if "\0" in level:
        raise Refusal("invalid_address", "an address cannot hold NUL")
    return level


def decode_levels(raw: str) -> list[str]:
    """The levels of a raw path without its leading slash; `a//b` has an empty level in the middle."""
    return [decode_level(level) for level in raw.split("/")]


def decode_query(raw: str, parameters: frozenset[str]) -> dict[str, str]:
    """Query parameters by name. Refuses unknown and repeated names, broken text and more than `MAX_PARAMETERS`."""
    if not raw:
        return {}
    if _BROKEN_ESCAPE.search(raw):
        raise Refusal("invalid_parameter", "a '%' in the query is not followed by two hexadecimal digits")
    try:
        pairs = _plain_pairs(raw) if "%" not in raw and "+" not in raw else \
            parse_qsl(raw, keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise Refusal("invalid_parameter", f"the query is not UTF-8 or has over {MAX_PARAMETERS} parameters") from None
    query: dict[str, str] = {}
    for name, value in pairs:
        if name not in parameters:
            names = ", ".join(sorted(parameters)) or "none"
            raise Refusal("unknown_parameter", f"no parameter {name!r} here; there are: {names}", parameter=name)
        if name in query:
            raise Refusal("invalid_parameter", f"{name!r} is given twice", parameter=name)
        query[name] = value
    return query


def _plain_pairs(raw: str) -> list[tuple[str, str]]:
    """As `parse_qsl`, of a query that has nothing to decode in it: pages have another one each time. Raises
    ValueError."""
    fields = raw.split("&")
    if len(fields) > MAX_PARAMETERS:
        raise ValueError("too many")
    pairs: list[tuple[str, str]] = []
    for field in fields:
        if field:
            name, _, value = field.partition("=")
            pairs.append((name, value))
    return pairs


def decode_number(query: dict[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    """A whole number of the query, or `default` where it is not given. Refuses what is out of range."""
    text = query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 19 or not lowest <= int(text) <= highest:
        raise Refusal("invalid_parameter", f"{name!r} is a whole number from {lowest} to {highest}", parameter=name)
    return int(text)


def decode_seconds(query: dict[str, str], name: str, highest: float) -> float:
    """A decimal number of seconds of the query, 0 where it is not given. Refuses what is above `highest`."""
    text = query.get(name, "0")
    if not _SECONDS.fullmatch(text) or float(text) > highest:
        raise Refusal("invalid_parameter", f"{name!r} is a number of seconds from 0 to {highest:g}", parameter=name)
    return float(text)


QUERIES_MAX: Final = 64                # remembered of each call
QUERY_KEPT: Final = 512                # characters of the longest


class Queries:
    """What may stand in the query of one call, and the queries that were read lately."""

    __slots__ = ("names", "required", "_read")

    def __init__(self, names: Iterable[str], required: Iterable[str]) -> None:
        self.names = frozenset(names)
        self.required = tuple(required)
        self._read: dict[str, dict[str, str]] = {}

    def read(self, raw: str) -> dict[str, str]:
        """Query parameters by name, which nobody changes: they are remembered for whoever asks with the same text.
        Refuses other parameters, and where one is missing that must be there."""
        query = self._read.get(raw)
        if query is not None:
            return query
        query = decode_query(raw, self.names)
        for name in self.required:
            if name not in query:
                raise Refusal("invalid_parameter", f"{name!r} is needed", parameter=name)
        if len(raw) <= QUERY_KEPT:
            if len(self._read) >= QUERIES_MAX:
                self._read.clear()
            self._read[raw] = query
        return query


# --- what its fields say ----------------------------------------------------------------------------------------------

RawFields = tuple[tuple[bytes, bytes], ...]
"""Names and values as they came, in their order; `Content-Length` is not among them."""

HEADS_MAX: Final = 1024
"""Heads that are remembered. Those with an id in them come once: all are forgotten together."""

HEAD_BYTES_MAX: Final = 1024
"""A head with more bytes is made each time."""

ONCE: Final = frozenset(("host", "transfer-encoding", "content-type", "authorization", "origin", "expect",
                         "user-agent"))
"""Fields that say one thing; who sends two of them may be understood otherwise by whoever passed them on."""

LENGTH_CHARS: Final = len("content-length")

_UNUSUAL: Final = frozenset(("origin", "sec-fetch-site", "if-match", "if-none-match", "transfer-encoding", "expect"))
"""With them a request is looked at more closely, or its answer is made in another way."""


class Head:
    """What the fields of a request say. `fields` holds them by name in small letters; of several with one name the
    values are joined by commas (RFC 9110, 5.3)."""

    __slots__ = ("accept", "authorization", "fault", "fields", "host", "is_event", "media", "raw", "record_headers",
                 "says_connection", "takes_codings", "takes_events", "unusual", "upgrade", "_publication")

    def __init__(self, raw: RawFields) -> None:
        fields: dict[str, str] = {}
        repeated = ""
        self.raw = tuple([(name, value.strip(b" \t")) for name, value in raw])
        for raw_name, raw_value in self.raw:
            name = raw_name.decode("ascii").lower()
            value = raw_value.decode("utf-8", "surrogateescape")
            if name in fields:
                if name in ONCE:
                    repeated = name
                value = f"{fields[name]}, {value}"
            fields[name] = value
        self.fields = fields
        self.host = fields.get("host")
        self.fault: Refusal | None = None
        """What is wrong with it in HTTP/1.1. Nothing behind it is read."""

        if repeated or self.host is None:
            self.fault = Refusal("malformed_request", f"{repeated!r} is there twice" if repeated
                                 else "a request has a Host (RFC 9112, 3.2)", headers={"Connection": "close"})
        self.says_connection = "connection" in fields
        self.authorization = fields.get("authorization")
        accept = fields.get("accept")
        self.accept = None if not accept or "*/*" in accept else accept
        """What the client wants to be answered with; None: anything."""

        self.takes_events = accept is not None and "cloudevents" in accept.lower()
        """Whether that may be CloudEvents; see `cloud_events.asks_for`."""

        self.media = fields.get("content-type", "").partition(";")[0].strip().lower()
        """The media type of the body without its parameters; "" where none is said."""

        self.is_event = self.media.startswith("application/cloudevents") or "ce-specversion" in fields
        """Whether the body is a CloudEvent, or several."""

        self.takes_codings = "accept-encoding" in fields
        """Whether the answer may be compressed, where it is large enough."""

        self.unusual = not _UNUSUAL.isdisjoint(fields)
        self.upgrade = fields["upgrade"].lower() if "upgrade" in fields and "upgrade" in {
            word.strip().lower() for word in fields.get("connection", "").split(",")} else ""
        """The protocol that the client would like to go on with."""

        self.record_headers = b""
        self._publication: Publication | None = None

    def publication(self, wall_ms: Callable[[], int]) -> Publication:
        """What the fields say of a message that is the body. Do not change it. Refuses what is wrong with them."""
        publication = self._publication
        if publication is None:
            publication = read_headers(self.raw, wall_ms())
            if not self.is_event and not publication.event \
                    and SAID_FROM_NOW.isdisjoint([name.lower() for name, _ in self.raw]):
                self.record_headers = encode_headers(publication.headers)
                self._publication = publication
        return publication

    def encoded_headers(self, publication: Publication) -> bytes:
        """The headers of the record that a message becomes: of one that `publication` gave, or another."""
        return self.record_headers if publication is self._publication else encode_headers(publication.headers)


NO_HEAD: Final = Head(())
"""Of what is no request."""


class Heads:  # decision 134
    """The heads of late, by their fields."""

    __slots__ = ("_heads",)

    def __init__(self) -> None:
        self._heads: dict[RawFields, Head] = {}

    def read(self, fields: list[tuple[bytes, bytes]]) -> tuple[Head, int]:
        """The head with these fields, and what `Content-Length` says; -1 without it."""
        length = -1
        raw = tuple(fields)
        for name, value in fields:
            if len(name) == LENGTH_CHARS and name.lower() == b"content-length":
                length = int(value)
                raw = tuple([field for field in fields if field[0] != name])
        head = self._heads.get(raw)
        if head is None:
            head = Head(raw)
            if sum([len(name) + len(value) for name, value in raw]) <= HEAD_BYTES_MAX:
                if len(self._heads) >= HEADS_MAX:
                    self._heads.clear()
                self._heads[raw] = head
        return head, length


# --- the request, and the call that it asks for -----------------------------------------------------------------------

class Call:
    """One request, the call that it asks for, and its answer once there is one."""

    # Most of them stay as they are: what is said here costs a request nothing.
    complete = False
    """Whether all of the body has come."""

    answered = False
    """What comes of the body from now on is thrown away."""

    takes_body = False
    """Whether somebody has asked for the body, and bounds it."""

    streams = False
    """Whether the head of the answer has been sent, and nothing else can be answered."""

    submitted = False
    """Whether the call waits for nothing but the disk, with its place in the log."""

    closes = False
    """Whether the connection ends behind the answer."""

    fault: Refusal | None = None
    """What is wrong with the request: its call begins with that, or its body ends so."""

    received_bytes = 0
    """Of the body."""

    answer: bytes | None = None

    cancel: Callable[[], None] | None = None
    """Ends the call, because its client has gone."""

    path = ""
    """The raw path, and what belongs to it: set by `Dispatcher.find`."""

    raw_query = ""
    captures: tuple[str, ...] = ()
    endpoint: Endpoint[Declared] | None = None
    declared: Declared | None = None

    _body = b""
    _parts: list[bytes] | None = None        # of a body that came in several
    _on_more: Callable[[], object] | None = None

    def __init__(self, session: HttpSession, method: str, target: bytes, head: Head, length: int = -1,
                 http_10: bool = False, keeps: bool = True) -> None:
        self.session = session
        self.method = method
        self.target = target
        self.head = head
        self.length = length
        """What `Content-Length` says; -1 without one."""

        self.http_10 = http_10
        self.keeps = keeps
        """Whether the connection goes on behind it."""

    def ends_by(self, cancel: Callable[[], None] | None) -> None:
        """How the call is ended when its client goes; None: it is over."""
        self.cancel = cancel

    def submit(self) -> None:
        """It waits for nothing but the disk from now on."""
        self.submitted = True

    def begin_stream(self) -> None:
        """The head of the answer is being sent."""
        self.streams = True

    @property
    def headers(self) -> dict[str, str]:
        """The fields by their names in small letters."""
        return self.head.fields

    @property
    def media(self) -> str:
        """See `Head.media`."""
        return self.head.media

    @property
    def has_body(self) -> bool:
        """Whether a body belongs to it, as far as its head says."""
        return self.length > 0 or "transfer-encoding" in self.head.fields

    def query(self) -> dict[str, str]:
        """The query parameters; refuses those that are not declared, and where one is missing that must be there."""
        declared = self.declared
        if declared is None or not (self.raw_query or declared.queries.required):
            return {}
        return declared.queries.read(self.raw_query)

    def topic_name(self) -> str:
        """The first capture, decoded."""
        return decode_level(self.captures[0])

    # --- the body -----------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """A piece of the body has come."""
        if self.answered:
            return
        if not self.received_bytes:
            self._body = data
        elif self._parts is None:
            self._parts = [self._body, data]
        else:
            self._parts.append(data)
        self.received_bytes += len(data)
        if self._on_more is not None:
            self._tell()

    def end(self, fault: Refusal | None = None) -> None:
        """The body is whole, or broken."""
        self.complete = fault is None
        self.fault = fault
        if self._on_more is not None:
            self._tell()

    def take_body(self) -> bytes:
        """The body, as far as it has come. It is given once."""
        body = self._body if self._parts is None else b"".join(self._parts)
        self._body, self._parts = b"", None
        return body

    def drop(self) -> None:
        """Nobody wants the body."""
        self.answered = True
        self._body, self._parts = b"", None

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for the body."""
        return self._on_more is not None

    def when_more(self, on_more: Callable[[], object]) -> None:
        """Call this once, when more of the body has come, or it has ended."""
        self._on_more = on_more
        if not self.takes_body:
            self.takes_body = True
            self.session.read_on()

    def _tell(self) -> None:
        on_more, self._on_more = self._on_more, None
        if on_more is not None:
            on_more()


# --- the answer -------------------------------------------------------------------------------------------------------

SERVER: Final = "Gatehouse"
JSON: Final = "application/json"
_STATUS_LINES: Final = {status.value: f"{status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_WITHOUT_BODY: Final = frozenset((204, 304))
_NO_FIELD_VALUE: Final = re.compile(r"[\r\n\0]")
NO_HEADERS: Final[dict[str, str]] = {}
"""Shared and never changed."""


class Response:
    """A whole answer. With `closes` the connection ends behind it."""

    __slots__ = ("body", "closes", "content_type", "headers", "status")

    def __init__(self, body: bytes = b"", status: int = 200, headers: dict[str, str] | None = None,
                 content_type: str = "", closes: bool = False) -> None:
        self.body = body
        self.status = status
        self.headers = NO_HEADERS if headers is None else headers
        self.content_type = content_type
        self.closes = closes

    def set(self, name: str, value: str) -> None:
        """Set a header."""
        self.headers = {**self.headers, name: value}


class Handover(NamedTuple):
    """The connection goes to a session of that door; see `contract.Link.hand_over`."""

    door: str
    framing: Framing
    greeting: bytes


Answered: TypeAlias = "Response | Stream | Handover"
"""What a call ends in."""

LAST_CHUNK: Final = b"0\r\n\r\n"


def chunk_of(data: bytes) -> bytes:
    """Bytes as one chunk of a chunked answer (RFC 9112, 7.1); nothing is no chunk, since that would end it."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def json_answer(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON document."""
    return Response(orjson.dumps(document), status, headers, JSON)


def defined_answer(definition: dict[str, Any], state: dict[str, Any]) -> Response:  # decision 75
    """What somebody has defined and how it does, in one JSON document; its tag tells both apart."""
    body = orjson.dumps({**definition, **state})
    return Response(body, headers={"ETag": strong_tag(orjson.dumps(definition), body)}, content_type=JSON)


def problem_answer(code: str, detail: str, headers: dict[str, str] | None = None,
                   members: dict[str, Any] | None = None) -> Response:
    """A problem document with the status of its code. With `Connection: close` among the headers that is done, too."""
    closes = headers is not None and headers.get("Connection") == "close"
    if closes and headers is not None:
        headers = {name: value for name, value in headers.items() if name != "Connection"}
    return Response(encode_problem(code, detail, members), problem_of(code).status, headers, CONTENT_TYPE, closes)


def add_vary(answer: Response | Stream, name: str) -> None:
    """The answer depends on this request header, too."""
    existing = answer.headers.get("Vary")
    answer.headers = {**answer.headers, "Vary": name if existing is None else f"{existing}, {name}"}


def encode_response(response: Response, date: bytes, *, closes: bool = False, http_10: bool = False,
                    head_alone: bool = False) -> bytes:
    """A whole answer as bytes. `http_10`: to a client of that version; `head_alone`: to HEAD."""
    body, status = response.body, response.status
    if not response.headers and not (closes or http_10 or head_alone) and response.content_type is JSON:
        return (b"HTTP/1.1 %bContent-Type: application/json\r\nContent-Length: %d\r\nDate: %b\r\n"
                b"Server: Gatehouse\r\n\r\n%b" % (_STATUS_LINES[status], len(body), date, body))
    headers = dict(response.headers)
    if response.content_type:
        headers["Content-Type"] = response.content_type
    if status not in _WITHOUT_BODY:
        headers["Content-Length"] = str(len(body))
    head = encode_head(status, headers, date, closes=closes, http_10=http_10)
    return head if head_alone else head + body


def encode_head(status: int, headers: dict[str, str], date: bytes, *, closes: bool, http_10: bool) -> bytes:
    """Status line and fields. A client of HTTP/1.0 is told that its connection goes on, or closes it."""
    for name, value in headers.items():
        if _NO_FIELD_VALUE.search(value):
            raise ValueError(f"the value of {name} would be another header")
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    connection = b"Connection: close\r\n" if closes else b"Connection: keep-alive\r\n" if http_10 else b""
    return b"HTTP/1.%d %b%bDate: %b\r\nServer: Gatehouse\r\n%b\r\n" % (
        0 if http_10 else 1, _STATUS_LINES[status], fields.encode("utf-8", "surrogateescape"), date, connection)


def date_of(wall_ms: int) -> bytes:
    """The value of the `Date` header."""
    return formatdate(wall_ms // 1000, usegmt=True).encode()


class DateHeader:
    """The `Date` header, made once per second."""

    def __init__(self) -> None:
        self._second = -1
        self._text = b""

    def at(self, now_ms: int) -> bytes:
        """The header's value at this time."""
        second = now_ms // 1000
        if second != self._second:
            self._second = second
            self._text = date_of(now_ms)
        return self._text


REVALIDATE: Final = "no-cache"
"""A browser may keep it and asks each time whether it still holds (RFC 9111, 5.2.2.4): after an upgrade it does not."""


PAGE_HEADERS: Final = {  # decision 76
    "Cache-Control": REVALIDATE,
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                               "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                               "require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of this door's own pages: the pages load, run and ask nothing but this hub's own, are put in no frame, and
make no HTML out of text (trusted types)."""


class Fixed:
    """An answer that stays the same while the hub runs: bytes made once, and an `ETag`, so that they are sent once.
    `headers` go out with it."""

    def __init__(self, body: bytes, content_type: str, headers: dict[str, str] | None = None) -> None:
        self._body = body
        self._tag = tag_of(body)
        self._headers = {"ETag": self._tag, "Cache-Control": REVALIDATE, **(headers or {})}
        self._content_type = content_type

    def answer(self, call: Call) -> Response:
        """The bytes, or 304 to who has them."""
        if matches(call.headers.get("if-none-match", ""), self._tag):
            return Response(status=304, headers=self._headers)
        return Response(self._body, headers=self._headers, content_type=self._content_type)


log = logging.getLogger("gatehouse.gateways.http")


def _members(error: Exception) -> dict[str, Any] | None:
    """What a problem says beside its code."""
    return {"state": error.state, "decided": error.when_ms} if isinstance(error, AlreadyDecided) else None


def answer_to(error: Exception, asked: str, authorization: str | None, hub_name: str, context: bytes = b"") -> Response:
    """The answer to a request (`METHOD PATH`) that ended in `error`. A fault of ours is logged with its traceback, and
    the trace id of the request's trace context."""
    if isinstance(error, Refusal):
        return problem_answer(error.code, error.detail, error.headers, error.members)
    if isinstance(error, KernelError):
        if error.code not in PROBLEMS:
            trace, fields = in_a_line(hex_of(context))
            log.error("%s: unexpected refusal %s: %s%s", asked, error.code, error, trace, extra={"fields": fields})
        headers = {"Retry-After": "1"} if error.code == "stopping" else None
        if isinstance(error, (OverQuota, TooManyTopics)) and error.wait_ms:
            headers = {"Retry-After": str(ceil(error.wait_ms / 1000))}
        return problem_answer(error.code, str(error), headers, _members(error))
    if isinstance(error, LoginsFull):
        return problem_answer(error.code, str(error), {"Retry-After": "1"})
    if isinstance(error, NotAuthenticated):
        challenge = challenges(hub_name, authorization)
        return problem_answer(error.code, str(error), {"WWW-Authenticate": challenge})
    if isinstance(error, (Denied, AccountError)):
        return problem_answer(error.code, str(error))
    trace, fields = in_a_line(hex_of(context))
    log.error("%s failed%s", asked, trace, exc_info=error, extra={"fields": fields})
    return problem_answer("internal_error", "the hub failed to handle this request; its log says why")


def problem_document(error: Exception) -> dict[str, Any]:
    """The problem document for an error that is not the answer to a request (but a frame, say). A fault of ours is
    logged."""
    if isinstance(error, Refusal):
        return document_of(error.code, error.detail, error.members)
    if isinstance(error, (KernelError, NotAuthenticated, Denied)):
        return document_of(error.code, str(error), _members(error))
    log.error("a frame could not be answered", exc_info=error)
    return document_of("internal_error", "the hub failed to do this; its log says why")
