"""Real hubs as processes: start, refuse to start, reload, stop."""
from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from gatehouse import exits
from tests.running_hub import COMMAND_LINE, DEADLINE_S, ROOT, RunningHub, config_of

# MQTT 3.1.1 by hand: a client `test`, and a QoS 1 publish of `z` to `a/b` under packet id 1.
CONNECT = bytes.fromhex("101000044d5154540402003c0004") + b"test"
CONNACK = bytes.fromhex("20020000")
PUBLISH = bytes.fromhex("32080003612f6200017a")
PUBACK = bytes.fromhex("40020001")

# A clock whose append time falls: what the kernel asserts of it does not hold.
FALLING = """
from pathlib import Path
import gatehouse.kernel.kernel as kernel

Clock = kernel.Clock

class FallingLoop:
    def __init__(self, loop):
        self._loop = loop

    def __getattr__(self, name):
        return getattr(self._loop, name)

    def wall_ms(self):
        if not Path('{sign}').exists():
            return self._loop.wall_ms()
        self.clock.append_ms = 0
        return self._loop.wall_ms() - 5_000        # less than what the clock looks at by itself

def falling(loop, on_step):
    loop = FallingLoop(loop)
    loop.clock = Clock(loop, on_step)
    return loop.clock

kernel.Clock = falling
from gatehouse.cli.main import main
main()
"""

# What `gatehouse reload` sends, while there is no handler for it, and while there is nothing yet to reload.
RELOAD_DURING_START = """
import os, signal
import gatehouse.serve

def signalled(open_it):
    def open_signalled(*arguments):
        opened = open_it(*arguments)
        os.kill(os.getpid(), signal.SIGHUP)
        return opened
    return open_signalled

gatehouse.serve.open_data_dir = signalled(gatehouse.serve.open_data_dir)
gatehouse.serve.open_storage = signalled(gatehouse.serve.open_storage)
from gatehouse.cli.main import main
main()
"""

CONFIG = config_of(("mqtt",))


@pytest.fixture
def start(tmp_path):
    started: list[RunningHub] = []

    def start(config: str = CONFIG, *arguments: str, ready: bool = True, program: str | None = None,
              orders: dict[str, str] | None = None) -> RunningHub:
        hub = RunningHub(tmp_path, config, *arguments, program=program, orders=orders)
        started.append(hub)
        if ready:
            hub.wait_ready()
        return hub

    yield start
    for hub in started:
        hub.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_hub_starts_and_stops_when_told(start, number):
    hub = start(program=COMMAND_LINE)
    assert hub.lines == [f"mqtt listens on 127.0.0.1:{hub.port('mqtt')}", "gatehouse ready"]
    code, said = hub.stop(number)
    assert code == exits.OK
    assert "Traceback" not in said
    assert "room for" in said


def test_an_idle_connection_does_not_hold_up_the_stop(start):
    hub = start()
    with socket.create_connection(("127.0.0.1", hub.port("mqtt"))) as peer:
        peer.sendall(CONNECT)
        assert peer.recv(4) == CONNACK
        code, _ = hub.stop()
        assert code == exits.OK
        peer.settimeout(DEADLINE_S)
        assert peer.recv(100) == b""


def test_what_was_stored_is_there_after_a_restart(start):
    for _ in range(2):
        hub = start()
        with socket.create_connection(("127.0.0.1", hub.port("mqtt"))) as peer:
            peer.sendall(CONNECT + PUBLISH)
            received = b""
            while len(received) < 8:
                received += peer.recv(100)
            assert received == CONNACK + PUBACK
        assert hub.stop()[0] == exits.OK
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
    assert start().stop()[0] == exits.OK
    for file in (tmp_path / "data" / "index").iterdir():
        file.write_bytes(b"rubbish")
    hub = start()
    code, said = hub.stop()
    assert code == exits.OK
    assert "cannot be opened" in said
    assert "it is rebuilt from the log" in said


def test_reload_tells_what_would_change(start, tmp_path):
    hub = start()
    (tmp_path / "gateways.toml").write_text(CONFIG + "[hub]\nname = 'other'\n")
    reload = [sys.executable, "-m", "gatehouse.cli", "reload", "--data", str(tmp_path / "data")]
    done = subprocess.run(reload, capture_output=True, text=True, cwd=ROOT, timeout=DEADLINE_S,
                          check=False)
    assert (done.returncode, done.stdout) == (0, f"told process {hub.process.pid} to read its configuration again\n")
    assert "reload: hub.name changed" in hub.wait_log_line("reload:")
    live = CONFIG.replace("max_message_bytes = 4194304", "max_message_bytes = 2048")
    assert live != CONFIG
    (tmp_path / "gateways.toml").write_text(live)
    hub.process.send_signal(signal.SIGHUP)
    assert "kernel.max_message_bytes changed and is in effect" in hub.wait_log_line("reload: kernel")
    (tmp_path / "gateways.toml").write_text("[kernal]")
    hub.process.send_signal(signal.SIGHUP)
    assert "kernal: unknown section" in hub.wait_log_line("reload refused")
    assert hub.stop()[0] == exits.OK


