"""A hub as a process of its own, for tests that need the real thing, on free ports and a folder of its own."""
from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from tests.faults.nursery import ForkedProcess, shared_nursery, whole_lines

ROOT: Final = Path(__file__).parents[1]
DEADLINE_S: Final = 60
CLOCKS_APART_MS: Final = 3
"""The hub's clock and the test's may be apart by this: each is cut to whole milliseconds, and only one follows NTP."""
DOORS: Final = ("mqtt", "http", "amqp", "kafka")
COMMAND_LINE: Final = "from gatehouse.cli.main import main; main()"
FIRST_PORT: Final = 10_100                # above 10,080, to which browsers do not connect
LAST_PORT: Final = 32_000
WORKERS: Final = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def _ports() -> Iterator[int]:
    """Ports that nobody else takes: each once, below those that the system gives away, no other worker's."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    own = range(FIRST_PORT + worker, min(LAST_PORT, _first_given_away()), WORKERS)
    start = random.randrange(len(own))
    while True:
        yield from own[start:]
        yield from own[:start]


def _first_given_away() -> int:
    """The lowest port that the system itself gives to whoever connects or listens without naming one."""
    file = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(file.read_text().split()[0]) if file.exists() else LAST_PORT
    return first if first > FIRST_PORT + 1000 else LAST_PORT       # a system that gives away nearly all


def free_port() -> int:
    """A port that is free: for Kafka, whose `advertise` must be known before the door listens, and for restarts."""
    for port in _own_ports:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("not reached: there is always a next port")


def config_of(doors: tuple[str, ...] = DOORS, kernel: str = 'fsync = "never"') -> str:
    """A configuration with these doors on free ports. Unless `kernel` says another limit of a message, it is one that
    tests pass easily."""
    if "max_message_bytes" not in kernel:
        kernel = f"max_message_bytes = 4194304\n{kernel}"
    tables = [f"[kernel]\n{kernel}\n"]
    for door in doors:
        port = free_port() if door == "kafka" else 0
        tables.append(f'[gateways.{door}]\nlisten = ["127.0.0.1:{port}"]\n')
        if door == "kafka":
            tables.append(f'advertise = "127.0.0.1:{port}"\n')
    return "".join(tables)


_own_ports: Final = _ports()


class RunningHub:
    """A hub that has been started; its log is `hub.log` in the folder.

    It comes from the nursery, which saves it the loading of its modules, unless `program` says what an interpreter of
    its own runs.
    """

    def __init__(self, folder: Path, config: str, *arguments: str, program: str | None = None,
                 orders: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self.lines: list[str] = []
        (folder / "gateways.toml").write_text(config)
        self._log = folder / "hub.log"
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        command = ["serve", "--config", str(folder / "gateways.toml"), *arguments]
        with self._log.open("ab") as log:
            self.process: subprocess.Popen[str] | ForkedProcess = (
                shared_nursery().fork(command, log, orders) if program is None else
                subprocess.Popen([sys.executable, "-c", program, *command], stdout=subprocess.PIPE, stderr=log,
                                 text=True, cwd=ROOT))

    def wait_ready(self) -> None:
        """Return when it says that it is ready; AssertionError with its log where it ends instead."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line == "gatehouse ready\n":
                return
        raise AssertionError(f"the hub ended: {self.ended()}")

    def port(self, door: str) -> int:
        """Where a door listens."""
        line = next(line for line in self.lines if line.startswith(f"{door} listens on "))
        return int(line.rpartition(":")[2])

    def log(self) -> str:
        """What it has logged so far, in whole lines."""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return whole_lines(log.read())

    def wait_log_line(self, word: str) -> str:
        """The first line of its log with this word, once it is there."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            for line in self.log().splitlines():
                if word in line:
                    return line
            time.sleep(0.01)
        raise AssertionError(f"no line with {word!r} in {self.log()}")

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Tell it to stop; exit code and its log."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Exit code and its log, once it has ended."""
        code = self.process.wait(DEADLINE_S)
        return code, self.log()

    def kill(self) -> None:
        """End it at once, as a crash would; the next hub on the folder recovers."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()


def gatehouse(*arguments: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """A command, once it has ended. Raises TimeoutExpired."""
    with TemporaryFile("w+") as given, TemporaryFile("w+") as error:
        given.write(stdin)
        given.flush()
        given.seek(0)
        process = shared_nursery().fork([*arguments], error, environ=environ, stdin=given)
        with process.stdout:
            said = process.stdout.read()
        code = process.wait(DEADLINE_S)
        error.seek(0)
        return subprocess.CompletedProcess(arguments, code, said, error.read())


@contextmanager
def running_hub(folder: Path, *doors: str, kernel: str = "", program: str | None = None) -> Iterator[RunningHub]:
    """A hub with these doors on the data in `folder`, stored as users have it unless `kernel` says otherwise."""
    hub = RunningHub(folder, config_of(doors, kernel), program=program)
    try:
        hub.wait_ready()
        yield hub
    finally:
        hub.kill()


@contextmanager
def sound_hub(folder: Path, config: str) -> Iterator[RunningHub]:
    """A hub that is ready, and that must end well and without a traceback."""
    hub = RunningHub(folder, config)
    try:
        hub.wait_ready()
        yield hub
        code, said = hub.stop()
        assert code == 0
        assert "Traceback" not in said, said
    finally:
        hub.kill()
