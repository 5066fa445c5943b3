"""The example of a door from outside, as a stranger's package: built, installed, used beside other doors."""
from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gatehouse_client import SyncClient
from tests.running_hub import COMMAND_LINE, ROOT, RunningHub

EXAMPLE = ROOT / "examples" / "gatehouse-stomp"
DOORS = "".join(f'[gateways.{door}]\nlisten = ["127.0.0.1:0"]\n' for door in ("http", "stomp"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for Python's path with the example and nothing else."""
    folder = tmp_path_factory.mktemp("stomp")
    copy = folder / "src"
    for source in EXAMPLE.rglob("*"):
        if source.is_file() and "__pycache__" not in source.parts:
            target = copy / source.relative_to(EXAMPLE)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    done = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps",
                           "--no-build-isolation", "--wheel-dir", str(folder), str(copy)],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    wheel, = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def environment(installed: Path) -> Iterator[dict[str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}{os.pathsep}{installed}")
        yield dict(os.environ)


def test_its_own_tests_pass(environment: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(EXAMPLE),
                           str(EXAMPLE / "tests")], cwd=ROOT, env=environment, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def hub(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    hub = RunningHub(tmp_path_factory.mktemp("hub"), DOORS, program=COMMAND_LINE)
    try:
        hub.wait_ready()
        yield hub
    finally:
        hub.kill()


class Peer:
    """A STOMP client: blocking, a frame at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._data = b""
        assert self.ask(b"CONNECT\naccept-version:1.2\nhost:hub\n\n\0").startswith(b"CONNECTED\nversion:1.2\n")

    def ask(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        return self.next()

    def next(self) -> bytes:
        while b"\0" not in self._data:
            more = self._socket.recv(65536)
            assert more, f"the hub hung up after {self._data!r}"
            self._data += more
        frame, _, self._data = self._data.partition(b"\0")
        return frame

    def close(self) -> None:
        self._socket.close()


def test_messages_cross_to_other_doors_and_back(hub: RunningHub) -> None:
    peer = Peer(hub.port("stomp"))
    with SyncClient(f"http://127.0.0.1:{hub.port('http')}") as http:
        subscribed = peer.ask(b"SUBSCRIBE\nid:1\ndestination:/plant/#\nreceipt:s\n\n\0")
        assert subscribed.startswith(b"RECEIPT\nreceipt-id:s\n")
        http.publish("plant/line1/temp", b"21.5", content_type="text/plain", headers=[("unit", "C")])
        frame = peer.next()
        assert b"\ndestination:/plant/line1/temp\n" in frame and frame.endswith(b"\n\n21.5")
        assert b"\ncontent-type:text/plain\n" in frame and b"\nunit:C\n" in frame
        sent = b"SEND\ndestination:/plant/line1/temp\ncontent-type:text/css\nunit:F\nreceipt:m\n\n70.7\0"
        answers = {peer.ask(sent).partition(b"\n")[0], peer.next().partition(b"\n")[0]}
        assert answers == {b"RECEIPT", b"MESSAGE"}
        message = list(http.read("plant"))[-1]
        assert (message.address, message.text, message.door) == ("plant/line1/temp", "70.7", "stomp")
        assert (message.properties["content_type"], message.header("unit")) == ("text/css", b"F")
    peer.close()


def test_people_see_it_like_any_other_door(hub: RunningHub, environment: dict[str, str]) -> None:
    peer = Peer(hub.port("stomp"))
    peer.ask(b"SUBSCRIBE\nid:1\ndestination:/plant/#\nreceipt:s\n\n\0")
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.port('http')}/metrics") as answer:
        assert 'gatehouse_connections{door="stomp"} 1.0' in answer.read().decode()
    peer.close()
    config = ["--config", str(hub.folder / "gateways.toml")]
    done = subprocess.run([sys.executable, "-c", COMMAND_LINE, "explain", "stomp:/plant/line1/temp", "--json", *config],
                          env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    explained = json.loads(done.stdout)
    assert (explained["topic"], explained["doors"]["stomp"]) == ("plant", {"destination": "/plant/line1/temp"})
    assert explained["survives"]["stomp"]["lost"] == []
    assert "retain" in explained["survives"]["mqtt3"]["carried"]
    done = subprocess.run([sys.executable, "-c", COMMAND_LINE, "explain", "mqtt:plant/line1/temp", *config],
                          env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "STOMP" in done.stdout and "/plant/line1/temp" in done.stdout and "MQTT 3.1.1 to STOMP 1.2" in done.stdout
