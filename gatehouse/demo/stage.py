"""Starts the hub, Spark, the device, the events and the page, and stops them in the order in which nothing is lost.

The hub and Spark are processes in groups of their own: Ctrl-C reaches this process alone, which then stops who
publishes, then Spark (it commits what it has), then the hub.
"""
from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from gatehouse.demo.device import Device
from gatehouse.demo.events import Events
from gatehouse.demo.jobs import ARCHIVED, LATENESS_S, WINDOW_S
from gatehouse.demo.page import PageServer
from gatehouse.demo.table import TableWatch
from gatehouse_client.sync import SyncClient

HOST: Final = "127.0.0.1"
PAGE_PORT: Final = 8090
DOOR_PORTS: Final = {"mqtt": 1883, "http": 8080, "kafka": 9092}
STOP_S: Final = {"spark": 60.0, "hub": 30.0}

CONFIG: Final = """# Written by the demo at each start.
[hub]
name     = "demo"
data_dir = "hub"

[gateways.mqtt]
listen = ["{host}:{mqtt}"]

[gateways.http]
listen       = ["{host}:{http}"]
cors_origins = ["http://{host}:{page}", "http://localhost:{page}"]

[gateways.kafka]
listen    = ["{host}:{kafka}"]
advertise = "{host}:{kafka}"
"""


class DemoFailed(Exception):
    """A part of the demo did not start, or ended by itself: one line."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where everything listens."""

    mqtt: int
    http: int
    kafka: int
    page: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.http}"


def free_port(wanted: int) -> int:
    """The port that was asked for where nobody has it, else any."""
    for port in (wanted, 0):
        try:
            with socket.create_server((HOST, port)) as listener:
                return int(listener.getsockname()[1])
        except OSError:
            continue
    raise DemoFailed("no port is free")


class Stage:
    """Everything that runs; `close` stops what was started, in order, even where the start failed half-way."""

    def __init__(self, folder: Path, usual_ports: bool = True) -> None:
        self.folder = folder.absolute()
        self._page = PageServer(free_port(PAGE_PORT if usual_ports else 0))
        doors = {door: free_port(port if usual_ports else 0) for door, port in DOOR_PORTS.items()}
        self.ports = Ports(**doors, page=self._page.port)
        self._stops: list[Callable[[], None]] = []
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def open(self, tell: Callable[[str], None]) -> None:
        """Start everything; returns when the page can be opened. Raises DemoFailed."""
        ports = self.ports
        tell("starting the hub")
        self._start_hub()
        self._page.start({"hub": ports.url, "window_s": WINDOW_S, "lateness_s": LATENESS_S})
        self._stops.append(self._page.stop)
        tell("starting Spark: its first statistics come in about half a minute")
        self._start("spark", [sys.executable, "-m", "gatehouse.demo.jobs", ports.url, str(self.folder)],
                    self._log("spark"))
        watch = TableWatch(self.folder / "archive", ports.url)
        device, events = Device(HOST, ports.mqtt), Events(f"{HOST}:{ports.kafka}", ports.url)
        for part in (watch, device, events):
            part.start()
            self._stops.append(part.stop)

    def check(self) -> None:
        """Raises DemoFailed where a process has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise DemoFailed(f"{name} ended with code {process.returncode}: see {self.folder / name}.log")

    def close(self) -> None:
        """Stop everything; returns when it has ended."""
        for stop in reversed(self._stops):
            stop()
        for name in reversed(self._processes):
            self._end(name)
        self._stops.clear()
        self._processes.clear()

    def _start_hub(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        ports = self.ports
        config = self.folder / "gateways.toml"
        config.write_text(CONFIG.format(host=HOST, mqtt=ports.mqtt, http=ports.http, kafka=ports.kafka,
                                        page=ports.page))
        log = self._log("hub")
        hub = self._start("hub", [sys.executable, "-m", "gatehouse.cli", "serve", "--config", str(config)], log,
                          subprocess.PIPE)
        assert hub.stdout is not None
        if not any(line == "gatehouse ready\n" for line in hub.stdout):
            raise DemoFailed(f"the hub did not start: see {self.folder / 'hub.log'}")
        with SyncClient(ports.url) as client:
            for topic in ARCHIVED:
                client.define_topic(topic, partitions=1)

    def _log(self, name: str) -> IO[str]:
        return (self.folder / f"{name}.log").open("a", encoding="utf-8")

    def _start(self, name: str, command: list[str], log: IO[str], out: int | None = None) -> subprocess.Popen[str]:
        with log:
            process = subprocess.Popen(command, stdout=log if out is None else out, stderr=log, text=True,
                                       stdin=subprocess.DEVNULL, start_new_session=True)
        self._processes[name] = process
        return process

    def _end(self, name: str) -> None:
        process = self._processes[name]
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S[name])
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def wait_until(stopped: Callable[[float], bool], stage: Stage, seconds: float | None) -> None:
    """Return when told to stop or after some seconds. Raises DemoFailed where a part ends by itself."""
    end = None if seconds is None else time.monotonic() + seconds
    while not stopped(0.5) and (end is None or time.monotonic() < end):
        stage.check()
