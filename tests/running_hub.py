"""A hub as a process of its own, for tests that need the real thing, on free ports and a folder of its own."""
from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DEADLINE_S: Final = 30
DOORS: Final = ("mqtt", "http", "amqp", "kafka")
COMMAND_LINE: Final = "from gatehouse.cli import main; main()"


def free_port() -> int:
    """A port that was free a moment ago: for Kafka, whose `advertise` must be known before the door listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def config_of(doors: tuple[str, ...] = DOORS, kernel: str = 'fsync = "never"') -> str:
    """A configuration with these doors on free ports."""
    tables = [f"[kernel]\n{kernel}\n"]
    for door in doors:
        port = free_port() if door == "kafka" else 0
        tables.append(f'[gateways.{door}]\nlisten = ["127.0.0.1:{port}"]\n')
        if door == "kafka":
            tables.append(f'advertise = "127.0.0.1:{port}"\n')
    return "".join(tables)


class RunningHub:
    """A hub that has been started; `program` is what its interpreter runs. Its log is `hub.log` in the folder."""

    def __init__(self, folder: Path, config: str, *arguments: str, program: str = COMMAND_LINE) -> None:
        self.folder = folder
        self.lines: list[str] = []
        (folder / "gateways.toml").write_text(config)
        self._log = folder / "hub.log"
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, "serve", "--config", str(folder / "gateways.toml"), *arguments],
                stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT)

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
        """What it has logged so far."""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode()

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


@contextmanager
def running_hub(folder: Path, *doors: str, kernel: str = "") -> Iterator[RunningHub]:
    """A hub with these doors on the data in `folder`, stored as users have it unless `kernel` says otherwise."""
    hub = RunningHub(folder, config_of(doors, kernel))
    try:
        hub.wait_ready()
        yield hub
    finally:
        hub.kill()
