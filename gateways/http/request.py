"""A request: what it is aimed at, what the fields of its head say, and its body as far as it has come. Pure.

    POST /v1/publish/plant HTTP/1.1 CRLF        method, target
    Host: hub CRLF Content-Length: 4 CRLF CRLF  the fields: the same in most requests of one client, so that a `Head` is
    21.5                                        made once for all that have the same, and remembers what it says

It is aimed at a path and a query (RFC 9110, 7.1), which are decoded once and strictly. The raw path is split first and
every level is decoded for itself, so that a `%2F` inside a level stays inside the level, and `//` holds an empty one.
So the calls are a tree of raw path segments, walked without decoding anything:

    /v1/publish/{address...}       the rest of the path, slashes and all
    /v1/topics/{topic}/messages    one segment
    /healthz                       itself

A literal segment wins over a capture. Captures are handed out raw: decoding is the call's business, because only it
knows whether a `%2F` may stand there.

And it is aimed at a host (7.2), which keeps a web page from speaking to a hub that lets everybody in. A page's own name
can be led to 127.0.0.1 (DNS rebinding). To the browser the hub is then the page's own server: it sends no foreign
`Origin`, and lets the page read every answer. Only the name in `Host` is still the page's. So while anonymous access is
allowed, which only loopback may, and wherever `allowed_hosts` names some, a request must ask for an address (no name
leads there), a name without a dot (nobody can buy one: `localhost`, a container's), this machine's own name, or one of
those. Others are answered 421 before anything happens.
"""
from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

from gatehouse.gateways.http.mapping import SAID_FROM_NOW, Publication, read_headers
from gatehouse.gateways.http.problems import Refusal
from gatehouse.kernel.records.record import encode_headers

if TYPE_CHECKING:
    from gatehouse.gateways.http.declaring import Declared
    from gatehouse.gateways.http.session import HttpSession

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


Handler = TypeVar("Handler")


class Endpoint(Generic[Handler]):
    """One path with the handler of each of its methods."""

    __slots__ = ("pattern", "handlers")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.handlers: dict[str, Handler] = {}

    def handler(self, method: str) -> Handler | None:
        """The method's handler; HEAD is answered by GET's, whose body the server leaves out."""
        return self.handlers.get("GET" if method == "HEAD" else method)

    def allow(self) -> str:
        """The value of the `Allow` header."""
        methods = set(self.handlers)
        if "GET" in methods:
            methods.add("HEAD")
        return ", ".join(sorted(methods))


class _Node(Generic[Handler]):
    """Where the paths are that begin alike."""

    __slots__ = ("literals", "capture", "rest", "endpoint")

    def __init__(self) -> None:
        self.literals: dict[str, _Node[Handler]] = {}
        self.capture: _Node[Handler] | None = None
        self.rest: Endpoint[Handler] | None = None
        self.endpoint: Endpoint[Handler] | None = None


class RouteTable(Generic[Handler]):
    """Every path of the door."""

    def __init__(self) -> None:
        self._root: _Node[Handler] = _Node()
        self.endpoints: list[Endpoint[Handler]] = []

    def add(self, method: str, pattern: str, handler: Handler) -> None:
        """Declare one call. A pattern and method may be declared once."""
        node = self._root
        segments = pattern.removeprefix("/").split("/")
        last = segments[-1]
        if last.endswith("...}"):
            segments.pop()
        for segment in segments:
            node = self._child(node, segment)
        endpoint = node.rest if last.endswith("...}") else node.endpoint
        if endpoint is None:
            endpoint = Endpoint(pattern)
            self.endpoints.append(endpoint)
            if last.endswith("...}"):
                node.rest = endpoint
            else:
                node.endpoint = endpoint
        if method in endpoint.handlers:
            raise ValueError(f"{method} {pattern} is declared twice")
        endpoint.handlers[method] = handler

    def find(self, raw_path: str) -> tuple[Endpoint[Handler], tuple[str, ...]] | None:
        """The endpoint of a raw path and its raw captures in order, or None."""
        if not raw_path.startswith("/"):
            return None
        segments = raw_path[1:].split("/")
        node = self._root
        captures: list[str] = []
        for at, segment in enumerate(segments):
            if node.rest is not None:
                captures.append("/".join(segments[at:]))
                return node.rest, tuple(captures)
            literal = node.literals.get(segment)
            if literal is not None:
                node = literal
            elif node.capture is not None and segment:
                captures.append(segment)
                node = node.capture
            else:
                return None
        return (node.endpoint, tuple(captures)) if node.endpoint is not None else None

    @staticmethod
    def _child(node: _Node[Handler], segment: str) -> _Node[Handler]:
        if not segment.startswith("{"):
            return node.literals.setdefault(segment, _Node())
        if node.capture is None:
            node.capture = _Node()
        return node.capture


