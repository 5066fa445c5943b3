"""Heads of requests: what is read, what is left to the library, and that the library reads the same."""
from __future__ import annotations

import asyncio
import random

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser

from gatehouse.gateways.http.heads import REQUEST_LINE, read_fields

HOST = b"Host: hub\r\n"


def test_what_fields_say() -> None:
    read = read_fields(HOST + b"content-length:  21 \r\nAuthorization: Basic YTpi\r\nConnection: Keep-Alive\r\n"
                              b"Content-Type: Text/Plain; charset=utf-8\r\nX-Header-Colour: red\r\n"
                              b"Idempotency-Key: a1\r\n"
                              b"Accept: text/html, */*\r\n\r\n")
    assert read is not None and read.publication is not None
    assert (read.length, read.host, read.authorization, read.media) == (21, "hub", "Basic YTpi", "text/plain")
    assert (b"colour", b"red") in read.publication.headers and read.publication.idempotency_key == "a1"


@pytest.mark.parametrize("more", [
    b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"Upgrade: websocket\r\n", b"TE: trailers\r\n",
    b"Connection: close\r\n", b"Connection: upgrade\r\n", b"Connection: keep-alive, close\r\n", b"Host: other\r\n",
    b"Content-Length: 1\r\nContent-Length: 1\r\n", b"Content-Length: 1, 1\r\n", b"Content-Length: +1\r\n",
    b"Content-Length: -1\r\n", b"Content-Length: 0x1\r\n", b"Content-Length:\r\n", b"Content-Length: 1\x0b\r\n",
    b"Content-Length: 9999999999999999\r\n", b"Content-Length : 1\r\n", b"X: a\r\n b\r\n", b"X: a\nY: b\r\n",
    b"X: a\rY: b\r\n", b"X: a\0\r\n", b"X: \xc3\xa9\r\n", b"X\r\n", b": x\r\n", b"X Y: z\r\n"])
def test_what_takes_more_to_say_where_the_request_ends(more: bytes) -> None:
    assert read_fields(HOST + b"\r\n") is not None
    assert read_fields(HOST + more + b"\r\n") is None
    assert read_fields(more + HOST + b"\r\n") is None


def test_a_request_without_a_host_is_not_read() -> None:
    assert read_fields(b"Content-Length: 1\r\n\r\n") is None and read_fields(b"\r\n") is None


@pytest.mark.parametrize("more", [
    b"Origin: http://a\r\n", b"Sec-Fetch-Site: cross-site\r\n", b"If-Match: x\r\n", b"Prefer: wait=1\r\n",
    b"X-Delay: 1\r\n", b"X-Expires-In: 1\r\n", b"X-Repeat: every 1s\r\n", b"Accept: text/html\r\n",
    b"X-Priority: high\r\n"])
def test_what_is_answered_the_long_way(more: bytes) -> None:
    read = read_fields(HOST + more + b"Content-Length: 3\r\n\r\n")
    assert read is not None and read.publication is None and read.length == 3


PIECES = (b"Host: hub", b"Content-Length: 5", b"content-length:3", b"Transfer-Encoding: chunked", b"X-A: b", b"\r\n",
          b"\r", b"\n", b" ", b"\t", b":", b"Connection: keep-alive", b"Connection: close", b"Accept: */*", b"\0",
          b"\x7f", b"\xe9", b",", b"0", b"Expect: 100-continue", b"Upgrade: h2c", b"A", b"-", b"(")


def test_what_is_read_here_the_library_reads_alike() -> None:
    """Else whoever sends it could hide a request behind another."""
    async def compare() -> int:
        chance, read_here, loop = random.Random(7), 0, asyncio.get_running_loop()
        for _ in range(6_000):
            lines = [b"".join(chance.choices(PIECES, k=chance.choice((1, 1, 1, 2, 3))))
                     for _ in range(chance.randint(0, 4))]
            block = HOST + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
            line = chance.choice((b"POST /v1/publish/a HTTP/1.1", b"GET /a?b=%41 HTTP/1.1", b"GET  / HTTP/1.1",
                                  b"get / HTTP/1.1", b"GET /\xe9 HTTP/1.1", b"GET / HTTP/1.0", b"GET /"))
            fields = read_fields(block)
            if fields is None or not REQUEST_LINE.fullmatch(line):
                continue
            read_here += 1
            body = b"x" * fields.length
            behind = b"DELETE /behind HTTP/1.1\r\nHost: h\r\n\r\n"
            parser = HttpRequestParser(BaseProtocol(loop), loop, 65536)
            try:
                messages, upgraded, _ = parser.feed_data(line + b"\r\n" + block + body + behind)
            except HttpProcessingError as error:
                raise AssertionError(f"{line!r} {block!r}: {error}") from error
            (first, payload), (second, _) = messages
            assert first.path == line.split()[1].decode() and second.path == "/behind" and not upgraded, block
            assert not first.should_close and not first.chunked
            assert payload.is_eof() and len(payload.read_nowait() if fields.length else b"") == fields.length, block
        return read_here
    assert asyncio.run(compare()) > 300
