"""`make demo` without a person: what its page would show comes back by the doors, and Ctrl-C leaves nothing running."""
from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import paho.mqtt.client as mqtt
import psutil
import pytest
from deltalake import DeltaTable
from paho.mqtt.enums import CallbackAPIVersion

from gatehouse.spark.jobs import delta
from tests.running_hub import ROOT
from tests.spark.session import WORKERS
from tests.waiting import until

DEADLINE_S = 600
PROGRAM = """
from gatehouse.demo import __main__, stage
from tests.running_hub import free_port

stage.free_port = lambda wanted: free_port()      # nobody else gets them before the hub listens
__main__.demo.main(prog_name="demo")
"""
QUICK_START = WORKERS | {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""A demo of seconds never earns back what an optimising compiler costs."""
ROUNDING = 1e-9
"""The mean of equal numbers is not always that number."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """The demo on free ports, its instructions read; ended by each test's own means, killed where it was not."""
    folder = tmp_path_factory.mktemp("demo")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--any-ports", "--folder", str(folder / "data")], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | QUICK_START)
    yield process
    if process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
    process.wait()


def instructions(process: subprocess.Popen[str]) -> str:
    """Everything that it prints until it runs."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("Ctrl-C stops it"):
            return "".join(lines)
    raise AssertionError("".join(lines))


class Listener:
    """A stock MQTT client that waits for statistics."""

    def __init__(self, port: int) -> None:
        self.first: dict[str, Any] = {}
        self.came = threading.Event()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self._client.on_connect = lambda client, *_: client.subscribe("statistics/machine/cpu/#", 1)
        self._client.on_message = self._on_message
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def _on_message(self, client: object, userdata: object, message: mqtt.MQTTMessage) -> None:
        value = json.loads(message.payload)
        if value["address"] == "machine/cpu/total/percent" and value["count"] > 1:
            self.first = value
            self.came.set()

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.mark.timeout(1800)
def test_everything_moves_and_ends(demo: subprocess.Popen[str]):
    said = instructions(demo)
    page_url = re.search(r"^open +(\S+)$", said, re.MULTILINE)[1]
    hub_url = re.search(r"curl '(\S+)/v1/", said)[1]
    folder = Path(re.search(r"^logs and data: (.+)$", said, re.MULTILINE)[1])
    listener = Listener(int(re.search(r"mosquitto_sub -p (\d+)", said)[1]))
    try:
        until(lambda: listener.came.is_set() or demo.poll() is not None, within_s=DEADLINE_S)
        assert listener.came.is_set(), (folder / "spark.log").read_text()
    finally:
        listener.close()
    assert 0 <= listener.first["min"] <= listener.first["max"] <= 100
    assert listener.first["min"] - ROUNDING <= listener.first["mean"] <= listener.first["max"] + ROUNDING
    check_page(page_url, hub_url)
    check_doors(hub_url)
    first = until(lambda: delta.open_table(folder / "archive"), within_s=DEADLINE_S)
    until(lambda: DeltaTable(first.table_uri).version() > first.version() + 1, within_s=DEADLINE_S)
    until(lambda: DeltaTable(first.table_uri).count() > first.count(), within_s=DEADLINE_S)     # commits may join files
    children = psutil.Process(demo.pid).children(recursive=True)
    assert len(children) >= 3
    demo.send_signal(signal.SIGINT)
    assert demo.wait(DEADLINE_S) == 0
    assert "stopped" in demo.stdout.read()
    _, alive = psutil.wait_procs(children, timeout=DEADLINE_S)
    assert alive == []
    assert "Traceback" not in (folder / "hub.log").read_text() + (folder / "spark.log").read_text()


def check_page(page_url: str, hub_url: str) -> None:
    """The page is served, and the hub lets it ask."""
    with urlopen(page_url) as answer:
        assert hub_url in answer.read().decode()
    origin = page_url.rstrip("/")
    with urlopen(Request(f"{hub_url}/v1/topics/statistics/messages?max=1", headers={"Origin": origin})) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == origin
        assert json.load(answer)["messages"]


def check_doors(hub_url: str) -> None:
    """Readings came over MQTT, events over Kafka and HTTP."""
    def doors(topic: str) -> set[str]:
        with urlopen(f"{hub_url}/v1/topics/{topic}/messages?max=1000") as answer:
            return {message["door"] for message in json.load(answer)["messages"]}
    assert doors("machine") == {"mqtt"}
    until(lambda: doors("events") == {"kafka", "http"})
