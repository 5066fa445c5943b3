"""The short way of the hot calls: a whole request is begun where its bytes arrive, and answered in one write.

The server library takes a task, a future and some twenty objects for each request, which was more than half of what a
durable post cost. A `Line` stands before it on each connection and keeps the requests that it can begin itself: whole
in what has arrived, in plain form (`heads.py`), from whom the connection is known to be, for a call that is declared
`directly`. All others are the library's, from their first byte on: it reads, waits, refuses and answers as if there
were nothing else. A call that cannot go the short way after all changes nothing, and returns False or raises: the
library then runs its long form, so that refusals are made in one place.

Answers leave in the order of their requests. The library gets nothing while one of ours is on its way, and nothing is
begun here while it is busy; what comes meanwhile is held, and no more is read.
"""
from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson

from gatehouse.gateways.http.answers import encode_answer, encode_json
from gatehouse.gateways.http.heads import MAX_HEAD_BYTES, REQUEST_LINE, Fields, read_fields

if TYPE_CHECKING:
    from aiohttp import web

    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.http.declaring import Declared
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.mapping import Publication
    from gatehouse.gateways.http.routing import RouteTable
    from gatehouse.kernel.message import Message, Placement, Stored

MAX_WAITING: Final = 256
"""Requests of one connection that are on their way; the next ones are held until all of them are answered."""

LINES_MAX: Final = 1024
"""Request lines that are remembered. Those with an id come once: all are forgotten together."""

BLOCKS_MAX: Final = 4
"""Header blocks that are remembered for a connection; most clients have one or two kinds."""

BLOCK_BYTES_MAX: Final = 1024
"""A longer block is read each time."""

NOT_KNOWN: Final = -1
"""Nobody can say where the library's request ends: it has the connection to its end."""


class DirectConnection(Protocol):
    """What a line needs of its connection (`server.DoorProtocol`)."""

    transport: asyncio.Transport | None

    def hold(self) -> None:
        """Read no more."""

    def go_on(self) -> None:
        """Everything is answered: take up, soon, what was held, and read again."""


class KnownLogin:
    """Who has shown himself on a connection, and by what."""

    __slots__ = ("authorization", "ends_ms", "principal", "version")

    def __init__(self, authorization: str | None, principal: Principal, version: object, ends_ms: int) -> None:
        self.authorization = authorization
        self.principal = principal
        self.version = version
        """`Admission.version` at that time: with another one he has to show himself again."""

        self.ends_ms = ends_ms
        """`Admission.ends_ms` at that time; 0: never."""

    def holds(self, authorization: str | None, version: object, wall_ms: int) -> bool:
        """Whether a request that shows this is from the same."""
        return self.version is version and self.authorization == authorization and not 0 < self.ends_ms <= wall_ms


class DirectCalls:
    """What the lines of all connections share."""

    def __init__(self, door: Door, table: RouteTable[Declared], refuse: Callable[[Exception, str], web.Response]
                 ) -> None:
        self.door = door
        self.admission = door.admission
        self.receipts = door.receipts
        self.refuse = refuse
        self._table = table
        self._wall_ms = door.services.wall_ms
        self._max_body_bytes = door.config.max_body_bytes
        self._found: dict[bytes, Found] = {}

    def find(self, exchange: DirectExchange) -> Direct | None:
        """The short form of the call that is asked; what the request line says to it is put into the exchange."""
        line = exchange.request_line
        entry = self._found.get(line)
        if entry is None:
            if len(self._found) >= LINES_MAX:
                self._found.clear()
            entry = self._found[line] = self._find(line)
        call, exchange.captures, exchange.raw_query = entry
        return call

    def _find(self, line: bytes) -> Found:
        parts = REQUEST_LINE.fullmatch(line)
        if parts is None:
            return NOT_FOUND
        path, _, raw_query = parts[2].decode("ascii").partition("?")
        match = self._table.find(path)
        called = None if match is None else match[0].handlers.get(parts[1].decode("ascii"))
        return NOT_FOUND if match is None or called is None else (called.direct, match[1], raw_query)

    def takes(self, login: KnownLogin, fields: Fields) -> bool:
        """Whether a request is from whom the connection is known to be, and need not wait before it begins."""
        admission, door = self.admission, self.door
        return login.holds(fields.authorization, admission.version, self._wall_ms()) \
            and door.hosts.allows(fields.host, admission.allow_anonymous) \
            and fields.length <= self._max_body_bytes and not door.must_wait

    def date(self) -> bytes:
        """For the header of an answer."""
        return self.door.date.at(self._wall_ms())


class DirectExchange:
    """One request that is begun directly, and its answer. It waits for the kernel as a `receipts.Waiting`."""

    __slots__ = ("line", "request_line", "fields", "publication", "principal", "captures", "raw_query", "body",
                 "status", "finish", "answer")

    def __init__(self, line: Line, request_line: bytes, fields: Fields, publication: Publication, principal: Principal,
                 body: bytes) -> None:
        self.line = line
        self.request_line = request_line
        self.fields = fields
        self.publication = publication
        self.principal = principal
        self.captures: tuple[str, ...] = ()
        self.raw_query = ""
        self.body = body
        self.status = 201
        self.finish: Finish | None = None
        """Set by the call before it submits anything."""

        self.answer: bytes | None = None

    def message(self, placement: Placement, door: int) -> Message:
        """The message that is the body, from this door."""
        publication = self.publication
        return (placement, self.body, self.fields.record_headers, door | publication.attributes,
                publication.timestamp_ms)

    def done(self) -> bool:
        """Whether there is an answer already."""
        return self.answer is not None

    def set_result(self, stored: Stored, /) -> None:
        """Answer the call, which is durable or refused (`stored.error`)."""
        if stored.error is not None:
            self.set_exception(stored.error)
            return
        assert self.finish is not None, "a call says how it is answered before it submits"
        try:
            document = orjson.dumps(self.finish(stored))
        except Exception as error:
            self.set_exception(error)
            return
        self.answer = encode_json(self.status, document, self.line.calls.date())
        self.line.on_answer()

    def set_exception(self, error: Exception, /) -> None:
        """Answer the call with an error: it is refused, or nobody knows what became of it."""
        calls = self.line.calls
        asked = self.request_line.decode("ascii", "replace").removesuffix(" HTTP/1.1")
        self.answer = encode_answer(calls.refuse(error, asked), calls.date())
        self.line.on_answer()


