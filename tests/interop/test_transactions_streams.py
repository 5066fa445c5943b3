"""Half messages over a WebSocket, and webhooks that are asked what became of them."""
from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiohttp
import pytest

from gatehouse_client import SyncClient
from tests.running_hub import DEADLINE_S, RunningHub, config_of
from tests.waiting import until


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    hub = RunningHub(tmp_path_factory.mktemp("hub"), config_of(("http",), "") + 'webhook_allow = ["http://127.0.0.1"]\n')
    try:
        hub.wait_ready()
        yield hub
    finally:
        hub.kill()


@pytest.fixture
def http(hub: RunningHub) -> Iterator[SyncClient]:
    with SyncClient(f"http://127.0.0.1:{hub.port('http')}") as client:
        yield client


def begin(http: SyncClient, group: str, *values: str) -> list[str]:
    ids = []
    for value in values:
        transaction = http.client.transaction(group, check={"after": 0.05, "every": 0.2, "times": 1_000})
        http.wait(transaction.publish(topic=group, key=value, value=value))
        ids.append(transaction.id)
    return ids


def converse(hub: RunningHub, talk: Callable[[Callable[..., Any]], Any]) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession() as session, asyncio.timeout(2 * DEADLINE_S), \
                session.ws_connect(f"http://127.0.0.1:{hub.port('http')}/v1/ws") as socket:
            async def ask(*frames: dict[str, Any]) -> Any:
                for frame in frames:
                    await socket.send_json(frame)
                return await socket.receive_json()
            await talk(ask)
    asyncio.run(run())


def test_a_websocket_holds_and_decides(hub: RunningHub, http: SyncClient) -> None:
    async def talk(ask: Callable[..., Any]) -> None:
        held = await ask({"type": "hold", "id": 1, "group": "ws", "messages": [{"topic": "ws", "value": "x"}]})
        assert (held["type"], held["id"], held["state"]) == ("held", 1, "open")
        unsure = {"type": "decide", "id": 2, "transaction": held["transaction"], "decision": "unknown"}
        assert (await ask(unsure))["state"] == "open"
        decided = await ask({"type": "decide", "id": 2, "transaction": held["transaction"], "decision": "commit"})
        assert (decided["type"], decided["state"]) == ("decided", "committed")
        assert await ask(unsure) == decided
        wrong = await ask({"type": "decide", "id": 3, "transaction": held["transaction"], "decision": "rollback"})
        assert (wrong["problem"]["code"], wrong["problem"]["state"]) == ("already_decided", "committed")
        for frame, code in (({"decision": "perhaps", "transaction": "1"}, "invalid_frame"),
                            ({"decision": "commit", "transaction": "1"}, "unknown_transaction"),
                            ({"decision": "unknown", "transaction": "1"}, "unknown_transaction"),
                            ({"decision": "commit"}, "invalid_frame")):
            assert (await ask({"type": "decide", "id": 4, **frame}))["problem"]["code"] == code
        refused = await ask({"type": "hold", "id": 5, "group": "ws", "messages": [{"topic": "ws"}, {"value": "y"}]})
        assert refused["problem"]["message"] == 1
    converse(hub, talk)
    assert [message.text for message in http.read("ws")] == ["x"]


def test_a_websocket_is_asked_within_its_credit(hub: RunningHub, http: SyncClient) -> None:
    async def talk(ask: Callable[..., Any]) -> None:
        assert (await ask({"type": "checks", "id": 1, "group": "ws-asked", "credit": 1}))["type"] == "listening"
        ids = await asyncio.to_thread(begin, http, "ws-asked", "a", "b")
        asked = []
        for _ in range(2):
            frame = await ask()
            while frame["type"] != "checks":
                frame = await ask()
            (check,) = frame["checks"]
            asked.append(check["id"])
            decided = await ask({"type": "decide", "id": 2, "transaction": check["id"], "decision": "commit"})
            assert (decided["type"], decided["state"]) == ("decided", "committed")
            assert (await ask({"type": "checks", "id": 3, "group": "ws-asked", "credit": 1}))["type"] == "listening"
        assert sorted(asked) == sorted(ids)
        await ask({"type": "unlisten", "id": 4, "group": "ws-asked"})
    converse(hub, talk)
    assert sorted(message.text for message in http.read("ws-asked")) == ["a", "b"]


class Receiver:
    """A web server that is asked; `answer` makes status and body of a check."""

    def __init__(self, answer: Callable[[Any], tuple[int, bytes]]) -> None:
        self.checks: list[Any] = []
        self.headers: list[dict[str, str]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                check = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.checks.append(check)
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                status, body = answer(check)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_a_webhook_decides(http: SyncClient) -> None:
    answers = {"good": b'{"decision": "commit"}', "bad": b'{"decision": "rollback"}'}
    receiver = Receiver(lambda check: (200, answers[check["message"]["value"]]))
    try:
        made = http.request("PUT", "/v1/webhooks/decides", {"url": receiver.url, "checks": "hook"})
        assert made["secret"].startswith("whsec_") and made["topic"] == ""
        good, bad = begin(http, "hook", "good", "bad")
        until(lambda: not http.transactions(group="hook"))
        assert http.show_transaction(good)["state"] == "committed"
        assert http.show_transaction(bad)["decided_by"] == "webhook decides"
        assert [message.text for message in http.read("hook")] == ["good"]
        assert {headers["webhook-id"] for headers in receiver.headers} >= {f"check_{good}_1", f"check_{bad}_1"}
        assert all(headers["webhook-signature"].startswith("v1,") for headers in receiver.headers)
        until(lambda: http.request("GET", "/v1/webhooks/decides")["state"]["delivered"] >= 2)
    finally:
        receiver.close()
        http.request("DELETE", "/v1/webhooks/decides")


@pytest.mark.parametrize("answer", [(200, b""), (200, b"yes"), (200, b'{"decision": "perhaps"}'), (200, b"[]"),
                                    (200, b"x" * 100_000), (500, b'{"decision": "commit"}'), (204, b""),
                                    (302, b'{"decision": "commit"}')])
def test_nonsense_decides_nothing(http: SyncClient, answer: tuple[int, bytes]) -> None:
    receiver = Receiver(lambda check: answer)
    try:
        http.request("PUT", "/v1/webhooks/nonsense", {"url": receiver.url, "checks": "nonsense"})
        (one,) = begin(http, "nonsense", "x")
        until(lambda: {1, 2} <= {check["attempt"] for check in receiver.checks})
        assert http.show_transaction(one)["state"] == "open"
        http.decide_transaction(one, "rollback")
    finally:
        receiver.close()
        http.request("DELETE", "/v1/webhooks/nonsense")
