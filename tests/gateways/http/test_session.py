"""Requests behind each other on one connection: same answers, same order, whatever stands before, between and behind;
which of them begin while others wait, and which cost a task."""
from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from gatehouse.gateways.connections.open_connections import held_by
from gatehouse.gateways.http.session import MAX_KEPT_BYTES, MAX_WAITING, HttpSession
from gatehouse.gateways.runtime import ENDING
from gatehouse.kernel.errors import StorageFull
from gatehouse.kernel.message import Owner, Stored, tell
from gatehouse.transactions.coordinator import CheckSettings
from tests.gateways.accounts import KnownUsers
from tests.gateways.garbage import left_to_the_collector
from tests.gateways.http.kit import NOW_MS, Client, hub_ms, run_door, until
from tests.gateways.http.test_door import basic


def post(body: bytes = b"21.5", more: bytes = b"", target: bytes = b"/v1/publish/plant/temp") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n%b\r\n%b" % (target, len(body), more, body)


GET = b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"


class Wire:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer: status, header fields, body."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.split(": ", 1) for line in head[1:] if line)
        return int(head[0].split()[1]), fields, await self.reader.readexactly(int(fields["Content-Length"]))

    async def ask(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        self.writer.write(data)
        return await self.answer()


@asynccontextmanager
async def wire(client: Client) -> AsyncIterator[Wire]:
    host, _, port = client.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks that calls cost, by the names of their coroutines."""
    names: list[str] = []
    create_task = asyncio.BaseEventLoop.create_task

    def noted(loop: asyncio.BaseEventLoop, coroutine: Any, **how: Any) -> asyncio.Task[Any]:
        name = getattr(coroutine, "__qualname__", type(coroutine).__name__)          # compiled, its type has the name
        if "_finish" in name and "Running" in name:
            names.append(name)
        return create_task(loop, coroutine, **how)
    monkeypatch.setattr(asyncio.BaseEventLoop, "create_task", noted)
    return names


def session_of(client: Client) -> HttpSession:
    """The session of the one connection that there is."""
    (connection,) = client.service.connections
    session: Any = connection._session
    assert isinstance(session, HttpSession)
    return session


def run_wire(test: Callable[[Client, Wire], Awaitable[None]], **settings: Any) -> None:
    """The test gets a connection on which the first message has been published."""
    async def connected(client: Client) -> None:
        async with wire(client) as line:
            assert (await line.ask(post(b"first", settings.get("more", b""))))[0] == 201
            await test(client, line)
    run_door(connected, **{name: value for name, value in settings.items() if name != "more"})


def test_a_message_costs_no_task_and_what_its_headers_say_is_with_it(tasks: list[str]) -> None:
    async def test(client: Client, line: Wire) -> None:
        _, expected, _ = await line.ask(post(b"x" * 4, b"Prefer: wait=9\r\n"))
        status, fields, body = await line.ask(post(b"22", b"Content-Type: text/plain\r\nX-Header-Colour: red\r\n"))
        assert (status, set(fields)) == (201, set(expected)) and fields["Content-Type"] == "application/json"
        answered = orjson.loads(body)
        assert (answered["address"], answered["offset"], answered["timestamp"]) == ("plant/temp", 2, NOW_MS)
        placement, value, headers, _, _ = client.kernel.appended[-1]
        assert (placement.address, value) == ("plant/temp", b"22") and b"colour" in headers and b"text/plain" in headers
        assert tasks == []
    run_wire(test)


@pytest.mark.parametrize(("request_", "status"), [
    (post(more=b"Prefer: respond-async\r\n"), 202), (post(more=b"Accept: text/html\r\n"), 406),
    (post(more=b"X-Message-Key: k\r\n"), 400), (post(more=b"Origin: http://evil.example\r\n"), 403),
    (post(more=b"Sec-Fetch-Site: cross-site\r\n"), 403), (post(target=b"/v1/publish/plant/other"), 201),
    (post(target=b"/v1/publish/plant/temp?x=1"), 400), (post(more=b"X-Expires-In: 60\r\n"), 201),
    (post(more=b"ce-specversion: 1.0\r\nce-id: 1\r\nce-source: s\r\nce-type: t\r\n"), 201), (GET, 200),
    (post(b"x" * 2000), 413), (post(more=b"X-Timestamp: nonsense\r\n"), 400), (post(target=b"/v1/nowhere"), 404),
    (post(target=b"/v1/publish/plant/%zz"), 400)])
def test_a_call_that_need_not_wait_costs_no_task(request_: bytes, status: int, tasks: list[str]) -> None:
    async def test(client: Client, line: Wire) -> None:
        assert (await line.ask(request_))[0] == status
        assert (await line.ask(post()))[0] == 201 and (await line.ask(post()))[0] == 201
        assert tasks == []
    run_wire(test, max_body_bytes=1024)


@pytest.mark.parametrize("body", [b"", b"4\r\n21.5\r\n0\r\n\r\n"])
def test_chunks_that_come_later_cost_a_task(body: bytes, tasks: list[str]) -> None:
    async def test(client: Client, line: Wire) -> None:
        chunked = b"POST /v1/publish/plant/temp HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        line.writer.write(chunked)
        await until(lambda: tasks)
        assert (await line.ask(body or b"0\r\n\r\n"))[0] == 201
        assert (await line.ask(post(b"after")))[0] == 201
        assert len(tasks) == 1 and client.kernel.appended[-1][1] == b"after"
    run_wire(test)


MIXED = (post(b"1") + post(b"2") + GET + post(b"3") + post(b"no", target=b"/v1/publish/%zz") + post(b"4")
         + post(b"", more=b"X-Header-A: b\r\n") + GET + post(b"5" * 300))
STATUSES = [201, 201, 200, 201, 400, 201, 201, 200, 201]


def test_answers_come_in_the_order_of_the_requests_wherever_they_are_cut() -> None:
    async def test(client: Client, _: Wire) -> None:
        for cut in (*range(1, len(MIXED), 29), len(MIXED)):
            before = len(client.kernel.appended)
            async with wire(client) as line:
                line.writer.write(post(b"0") + MIXED[:cut])
                assert (await line.answer())[0] == 201
                line.writer.write(MIXED[cut:])
                assert [(await line.answer())[0] for _ in STATUSES] == STATUSES, cut
            values = [message[1] for message in client.kernel.appended[before:]]
            assert values == [b"0", b"1", b"2", b"3", b"4", b"", b"5" * 300], cut
    run_wire(test)


def test_byte_by_byte() -> None:
    async def test(client: Client, line: Wire) -> None:
        for at in range(len(MIXED)):
            line.writer.write(MIXED[at:at + 1])
            await asyncio.sleep(0)
        assert [(await line.answer())[0] for _ in STATUSES] == STATUSES
    run_wire(test)


def test_a_body_that_comes_later_costs_a_task_and_the_next_request_none(tasks: list[str]) -> None:
    async def test(client: Client, line: Wire) -> None:
        for number in range(3):
            request = post(b"late")
            line.writer.write(request[:-4])
            await until(lambda number=number: len(tasks) == number + 1)         # type: ignore[misc]
            assert (await line.ask(request[-4:]))[0] == 201
            assert (await line.ask(post(b"whole")))[0] == 201
        assert len(tasks) == 3
    run_wire(test)


def test_more_requests_than_may_be_on_their_way() -> None:
    async def test(client: Client, line: Wire) -> None:
        many = 2 * MAX_WAITING + 100
        line.writer.write(b"".join(post(b"%d" % number) for number in range(many)) + GET)
        offsets = [orjson.loads((await line.answer())[2])["offset"] for _ in range(many)]
        assert offsets == list(range(1, many + 1))
        assert (await line.answer())[0] == 200
        assert [int(message[1] or b"") for message in client.kernel.appended[1:]] == list(range(many))
    run_wire(test)


def test_what_is_no_write_waits_for_what_is_on_its_way() -> None:
    async def test(client: Client, line: Wire) -> None:
        client.kernel.hold = True
        line.writer.write(post(b"a") + GET + post(b"b"))
        await until(lambda: len(client.door.receipts) == 1)
        line.writer.write(GET)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(client.door.receipts) == 1
        assert next(iter(client.service.connections)).describe()["busy"] is True
        client.kernel.hold = False
        client.kernel.flush()
        assert [(await line.answer())[0] for _ in range(4)] == [201, 200, 201, 200]
    run_wire(test)


def test_past_its_deadline_the_outcome_is_unknown() -> None:
    async def test(client: Client, line: Wire) -> None:
        client.kernel.hold = True
        status, fields, body = await line.ask(post())
        assert (status, orjson.loads(body)["code"]) == (504, "outcome_unknown")
        assert fields["Content-Type"] == "application/problem+json" and fields["Server"] == "Gatehouse"
        client.kernel.hold = False
        client.kernel.flush()
        assert (await line.ask(post()))[0] == 201
    run_wire(test, request_deadline_s=0.1)


def test_what_the_kernel_answers_is_counted_and_told() -> None:
    async def test(client: Client, line: Wire) -> None:
        client.kernel.fault = StorageFull("the disk is full")
        before = client.door.admission.trace.counts["http", "storage_full"]
        status, _, body = await line.ask(post())
        assert (status, orjson.loads(body)["code"]) == (507, "storage_full")
        assert client.door.admission.trace.counts["http", "storage_full"] == before + 1
    run_wire(test)


def test_a_repeated_key_is_stored_once() -> None:
    async def test(client: Client, line: Wire) -> None:
        keyed = post(more=b"Idempotency-Key: k1\r\n")
        assert (await line.ask(keyed))[2] == (await line.ask(keyed))[2]
        assert len(client.kernel.appended) == 2
    run_wire(test)


def test_while_the_hub_is_congested_a_message_waits(tasks: list[str]) -> None:
    async def test(client: Client, line: Wire) -> None:
        client.kernel.congested = True
        line.writer.write(post())
        await until(lambda: tasks)
        assert len(client.door.receipts) == 0
        client.kernel.relieve()
        assert (await line.answer())[0] == 201
    run_wire(test)


def test_a_login_holds_until_something_about_users_changes() -> None:
    login = f"Authorization: {basic('ada', 'lovelace')['Authorization']}\r\n".encode()

    async def test(client: Client, line: Wire) -> None:
        admission: Any = client.door.admission
        session = session_of(client)
        known = session.login
        assert (await line.ask(post(more=login)))[0] == 201 and session.login is known
        assert (await line.ask(post()))[0] == 401                        # who shows nothing is nobody
        assert (await line.ask(post(more=login)))[0] == 201 and session.login is known
        admission.on_user_changed("ada", "", "")
        assert (await line.ask(post(more=login)))[0] == 201 and session.login is not known
        known = session.login
        assert (await line.ask(post(more=login)))[0] == 201 and session.login is known
        rights.clear()
        admission.on_user_changed("ada", "", "")
        assert (await line.ask(post(more=login)))[0] == 403
    rights = {"plant/temp"}
    run_wire(test, more=login, admission=lambda kernel: KnownUsers(
        kernel, lambda: NOW_MS, decision=lambda who, what, where: where in rights))


class Begins:
    """Transactions that begin at once."""

    def checks_for(self, halves: object, group: str) -> CheckSettings:
        return CheckSettings()

    def begin(self, halves: object, *, owner: Owner, token: object, **more: object) -> None:
        tell(owner, [Stored(token, None, NOW_MS, [(0, -1, 7)])])


@pytest.mark.parametrize("lost", ["shop", "plant/temp"])
def test_half_messages_cost_no_task_and_are_taken_while_both_rights_hold(lost: str, tasks: list[str]) -> None:
    login = f"Authorization: {basic('ada', 'lovelace')['Authorization']}\r\n".encode()
    half = post(more=login, target=b"/v1/transactions?group=shop&address=plant/temp")

    async def test(client: Client, line: Wire) -> None:
        admission: Any = client.door.admission
        for _ in range(2):
            status, _, body = await line.ask(half)
            assert (status, orjson.loads(body)["group"], tasks) == (201, "shop", [])
        rights.remove(lost)
        admission.on_user_changed("ada", "", "")
        for _ in range(2):
            assert (await line.ask(half))[0] == 403
    rights = {"shop", "plant/temp"}
    run_wire(test, more=login, services={"transactions": Begins()}, admission=lambda kernel: KnownUsers(
        kernel, lambda: NOW_MS, decision=lambda who, what, where: where in rights))


def test_a_login_that_has_run_out_is_shown_again() -> None:
    async def test(client: Client, line: Wire) -> None:
        session = session_of(client)
        known = session.login
        assert known is not None
        known.ends_ms = NOW_MS + 1
        assert (await line.ask(post()))[0] == 201 and session.login is known
        known.ends_ms = NOW_MS
        assert (await line.ask(post()))[0] == 201 and session.login is not known
    run_wire(test)


def test_another_host_is_asked_about() -> None:
    async def test(client: Client, line: Wire) -> None:
        status, _, body = await line.ask(post().replace(b"Host: h", b"Host: rebound.example"))
        assert (status, orjson.loads(body)["code"]) == (421, "host_not_allowed")
    run_wire(test, allowed_hosts=())


def test_what_is_on_its_way_is_answered_before_the_hub_stops() -> None:
    async def test(client: Client, line: Wire) -> None:
        client.kernel.hold = True
        line.writer.write(post(b"last") + post(b"really"))
        await until(lambda: len(client.door.receipts) == 2)
        stopping = asyncio.create_task(client.service.stop(10))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not stopping.done()
        client.kernel.flush()
        assert [(await line.answer())[0] for _ in range(2)] == [201, 201]
        await stopping
        assert await line.reader.read() == b""
    run_wire(test)


def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    async def test(client: Client, line: Wire) -> None:
        client.kernel.hold = True
        line.writer.write(post(b"a") + post(b"b") + GET)
        await until(lambda: len(client.door.receipts) == 2)
        line.writer.transport.abort()
        await until(lambda: not client.service.connections)
        client.kernel.flush()
        assert len(client.door.receipts) == 0 and len(client.kernel.appended) == 3
    run_wire(test)


def test_a_connection_is_idle_from_its_last_answer_on() -> None:
    async def test(client: Client, line: Wire) -> None:
        (connection,) = client.service.connections
        session: Any = connection._session
        before_ms = hub_ms()
        assert (await line.ask(post()))[0] == 201
        since_ms = session._idle_since_ms
        assert before_ms <= since_ms <= hub_ms()
        for now_ms, is_open in ((since_ms + 74_000, True), (since_ms + 75_000, False)):
            session.handle_timer(now_ms)
            assert (connection._idle & ENDING == 0) is is_open
    run_wire(test)


def test_a_websocket_behind_other_requests() -> None:
    async def test(client: Client, line: Wire) -> None:
        line.writer.write(post() + b"GET /v1/ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                                   b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        assert (await line.answer())[0] == 201
        head = await line.reader.readuntil(b"\r\n\r\n")
        assert re.match(rb"HTTP/1\.1 101 ", head), head
    run_wire(test)


@pytest.mark.parametrize("between", [b"", b"GET /v1", b"\r\n", b"POST", b"\r\n\r\nGET", b"x" * 4])
def test_the_same_bytes_mean_the_same_between_two_requests_alone(between: bytes) -> None:
    """What was one whole request is known again by its bytes, but never behind the beginning of another."""
    async def test(client: Client, line: Wire) -> None:
        request = post(b"\r\n\r\n")
        for _ in range(3):
            assert (await line.ask(request))[0] == 201
        line.writer.write(between)
        await asyncio.sleep(0.01)
        line.writer.write(request)
        answer = await line.answer()
        assert answer[0] == (201 if between in (b"", b"\r\n") else 400)
        values = [message[1] for message in client.kernel.appended]
        assert values == [b"first", *[b"\r\n\r\n"] * (4 if answer[0] == 201 else 3)]
    run_wire(test)


def test_another_body_of_the_same_length_is_another_body() -> None:
    async def test(client: Client, line: Wire) -> None:
        for body in (b"aaaa", b"bbbb", b"\r\n\r\n", b"GET ", b"cc", b"dddd"):
            assert (await line.ask(post(body)))[0] == 201
        assert [message[1] for message in client.kernel.appended[1:]] == [
            b"aaaa", b"bbbb", b"\r\n\r\n", b"GET ", b"cc", b"dddd"]
        assert (await line.ask(GET))[0] == 200 and (await line.ask(GET))[0] == 200
        assert (await line.ask(post(b"eeee")))[0] == 201
    run_wire(test)


def test_a_connection_that_rests_holds_no_large_head() -> None:
    async def test(client: Client, line: Wire) -> None:
        session: Any = session_of(client)
        large = b"".join(b"X-%d: %b\r\n" % (number, bytes([120]) * 8_000) for number in range(7))
        for body in (b"aaaa", b"bbbb"):
            session.handle_data(post(body, large))               # in one read
            assert (await line.answer())[0] == 201
            assert len(session._before.head_bytes) + sum(len(value) for _, value in session._head_raw) <= MAX_KEPT_BYTES
            assert (await line.ask(post(body)))[0] == 201
        assert session._known, "it is known where the parser stands all the same"
        assert [message[1] for message in client.kernel.appended[-4:]] == [b"aaaa", b"aaaa", b"bbbb", b"bbbb"]
    run_wire(test)


TARGETS = [b"/v1/publish/plant/temp", b"/v1/publish/plant/%zz", b"/v1/publish/plant//x", b"/v1/publish/plant/a#b",
           b'/v1/publish/plant/"x"', b"/v1/publish/plant/\xc3\xa4", b"/v1/publish/plant/\xff", b"/v1/nowhere?a=b?c",
           b"http://h/v1/publish/plant/temp", b"*", b"/v1/publish/plant/a\tb", b"/" + b"x" * 9_000, b"/v1/publish/a b"]


@pytest.mark.parametrize("method", [b"POST", b"GET", b"HEAD", b"DELETE", b"CONNECT", b"BREW", b"post"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_request_whose_fields_are_known_is_answered_as_one_that_is_parsed(method: bytes, target: bytes) -> None:
    async def test(client: Client, line: Wire) -> None:
        request = b"%b %b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n" % (method, target)
        assert client.service is not None and (await line.ask(post(b"known")))[0] == 201
        line.writer.write(request + b"known")
        known = await line.reader.readuntil(b"\r\n\r\n")
        async with wire(client) as other:                    # where nothing is known of the parser
            other.writer.write(request)
            await asyncio.sleep(0.01)
            other.writer.write(b"known")
            parsed = await other.reader.readuntil(b"\r\n\r\n")
        assert undated(known) == undated(parsed)
    run_wire(test)


def undated(head: bytes) -> list[bytes]:
    """Without what differs from one answer to the next: the date, and how long an id in it is."""
    return [line for line in head.split(b"\r\n") if not line.startswith((b"Date:", b"Content-Length:"))]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_no_fields_say_what_they_do_not(end: bytes) -> None:
    """A field that ends as a request line does is none, wherever lines may end otherwise."""
    async def test(client: Client, line: Wire) -> None:
        session: Any = session_of(client)
        line.writer.write(end.join((b"GET /healthz HTTP/1.1", b"Authorization: Basic YTpi", b"X-A: b HTTP/1.1"))
                          + b"\r\nHost: h\r\n\r\n")
        await line.answer()
        assert session._known and all((b"Authorization" in fields) == (head.authorization is not None)
                                      for fields, head, _ in session._known)
    run_wire(test)


@pytest.mark.parametrize("request_", [GET, post(b"x")])
def test_what_comes_while_others_wait_is_bounded_however_it_comes(request_: bytes) -> None:
    async def test(client: Client, line: Wire) -> None:
        client.kernel.hold = True
        session: Any = session_of(client)
        line.writer.write(post(b"held"))
        await until(lambda: len(client.door.receipts) == 1)
        many = 2 * MAX_WAITING
        for _ in range(many):
            session.handle_data(request_)                    # as many reads
        assert session._paused and len(session._waiting) + len(session._begun) <= many + 1
        assert len(session._begun) <= MAX_WAITING
        client.kernel.hold = False
        client.kernel.flush()
        statuses = [(await line.answer())[0] for _ in range(many + 1)]
        assert statuses == [201] + [200 if request_ is GET else 201] * many
        await until(lambda: not session._paused)
        assert (await line.ask(GET))[0] == 200
    run_wire(test)


def test_who_has_left_is_forgotten_without_the_collector() -> None:
    async def test(client: Client) -> None:
        for _ in range(2):                                       # what is made once is there after the first
            with left_to_the_collector() as left:
                for _ in range(3):
                    async with wire(client) as one:
                        assert (await one.ask(post()))[0] == 201
                        assert (await one.ask(GET))[0] == 200
                await until(lambda: not len(client.services.connections))
        assert not left  # decision 297
    run_door(test)


def test_many_requests_at_once_that_would_go_on_in_another_protocol_are_answered_in_this_one() -> None:
    asked = b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"

    async def test(client: Client, line: Wire) -> None:
        line.writer.write(asked * 800)
        for _ in range(800):
            assert (await line.answer())[0] == 200
        assert client.service.counts["faults"] == 0
    run_wire(test)


def test_little_is_taken_of_many_bodies_that_wait_for_others_and_it_is_counted() -> None:
    async def test(client: Client, line: Wire) -> None:
        client.kernel.hold = True
        session = session_of(client)
        line.writer.write(post(b"held") + (GET + post(bytes(50_000))) * 100)
        await until(lambda: session._paused or len(session._waiting) == 200)
        waiting = sum(call.received_bytes for call in session._waiting)
        assert 50_000 <= waiting <= held_by(session) < 500_000
        client.kernel.hold = False
        client.kernel.flush()
        assert [(await line.answer())[0] for _ in range(201)] == [201, *[200, 201] * 100]
        await until(lambda: not held_by(session))
    run_wire(test)


@pytest.mark.parametrize(("login", "status"), [(b"YWRhOmxvdmVsYWNl", 201), (b"YWRhOndyb25n", 401)])
def test_who_is_not_known_yet_has_little_of_his_body_taken(login: bytes, status: int) -> None:
    """Nothing bounds it before the call reads it."""
    admissions: list[KnownUsers] = []

    def late(kernel: Any) -> KnownUsers:
        admissions.append(KnownUsers(kernel, lambda: NOW_MS, decision=lambda *_: True))
        admissions[0].late = True
        return admissions[0]

    async def test(client: Client) -> None:
        async with wire(client) as line:
            body = bytes(900_000)
            line.writer.write(b"POST /v1/publish/plant HTTP/1.1\r\nHost: h\r\nAuthorization: Basic %b\r\n"
                              b"Content-Length: %d\r\n\r\n%b" % (login, len(body), body))
            await until(lambda: bool(admissions[0].asked))
            session = session_of(client)
            await until(lambda: session._paused or session._incoming is None)
            assert session._incoming is not None and session._incoming.received_bytes < len(body) / 2
            admissions[0].tell()
            assert (await line.answer())[0] == status
            await line.writer.drain()
            assert (await line.ask(GET))[0] == 200, "what came of it is thrown away, and the connection goes on"
    run_door(test, admission=late)