Finish = Callable[["Stored"], dict[str, Any]]
"""Makes the document of an answer once what was asked is durable. What it raises is the answer instead."""

Direct = Callable[["Door", DirectExchange], bool]
"""A call in its short form: says how it is answered, and submits. False, or raised: nothing was done."""


Found = tuple["Direct | None", tuple[str, ...], str]
"""What a request line says: the short form of a call, the captures of its path, its query."""

NOT_FOUND: Final[Found] = (None, (), "")


class Line:  # decision 73
    """The requests of one connection that are begun directly, in their order, and what waits behind them."""

    __slots__ = ("calls", "login", "answered_s", "_connection", "_waiting", "_held", "_library_bytes", "_blocks",
                 "_answered")

    def __init__(self, calls: DirectCalls, connection: DirectConnection) -> None:
        self.calls = calls
        self.login: KnownLogin | None = None
        self.answered_s = 0.0
        """The loop's time at the last answer."""

        self._connection = connection
        self._waiting: deque[DirectExchange] = deque()
        self._held = b""
        self._library_bytes = 0                 # still to come of the library's request; or NOT_KNOWN
        self._blocks: dict[bytes, Fields | None] = {}
        self._answered: asyncio.Future[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether something is on its way."""
        return bool(self._waiting)

    @property
    def held(self) -> bool:
        """Whether something waits for that."""
        return bool(self._held)

    def take_held(self) -> bytes:
        """What has waited."""
        held, self._held = self._held, b""
        return held

    async def when_answered(self, timeout_s: float | None) -> None:
        """Returns when nothing is on its way any more, or after so many seconds."""
        if self._waiting:
            self._answered = self.calls.door.loop.create_future()
            await asyncio.wait((self._answered,), timeout=timeout_s)

    def receive(self, data: bytes, idle: bool) -> bytes:
        """Begin what can be begun; returns what is the library's now. `idle`: the library waits for a request."""
        if self._library_bytes == NOT_KNOWN:
            return data
        if self._held:
            self._held += data
            return b""
        if idle and not self._library_bytes:
            data = self._take(data)
            if data and self._waiting:
                self._held = data
                self._connection.hold()
                return b""
        if data:
            self._library_bytes = self._missing(data)
        return data

    def on_answer(self) -> None:
        """One request is answered: write what no longer waits for another."""
        waiting, transport = self._waiting, self._connection.transport
        self.answered_s = self.calls.door.loop.time()
        while waiting and waiting[0].answer is not None:
            answer = waiting.popleft().answer
            if transport is not None and answer is not None:
                transport.write(answer)
        if not waiting and self._held:
            self._connection.go_on()
        if not waiting and self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def _take(self, data: bytes) -> bytes:
        """Begin the requests at the front of it; returns the rest."""
        at, end = 0, len(data)
        while at < end and len(self._waiting) < MAX_WAITING:
            line_end = data.find(b"\r\n", at, at + MAX_HEAD_BYTES)
            head_end = data.find(b"\r\n\r\n", line_end, at + MAX_HEAD_BYTES) + 4
            if line_end < 0 or head_end < 4:
                break
            fields = self._fields(data[line_end + 2:head_end])
            if fields is None:
                break
            body_end = head_end + fields.length
            if body_end > end or not self._begin(data[at:line_end], fields, data[head_end:body_end]):
                break
            at = body_end
        return data[at:] if at else data

    def _begin(self, request_line: bytes, fields: Fields, body: bytes) -> bool:
        """Begin one call. False: it is the library's, and nothing was done."""
        calls, login, publication = self.calls, self.login, fields.publication
        if login is None or publication is None or not calls.takes(login, fields):
            return False
        exchange = DirectExchange(self, request_line, fields, publication, login.principal, body)
        call = calls.find(exchange)
        if call is None:
            return False
        self._waiting.append(exchange)
        calls.receipts.expect(exchange)
        try:
            begun = call(calls.door, exchange)
        except Exception:
            begun = False            # raised again by the long form, which answers with it
        if not begun:
            calls.receipts.drop(exchange)
            self._waiting.pop()
        return begun

    def _missing(self, data: bytes) -> int:
        """How much of its last request the library does not have when it gets this."""
        at, end = self._library_bytes, len(data)
        while at < end:
            line_end = data.find(b"\r\n", at, at + MAX_HEAD_BYTES)
            head_end = data.find(b"\r\n\r\n", line_end, at + MAX_HEAD_BYTES) + 4
            if line_end < 0 or head_end < 4 or not REQUEST_LINE.fullmatch(data, at, line_end):
                return NOT_KNOWN
            fields = self._fields(data[line_end + 2:head_end])
            if fields is None:
                return NOT_KNOWN
            at = head_end + fields.length
        return at - end

    def _fields(self, block: bytes) -> Fields | None:
        """What a header block says."""
        blocks = self._blocks
        if block in blocks:
            return blocks[block]
        fields = read_fields(block)
        if len(block) <= BLOCK_BYTES_MAX:
            if len(blocks) >= BLOCKS_MAX:
                blocks.clear()
            blocks[block] = fields
        return fields
