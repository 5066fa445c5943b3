"""Two hubs and a meeting point as processes, for tests that need the real thing."""
from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.running_hub import DEADLINE_S, ROOT, RunningHub, free_port

COMMAND = "from gatehouse.cli.main import main; main()"


class RunningRelay:
    """A meeting point; it stops with `kill`, and another one can be started on its port."""

    def __init__(self, folder: Path, port: int, hubs: dict[str, str], topics: list[str],
                 prefix: tuple[str, ...] = (), more: str = "", name: str = "127.0.0.1",
                 host: str = "127.0.0.1", of_links: str = "") -> None:
        self.port = port
        self.prefix = prefix
        self.file = folder / "relay.toml"
        self.head = f'[relay]\nname = "{name}"\nlisten = "{host}:{port}"\n{more}'
        self.of_links = of_links
        self.log = folder / "relay.log"
        self.write(hubs, topics)
        self.start()

    def write(self, hubs: dict[str, str], topics: list[str]) -> None:
        tables = [self.head]
        tables += [f'[[hubs]]\nname = "{hub}"\nkeys = ["{key}"]\n' for hub, key in hubs.items()]
        names = list(hubs)
        tables += [f"[[links]]\nhubs = {json.dumps([a, b])}\ntopics = {json.dumps(topics)}\n{self.of_links}"
                   for i, a in enumerate(names) for b in names[i + 1:]]
        self.file.write_text("".join(tables))

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-c", COMMAND, "relay", "serve", "--config", str(self.file)],
                stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "gatehouse relay ready\n":
                return
        raise AssertionError(f"the relay ended: {self.log.read_text()}")

    def reload(self) -> None:
        """Have it read its file again. The command may be inside another one that changes the network: that executes
        it in its own process."""
        self.process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


def hub_config(url: str, links: str, doors: str = "", more: str = "") -> str:
    """A hub with an HTTP door whose port stays the same, and these links."""
    return (f'[gateways.http]\nlisten = ["127.0.0.1:{free_port()}"]\n{doors}'
            f'[relay]\nurl = "{url}"\n{more}{links}')


def ask(hub: RunningHub, method: str, path: str, document: Any = None, body: bytes | None = None) -> Any:
    """One call of a hub's HTTP door."""
    data = body if document is None else json.dumps(document).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}{path}", data=data, method=method)
    if document is not None:
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def key_of(hub: RunningHub) -> str:
    return str(ask(hub, "GET", "/v1/relay")["key"])


def link_of(hub: RunningHub, name: str = "link") -> Any:
    return ask(hub, "GET", f"/v1/relay/links/{name}")


def read_all(hub: RunningHub, topic: str) -> list[dict[str, Any]]:
    """Every message of a topic, partition by partition."""
    messages: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = ask(hub, "GET", f"/v1/topics/{topic}/messages?max=1000&from=earliest" if not cursor else
                   f"/v1/topics/{topic}/messages?max=1000&cursor={cursor}")
        messages += page["messages"]
        if not page["messages"]:
            return messages
        cursor = page["cursor"]
