"""What no honest client sends, byte by byte: each is answered in HTTP's own words, stores nothing, and hurts nobody."""
from __future__ import annotations

import asyncio
import re
import resource
from collections.abc import Iterator
from contextlib import suppress

import pytest

from gatehouse.gateways.http.routes import build_table
from tests.gateways.http.kit import Client, run_door

HOST = b"Host: h\r\n"
CLOSE = b"Connection: close\r\n"


def get(target: bytes, headers: bytes = b"") -> bytes:
    return b"GET %b HTTP/1.1\r\n%b%b%b\r\n" % (target, HOST, CLOSE, headers)


def post(headers: bytes, body: bytes = b"", target: bytes = b"/v1/publish/plant") -> bytes:
    return b"POST %b HTTP/1.1\r\n%b%b\r\n%b" % (target, HOST, headers, body)


def statuses(data: bytes) -> list[int]:
    """Of all answers on a connection."""
    return [int(found) for found in re.findall(rb"HTTP/\d\.\d (\d{3})", data)]


# name: (what is sent, the status)
PATHS: dict[str, tuple[bytes, int]] = {
    "dots": (get(b"/v1/topics/../../metrics"), 404),
    "escaped dots": (get(b"/v1/topics/%2e%2e/%2e%2e/etc/passwd"), 404),
    "dots as a topic": (get(b"/v1/topics/%2e%2e"), 404),
    "two slashes": (get(b"//v1/topics"), 404),
    "an empty level": (get(b"/v1//topics"), 404),
    "a slash at the end": (get(b"/v1/topics/"), 404),
    "an escaped slash": (get(b"/v1%2ftopics"), 404),
    "an escaped slash in a name": (get(b"/v1/topics/a%2fb"), 404),
    "a backslash": (get(b"/v1\\topics"), 404),
    "NUL escaped": (get(b"/v1/topics/a%00b"), 400),
    "NUL raw": (get(b"/v1/topics/a\0b"), 400),
    "an overlong slash": (get(b"/v1/topics/%c0%af"), 400),
    "a surrogate": (get(b"/v1/topics/%ed%a0%80"), 400),
    "no UTF-8": (get(b"/v1/topics/%ff"), 400),
    "a broken escape": (get(b"/v1/topics/%4"), 400),
    "out of the console's folder": (get(b"/ui/..%2f..%2fgateways.toml"), 404),
    "out of the page's folder": (get(b"/docs/../../pyproject.toml"), 404),
    "no slash at all": (get(b"v1/topics"), 400),
    "a star": (get(b"*"), 400),
    "another host's": (get(b"http://evil.example/v1/nowhere"), 404),
    "an escape in the query": (get(b"/v1/topics?max=%"), 400),
    "a query of garbage": (get(b"/v1/topics?\xff=\xfe"), 400),
    "many parameters": (get(b"/v1/topics?" + b"&".join(b"a%d=1" % i for i in range(40))), 400),
    "a parameter twice": (get(b"/v1/topics?max=1&max=2"), 400),
    "a number that is negative": (get(b"/v1/topics?max=-1"), 400),
    "a number in other digits": (get("/v1/topics?max=١".encode()), 400),
    "a huge number": (get(b"/v1/topics?max=" + b"9" * 4000), 400),
    "a huge query": (get(b"/v1/topics?cursor=" + b"a" * 9000), 414),
    "a huge header": (get(b"/v1/topics", b"X-A: " + b"a" * 9000 + b"\r\n"), 431),
    "many headers": (get(b"/v1/topics", b"".join(b"X-%d: 1\r\n" % i for i in range(200))), 431),
}

