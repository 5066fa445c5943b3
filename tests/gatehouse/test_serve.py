"""Real hubs as processes: start, refuse to start, reload, stop."""
from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gatehouse import exits

# MQTT 3.1.1 by hand: a client `test`, and a QoS 1 publish of `z` to `a/b` under packet id 1.
CONNECT = bytes.fromhex("101000044d5154540402003c0004") + b"test"
CONNACK = bytes.fromhex("20020000")
PUBLISH = bytes.fromhex("32080003612f6200017a")
PUBACK = bytes.fromhex("40020001")

FAILING_DISK = """
import errno, os, sys
from pathlib import Path
import kernel.disk

sync = kernel.disk.RealAppendFile.sync

def sync_or_fail(self):
    if Path('{sign}').exists():
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    sync(self)

kernel.disk.RealAppendFile.sync = sync_or_fail
from gatehouse.cli import main
main()
"""

CONFIG = '[kernel]\nfsync = "never"\n[gateways.mqtt]\nlisten = ["127.0.0.1:0"]\n'
DEADLINE_S = 30


class Hub:
    """A hub that has been started."""

    def __init__(self, folder: Path, config: str, arguments: tuple[str, ...], program: str) -> None:
        (folder / "gateways.toml").write_text(config)
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", "--config", str(folder / "gateways.toml"), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        self.lines: list[str] = []

    def wait_ready(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line == "gatehouse ready\n":
                return
        raise AssertionError(f"the hub ended: {self.process.stderr.read()}")

    @property
    def port(self) -> int:
        return int(self.lines[0].rpartition(":")[2])

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit code and standard error."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, said


@pytest.fixture
def start(tmp_path):
    started: list[Hub] = []

    def start(config: str = CONFIG, *arguments: str, ready: bool = True,
              program: str = "from gatehouse.cli import main; main()") -> Hub:
        hub = Hub(tmp_path, config, arguments, program)
        started.append(hub)
        if ready:
            hub.wait_ready()
        return hub

    yield start
    for hub in started:
        if hub.process.poll() is None:
            hub.process.kill()
        hub.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_hub_starts_and_stops_when_told(start, number):
    hub = start()
    assert hub.lines == [f"mqtt listens on 127.0.0.1:{hub.port}", "gatehouse ready"]
    code, said = hub.end(number)
    assert code == exits.OK
    assert "Traceback" not in said
    assert "room for" in said


def test_an_idle_connection_does_not_hold_up_the_stop(start):
    hub = start()
    with socket.create_connection(("127.0.0.1", hub.port)) as peer:
        peer.sendall(CONNECT)
        assert peer.recv(4) == CONNACK
        code, _ = hub.end()
        assert code == exits.OK
        peer.settimeout(DEADLINE_S)
        assert peer.recv(100) == b""


def test_what_was_stored_is_there_after_a_restart(start):
    for _ in range(2):
        hub = start()
        with socket.create_connection(("127.0.0.1", hub.port)) as peer:
            peer.sendall(CONNECT + PUBLISH)
            received = b""
            while len(received) < 8:
                received += peer.recv(100)
            assert received == CONNACK + PUBACK
        assert hub.end()[0] == exits.OK
    assert sum(file.stat().st_size for file in (hub.folder / "data" / "log").iterdir()) > 0


def test_a_second_hub_on_the_same_data_is_refused(start):
    first = start()
    code, said = start(ready=False).ended()
    assert code == exits.DATA_IN_USE
    assert said.splitlines()[-1] == (
        f"gatehouse: another hub (process {first.process.pid}) runs on {first.folder / 'data'}; stop it, or give this "
        "one another folder with --data")


def test_a_port_in_use_is_one_line(start, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = start(CONFIG.replace(":0", f":{port}"), ready=False).ended()
    assert code == exits.CANNOT_LISTEN
    assert said.splitlines()[-1] == (
        f"gatehouse: the mqtt door cannot listen on 127.0.0.1:{port}: Address already in use; change "
        "gateways.mqtt.listen or end what uses it")
    assert "Traceback" not in said


def test_a_wrong_configuration_is_told_line_by_line(start, tmp_path):
    code, said = start("[kernal]\n[hub]\nnam = 1\n", ready=False).ended()
    file = tmp_path / "gateways.toml"
    assert code == exits.USAGE
    assert said.splitlines()[-2:] == [f"{file}: kernal: unknown section; did you mean 'kernel'?",
                                      f"{file}: hub.nam: unknown setting; did you mean 'name'?"]


def test_a_data_directory_that_cannot_be_used(start, tmp_path):
    (tmp_path / "file").write_text("")
    code, said = start(CONFIG, "--data", str(tmp_path / "file"), ready=False).ended()
    assert code == exits.STORAGE
    assert said.splitlines()[-1].startswith("gatehouse: cannot use the data directory ")


def test_a_damaged_index_is_rebuilt(start, tmp_path):
    assert start().end()[0] == exits.OK
    for file in (tmp_path / "data" / "index").iterdir():
        file.write_bytes(b"rubbish")
    hub = start()
    code, said = hub.end()
    assert code == exits.OK
    assert "cannot be opened" in said
    assert "it is rebuilt from the log" in said


def test_reload_tells_what_would_change(start, tmp_path):
    hub = start()
    (tmp_path / "gateways.toml").write_text(CONFIG + "[hub]\nname = 'other'\n")
    reload = [sys.executable, "-m", "gatehouse.cli", "reload", "--data", str(tmp_path / "data")]
    done = subprocess.run(reload, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=DEADLINE_S,
                          check=False)
    assert (done.returncode, done.stdout) == (0, f"told process {hub.process.pid} to read its configuration again\n")
    assert "reload: hub.name changed" in read_log_until(hub, "reload:")
    (tmp_path / "gateways.toml").write_text("[kernal]")
    hub.process.send_signal(signal.SIGHUP)
    assert "kernal: unknown section" in read_log_until(hub, "reload refused")
    assert hub.end()[0] == exits.OK


def read_log_until(hub: Hub, word: str) -> str:
    """The next line of the hub's log with this word."""
    return next(line for line in hub.process.stderr if word in line)


def test_reload_without_a_hub(tmp_path):
    reload = [sys.executable, "-m", "gatehouse.cli", "reload", "--data", str(tmp_path)]
    done = subprocess.run(reload, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=DEADLINE_S,
                          check=False)
    assert (done.returncode, done.stdout) == (exits.DATA_IN_USE, "")
    assert done.stderr.splitlines()[-1] == f"gatehouse: no hub runs on {tmp_path}; start one with `gatehouse serve`"


def test_a_failed_disk_ends_the_hub_with_one_line_and_its_own_code(start, tmp_path):
    hub = start(CONFIG.replace('"never"', '"commit"'), program=FAILING_DISK.format(sign=tmp_path / "fail"))
    (tmp_path / "fail").touch()
    with socket.create_connection(("127.0.0.1", hub.port)) as peer:
        peer.sendall(CONNECT + PUBLISH)
        peer.settimeout(DEADLINE_S)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := peer.recv(100):
                received += chunk
    assert received in (b"", CONNACK), "nothing may be acknowledged that is not stored"
    code, said = hub.ended()
    assert code == exits.STORAGE
    assert said.splitlines()[-1].startswith("gatehouse: ")
    assert said.splitlines()[-1].endswith("; ending, the next start recovers what was acknowledged")
    assert "Traceback" not in said
    (tmp_path / "fail").unlink()
    assert start().end()[0] == exits.OK
