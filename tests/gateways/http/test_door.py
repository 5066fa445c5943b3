"""The door itself: health, errors, who may ask, limits, broken and slow clients, stopping."""
from __future__ import annotations

import asyncio
import logging
import socket
from base64 import b64encode
from typing import Any, cast

import aiohttp
import pytest

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.connections.capacity import Capacity
from gatehouse.gateways.connections.listener import Listener
from gatehouse.gateways.contract import CONTRACT, GatewaySpec, Link, Listen, Services, WebSocketRoute
from gatehouse.gateways.http import GATEWAY, SPARE
from gatehouse.gateways.http.config import HttpConfig
from tests.gateways.http.fake_kernel import NOW_MS, FakeKernel
from tests.gateways.http.kit import Answer, Client, hub_ms, open_listener, run_door, until


def test_health() -> None:
    why = ["the hub is starting"]

    async def test(client: Client) -> None:
        assert (await client.ask("GET", "/healthz")).json == {"status": "ok", "hub": "test"}
        starting = await client.ask("GET", "/readyz")
        assert (starting.status, starting.code, starting.json["detail"]) == (503, "busy", "the hub is starting")
        why[0] = ""
        assert (await client.ask("GET", "/readyz")).status == 200
        metrics = await client.ask("GET", "/metrics")
        assert (metrics.body, metrics.headers["Content-Type"]) == (b"a 1\n", "text/plain; version=0.0.4; charset=utf-8")
    run_door(test, services={"unready": lambda: why[0], "render_metrics": lambda: b"a 1\n"})


@pytest.mark.parametrize(("method", "path", "status", "code", "allow"), [
    ("GET", "/", 404, "not_found", None), ("GET", "/v1/nothing", 404, "not_found", None),
    ("GET", "/v1/publish/a", 405, "method_not_allowed", "POST"),
    ("POST", "/v1/topics/a", 405, "method_not_allowed", "DELETE, GET, HEAD, PATCH, PUT"),
    ("DELETE", "/v1/topics/a/messages", 405, "method_not_allowed", "GET, HEAD, POST"),
    ("OPTIONS", "/healthz", 405, "method_not_allowed", "GET, HEAD"),
    ("PROPFIND", "/metrics", 405, "method_not_allowed", "GET, HEAD"),
    ("POST", "/v1/ws", 405, "method_not_allowed", "GET, HEAD"),
])
def test_paths_and_methods(method: str, path: str, status: int, code: str, allow: str | None) -> None:
    async def test(client: Client) -> None:
        answer = await client.ask(method, path)
        assert (answer.status, answer.code, answer.headers.get("Allow")) == (status, code, allow)
    run_door(test)


