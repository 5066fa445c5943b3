"""Requests as their calls see them: what the fields of a head say, and the body as far as it has come. Pure.

    POST /v1/publish/plant HTTP/1.1 CRLF        method, target
    Host: hub CRLF Content-Length: 4 CRLF CRLF  the fields: the same in most requests of one client, so that a `Head` is
    21.5                                        made once for all that have the same, and remembers what it says
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.http.mapping import SAID_FROM_NOW, Publication, read_headers
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.target import decode_level
from gatehouse.kernel.records.record import encode_headers

if TYPE_CHECKING:
    from gatehouse.gateways.http.declaring import Declared
    from gatehouse.gateways.http.session import HttpSession
    from gatehouse.gateways.http.target import Endpoint


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
                 "says_connection", "unusual", "upgrade", "_publication")

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
