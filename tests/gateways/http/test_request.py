"""What the fields of a request say, and that its bytes are understood in one way however they are cut."""
from __future__ import annotations

import random

import pytest
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from gatehouse.gateways.connections.capacity import Capacity
from gatehouse.gateways.contract import Services
from gatehouse.gateways.http.exchange import HEADS_MAX, Head, Heads
from gatehouse.gateways.http.mapping import read_headers
from tests.gateways.http.kit import Client, run_door
from tests.gateways.http.test_bad_requests import statuses

HOST = (b"Host", b"hub")


def test_what_fields_say() -> None:
    head = Head((HOST, (b"Authorization", b"Basic YTpi"), (b"Connection", b"Keep-Alive"),
                 (b"Content-Type", b"Text/Plain; charset=utf-8"), (b"X-Header-Colour", b"red \t"),
                 (b"Idempotency-Key", b"a1"), (b"Accept", b"text/html, */*")))
    publication = head.publication(lambda: 0)
    assert (head.host, head.authorization, head.media) == ("hub", "Basic YTpi", "text/plain")
    assert (head.accept, head.upgrade, head.unusual, head.fault) == (None, "", False, None)
    assert (b"colour", b"red") in publication.headers and publication.idempotency_key == "a1"
    assert head.publication(lambda: 1) is publication, "they say the same of the next message"


@pytest.mark.parametrize("field", [(b"X-Expires-In", b"60"), (b"x-delay", b"1"), (b"ce-id", b"1")])
def test_what_says_something_else_each_time_is_read_each_time(field: tuple[bytes, bytes]) -> None:
    head = Head((HOST, field))
    first, second = head.publication(lambda: 1000), head.publication(lambda: 2000)
    assert first is not second and first.headers == read_headers(head.raw, 1000).headers


def test_fields_of_one_name_are_a_list() -> None:
    head = Head((HOST, (b"Accept", b"text/html"), (b"accept", b"text/plain"), (b"X-A", b"1")))
    assert head.fields["accept"] == "text/html, text/plain" and head.fault is None


@pytest.mark.parametrize("name", [b"Host", b"content-type", b"Authorization", b"Origin", b"Expect",
                                  b"Transfer-Encoding"])
def test_what_may_be_said_once_alone(name: bytes) -> None:
    fault = Head((HOST, (name, b"a"), (name.swapcase(), b"a"))).fault
    assert fault is not None and repr(name.decode().lower()) in fault.detail


def test_an_upgrade_is_asked_for_by_two_fields() -> None:
    upgrade = (b"Upgrade", b"WebSocket")
    assert Head((HOST, upgrade)).upgrade == ""
    assert Head((HOST, upgrade, (b"Connection", b"keep-alive, Upgrade"))).upgrade == "websocket"


def test_heads_are_remembered_and_not_without_end() -> None:
    heads = Heads()
    head, length = heads.read([HOST, (b"content-Length", b"12")])
    assert heads.read([HOST]) == (head, -1) and length == 12, "lengths make no other heads"
    large = [HOST, (b"X-Large", b"x" * 2000)]
    assert heads.read(large)[0] is not heads.read(large)[0]
    for number in range(3 * HEADS_MAX):
        heads.read([HOST, (b"X-Id", b"%d" % number)])
    assert len(heads._heads) <= HEADS_MAX


PIECES = (b"Host: hub", b"Content-Length: 5", b"content-length:3", b"Transfer-Encoding: chunked", b"X-A: b", b"\r\n",
          b"\r", b"\n", b" ", b"\t", b":", b"Connection: keep-alive", b"Connection: close", b"Accept: */*", b"\0",
          b"\x7f", b"\xe9", b",", b"0", b"Expect: 100-continue", b"Upgrade: h2c", b"Connection: Upgrade", b"A", b"-",
          b"(")