@pytest.mark.parametrize(("data", "status", "code"), [
    (b"GARBAGE\r\n\r\n", 400, b"malformed_request"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, b"malformed_request"),
    (b"GET /healthz HTTP/1.1\r\nbroken header\r\n\r\n", 400, b"malformed_request"),
    (b"GET /healthz HTTP/9.9\r\nHost: h\r\n\r\n", 400, b"malformed_request"),
    (b"POST /v1/publish/a HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n", 400, b"malformed_request"),
    (b"POST /v1/publish/a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
     b"malformed_request"),
    (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: h\r\n\r\n", 414, b"target_too_long"),
    (b"GET /healthz HTTP/1.1\r\nHost: h\r\nX-Long: " + b"a" * 9000 + b"\r\n\r\n", 431, b"headers_too_large"),
])
def test_what_is_no_request(data: bytes, status: int, code: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def test(client: Client) -> None:
        answer = await client.send(data)
        assert answer.split(b" ")[1] == b"%d" % status, answer
        assert b"application/problem+json" in answer
        assert b'"code":"%b"' % code in answer
        assert client.service.counts["closed_" + code.decode()] == 1
        assert (await client.ask("GET", "/healthz")).status == 200
    with caplog.at_level(logging.INFO):
        run_door(test)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition("closed: ")[2] for line in lines] == (
        ["malformed_request: a TLS handshake came to the HTTP port"] if data.startswith(b"\x16") else [])


def test_a_body_that_breaks_off_or_lies_is_the_clients_fault(caplog: pytest.LogCaptureFixture) -> None:
    async def test(client: Client) -> None:
        head = b"POST /v1/publish/a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        answer = await client.send(head + b"5\r\nhello\r\nzz\r\n")
        assert b'"code":"malformed_request"' in answer
        refused = await client.send(head.replace(b"/v1/publish/a", b"/v1/nothing") + b"5\r\nhello\r\nzz\r\n")
        assert b'"code":"not_found"' in refused or b'"code":"malformed_request"' in refused
        assert client.kernel.appended == []
    with caplog.at_level(logging.INFO):
        run_door(test)
    assert caplog.records == []


def test_a_fault_of_ours_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    async def test(client: Client) -> None:
        client.kernel.fault = ValueError("a secret of ours")
        answer = await client.ask("POST", "/v1/publish/plant", data=b"x")
        assert (answer.status, answer.code) == (500, "internal_error")
        assert b"secret" not in answer.body
        assert (await client.ask("GET", "/healthz")).status == 200
        assert client.service.counts["faults"] == 1
    run_door(test)
    assert [record.exc_info is not None for record in caplog.records] == [True]


class Echo:
    """A session of another door that sends back what comes."""

    def __init__(self, link: Link, services: Services, config: Any) -> None:
        self.handle_data = link.write
        self.handle_stopping = link.close

    def handle_drained(self) -> None: ...

    def handle_timer(self, now_ms: int) -> None: ...

    def handle_closed(self) -> None: ...

    def on_principal_ended(self, reason: str) -> None: ...

    def describe(self) -> dict[str, Any]:
        return {"echoes": True}


def test_other_doors_are_reached_by_websocket() -> None:
    other = GatewaySpec(name="other", contract=CONTRACT, config=dict, default_listen=(), session=Echo,
                        websockets=(WebSocketRoute("/mqtt", ("echo", "mqtt")), WebSocketRoute("/", ("mqtt",))))

    async def test(client: Client) -> None:
        assert (await client.ask("POST", "/v1/publish/a", data=b"x")).status == 201
        refused = await client.ask("POST", "/mqtt")
        assert (refused.status, refused.code, refused.headers["Allow"]) == (405, "method_not_allowed", "GET")
        assert (await client.ask("GET", "/mqtt")).code == "upgrade_required"
        url = f"http://{client.address}"
        with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
            await client.session.ws_connect(f"{url}/mqtt", protocols=("mqtt",))          # the door is not open
        listener = client.services.listeners["other"] = Listener(other, client.services, {}, capacity=Capacity(1))
        await listener.start(())
        with pytest.raises(aiohttp.WSServerHandshakeError, match="400"):
            await client.session.ws_connect(f"{url}/mqtt", protocols=("amqp",))
        before = len(client.service)
        async with client.session.ws_connect(f"{url}/mqtt", protocols=("mqtt",)) as socket:
            assert socket.protocol == "mqtt"
            await socket.send_bytes(b"over")
            assert (await socket.receive_bytes()) == b"over"
            assert (len(listener), len(client.service)) == (1, before - 1)
            [listed] = [one for one in (await client.ask("GET", "/v1/connections")).json["connections"]
                        if one["door"] == "other"]
            shown = (await client.ask("GET", f"/v1/connections/{listed['id']}")).json
            assert shown["details"] == {"echoes": True, "transport": "websocket"}
        await until(lambda: not len(listener))
        assert (await client.ask("GET", "/", allow_redirects=False)).status == 302
        async with client.session.ws_connect(url, protocols=("mqtt",)) as socket:
            await socket.send_bytes(b"by the other way")
            assert (await socket.receive_bytes()) == b"by the other way"
            await listener.stop(5)
    run_door(test, services={"specs": (GATEWAY, other)})


# --- who asks

def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


def test_users_and_passwords() -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", "/v1/publish/plant", data=b"x")
        assert (answer.status, answer.code) == (401, "not_authenticated")
        assert answer.headers["WWW-Authenticate"] == 'Basic realm="test", charset="UTF-8", Bearer realm="test"'
        wrong = await client.ask("GET", "/v1/topics", headers=basic("ada", "pä:ss"))
        assert (wrong.status, wrong.code) == (401, "not_authenticated")
        assert b"ss" not in wrong.body.replace(b"password", b"").replace(b"pass", b"")
        for value, status, code in (("Bearer abc", 401, "not_authenticated"), ("Bearer", 400, "invalid_header"),
                                    ("Digest x=y", 401, "not_authenticated"), ("Bearer a b", 400, "invalid_header"),
                                    ("Basic", 400, "invalid_header"),
                                    ("Basic !!!", 400, "invalid_header"), ("Basic YWRh", 400, "invalid_header"),
                                    ("Basic //8=", 400, "invalid_header")):
            refused = await client.ask("GET", "/v1/topics", headers={"Authorization": value})
            assert (refused.status, refused.code) == (status, code)
        assert (await client.ask("GET", "/healthz")).status == 200
    run_door(test, admission=lambda kernel: Admission(kernel, lambda: NOW_MS, allow_anonymous=False))


def test_rights() -> None:
    allowed = {(Operation.PUBLISH, "plant/open"), (Operation.CREATE, "plant/open")}

    def decide(principal: Principal, operation: Operation, address: str) -> bool:
        return (operation, address) in allowed

    async def test(client: Client) -> None:
        assert (await client.ask("POST", "/v1/publish/plant/open", data=b"x")).status == 201
        for method, path, body in (
                ("POST", "/v1/publish/plant/secret", b"x"), ("POST", "/v1/topics/plant/messages?key=secret", b"x"),
                ("GET", "/v1/topics/plant/messages", None),
                ("GET", "/v1/topics/plant/batches?partition=0&offset=0", None),
                ("GET", "/v1/topics/plant", None), ("PUT", "/v1/topics/new", b""), ("PUT", "/v1/topics/plant", b""),
                ("PATCH", "/v1/topics/plant", b""), ("DELETE", "/v1/topics/plant", None)):
            answer = await client.ask(method, path, data=body)
            assert (answer.status, answer.code) == (403, "not_authorized"), (method, path)
        assert (await client.ask("GET", "/v1/topics")).json["topics"] == []
        mixed = await client.ask("POST", "/v1/topics/plant/messages", json={"messages": [
            {"key": "open", "value": "a"}, {"key": "secret", "value": "b"}]})
        assert [result["status"] for result in mixed.json["messages"]] == [201, 403]
    run_door(test, admission=lambda kernel: Admission(kernel, lambda: NOW_MS, decision=decide))


# --- pages of other origins

@pytest.mark.parametrize(("origins", "origin", "status", "allowed"), [
    ((), "https://evil.example", 403, None), ((), "null", 403, None),
    (("https://app.example",), "https://app.example", 201, "https://app.example"),
    (("https://app.example",), "https://app.example.evil", 403, None), (("*",), "https://any.example", 201, "*"),
])
def test_origins(origins: tuple[str, ...], origin: str, status: int, allowed: str | None) -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", "/v1/publish/plant", data=b"x", headers={"Origin": origin})
        assert answer.status == status
        assert answer.headers.get("Access-Control-Allow-Origin") == allowed
        assert len(client.kernel.appended) == (status == 201)
        own = await client.ask("POST", "/v1/publish/plant", data=b"x", headers={"Origin": f"http://{client.address}"})
        assert own.status == 201
    run_door(test, cors_origins=origins)


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/page", "https://", "https://a@app.example", ""])
def test_an_origin_that_no_page_comes_from_is_a_wrong_setting(origin: str) -> None:
    with pytest.raises(ValueError, match="cors_origins"):
        HttpConfig(cors_origins=(origin,))
    HttpConfig(cors_origins=("*", "https://app.example:8443/", "capacitor://localhost", "http://[::1]:3000"))


def test_preflight() -> None:
    async def test(client: Client) -> None:
        asking = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST",
                  "Access-Control-Request-Headers": "content-type,x-priority"}
        answer = await client.ask("OPTIONS", "/v1/publish/plant/a", headers=asking)
        assert answer.status == 204
        assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert answer.headers["Access-Control-Allow-Methods"] == "POST"
        assert answer.headers["Access-Control-Allow-Headers"] == "content-type,x-priority"
        asking["Origin"] = "https://evil.example"
        refused = await client.ask("OPTIONS", "/v1/publish/plant/a", headers=asking)
        assert (refused.status, refused.code) == (403, "origin_not_allowed")
    run_door(test, cors_origins=("https://app.example",))


