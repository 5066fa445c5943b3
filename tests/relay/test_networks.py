"""Two networks that reach only the meeting point: TLS, a proxy that must be asked, cuts under load, kills of everybody.

Run as root on Linux this is in network namespaces, one behind a wire that delays, loses and doubles frames; elsewhere
on loopback, with the faulty proxy alone, and it says so. B's clock is an hour ahead.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.relay.namespaces import Namespaces, namespaces
from tests.relay.processes import COMMAND, RunningRelay
from tests.running_hub import DEADLINE_S, ROOT, free_port
from tests.waiting import until

KEYS = 5
BURST = 40
BURST_S = 2.0              # between two of them while a network is cut for long
HOUR_S = 3600
LIVES_S = 1800
CUT_S = float(os.environ.get("GATEHOUSE_CUT_S", "0"))
"""So long is a network cut, under load; without it for one burst. `make soak` says ten minutes."""


class Inside:
    """A hub in one of the networks, and somebody beside it who asks it."""

    def __init__(self, folder: Path, prefix: tuple[str, ...], config: str, clock_s: float = 0) -> None:
        folder.mkdir()
        self.command = f"from tests.faults.sabotage import clock; clock([[0, {clock_s}]]); {COMMAND}"
        self.folder, self.prefix = folder, prefix
        self.file = folder / "gateways.toml"
        self.port, self.mqtt, self.amqp = free_port(), free_port(), free_port()
        self.file.write_text("".join(f'[gateways.{door}]\nlisten = ["127.0.0.1:{port}"]\n' for door, port in (
            ("http", self.port), ("mqtt", self.mqtt), ("amqp", self.amqp))) + config)
        self.start()
        self.asker = subprocess.Popen([*prefix, sys.executable, "-m", "tests.relay.asker"], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def start(self) -> None:
        with (self.folder / "hub.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-c", self.command, "serve", "--config", str(self.file)],
                stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "gatehouse ready\n":
                return
        raise AssertionError((self.folder / "hub.log").read_text())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def end(self) -> None:
        self.kill()
        assert self.asker.stdin is not None and self.asker.stdout is not None
        self.asker.stdin.close()
        self.asker.wait(DEADLINE_S)
        self.asker.stdout.close()

    def ask(self, method: str, path: str, text: str | None = None, **headers: str) -> tuple[int, str]:
        assert self.asker.stdin is not None and self.asker.stdout is not None
        self.asker.stdin.write(json.dumps([method, f"http://127.0.0.1:{self.port}{path}", text, headers]) + "\n")
        self.asker.stdin.flush()
        status, body = json.loads(self.asker.stdout.readline())
        return status, body

    def document(self, method: str, path: str, text: str | None = None, **headers: str) -> Any:
        status, body = self.ask(method, path, text, **headers)
        assert status < 300, (status, body)
        return json.loads(body)

    @contextmanager
    def answering(self, who: str, port: int, wanted: str) -> Iterator[Iterator[str]]:
        """Somebody beside the hub who answers requests: the lines in which he says what he was asked."""
        with subprocess.Popen([*self.prefix, sys.executable, "-m", "tests.relay.answering", who, str(port), wanted],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdin is not None and process.stdout is not None
            try:
                assert process.stdout.readline() == "ready\n"
                yield process.stdout
            finally:
                process.stdin.close()
                process.wait(DEADLINE_S)

    def request(self, address: str, text: str, reply_to: str) -> Any:
        """What answers it: one message."""
        return self.document("POST", f"/v1/request/{address}?wait=30", text, **{"X-Reply-To": reply_to})

    def link(self) -> Any:
        return self.document("GET", "/v1/relay/links/link")

    def says(self, fault: str) -> bool:
        return fault in self.document("GET", "/v1/relay")["fault"]

    def values(self, topic: str) -> list[tuple[str, str]]:
        """(address, value) of every message, partition by partition."""
        values: list[tuple[str, str]] = []
        cursor = "from=earliest"
        while True:
            page = self.document("GET", f"/v1/topics/{topic}/messages?max=1000&{cursor}")
            values += [(message["address"], message["value"]) for message in page["messages"]]
            if not page["messages"]:
                return values
            cursor = f"cursor={page['cursor']}"


class Two:
    """Both networks, and what stands between them."""

    def __init__(self, folder: Path, spaces: Namespaces | None) -> None:
        self.spaces = spaces
        self.port, self.faulty_port, self.proxy_port = free_port(), free_port(), free_port()
        self.host = "127.0.0.1" if spaces is None else spaces.meeting
        proxy = "127.0.0.1" if spaces is None else spaces.proxy
        authority = Authority(folder)
        pair = authority.server(addresses=(self.host,))
        between = () if spaces is None else spaces.inside("m")
        self.extra = [self._proxy(between, "faulty", f"{self.host}:{self.faulty_port}", f"{self.host}:{self.port}"),
                      self._proxy(between, "connect", f"{proxy}:{self.proxy_port}")]
        table = '[relay]\nurl = "wss://{host}:{port}/v1/relay"\nca = "{ca}"\n{more}[[relay.links]]\nname = "link"\n'
        common = {"host": self.host, "port": self.faulty_port, "ca": authority.file}
        self.a = Inside(folder / "a", () if spaces is None else spaces.inside("a"),
                        table.format(**common, more="") + 'send = ["plant/#"]\nreceive = ["orders/#"]\n')
        by_proxy = f'proxy = "http://{proxy}:{self.proxy_port}"\n'
        self.b = Inside(folder / "b", () if spaces is None else spaces.inside("b"),
                        table.format(**common, more=by_proxy) + 'send = ["orders/#"]\nreceive = ["plant/#"]\n', HOUR_S)
        keys = {side: hub.document("GET", "/v1/relay")["key"] for side, hub in (("a", self.a), ("b", self.b))}
        self.relay = RunningRelay(
            folder, self.port, keys, ["plant", "orders"], between, f'cert = "{pair.cert}"\nkey = "{pair.key}"\n',
            self.host, self.host)

    @staticmethod
    def _proxy(prefix: tuple[str, ...], *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([*prefix, sys.executable, "-m", "tests.relay.proxies", *words],
                                   stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def join(self) -> None:
        # One side's invitation names where that side dials; both dial the same here.
        invitation = self.a.document("POST", "/v1/relay/links/link/invite", "{}")["invitation"]
        self.b.document("POST", "/v1/relay/join", json.dumps({"invitation": invitation}))
        self.wait_open()

    def wait_open(self) -> None:
        until(lambda: self.a.link()["state"] == self.b.link()["state"] == "open",
                 lambda: (self.a.link(), self.b.link()))

    def settled(self) -> bool:
        a, b = self.a.link(), self.b.link()
        return a["lag"]["messages"] == b["lag"]["messages"] == 0

    def end(self) -> None:
        for hub in (self.a, self.b):
            hub.end()
        self.relay.kill()
        for process in self.extra:
            process.kill()
            process.wait(DEADLINE_S)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def two(tmp_path: Path, record_property: Callable[[str, object], None]) -> Iterator[Two]:
    """The summary of all tests says of which kind they were."""
    spaces = namespaces()
    record_property("networks", "loopback with a faulty proxy" if spaces is None else spaces.kind)
    two = None
    try:
        two = Two(tmp_path, spaces)
        yield two
    finally:
        if two is not None:
            two.end()
        if spaces is not None:
            spaces.remove()


def test_every_acknowledged_message_arrives_once_in_order(two: Two) -> None:
    if two.spaces is not None:
        assert not two.spaces.reaches("a", "10.99.2.2", two.b.port), "the networks do not reach each other"
        assert not two.spaces.reaches("b", two.spaces.meeting, two.port), "B has no way but the proxy"
    two.join()
    acknowledged: Counter[str] = Counter()
    number = 0

    def load() -> None:
        nonlocal number
        for _ in range(BURST):
            value = f"{number:06d}{'x' * 2_000}"
            status, _ = two.a.ask("POST", f"/v1/publish/plant/{number % KEYS}", value, **{
                "X-Retain": "true", "X-Expires-In": str(LIVES_S)})
            acknowledged[value] += status == 201
            number += 1

    load()
    for trouble in ("cut", "relay", "a", "b"):
        load()
        if trouble == "cut" and two.spaces is not None:
            two.spaces.cut("a")
            end_s = time.monotonic() + CUT_S
            load()
            while time.monotonic() < end_s:
                time.sleep(BURST_S)          # the faulty way carries half a megabyte in each connection
                load()
            two.spaces.mend("a")
        elif trouble == "relay":
            two.relay.kill()
            load()
            two.relay.start()
        elif trouble == "a":
            two.a.kill()
            two.a.start()
        elif trouble == "b":
            until(lambda: two.a.link()["sessions"] > 0, two.a.link)     # A counts from its own start on
            two.b.kill()
            load()
            two.b.start()
        load()
    two.b.document("POST", "/v1/publish/orders/1", "back")
    until(two.settled, lambda: (two.a.link(), two.b.link()), 120 + CUT_S)
    came = two.b.values("plant")
    assert Counter(value for _, value in came) == acknowledged
    for key in range(KEYS):
        mine = [value for address, value in came if address == f"plant/{key}"]
        assert mine == sorted(mine), "in the order of each key"
    assert two.a.values("orders") == [("orders/1", "back")]
    retained = [sorted((value["address"], value["value"]) for value in hub.document(
        "GET", "/v1/retained/plant/+")["messages"]) for hub in (two.a, two.b)]
    assert len(retained[0]) == KEYS and retained[0] == retained[1], "half an hour is left by either clock"
    sessions = two.a.link()["sessions"] + two.b.link()["sessions"]
    assert sessions > 2, "the way between the hubs broke"


def test_requests_cross_and_are_answered_by_a_device_and_by_an_application(two: Two) -> None:
    two.join()
    with two.a.answering("device", two.a.mqtt, "orders/#") as asked, \
            two.b.answering("worker", two.b.amqp, "plant.jobs.#") as heard:
        two.a.document("POST", "/v1/publish/plant/jobs/reading", "21.5")
        assert next(heard) == "plant.jobs.reading 21.5\n"
        answer = two.b.request("orders/7", "open", "plant/answers/b")
        assert (answer["value"], answer["address"]) == ("device: open", "plant/answers/b")
        assert next(asked) == "orders/7 open\n"
        answer = two.a.request("plant/jobs/add", "1+1", "orders/answers/a")
        assert (answer["value"], answer["address"]) == ("worker: 1+1", "orders/answers/a")
        assert next(heard) == "plant.jobs.add 1+1\n"


def test_who_is_withdrawn_in_flight_is_let_go(two: Two) -> None:
    two.join()
    two.relay.write({"a": two.a.document("GET", "/v1/relay")["key"]}, ["plant", "orders"])
    two.relay.reload()
    until(lambda: two.b.document("GET", "/v1/relay")["state"] == "offline", lambda: two.b.link())
    two.a.document("POST", "/v1/publish/plant/1", "not yours")
    until(lambda: "not know this hub" in two.b.document("GET", "/v1/relay")["fault"],
             lambda: two.b.document("GET", "/v1/relay"))
    assert two.b.ask("GET", "/v1/topics/plant/messages")[0] == 404
    assert two.a.link()["lag"]["messages"] == 1


def test_a_man_in_the_middle_with_another_certificate_hears_nothing(two: Two, tmp_path: Path) -> None:
    """He answers in place of the meeting point, with a certificate for its name that somebody else signed."""
    two.join()
    two.relay.kill()
    (tmp_path / "other").mkdir()
    pair = Authority(tmp_path / "other", "Another Authority").server(addresses=(two.host,))
    two.relay.head = "".join(f"{line}\n" for line in two.relay.head.splitlines()
                             if not line.startswith(("cert", "key"))) \
        + f'cert = "{pair.cert}"\nkey = "{pair.key}"\n'
    two.relay.write({side: hub.document("GET", "/v1/relay")["key"] for side, hub in (("a", two.a), ("b", two.b))},
                    ["plant", "orders"])
    before = len(two.relay.log.read_text())
    two.relay.start()
    two.a.document("POST", "/v1/publish/plant/1", "not for him")
    for hub in (two.a, two.b):
        until(partial(hub.says, "certificate verify failed"), partial(hub.document, "GET", "/v1/relay"))
        assert "\n" not in hub.document("GET", "/v1/relay")["fault"]
    assert two.b.ask("GET", "/v1/topics/plant/messages")[0] == 404
    assert "is here" not in two.relay.log.read_text()[before:]
