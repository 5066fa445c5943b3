"""Answers: a `Response` is whole, a `Fixed` one stays the same while the hub runs, a `Handover` gives the connection to
another session, a `Stream` (`stream.py`) is written piece by piece. And their heads as bytes.

Whatever a call raises becomes an answer, too: always a problem document, never a traceback to the client.
"""
from __future__ import annotations

import logging
import re
from email.utils import formatdate
from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import orjson

from gatehouse.gateways.admission.errors import AccountError, Denied, LoginsFull, NotAuthenticated, OverQuota
from gatehouse.gateways.http.login import challenges
from gatehouse.gateways.http.problems import CONTENT_TYPE, PROBLEMS, Refusal, document_of, encode_problem, problem_of
from gatehouse.gateways.http.representation import matches, strong_tag, tag_of
from gatehouse.kernel.errors import AlreadyDecided, KernelError, TooManyTopics
from gatehouse.tracing.context import hex_of, in_a_line

if TYPE_CHECKING:
    from gatehouse.gateways.connections.settings import Framing
    from gatehouse.gateways.http.request import Call
    from gatehouse.gateways.http.stream import Stream

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