# --- limits

def test_bodies_are_bounded_before_and_while_they_are_read() -> None:
    async def test(client: Client) -> None:
        whole = await client.ask("POST", "/v1/publish/plant", data=b"x" * 1025)
        assert (whole.status, whole.code, whole.json["max_body_bytes"]) == (413, "body_too_large", 1024)
        declared = await client.send(b"POST /v1/publish/plant HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n"
                                     b"Expect: 100-continue\r\n\r\n")
        assert declared.startswith(b"HTTP/1.1 413 ")

        async def endless() -> Any:
            for _ in range(1000):
                yield b"x" * 100
        chunked = await client.ask("POST", "/v1/publish/plant", data=endless())
        assert (chunked.status, chunked.code) == (413, "body_too_large")
        assert client.door.bodies.buffered_bytes == 0
        assert client.kernel.appended == []
    run_door(test, max_body_bytes=1024)


def test_bodies_of_all_clients_together_are_bounded() -> None:
    async def test(client: Client) -> None:
        head = b"POST /v1/publish/plant HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 900\r\n\r\n"
        host, _, port = client.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head + b"x" * 800)
        door = client.door
        await until(lambda: door.bodies.buffered_bytes == 800)
        busy = await client.send(head + b"x" * 800)
        assert b" 503 " in busy
        assert b'"code":"busy"' in busy
        writer.write(b"x" * 100)
        assert (await reader.read()).startswith(b"HTTP/1.1 201 ")
        writer.close()
    run_door(test, max_buffered_bytes=1024)


