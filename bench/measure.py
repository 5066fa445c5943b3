"""Runs a load against a server and reads what it printed; medians of rounds; tables for the README."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from bench.servers import ROOT, Cpu, Server

LOAD: Final = ROOT / "bench" / "load.py"
LOAD_S: Final = 400.0
LOAD_HELP: Final = "another load generator with the same command line as bench/load.py"

PIPE: Final = re.compile(r"produced ([\d,]+) msg/s .*end to end ([\d,]+) msg/s \(([\d,.]+) MB/s\), "
                         r"received (\d+) of (\d+)")
MANY: Final = re.compile(r"connections \w+: ([\d,]+) msg/s")
SPREAD: Final = re.compile(r"to (PUBACK|delivery): p50 ([\d.]+) ms, p99 ([\d.]+) ms, longest ([\d.]+) ms over ([\d,]+)")


class MeasureFailed(Exception):
    """A load printed nothing that can be read."""


class Pipe(NamedTuple):
    """One pipe, or the medians of several."""

    produced: float
    end_to_end: float
    mb_per_s: float
    received_share: float
    user_us: float
    system_us: float


class Spread(NamedTuple):
    """Milliseconds; of several runs the medians, and the longest of all."""

    p50: float
    p99: float
    longest: float


def run_load(load: Path, server: Server, door: str, mode: str, **options: int | str | float) -> tuple[str, Cpu]:
    """One run: what it printed, and the processor time that the server needed. Raises MeasureFailed."""
    command = [sys.executable, str(load), mode, "--port", str(server.ports[door])]
    for name, value in options.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    before = server.cpu()
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_S, check=False)
    used = server.cpu().since(before)
    if not done.stdout:
        raise MeasureFailed(f"{' '.join(command[2:])} against {server.name}: {done.stderr[-500:]}")
    return done.stdout, used


def number(text: str) -> float:
    return float(text.replace(",", ""))


def measure_pipe(load: Path, server: Server, door: str, mode: str, **options: int | str | float) -> Pipe:
    text, used = run_load(load, server, door, mode, **options)
    found = PIPE.search(text)
    if found is None:
        raise MeasureFailed(f"cannot read {text!r}")
    produced, end_to_end, mb, received, n = (number(group) for group in found.groups())
    return Pipe(produced, end_to_end, mb, received / n, used.user_s / n * 1e6, used.system_s / n * 1e6)


def measure_many(load: Path, server: Server, connections: int, n: int, door: str = "mqtt", **options: str) -> Pipe:
    """Connections with one message in flight each; counted as acknowledged."""
    text, used = run_load(load, server, door, f"{door}-many", connections=connections, n=n, **options)
    found = MANY.search(text)
    if found is None:
        raise MeasureFailed(f"cannot read {text!r}")
    rate = number(found[1])
    return Pipe(rate, rate, rate * 1e-4, 1.0, used.user_s / n * 1e6, used.system_s / n * 1e6)


def measure_rate(load: Path, server: Server, rate: int, seconds: float) -> dict[str, Spread]:
    """By `PUBACK` and `delivery`."""
    text, _ = run_load(load, server, "mqtt", "mqtt-rate", rate=rate, seconds=seconds)
    found = {kind: Spread(float(p50), float(p99), float(longest))
             for kind, p50, p99, longest, _ in SPREAD.findall(text)}
    if set(found) != {"PUBACK", "delivery"}:
        raise MeasureFailed(f"cannot read {text!r}")
    return found


def median_pipe(pipes: list[Pipe]) -> Pipe:
    """Medians; of what was received the least."""
    middle = Pipe(*(median(column) for column in zip(*pipes, strict=True)))
    return middle._replace(received_share=min(pipe.received_share for pipe in pipes))


def median_spread(spreads: list[Spread]) -> Spread:
    return Spread(median(spread.p50 for spread in spreads), median(spread.p99 for spread in spreads),
                  max(spread.longest for spread in spreads))


def table(head: list[str], rows: list[list[str]]) -> str:
    """A markdown table; numbers stand to the right."""
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
