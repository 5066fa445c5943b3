"""What systemd is told, and that nobody is told anything where nobody asked."""
from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from gatehouse.notify import Watchdog, notify, watchdog_s
from tests.gatehouse.test_rates import FakeLoop
from tests.running_hub import DEADLINE_S, RunningHub, config_of


@pytest.fixture
def listener(tmp_path: Path):  # type: ignore[no-untyped-def]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(DEADLINE_S)
        yield listener


def test_a_hub_tells_that_it_is_ready_alive_and_stopping(listener: socket.socket, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "3600000000")
    hub = RunningHub(tmp_path, config_of(("http",)))
    hub.wait_ready()
    assert hub.stop(signal.SIGTERM)[0] == 0
    assert [listener.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_signs_of_life_are_given_until_they_are_stopped(listener: socket.socket, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Few: a system keeps ten datagrams for who does not read them, and drops the others."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    loop = FakeLoop()
    watchdog = Watchdog(loop, 30.0)                 # type: ignore[arg-type]
    watchdog.start()
    loop.tick()
    loop.tick()
    assert [listener.recv(100) for _ in range(3)] == 3 * [b"WATCHDOG=1"]
    assert loop.now_s == 60.0
    watchdog.stop()
    assert loop.waiting is None


def test_a_hub_tells_when_a_reload_begins_and_ends(listener: socket.socket, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    hub = RunningHub(tmp_path, config_of(("http",)))
    hub.wait_ready()
    hub.process.send_signal(signal.SIGHUP)
    told = [listener.recv(100) for _ in range(3)]
    (tmp_path / "gateways.toml").write_text("[kernal]")
    hub.process.send_signal(signal.SIGHUP)
    told += [listener.recv(100) for _ in range(2)]
    hub.kill()
    assert [line.partition(b"\n")[0] for line in told] == [b"READY=1", *2 * (b"RELOADING=1", b"READY=1")]
    assert told[1].partition(b"\nMONOTONIC_USEC=")[2].isdigit()


def test_abstract_sockets() -> None:
    name = f"gatehouse-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + name)
        notify("READY=1", {"NOTIFY_SOCKET": "@" + name})
        assert listener.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "relative", "/nobody/listens/here"])
def test_nobody_listens(address: str) -> None:
    notify("READY=1", {"NOTIFY_SOCKET": address})
    notify("READY=1", {})


@pytest.mark.parametrize(("environ", "seconds"), [
    ({}, 0.0), ({"WATCHDOG_USEC": "60000000"}, 30.0), ({"WATCHDOG_USEC": "soon"}, 0.0),
    ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
    ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, 0.0)])
def test_how_often_signs_of_life_are_wanted(environ: dict[str, str], seconds: float) -> None:
    assert watchdog_s(environ) == seconds
