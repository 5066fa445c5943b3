"""Answers: JSON, problem documents, and the one that is written by hand because it is the hot one.

A publish is answered some ten thousand times a second, and always with the same few headers. The server library
builds and serialises a header dictionary for each, which was 8 of 29 µs of a request that did nothing else (wrk, two
cores); `Created` writes the finished bytes instead. Every other answer is the library's.
"""
from __future__ import annotations

from email.utils import formatdate
from typing import Any, Final

import orjson
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_writer import HttpVersion11

from gatehouse.gateways.http.preconditions import strong_tag
from gatehouse.gateways.http.problems import CONTENT_TYPE, encode_problem, problem_of

SERVER: Final = "Gatehouse"
JSON: Final = "application/json"
_STATUS_LINES: Final = {200: b"200 OK", 201: b"201 Created"}


def json_answer(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A JSON document."""
    return web.Response(body=orjson.dumps(document), status=status, headers=headers, content_type=JSON)


def defined_answer(definition: dict[str, Any], state: dict[str, Any]) -> web.Response:  # decision 75
    """What somebody has defined and how it does, in one JSON document; its tag tells both apart (`preconditions`)."""
    body = orjson.dumps({**definition, **state})
    return web.Response(body=body, headers={"ETag": strong_tag(orjson.dumps(definition), body)}, content_type=JSON)


def problem_answer(code: str, detail: str, headers: dict[str, str] | None = None,
                   members: dict[str, Any] | None = None) -> web.Response:
    """A problem document with the status of its code. With `Connection: close` among the headers that is done, too."""
    response = web.Response(body=encode_problem(code, detail, members), status=problem_of(code).status, headers=headers,
                            content_type=CONTENT_TYPE)
    if headers and headers.get("Connection") == "close":
        response.force_close()
    return response


def add_vary(response: web.StreamResponse, name: str) -> None:
    """The answer depends on this request header, too."""
    existing = response.headers.get("Vary")
    response.headers["Vary"] = name if existing is None else f"{existing}, {name}"


def encode_json(status: int, body: bytes, date: bytes) -> bytes:
    """A whole answer with a JSON document, 200 or 201."""
    return (b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: %b\r\n"
            b"Server: Gatehouse\r\n\r\n%b" % (_STATUS_LINES[status], len(body), date, body))


def encode_answer(response: web.Response, date: bytes) -> bytes:
    """Any other answer, whole."""
    body = response.body if isinstance(response.body, bytes) else b""
    fields = "".join([f"{name}: {value}\r\n" for name, value in response.headers.items()])
    return b"HTTP/1.1 %d %b\r\n%bContent-Length: %d\r\nDate: %b\r\nServer: Gatehouse\r\n\r\n%b" % (
        response.status, (response.reason or "").encode(), fields.encode(), len(body), date, body)


class Created(web.StreamResponse):
    """201 with a JSON body, as bytes; for HTTP/1.1 requests that keep their connection."""

    def __init__(self, body: bytes, date: bytes) -> None:
        self._wire = encode_json(201, body, date)
        self._keep_alive = True
        self._status = 201

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write the whole answer; waits where the client is slow to take it."""
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has gone")
        transport.write(self._wire)
        if request.protocol.writing_paused:
            await request.writer.drain()
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to write."""


def created(request: web.Request, document: dict[str, Any], date: bytes) -> web.StreamResponse:
    """201 with a JSON document, written the short way where the request allows it."""
    body = orjson.dumps(document)
    if request.version == HttpVersion11 and request.keep_alive and "Origin" not in request.headers:
        return Created(body, date)
    return web.Response(body=body, status=201, content_type=JSON)


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
            self._text = formatdate(second, usegmt=True).encode()
        return self._text