def test_a_slow_body_is_given_up() -> None:
    async def test(client: Client) -> None:
        answer = await client.send(b"POST /v1/publish/plant HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nx")
        assert b" 408 " in answer
        assert b'"code":"body_too_slow"' in answer
    run_door(test, body_timeout_s=0.1)


def test_expectations() -> None:
    async def test(client: Client) -> None:
        host, _, port = client.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/publish/plant HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1\r\n"
                     b"Expect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"x")
        assert (await reader.read()).startswith(b"HTTP/1.1 201 ")
        writer.close()
        for line in (b"POST /v1/publish/plant", b"GET /v1/topics"):
            for body in (b"", b"x"):         # whether the body is there already makes no difference
                other = await client.send(line + b" HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n"
                                          b"Expect: miracles\r\nConnection: close\r\n\r\n" + body)
                assert other.startswith(b"HTTP/1.1 417 ")
                assert b'"code":"expectation_failed"' in other
        old = await client.send(b"POST /v1/publish/plant HTTP/1.0\r\nContent-Length: 1\r\nExpect: miracles\r\n\r\nx")
        assert old.startswith(b"HTTP/1.0 201 "), "what HTTP/1.0 does not have is passed over"
    run_door(test)


def test_connections_are_bounded_and_counted() -> None:
    async def test(client: Client) -> None:
        host, _, port = client.address.rpartition(":")
        held = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        await until(lambda: len(client.service) == 2)
        refused = await client.send(b"")
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b'"code":"busy"' in refused
        assert (client.service.counts["accepted"], client.service.counts["refused"]) == (2, 1)
        assert [one.describe()["door"] for one in client.services.connections.page()[0]] == ["http", "http"]
        for _, writer in held:
            writer.close()
        await until(lambda: len(client.service) == 0)
        assert (await client.ask("GET", "/healthz")).status == 200
    run_door(test, max_connections=2)