def test_a_reload_that_is_asked_for_during_the_start_comes_after_it(start):
    hub = start(program=RELOAD_DURING_START)
    hub.wait_log_line("reload: no setting changed")
    code, said = hub.stop()
    assert code == exits.OK
    assert 1 <= said.count("reload:") <= 2, "it was asked for twice: one may answer both"


def test_a_hub_that_lets_anybody_administer_again_does_not_say_that_nobody_may(start, tmp_path):
    hub = start(f"{CONFIG}[auth]\nallow_anonymous = false\n")
    hub.wait_log_line("there is no user: nobody can log in")
    (tmp_path / "gateways.toml").write_text(CONFIG)
    hub.process.send_signal(signal.SIGHUP)
    hub.wait_log_line("auth.allow_anonymous changed and is in effect")
    code, said = hub.stop()
    assert code == exits.OK
    assert "nobody may administer this hub" not in said


def test_metrics_say_whether_the_last_reload_was_refused(start, tmp_path):
    config = config_of(("http",))
    hub = start(config)

    def refused() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{hub.port('http')}/metrics", timeout=DEADLINE_S) as answer:
            return next(line for line in answer.read().decode().splitlines() if line.startswith("gatehouse_reload_"))

    assert refused() == "gatehouse_reload_refused 0.0"
    for text, line, value in (("[kernal]", "reload refused", "1.0"), (config, "reload: no setting changed", "0.0")):
        (tmp_path / "gateways.toml").write_text(text)
        hub.process.send_signal(signal.SIGHUP)
        hub.wait_log_line(line)
        assert refused() == f"gatehouse_reload_refused {value}"


def test_reload_without_a_hub(tmp_path):
    reload = [sys.executable, "-m", "gatehouse.cli", "reload", "--data", str(tmp_path)]
    done = subprocess.run(reload, capture_output=True, text=True, cwd=ROOT, timeout=DEADLINE_S,
                          check=False)
    assert (done.returncode, done.stdout) == (exits.DATA_IN_USE, "")
    assert done.stderr.splitlines()[-1] == f"gatehouse: no hub runs on {tmp_path}; start one with `gatehouse serve`"


def answers_to_a_publish(hub):
    """All that a client gets that connects and publishes, until the hub ends."""
    received = b""
    with socket.create_connection(("127.0.0.1", hub.port("mqtt"))) as peer:
        peer.sendall(CONNECT + PUBLISH)
        peer.settimeout(DEADLINE_S)
        with contextlib.suppress(ConnectionResetError):
            while chunk := peer.recv(100):
                received += chunk
    return received


def test_a_failed_disk_ends_the_hub_with_one_line_and_its_own_code(start, tmp_path):
    hub = start(CONFIG.replace('"never"', '"commit"'), orders={"fail_sync": str(tmp_path / "fail")})
    (tmp_path / "fail").touch()
    assert answers_to_a_publish(hub) in (b"", CONNACK), "nothing may be acknowledged that is not stored"
    code, said = hub.ended()
    assert code == exits.STORAGE
    assert said.splitlines()[-1].startswith("gatehouse: ")
    assert said.splitlines()[-1].endswith("; ending, the next start recovers what was acknowledged")
    assert "Traceback" not in said
    (tmp_path / "fail").unlink()
    assert start().stop()[0] == exits.OK


def test_a_promise_of_the_kernels_that_does_not_hold_ends_the_process(start, tmp_path):
    hub = start(CONFIG, program=FALLING.format(sign=tmp_path / "fall"))
    with socket.create_connection(("127.0.0.1", hub.port("mqtt")), DEADLINE_S) as peer:
        peer.sendall(CONNECT + PUBLISH)
        while not peer.recv(100).endswith(PUBACK):
            pass
    (tmp_path / "fall").touch()
    assert answers_to_a_publish(hub) in (b"", CONNACK), "nothing may be acknowledged by a kernel that is not believed"
    code, said = hub.ended()
    assert code == exits.OWN_FAULT
    assert said.splitlines()[-1] == ("gatehouse: what must hold does not: append time never falls; ending, the next "
                                     "start recovers what was acknowledged")
    assert "Traceback" in said, "it is a mistake of the hub's own: where it lies is told"
    (tmp_path / "fall").unlink()
    assert start().stop()[0] == exits.OK