class Seen:
    """What a parser tells, put together again."""

    def __init__(self) -> None:
        self.requests: list[list[bytes]] = []

    def on_url(self, url: bytes) -> None:
        self.requests[-1][0] += url

    def on_message_begin(self) -> None:
        self.requests.append([b"", b""])

    def on_body(self, data: bytes) -> None:
        self.requests[-1][1] += data


def test_the_parser_reads_the_same_however_the_bytes_are_cut() -> None:
    """Else whoever sends it could hide a request behind another."""
    chance = random.Random(7)
    for _ in range(3_000):
        lines = [b"".join(chance.choices(PIECES, k=chance.choice((1, 1, 1, 2, 3))))
                 for _ in range(chance.randint(0, 4))]
        head = b"Host: hub\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
        line = chance.choice((b"POST /v1/publish/a HTTP/1.1", b"GET /a?b=%41 HTTP/1.1", b"GET  / HTTP/1.1",
                              b"get / HTTP/1.1", b"GET /\xe9 HTTP/1.1", b"GET / HTTP/1.0", b"GET /"))
        sent = line + b"\r\n" + head + b"xxxxx" + b"DELETE /behind HTTP/1.1\r\nHost: h\r\n\r\n"
        ends = []
        for size in (len(sent), 1, 7):
            seen = Seen()
            parser, fault = HttpRequestParser(seen), ""
            try:
                for at in range(0, len(sent), size):
                    parser.feed_data(sent[at:at + size])
            except HttpParserUpgrade:
                fault = "upgrade"
            except HttpParserError as error:
                fault = type(error).__name__
            ends.append((fault, seen.requests if not fault else []))
        assert ends[0] == ends[1] == ends[2], sent


UPGRADE = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
BEHIND = b"GET /nowhere HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("framing", [
    b"Content-Length: 4\r\n\r\n21.5", b"Transfer-Encoding: chunked\r\n\r\n4\r\n21.5\r\n0\r\n\r\n",
    b"Content-Length: 0\r\n\r\n", b"\r\n"])
def test_a_wish_for_another_protocol_is_passed_over_and_the_body_is_no_request(framing: bytes) -> None:
    """RFC 9110, 7.8. The parser itself leaves such a body alone."""
    async def test(client: Client) -> None:
        answer = await client.send(b"POST /v1/publish/plant HTTP/1.1\r\nHost: h\r\n" + UPGRADE + framing + BEHIND)
        assert statuses(answer) == [201, 404], answer
        assert client.kernel.appended[0][1] == (b"21.5" if b"21.5" in framing else b"")
    run_door(test)


def test_a_tunnel_is_no_request_here() -> None:
    async def test(client: Client) -> None:
        answer = await client.send(b"CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n" + BEHIND)
        assert statuses(answer) == [400]
    run_door(test)


CHUNKED = b"POST /v1/publish/a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(("begin", "more", "count", "status"), [
    (b"GET /", b"a", 9_000, 414), (b"GET / HTTP/1.1\r\nHost: h\r\nX-A: ", b"a", 65_600, 431),
    (CHUNKED + b"1;", b"a", 131_100, 400), (CHUNKED + b"0\r\n", b"X-A: b\r\n", 16_400, 400)])
def test_what_never_ends_is_not_kept(begin: bytes, more: bytes, count: int, status: int) -> None:
    async def test(client: Client) -> None:
        answer = await client.send(begin + more * count)
        assert statuses(answer) == [status]
        assert client.kernel.appended == []
    run_door(test)


def test_unanswered_requests_are_bounded() -> None:
    """Whoever sends more than is read ahead finds his connection full, and is answered in the end."""
    async def test(client: Client) -> None:
        many = 9_000
        answer = await client.send(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n" * many + BEHIND)
        assert statuses(answer) == [200] * many + [404]
    run_door(test, services={"capacity": Capacity(10)})


def test_services_of_the_kit_are_those_of_the_door() -> None:
    async def test(client: Client) -> None:
        assert isinstance(client.services, Services) and client.door.services is client.services
    run_door(test)