FRAMING: dict[str, tuple[bytes, int]] = {
    "two lengths": (post(b"Content-Length: 1\r\nContent-Length: 2\r\n", b"ab"), 400),
    "the same length twice": (post(b"Content-Length: 1\r\nContent-Length: 1\r\n", b"a"), 400),
    "a list of lengths": (post(b"Content-Length: 1, 1\r\n", b"a"), 400),
    "a negative length": (post(b"Content-Length: -1\r\n"), 400),
    "a length with a sign": (post(b"Content-Length: +1\r\n", b"a"), 400),
    "a length in hexadecimal": (post(b"Content-Length: 0x1\r\n", b"a"), 400),
    "a length beyond 64 bits": (post(b"Content-Length: 99999999999999999999999\r\n"), 400),
    "length and chunks": (post(b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"), 400),
    "chunks and length": (post(b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", b"0\r\n\r\n"), 400),
    "chunks of chunks": (post(b"Transfer-Encoding: chunked, chunked\r\n", b"0\r\n\r\n"), 400),
    "chunks that are not last": (post(b"Transfer-Encoding: chunked, gzip\r\n", b"0\r\n\r\n"), 400),
    "chunks by another name": (post(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"), 400),
    "chunks of something compressed": (post(CLOSE + b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"), 501),
    "chunks of the same": (post(CLOSE + b"Transfer-Encoding: identity, chunked\r\n", b"0\r\n\r\n"), 501),
    "a space before the colon": (post(b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n"), 400),
    "a folded header": (post(b"X-A: a\r\n b\r\nContent-Length: 0\r\n"), 400),
    "a header without a name": (post(b": a\r\nContent-Length: 0\r\n"), 400),
    "a header without a colon": (post(b"nothing\r\nContent-Length: 0\r\n"), 400),
    "NUL in a header": (post(b"X-Header-A: a\0b\r\nContent-Length: 0\r\n"), 400),
    "a lone CR in a header": (post(b"X-Header-A: a\rX-Evil: b\r\nContent-Length: 0\r\n"), 400),
    "a lone LF in a header": (post(b"X-Header-A: a\nContent-Length: 0\n\n"), 400),
    "a chunk of no size": (post(b"Transfer-Encoding: chunked\r\n", b"zz\r\nab\r\n0\r\n\r\n"), 400),
    "a chunk of a negative size": (post(b"Transfer-Encoding: chunked\r\n", b"-1\r\na\r\n0\r\n\r\n"), 400),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/2 in a line of HTTP/1": (b"GET /healthz HTTP/2.0\r\nHost: h\r\n\r\n", 505),
    "HTTP/3.0": (b"GET /healthz HTTP/3.0\r\nHost: h\r\n\r\n", 400),
    "HTTP/0.9": (b"GET /healthz\r\n\r\n", 505),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), 400),
    "another door's bytes": (b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", 400),
}


@pytest.mark.parametrize("name", [*PATHS, *FRAMING])
def test_what_no_honest_client_sends(name: str, caplog: pytest.LogCaptureFixture) -> None:
    sent, status = {**PATHS, **FRAMING}[name]

    async def test(client: Client) -> None:
        answer = await client.send(sent)
        assert statuses(answer)[:1] == [status], answer
        assert all(code >= 400 for code in statuses(answer)), answer
        assert answer.startswith(b"HTTP/1.1 "), "RFC 9112, 2.3: the version that the server speaks"
        assert b"application/problem+json" in answer
        assert b"Traceback" not in answer and b"/gateways/" not in answer
        assert client.kernel.appended == []
        assert (await client.ask("GET", "/healthz")).status == 200
    run_door(test)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("headers", [
    b"Expect: 100-continue\r\nContent-Length: 99999999\r\n", b"Expect: 101-come\r\nContent-Length: 1\r\n"])
def test_who_waits_to_be_asked_for_his_body_and_is_refused_is_told_that_the_connection_ends(headers: bytes) -> None:
    """Else his next request would be taken for the body (RFC 9110, 10.1.1)."""
    async def test(client: Client) -> None:
        answer = await client.send(post(headers))
        assert statuses(answer)[0] in (413, 417)
        assert b"connection: close" in answer.lower()
    run_door(test)


SMUGGLED = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.mark.parametrize("headers", [
    b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
    b"Content-Length: 0\r\nContent-Length: %d\r\n" % len(SMUGGLED),
    b"Transfer-Encoding: identity\r\nContent-Length: 0\r\n", b"Transfer-Encoding:\x0bchunked\r\n"])
def test_nothing_is_smuggled_behind_a_body_whose_length_is_in_doubt(headers: bytes) -> None:
    async def test(client: Client) -> None:
        answer = await client.send(post(headers, b"0\r\n\r\n" + SMUGGLED))
        assert statuses(answer) == [400], answer
    run_door(test)


@pytest.mark.parametrize("value", ["a%0d%0aX-Evil:%20b", "a%0aX-Evil:%20b", "a%0dX-Evil:%20b", "a%00b", "%e2%80%a8"])
def test_no_value_becomes_a_header(value: str) -> None:
    async def test(client: Client) -> None:
        for method, target in (("PUT", f"/v1/topics/{value}"), ("GET", f"/v1/topics/{value}"), ("GET", f"/{value}"),
                               ("POST", f"/v1/publish/{value}"), ("GET", f"/v1/topics?{value}=1"),
                               ("GET", f"/v1/topics?cursor={value}"), ("GET", f"/ui/{value}")):
            answer = await client.ask(method, target, headers={"Origin": f"http://{client.address}"})
            assert "X-Evil" not in answer.headers and answer.status < 500, (method, target)
            assert all("\r" not in text and "\n" not in text for text in answer.headers.values())
    run_door(test)


@pytest.mark.parametrize("endpoint", build_table().endpoints, ids=lambda endpoint: endpoint.pattern)
def test_methods_that_a_path_has_not(endpoint: object) -> None:
    pattern = endpoint.pattern                                        # type: ignore[attr-defined]
    path = re.sub(r"\{[a-z_]+(\.\.\.)?\}", "x", pattern)

    async def test(client: Client) -> None:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"):
            if method in endpoint.handlers:                           # type: ignore[attr-defined]
                continue
            answer = await client.send(f"{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
            assert statuses(answer) == [405], (method, path)
            assert f"Allow: {endpoint.allow()}\r\n".encode() in answer  # type: ignore[attr-defined]
    run_door(test)


@pytest.mark.parametrize("path", ["/healthz", "/openapi.json", "/docs", "/v1/topics", "/v1/groups",
                                  "/v1/topics/none", "/v1/events?filter=plant", "/nowhere"])
def test_head_is_get_without_a_body(path: str) -> None:
    async def test(client: Client) -> None:
        head = await client.send(b"HEAD %b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" % path.encode())
        assert head.endswith(b"\r\n\r\n") and head.count(b"\r\n\r\n") == 1
        if not path.startswith("/v1/events"):
            got = await client.send(get(path.encode()))
            assert statuses(head) == statuses(got)
            assert re.findall(rb"Content-Length: (\d+)", head) == re.findall(rb"Content-Length: (\d+)", got)
    run_door(test)


def test_pipelined_requests_are_answered_in_their_order() -> None:
    async def test(client: Client) -> None:
        body = post(b"Content-Length: 1\r\n", b"a")
        answer = await client.send(SMUGGLED.replace(b"metrics", b"healthz") + body + body + get(b"/nowhere"))
        assert statuses(answer) == [200, 201, 201, 404]
        assert len(client.kernel.appended) == 2
    run_door(test)


def test_http_1_0() -> None:
    async def test(client: Client) -> None:
        answer = await client.send(b"POST /v1/publish/plant HTTP/1.0\r\nContent-Length: 1\r\n\r\na")
        assert statuses(answer) == [201] and b"Transfer-Encoding" not in answer
        chunks = b"POST /v1/publish/plant HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
        answer = await client.send(chunks + b"0\r\n\r\n" + SMUGGLED)
        assert len(statuses(answer)) == 1, "RFC 9112, 6.1: chunks in HTTP/1.0 end the connection"
    run_door(test)


def test_an_endless_body_is_refused_at_the_limit() -> None:
    async def test(client: Client) -> None:
        host, _, port = client.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(post(b"Transfer-Encoding: chunked\r\n"))
        chunk = b"1000\r\n" + bytes(4096) + b"\r\n"
        answer = asyncio.create_task(reader.read(200))      # before the door closes over what it does not read
        with suppress(ConnectionError):
            while not answer.done():
                writer.write(chunk)
                await writer.drain()
                await asyncio.sleep(0)
        assert b" 413 " in await answer
        writer.close()
        assert client.door.bodies.buffered_bytes == 0
    run_door(test, max_body_bytes=65_536)


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_idle_connections_cost_others_nothing() -> None:
    async def test(client: Client) -> None:
        host, _, port = client.address.rpartition(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(1_000)]
        for _, writer in idle[::2]:
            writer.write(b"POST /v1/publish/plant HTTP/1.1\r\nHost: h\r\nX-Slow: ")
        for _ in range(20):
            assert (await client.ask("POST", "/v1/publish/plant", data=b"x")).status == 201
        assert len(client.service) >= 1_000
        for _, writer in idle:
            writer.close()
    run_door(test)
