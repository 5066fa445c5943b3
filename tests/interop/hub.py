"""A real hub as a process, for tests with stock clients: any doors, on free ports, the log on disk as users have it.

    with running_hub(folder, "http", "mqtt") as hub:
        hub.url                  # of the HTTP door
        hub.ports["mqtt"]
        hub.stop()               # SIGTERM; returns the exit code
        hub.kill()               # SIGKILL; the next `running_hub` on the folder recovers
"""
from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = "from gatehouse.cli import main; main()"
STOP_TIMEOUT_S: Final = 30


class RunningHub:
    """A hub that said it is ready."""

    def __init__(self, process: subprocess.Popen[str], ports: dict[str, int]) -> None:
        self.process = process
        self.ports = ports

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['http']}"

    def stop(self) -> int:
        """Ask it to end; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)


@contextmanager
def running_hub(folder: Path, *doors: str, kernel: str = "", settings: str = "") -> Iterator[RunningHub]:
    """Start a hub with these doors on the data in `folder`; `kernel` and `settings` are more of its configuration."""
    tables = "".join(f'[gateways.{door}]\nlisten = ["127.0.0.1:0"]\n' for door in doors)
    (folder / "gateways.toml").write_text(f"[kernel]\n{kernel}\n{tables}{settings}\n")
    with (folder / "hub.log").open("a") as log:
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, "serve", "--config", str(folder / "gateways.toml")],
                                   stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT)
    try:
        yield RunningHub(process, _wait_ready(process, folder / "hub.log"))
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(STOP_TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()


def _wait_ready(process: subprocess.Popen[str], log: Path) -> dict[str, int]:
    """The port of every door; ends when the hub is ready or has ended. The test's own time-out bounds it."""
    ports: dict[str, int] = {}
    assert process.stdout is not None
    for line in process.stdout:
        if line == "gatehouse ready\n":
            return ports
        door, _, address = line.strip().partition(" listens on ")
        ports[door] = int(address.rpartition(":")[2])
    raise AssertionError(f"the hub ended: {log.read_text()}")