def test_what_other_doors_hold_counts_but_for_a_few() -> None:
    capacity = Capacity(100)

    async def test(client: Client) -> None:
        capacity.open = 100 + SPARE - 1
        host, _, port = client.address.rpartition(":")
        _, held = await asyncio.open_connection(host, int(port))
        await until(lambda: len(client.service) == 1)
        assert (await client.send(b"")).startswith(b"HTTP/1.1 503 ")
        assert capacity.open == 100 + SPARE
        held.close()
        await until(lambda: len(client.service) == 0)
        assert capacity.open == 100 + SPARE - 1
        assert (await client.ask("GET", "/healthz")).status == 200
    run_door(test, services={"capacity": capacity})


def test_connections_of_one_address_are_bounded() -> None:
    async def test(client: Client) -> None:
        host, _, port = client.address.rpartition(":")
        _, held = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.2", 0))
        await until(lambda: len(client.service) == 1)
        reader, _ = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.2", 0))
        refused = await reader.read()
        assert refused.startswith(b"HTTP/1.1 503 ") and b"as many as one address may have" in refused
        assert client.service.counts["refused_by_address"] == 1
        assert (await client.ask("GET", "/healthz")).status == 200, "from another address"
        held.close()
    run_door(test, max_connections_per_address=1)


def test_a_connection_without_a_request_is_closed() -> None:
    async def test(client: Client) -> None:
        for start in (b"", b"GET /healthz HTTP/1.1\r\nHost: h\r\nX-Slow: "):
            assert await client.send(start) == b""
    run_door(test, idle_timeout_s=1.0)


def test_a_client_that_takes_nothing_is_cut_off() -> None:
    async def test(client: Client) -> None:
        for number in range(64):
            client.kernel.publish(f"plant/{number}", b"x" * 15_000)
        host, _, port = client.address.rpartition(":")
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, (host, int(port)))
        await asyncio.get_running_loop().sock_sendall(
            raw, b"GET /v1/topics/plant/messages?max=64 HTTP/1.1\r\nHost: h\r\n\r\n" * 50)
        await until(lambda: client.service.counts["closed_write_timeout"])
        await until(lambda: len(client.service) == 0)
        raw.close()
        assert (await client.ask("GET", "/healthz")).status == 200
    run_door(test, stall_timeout_s=1.0)


def test_stopping_answers_what_is_in_flight() -> None:
    answers: list[Answer] = []

    async def test(client: Client) -> None:
        client.kernel.hold = True
        asked = asyncio.create_task(client.ask("POST", "/v1/publish/plant", data=b"x"))
        await until(lambda: len(client.door.receipts))
        stopping = asyncio.create_task(client.service.stop(10))
        await asyncio.sleep(0.05)
        assert not stopping.done()
        client.kernel.flush()
        answers.append(await asked)
        await stopping
        with pytest.raises(OSError, match=r".*"):
            await asyncio.open_connection(*client.address.split(":"))
    run_door(test)
    assert answers[0].status == 201


def test_a_port_that_is_taken_leaves_nothing_open() -> None:
    async def test(client: Client) -> None:
        second = Listener(GATEWAY, client.services, HttpConfig(), capacity=client.services.capacity)
        with pytest.raises(OSError, match=r".*"):
            await second.start((Listen("127.0.0.1", 0), Listen("127.0.0.1", int(client.address.rpartition(":")[2]))))
        assert second.addresses() == []
    run_door(test)


def has_ipv6() -> bool:
    """Whether this machine can listen on IPv6's loopback; containers often cannot."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_ipv6() -> None:
    async def run() -> None:
        kernel = cast(Any, FakeKernel())
        services = Services("test", kernel, Admission(kernel, lambda: NOW_MS), hub_ms, settings={"http": HttpConfig()})
        if not has_ipv6():
            with pytest.raises(OSError, match=r".*"):
                await open_listener(services, Listen("::1", 0))
            return
        listener = await open_listener(services, Listen("::1", 0))
        (address,) = listener.addresses()
        assert address.startswith("[::1]:")
        await listener.stop(1)
    asyncio.run(run())


def test_the_declaration() -> None:
    assert (GATEWAY.name, GATEWAY.door, GATEWAY.default_listen) == ("http", 2, ("127.0.0.1:8080",))
