"""Streams of messages when things go wrong: the hub is killed under its readers, a thousand readers stop reading."""
from __future__ import annotations

import json
import resource
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from tests.faults.sse_reader import SseReader
from tests.running_hub import RunningHub, config_of, free_port

MESSAGES = 600
ROUNDS = 4
READERS = 1000
MIB = 1 << 20


def hub_on(folder: Path, port: int, settings: str = "") -> RunningHub:
    config = config_of(("http",), "").replace('"127.0.0.1:0"', f'"127.0.0.1:{port}"')
    hub = RunningHub(folder, config + settings)
    hub.wait_ready()
    return hub


class Resuming:
    """Reads to the end over however many connections it takes."""

    def __init__(self, port: int, target: str, count: int) -> None:
        self.values: list[str] = []
        self._port, self._target, self._count = port, target, count
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        last_id = ""
        while len(self.values) < self._count:
            try:
                reader = SseReader(self._port, self._target, last_id)
            except OSError:
                time.sleep(0.05)
                continue
            try:
                reader.read_until(self._count - len(self.values))
            except OSError:
                pass                     # the hub was killed: what came is kept, and the place after it
            reader.close()
            self.values += [message["value"] for message in reader.messages]
            last_id = reader.last_id

    def join(self) -> list[str]:
        self._thread.join(120)
        return self.values


def publish(port: int, messages: list[dict[str, str]]) -> None:
    body = json.dumps({"messages": messages}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/publish", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 201


def test_readers_lose_and_repeat_nothing_while_the_hub_is_killed(tmp_path):
    port = free_port()
    hub = hub_on(tmp_path, port)
    readers = [Resuming(port, target, MESSAGES) for target in (
        "/v1/topics/plant/events?from=earliest", "/v1/events?filter=plant/%23&from=earliest",
        "/v1/topics/plant/events?from=earliest&filter=key%20%3C%3E%20'x'")]
    for number in range(ROUNDS):
        for start in range(number * MESSAGES // ROUNDS, (number + 1) * MESSAGES // ROUNDS, 10):
            publish(port, [{"address": f"plant/{at % 7}", "value": f"{at}"} for at in range(start, start + 10)])
        hub.kill()
        hub = hub_on(tmp_path, port)
    try:
        for reader in readers:
            values = reader.join()
            assert sorted(values, key=int) == [str(number) for number in range(MESSAGES)]
            for key in range(7):
                of_key = [int(value) for value in values if int(value) % 7 == key]
                assert of_key == sorted(of_key)
    finally:
        hub.kill()


def rss_bytes(hub: RunningHub) -> int:
    text = Path(f"/proc/{hub.process.pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


@pytest.mark.usefixtures("many_descriptors")
def test_a_thousand_readers_that_stop_reading_harm_nobody(tmp_path):
    hub = hub_on(tmp_path, free_port(), "stall_timeout_s = 3600\n")
    port = hub.port("http")
    stalled = [SseReader(port, "/v1/topics/plant/events", receive_bytes=4096) for _ in range(READERS)]
    lively = SseReader(port, "/v1/topics/plant/events")
    try:
        before = rss_bytes(hub)
        for number in range(200):
            publish(port, [{"address": f"plant/{at}", "value": "x" * 8000} for at in range(10)])
            lively.read_until(number * 10)
        lively.read_until(2000)
        grown = rss_bytes(hub) - before
        assert grown < 400 * MIB, f"{grown / MIB:.0f} MiB for {READERS} readers of 16 MB each"
        stalled[0].read_until(2000)
        offsets: dict[int, list[int]] = {}
        for message in stalled[0].messages:
            offsets.setdefault(message["partition"], []).append(message["offset"])
        assert all(mine == list(range(len(mine))) for mine in offsets.values())
    finally:
        for reader in stalled:
            reader.close()
        lively.close()
        hub.kill()


@pytest.fixture
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