ANY: Final = "*"
LOCALHOST: Final = "localhost"
HOST: Final = re.compile(r"(\[[0-9A-Za-z:.%]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(:[0-9]*)?")
"""`uri-host [ ":" port ]` (RFC 3986, 3.2.2), with room for an IPv6 zone."""

SINGLE_LABEL: Final = re.compile(r"[a-z_][a-z0-9_-]*")
SEEN_MAX: Final = 256
"""Texts of `Host` that are remembered as good: ports make several of one name."""


class Hosts:  # decision 101
    """The decision. `own_names` are this machine's."""

    def __init__(self, allowed: Iterable[str], own_names: Iterable[str]) -> None:
        named = frozenset(map(_plain, allowed))
        self._any = ANY in named
        self._always = bool(named)
        self._names = named | {_plain(name) for name in own_names if name}
        self._admitted: set[str] = set()
        self._for_anonymous = False          # what was so when they were looked at

    def admit(self, host: str, anonymous_allowed: bool) -> None:
        """Refuses `malformed_request` where it can be no `Host` at all, and what `check` refuses."""
        if anonymous_allowed is not self._for_anonymous or len(self._admitted) >= SEEN_MAX:
            self._admitted.clear()
            self._for_anonymous = anonymous_allowed
        elif host in self._admitted:
            return
        if not is_host(host):
            raise Refusal("malformed_request", "Host is no name and port", headers={"Connection": "close"})
        self.check(host, anonymous_allowed)
        self._admitted.add(host)

    def check(self, host: str | None, anonymous_allowed: bool) -> None:
        """Refuses `host_not_allowed`. `host` is the header as it came; none at all is no browser's."""
        if not self.allows(host, anonymous_allowed):
            raise Refusal("host_not_allowed", f"this hub is not asked by the name {(host or '')[:200]!r}; ask for its "
                                              "address, or name it in gateways.http.allowed_hosts")

    def allows(self, host: str | None, anonymous_allowed: bool) -> bool:
        """Whether it may be asked so."""
        return not host or self._any or not (anonymous_allowed or self._always) or self._is_allowed(host)

    def _is_allowed(self, host: str) -> bool:
        name = name_of(host)
        return (name in self._names or SINGLE_LABEL.fullmatch(name) is not None
                or name.endswith("." + LOCALHOST) or _is_ip_address(name))               # RFC 6761, 6.3


def is_host(text: str) -> bool:
    """Whether it can be a `Host` at all; what cannot is no request (RFC 9112, 3.2)."""
    return HOST.fullmatch(text) is not None


def name_of(host: str) -> str:
    """The name in `NAME:PORT`, as it is compared; empty where it is none (RFC 9110, 7.2)."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        return name if bracket and (not port or _is_port(port)) and ":" in name else ""
    name, colon, port = host.partition(":")
    return _plain(name) if not colon or _is_port(colon + port) else ""


def authority_of(target: str) -> str | None:
    """The host of a request target in absolute form, which counts instead of `Host` (RFC 9112, 3.2.2)."""
    scheme, separator, rest = target.partition("://")
    return rest.partition("/")[0].partition("?")[0] if separator and scheme.isalpha() else None


def _plain(name: str) -> str:
    """Names are alike whatever their case, and with the root's dot behind them."""
    return name.strip().lower().removesuffix(".")


def _is_port(text: str) -> bool:
    return text.startswith(":") and text.isascii() and (text == ":" or text[1:].isdigit())


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


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

_UNUSUAL: Final = frozenset(("origin", "sec-fetch-site", "if-match", "if-none-match", "transfer-encoding", "expect",
                             "accept-encoding"))
"""With them a request is looked at more closely, or its answer is made in another way."""


class Head:
    """What the fields of a request say. `fields` holds them by name in small letters; of several with one name the
    values are joined by commas (RFC 9110, 5.3)."""

    __slots__ = ("accept", "authorization", "fault", "fields", "host", "is_event", "media", "raw", "record_headers",
                 "says_connection", "takes_events", "unusual", "upgrade", "_publication")

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
        if declared is None or not (self.raw_query or declared.required):
            return {}
        return declared.read_query(self.raw_query)

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
