"""What this machine measures about itself, by psutil: processors, memory, disks, network, processes.

A reading is an address below `machine/` and a number; its unit is the end of the address: `percent`, `bytes`,
`bytes_per_s`; counts have none. Rates are over the time since the reading before.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import psutil

ROOT: Final = "machine"
MAX_PROCESSORS: Final = 16
"""Shown one by one; a machine with more has the total of all."""

Reading = tuple[str, float]


@dataclass(frozen=True, slots=True)
class Counters:
    """What only ever grows, in bytes since the machine started."""

    read: int
    written: int
    received: int
    sent: int


def counters_now() -> Counters:
    """The machine's counters; zero where it has no such device (containers)."""
    disks: Any = psutil.disk_io_counters()
    network: Any = psutil.net_io_counters()
    return Counters(disks.read_bytes if disks else 0, disks.write_bytes if disks else 0,
                    network.bytes_recv if network else 0, network.bytes_sent if network else 0)


def rates(before: Counters, now: Counters, elapsed_s: float) -> list[Reading]:
    """Bytes a second between two counters. One that was set back (a network card unplugged) gives 0."""
    pairs = (("disk/read_bytes_per_s", before.read, now.read),
             ("disk/written_bytes_per_s", before.written, now.written),
             ("network/received_bytes_per_s", before.received, now.received),
             ("network/sent_bytes_per_s", before.sent, now.sent))
    return [(f"{ROOT}/{name}", round(max(0, new - old) / elapsed_s, 1)) for name, old, new in pairs]


class Telemetry:
    """Readings of this machine."""

    def __init__(self, now_s: float) -> None:
        psutil.cpu_percent(percpu=True)    # the first call only begins to measure
        self._counters = counters_now()
        self._read_at_s = now_s

    def read(self, now_s: float) -> list[Reading]:
        """Everything, at a time of a clock that never goes back."""
        counters, before = counters_now(), self._counters
        elapsed_s = max(1e-3, now_s - self._read_at_s)
        self._counters, self._read_at_s = counters, now_s
        return [*_processors(), *_memory(), *rates(before, counters, elapsed_s), *_processes()]


def _processors() -> list[Reading]:
    each = psutil.cpu_percent(percpu=True)
    total = round(sum(each) / len(each), 1)
    readings = [(f"{ROOT}/cpu/{number}/percent", percent) for number, percent in enumerate(each[:MAX_PROCESSORS])]
    return [(f"{ROOT}/cpu/total/percent", total), *readings,
            (f"{ROOT}/cpu/load_1min", round(psutil.getloadavg()[0], 2))]


def _memory() -> list[Reading]:
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return [(f"{ROOT}/memory/used_percent", memory.percent), (f"{ROOT}/memory/available_bytes", memory.available),
            (f"{ROOT}/swap/used_percent", swap.percent), (f"{ROOT}/disk/used_percent", psutil.disk_usage("/").percent)]


def _processes() -> list[Reading]:
    return [(f"{ROOT}/processes/count", len(psutil.pids()))]
