"""Webhooks of a running hub, and receivers that are there, are not, say no or nonsense, or never stop talking."""
from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.running_hub import RunningHub, config_of, free_port
from tests.waiting import until

DEADLINE_S = 60
ALLOW = 'webhook_allow = ["http://127.0.0.1"]\n'
TRIED_SOON = ALLOW + "webhook_open_s = 0.1\n"


class Receiver:
    """A web server; `answer` says what a POST gets, by its number from 1 and its body."""

    def __init__(self, port: int = 0) -> None:
        self.posts: list[tuple[dict[str, str], bytes]] = []
        self.answer: Callable[[int, bytes], tuple[int, dict[str, str]]] = lambda number, body: (204, {})
        receiver, line = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with line:
                    receiver.posts.append(({name.lower(): value for name, value in self.headers.items()}, body))
                    status, headers = receiver.answer(len(receiver.posts), body)
                self.send_response(status)
                for name, value in {"Content-Length": "0", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def wait(self, count: int) -> list[tuple[dict[str, str], bytes]]:
        until(lambda: len(self.posts) >= count)
        return self.posts

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def hub_on(folder: Any, settings: str = ALLOW) -> RunningHub:
    hub = RunningHub(folder, config_of(("http",), "") + settings)
    hub.wait_ready()
    return hub


def ask(hub: RunningHub, method: str, path: str, document: Any = None) -> Any:
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}{path}", body,
                                     {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return json.loads(error.read())


def publish(hub: RunningHub, *values: str, topic: str = "orders") -> None:
    ask(hub, "POST", "/v1/publish", {"messages": [{"topic": topic, "value": value} for value in values]})


def define(hub: RunningHub, receiver: Receiver, group: str = "shop", **more: Any) -> str:
    """The secret."""
    ask(hub, "PUT", "/v1/topics/orders", {"partitions": 1})
    document = {"url": f"http://127.0.0.1:{receiver.port}/hook", "topic": "orders", "group": group, **more}
    ask(hub, "PUT", f"/v1/groups/{group}", {"retry": [50], "max_attempts": 3})
    return str(ask(hub, "PUT", "/v1/webhooks/shop", document).get("secret"))


def state(hub: RunningHub) -> dict[str, Any]:
    return dict(ask(hub, "GET", "/v1/webhooks/shop"))


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def one_hub(tmp_path_factory):
    hub = hub_on(tmp_path_factory.mktemp("webhooks"))
    yield hub
    hub.kill()


@pytest.fixture
def hub(one_hub):
    """Clean of what the test before made."""
    yield one_hub
    ask(one_hub, "DELETE", "/v1/webhooks/shop")
    ask(one_hub, "DELETE", "/v1/groups/shop")
    ask(one_hub, "DELETE", "/v1/topics/orders")


@pytest.mark.parametrize("mode", ["binary", "structured", "batch"])
def test_what_a_receiver_gets(hub, receiver, mode):
    secret = define(hub, receiver, mode=mode, concurrency=1)
    publish(hub, "1", "2", "3")
    until(lambda: state(hub)["state"]["delivered"] == 3)
    values = []
    for headers, body in receiver.posts:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = b64encode(hmac.digest(b64decode(secret[6:]), signed, hashlib.sha256)).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
        if mode == "binary":
            assert (headers["ce-type"], headers["ce-source"]) == ("gatehouse.message", "/v1/topics/orders")
            values.append(body.decode())
        elif mode == "structured":
            assert headers["content-type"] == "application/cloudevents+json"
            values.append(str(json.loads(body)["data"]))
        else:
            assert headers["content-type"] == "application/cloudevents-batch+json"
            values += [str(event["data"]) for event in json.loads(body)]
    assert values == ["1", "2", "3"]
    assert len({headers["webhook-id"] for headers, _ in receiver.posts}) == len(receiver.posts)


def test_a_failure_is_tried_again_and_then_a_dead_letter(hub, receiver):
    receiver.answer = lambda number, body: (500 if body == b"bad" else 204, {})
    define(hub, receiver, group="burying")
    publish(hub, "bad", "good")
    until(lambda: sum(body == b"bad" for _, body in receiver.posts) == 3)
    until(lambda: ask(hub, "GET", "/v1/dead-letters?group=burying").get("messages"))
    assert [one["value"] for one in ask(hub, "GET", "/v1/dead-letters?group=burying")["messages"]] == ["bad"]
    ids = {headers["webhook-id"] for headers, body in receiver.posts if body == b"bad"}
    assert len(ids) == 1, "the same at every attempt"
    until(lambda: state(hub)["state"]["delivered"] == 1)


def test_retry_after_is_waited_for(hub, receiver):
    times: list[float] = []

    def answer(number: int, _: bytes) -> tuple[int, dict[str, str]]:
        times.append(time.monotonic())
        return (503, {"Retry-After": "1"}) if number == 1 else (204, {})

    receiver.answer = answer
    define(hub, receiver, concurrency=1)
    publish(hub, "1", "2")
    until(lambda: state(hub)["state"]["delivered"] == 2)
    assert times[1] - times[0] >= 0.9


def test_gone_disables(hub, receiver):
    receiver.answer = lambda number, body: (410, {})
    define(hub, receiver)
    publish(hub, "1")
    until(lambda: not state(hub)["enabled"])
    assert "410" in state(hub)["disabled_because"]
    receiver.answer = lambda number, body: (204, {})
    define(hub, receiver)
    until(lambda: state(hub)["state"]["delivered"] == 1)


def test_a_receiver_that_was_down_misses_nothing_and_a_hub_that_was_killed_goes_on(tmp_path):
    port = free_port()
    hub = hub_on(tmp_path, TRIED_SOON)
    values = [str(number) for number in range(30)]
    try:
        down = Receiver(port)
        down.close()
        define(hub, down, concurrency=2)
        ask(hub, "PUT", "/v1/groups/shop", {"retry": [100], "max_attempts": 0})
        publish(hub, *values[:10])
        until(lambda: state(hub)["state"]["failed"] > 0)
        receiver = Receiver(port)
        until(lambda: state(hub)["state"]["delivered"] >= 10)
        publish(hub, *values[10:20])
        hub.kill()
        hub = hub_on(tmp_path, TRIED_SOON)
        publish(hub, *values[20:])
        until(lambda: {body.decode() for _, body in receiver.posts} >= set(values))
        until(lambda: ask(hub, "GET", "/v1/groups/shop/offsets?topic=orders")["offsets"][0]["lag"] == 0)
        assert "Traceback" not in hub.log()
        receiver.close()
    finally:
        hub.kill()


def test_redirects_are_not_followed(hub, receiver):
    other = Receiver()
    receiver.answer = lambda number, body: (307, {"Location": f"http://127.0.0.1:{other.port}/"})
    define(hub, receiver)
    publish(hub, "1")
    until(lambda: state(hub)["state"]["failed"] >= 3)
    other.close()
    assert other.posts == []


def raw_receiver(answer: bytes, *, forever: bytes = b"") -> tuple[socket.socket, int]:
    """Answers every connection with these bytes, and then without end with others."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                connection.sendall(answer)
                while forever:
                    connection.sendall(forever)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener, listener.getsockname()[1]


@pytest.mark.parametrize(("answer", "forever", "delivered"), [
    (b"nonsense\r\n\r\n", b"", False), (b"", b"", False), (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", False),
    (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000, b"", False),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"4000\r\n" + b"x" * 0x4000 + b"\r\n", True),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", b"x", True),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense", b"", False),
])
def test_an_answer_can_do_no_harm(hub, answer, forever, delivered):
    listener, port = raw_receiver(answer, forever=forever)
    fake = type("Fake", (), {"port": port})()
    define(hub, fake)
    publish(hub, "1")
    until(lambda: state(hub)["state"]["delivered" if delivered else "failed"] >= 1)
    listener.close()
    assert "Traceback" not in hub.log()


def test_a_receiver_that_says_nothing_is_waited_for_no_longer_than_asked(hub):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        define(hub, type("Fake", (), {"port": silent.getsockname()[1]})(), timeout=0.3)
        publish(hub, "1")
        until(lambda: state(hub)["state"]["failed"] >= 1)
        assert state(hub)["state"]["last"] == "no answer in time"


def test_what_is_not_allowed_is_not_connected_to(tmp_path, receiver):
    """This machine's name, which resolves to an address of its own: the URL looks harmless, the socket is refused."""
    hub = hub_on(tmp_path, 'webhook_allow = ["http://192.0.2.0/24"]\n')
    try:
        ask(hub, "PUT", "/v1/groups/shop", {"retry": [50], "max_attempts": 3})
        url = f"http://{socket.gethostname()}:{receiver.port}/"
        assert ask(hub, "PUT", "/v1/webhooks/shop", {"url": url, "topic": "orders", "group": "shop"})["name"] == "shop"
        publish(hub, "1")
        until(lambda: state(hub)["state"]["failed"] >= 1)
        assert "no public address" in state(hub)["state"]["last"]
        assert receiver.posts == []
        for forbidden in (f"http://127.0.0.1:{receiver.port}/", f"http://localhost:{receiver.port}/",
                          "https://127.0.0.1/", "https://[::1]/", "https://0.0.0.0/"):
            refused = ask(hub, "PUT", "/v1/webhooks/x", {"url": forbidden, "topic": "orders"})
            assert refused["code"] == "forbidden_url"
    finally:
        hub.kill()


def test_a_dead_receiver_is_asked_now_and_then_and_gets_everything_once_it_is_back(tmp_path, receiver) -> None:
    hub = hub_on(tmp_path, ALLOW + "webhook_open_s = 0.5\n")
    try:
        back = threading.Event()
        receiver.answer = lambda number, body: (204, {}) if back.is_set() else (500, {})
        define(hub, receiver, concurrency=1)
        ask(hub, "PUT", "/v1/groups/shop", {"retry": [0], "max_attempts": 0})
        publish(hub, *(str(number) for number in range(200)))
        until(lambda: state(hub)["state"]["circuit_opened"] >= 3)      # 0.5 s, 1 s: probes that failed
        assert len(receiver.posts) == 5 + 2
        told = state(hub)["state"]
        assert (told["circuit"], told["circuit_by_hand"]) == ("open", False) and told["circuit_until"] > time.time()
        back.set()
        until(lambda: state(hub)["state"]["delivered"] == 200)
        assert state(hub)["state"]["circuit"] == "closed"
        assert sorted({body for _, body in receiver.posts}) == sorted(str(number).encode() for number in range(200))
        page = urllib.request.urlopen(f"http://127.0.0.1:{hub.port('http')}/metrics").read().decode()
        assert 'event="webhook_circuit_closed"} 1' in page
    finally:
        hub.kill()


def test_of_several_targets_one_that_fails_is_isolated_and_the_others_get_everything(tmp_path, receiver) -> None:
    hub, dead = hub_on(tmp_path, ALLOW + "webhook_open_s = 3600.0\n"), Receiver()
    try:
        dead.answer = lambda number, body: (500, {})
        define(hub, receiver, concurrency=1, more_urls=[f"http://127.0.0.1:{dead.port}/hook"])
        ask(hub, "PUT", "/v1/groups/shop", {"retry": [0], "max_attempts": 0})
        publish(hub, *(str(number) for number in range(100)))
        until(lambda: state(hub)["state"]["delivered"] == 100)
        assert len(dead.posts) == 5
        told = state(hub)["state"]
        assert told["circuit"] == "closed" and [target["circuit"] for target in told["targets"]] == ["closed", "open"]
        assert ask(hub, "GET", "/v1/circuits/webhook:shop:2")["reason"] == "500"
        dead.answer = lambda number, body: (204, {})
        ask(hub, "PUT", "/v1/circuits/webhook:shop:2", {"circuit": "closed"})
        publish(hub, "1", "2")
        until(lambda: len(dead.posts) == 6)
    finally:
        hub.kill()
        dead.close()


def test_what_goes_to_a_webhook_is_limited_as_what_goes_to_anybody(hub, receiver) -> None:
    times: list[float] = []
    receiver.answer = lambda number, body: (times.append(time.monotonic()), (204, {}))[1]
    limit = ask(hub, "POST", "/v1/limits", {"of": "consumers:shop", "direction": "out", "messages_per_s": 10,
                                            "messages_burst": 5})["id"]
    define(hub, receiver)
    publish(hub, *(str(number) for number in range(20)))
    receiver.wait(20)
    assert times[-1] - times[0] > 0.7                            # ten beyond burst and concurrency, at ten a second
    used = ask(hub, "GET", f"/v1/limits/{limit}")["used"]
    ask(hub, "DELETE", f"/v1/limits/{limit}")
    assert [one["messages"] for one in used] == [20]


def test_a_circuit_is_opened_and_closed_by_hand(hub, receiver) -> None:
    define(hub, receiver)
    until(lambda: state(hub)["state"]["connected"])
    assert ask(hub, "PUT", "/v1/circuits/webhook:shop", {"circuit": "open"})["by_hand"] is True
    publish(hub, "waits")
    assert ask(hub, "PUT", "/v1/circuits/webhook:shop", {"circuit": "ajar"})["code"] == "invalid_body"
    assert not receiver.posts
    ask(hub, "PUT", "/v1/circuits/webhook:shop", {"circuit": "closed"})
    assert receiver.wait(1)[0][1] == b"waits"
    assert ask(hub, "PUT", "/v1/circuits/webhook:none", {"circuit": "open"})["code"] == "unknown_circuit"
