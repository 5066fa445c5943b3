"""A page of somebody else in a real browser, on the machine of a hub that lets everybody in: it gets nothing done."""
from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.console.browser import Browser
from tests.running_hub import RunningHub

NAME = "evil.example"


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>a page</title><body>hello"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """To which every name of the attacker is this machine."""
    with Browser(f"--host-resolver-rules=MAP {NAME} 127.0.0.1",
                 "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests") as browser:
        yield browser


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    hub = RunningHub(tmp_path_factory.mktemp("hub"), """
        [kernel]
        fsync = "never"
        [gateways.mqtt]
        listen = ["127.0.0.1:0"]
        [gateways.http]
        listen = ["127.0.0.1:0"]
    """)
    try:
        hub.wait_ready()
        yield hub
    finally:
        hub.kill()


def topics(hub: RunningHub) -> list[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.port('http')}/v1/topics") as answer:
        return [topic["name"] for topic in json.load(answer)["topics"]]


def socket_ends(url: str, subprotocol: str = "") -> str:
    named = f", {json.dumps(subprotocol)}" if subprotocol else ""
    return f"""new Promise(resolve => {{ const one = new WebSocket({json.dumps(url)}{named});
        one.onopen = () => resolve("open"); one.onerror = () => resolve("refused"); }})"""


def test_a_name_that_was_led_here(hub: RunningHub, browser: Browser) -> None:
    """DNS rebinding: to the browser the hub is the page's own server."""
    tab = browser.open(f"http://{NAME}:{hub.port('http')}/")
    assert tab.evaluate("location.hostname") == NAME
    for method, path in (("GET", "/v1/topics"), ("POST", "/v1/publish/plant"), ("PUT", "/v1/topics/plant"),
                         ("GET", "/ui/"), ("GET", "/metrics")):
        asking = f"fetch({path!r}, {{method: {method!r}}})"
        told = tab.evaluate(f"{asking}.then(async one => [one.status, await one.text()])")
        assert told[0] == 421 and "host_not_allowed" in told[1], (path, told)
    for path, subprotocol in (("/v1/ws", ""), ("/mqtt", "mqtt"), ("/amqp", "amqp")):
        assert tab.evaluate(socket_ends(f"ws://{NAME}:{hub.port('http')}{path}", subprotocol)) == "refused"
    tab.close()
    assert topics(hub) == []


def test_a_page_of_another_site(hub: RunningHub, browser: Browser) -> None:
    """Whatever a page may send without asking first: simple posts, forms, images, sockets."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{hub.port('http')}"
    try:
        tab = browser.open(f"http://{NAME}:{server.server_port}/")
        for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            tab.evaluate(f"""fetch("http://{address}/v1/publish/plant", {{method: "POST", mode: "no-cors", body: "x",
                credentials: "include", headers: {{"Content-Type": "{content_type}"}}}}).then(() => 0, () => 0)""")
        tab.evaluate(f"""new Promise(resolve => {{ const frame = document.createElement("iframe");
            frame.name = "hidden"; frame.onload = resolve; document.body.append(frame);
            const form = document.createElement("form"); form.method = "POST"; form.target = "hidden";
            form.action = "http://{address}/v1/publish/plant"; document.body.append(form); form.submit(); }})""")
        assert tab.evaluate(f"""new Promise(resolve => {{ const image = new Image();
            image.onload = () => resolve("loaded"); image.onerror = () => resolve("refused");
            image.src = "http://{address}/v1/transactions/checks?group=shop"; }})""") == "refused"
        for path, subprotocol in (("/v1/ws", ""), ("/mqtt", "mqtt"), ("/amqp", "amqp")):
            assert tab.evaluate(socket_ends(f"ws://{address}{path}", subprotocol)) == "refused"
        tab.close()
    finally:
        server.shutdown()
        server.server_close()
    assert topics(hub) == []
    with urllib.request.urlopen(f"http://{address}/metrics") as answer:
        assert 'gatehouse_events_total{door="http",event="origin_not_allowed"}' in answer.read().decode()


def test_a_page_that_may(tmp_path: Path, browser: Browser) -> None:
    """The hub's own page by its own name, and one of an origin that was allowed."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hub = RunningHub(tmp_path, f"""
        [kernel]
        fsync = "never"
        [gateways.http]
        listen = ["127.0.0.1:0"]
        cors_origins = ["http://{NAME}:{server.server_port}"]
    """)
    try:
        hub.wait_ready()
        tab = browser.open(f"http://{NAME}:{server.server_port}/")
        told = tab.evaluate(f"""fetch("http://127.0.0.1:{hub.port('http')}/v1/publish/plant", {{method: "POST",
            body: "x"}}).then(one => one.status)""")
        assert told == 201
        tab.close()
        tab = browser.open(f"http://localhost:{hub.port('http')}/ui/")
        tab.wait_text("Overview")
        assert tab.evaluate("fetch('/v1/publish/plant', {method: 'POST', body: 'y'}).then(one => one.status)") == 201
        tab.close()
    finally:
        hub.kill()
        server.shutdown()
        server.server_close()
