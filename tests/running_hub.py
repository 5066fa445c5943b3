"""A hub as a process of its own, for tests that need the real thing, on free ports and a folder of its own."""
from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DEADLINE_S: Final = 30
DOORS: Final = ("mqtt", "http", "kafka")
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
    """A hub that has been started; `program` is what its interpreter runs."""

    def __init__(self, folder: Path, config: str, *arguments: str, program: str = COMMAND_LINE) -> None:
        self.folder = folder
        self.lines: list[str] = []
        (folder / "gateways.toml").write_text(config)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", "--config", str(folder / "gateways.toml"), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)

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

    def next_log_line(self, word: str) -> str:
        """The next line of its log with this word."""
        assert self.process.stderr is not None
        return next(line for line in self.process.stderr if word in line)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Tell it to stop; exit code and the rest of its log."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Exit code and the rest of its log, once it has ended."""
        _, said = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, said

    def kill(self) -> None:
        """End it whatever it is doing."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
