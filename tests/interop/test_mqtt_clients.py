"""MQTT clients that are not among the locks: Eclipse Paho for Java and for Go, amqtt, MQTT.js in a page of a real
browser.

What they need is fetched once by scripts/stock_clients.py.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from scripts.stock_clients import amqtt, has_recent_go, mqtt_js, paho_go, paho_java
from tests.console.browser import Browser, Tab
from tests.interop.test_mqtt_sessions import Hub, Paho, hub
from tests.running_hub import RunningHub, free_port

WAIT_S = 60
VALUES = [b"%d" % at for at in range(50)]
AMQTT_SLEEPER = Path(__file__).parent / "mqtt" / "amqtt_sleeper.py"

__all__ = ["hub"]


def sender_of(hub: Hub) -> Paho:
    sender = Paho(hub, "sender", MQTTProtocolVersion.MQTTv5, keeps=False)
    sender.connect()
    return sender


class Program:
    """A client's program, once its filter stands."""

    def __init__(self, *command: object, environment: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, text=True, env={**os.environ, **(environment or {})})
        assert self._process.stdout is not None
        self._said = self._process.stdout
        first = self._said.readline()
        assert first == "subscribed\n", first + self._said.read()

    def lines(self) -> list[str]:
        """What it has printed since, once it has ended."""
        said = self._said.read()
        assert self._process.wait(WAIT_S) == 0, said
        return said.splitlines()


def java(hub: Hub, version: str, qos: int, count: int) -> Program:
    folder = paho_java()
    return Program("java", "-cp", f"{folder}:{folder}/*", "Sleeper", f"tcp://127.0.0.1:{hub.port}", version,
                   f"java-{version}", "plant/#", qos, count)


@pytest.mark.parametrize("version", ["3", "5"])
@pytest.mark.parametrize("qos", [1, 2])
def test_paho_for_java_gets_what_it_missed_over_a_kill_of_the_hub(hub: Hub, version: str, qos: int) -> None:
    assert java(hub, version, qos, 0).lines() == []
    sender = sender_of(hub)
    sender.publish("plant/1", VALUES[:25], qos)
    hub.kill()
    sender.present.get(timeout=WAIT_S)
    sender.publish("plant/1", VALUES[25:], qos)
    assert java(hub, version, qos, len(VALUES)).lines() == [
        f"plant/1 {qos} {value.decode()}" for value in VALUES]
    sender.leave()


@pytest.mark.parametrize("qos", [1, 2])
def test_amqtts_client_gets_what_it_missed_over_a_kill_of_the_hub_and_answers(hub: Hub, qos: int) -> None:
    def sleeper(count: int) -> Program:
        return Program(sys.executable, AMQTT_SLEEPER, f"mqtt://127.0.0.1:{hub.port}", "amqtt", "plant/#", qos, count,
                       environment={"PYTHONPATH": str(amqtt())})

    assert sleeper(0).lines() == []
    sender = sender_of(hub)
    sender.subscribe("answers/#", 2)
    sender.publish("plant/1", VALUES[:25], qos)
    hub.kill()
    sender.present.get(timeout=WAIT_S)
    sender.subscribe("answers/#", 2)
    sender.publish("plant/1", VALUES[25:], qos)
    assert sleeper(len(VALUES)).lines() == [f"plant/1 {qos} {value.decode()}" for value in VALUES]
    assert sender.take(len(VALUES)) == [(value, 2) for value in VALUES]
    sender.leave()


@pytest.mark.parametrize("program_of", [paho_go] if has_recent_go() else [], ids=["go"] if has_recent_go() else [])
def test_paho_for_go_reads_a_history_and_answers_with_qos_2(hub: Hub, program_of: Callable[[], Path]) -> None:
    sender = sender_of(hub)
    sender.publish("plant/1", VALUES, 2)
    sender.subscribe("answers/#", 2)
    program = Program(program_of(), f"127.0.0.1:{hub.port}", "go", "plant/#", 2, len(VALUES) + 1)
    sender.publish("plant/1", [b"new"], 2)
    assert program.lines() == [f"plant/1 2 {value.decode()}" for value in [*VALUES, b"new"]]
    assert sender.take(len(VALUES) + 1) == [(value, 2) for value in [*VALUES, b"new"]]
    sender.leave()


# ---- in a browser

class BlankPage(BaseHTTPRequestHandler):
    """Somebody else's site, with nothing on it."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>a site</title>")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BlankPage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def web_hub(tmp_path_factory: pytest.TempPathFactory, site: str) -> Iterator[tuple[RunningHub, int]]:
    own = free_port()
    listener = f'{{ address = "127.0.0.1:{own}", websocket = true, origins = ["{site}"] }}'
    running = RunningHub(tmp_path_factory.mktemp("page"), f"""
        [gateways.mqtt]
        listen = ["127.0.0.1:0", {listener}]
        [gateways.http]
        listen = ["127.0.0.1:0"]
    """)
    try:
        running.wait_ready()
        yield running, own
    finally:
        running.kill()


@pytest.fixture(scope="module")
def pages(web_hub: tuple[RunningHub, int], site: str) -> Iterator[dict[str, Tab]]:
    """A page of the hub and one of the other site, with MQTT.js in both."""
    with Browser() as browser:
        tabs = {"hub": browser.open(f"http://127.0.0.1:{web_hub[0].port('http')}/docs"), "site": browser.open(site)}
        for tab in tabs.values():
            tab.evaluate(mqtt_js().read_text() + "\n;window.mqtt = mqtt; window.got = []; 0")
        yield tabs


SCRIPT = """(() => {
    window.got = [];
    const client = mqtt.connect(%s, {protocolVersion: %d, clientId: %s, clean: false, timerVariant: "native",
                                     properties: %d === 5 ? {sessionExpiryInterval: 60} : undefined});
    client.on("message", (topic, value, packet) => window.got.push(`${topic} ${packet.qos} ${value}`));
    client.on("error", (error) => window.got.push("error: " + error));
    client.on("connect", () => client.subscribe("page/#", {qos: 2}, (error, granted) => {
        window.got.push(error ? "refused: " + error : `granted ${granted[0].qos}`);
        client.publish("page/1", "hello", {qos: 2},
                       (error) => window.got.push(error ? "failed: " + error : "published"));
    }));
    window.client = client;
    return 0;
})()"""


@pytest.mark.parametrize("place", ["at the HTTP door", "at its root", "at a listener of its own"])
@pytest.mark.parametrize("version", [4, 5])
def test_mqtt_js_in_a_page(web_hub: tuple[RunningHub, int], pages: dict[str, Tab], place: str, version: int) -> None:
    http, own = web_hub[0].port("http"), web_hub[1]
    port, path, page = {"at the HTTP door": (http, "/mqtt", pages["hub"]), "at its root": (http, "/", pages["hub"]),
                        "at a listener of its own": (own, "", pages["site"])}[place]
    page.evaluate(SCRIPT % (json.dumps(f"ws://127.0.0.1:{port}{path}"), version, json.dumps(f"page {place} {version}"),
                            version))
    page.wait("window.got.length >= 3", "granted, published, and what was published")
    got = json.loads(page.evaluate("JSON.stringify(window.got)"))
    assert got[0] == "granted 2" and sorted(got[1:]) == ["page/1 2 hello", "published"]
    page.evaluate("window.client.end(true); 0")
