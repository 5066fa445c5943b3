"""What `fdatasync` costs after a small append: to a file that grows, and to one whose room was allocated before.

    python -m bench.preallocation [--rounds 20] [--folder FOLDER]

The kinds take turns, so what else happens on the disk happens to all of them.
"""
from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.measure import table

APPENDS: Final = 150
APPEND_BYTES: Final = 400
ROOM_BYTES: Final = 8 << 20


def grow(descriptor: int) -> None:
    """As it comes."""


def allocate(descriptor: int) -> None:
    """As the hub's log does it."""
    os.posix_fallocate(descriptor, 0, ROOM_BYTES)


def write_zeros(descriptor: int) -> None:
    """Blocks that have been written once."""
    os.pwrite(descriptor, bytes(ROOM_BYTES), 0)


KINDS: Final[dict[str, Callable[[int], None]]] = {
    "growing": grow, "allocated": allocate, "written with zeros": write_zeros}


def append(folder: Path, prepare: Callable[[int], None]) -> list[float]:
    """Seconds of each append with its sync, in a new file."""
    with (folder / "file").open("w+b") as file:
        descriptor, took = file.fileno(), []
        prepare(descriptor)
        os.fsync(descriptor)
        for number in range(APPENDS):
            data = os.urandom(APPEND_BYTES)
            begin_s = time.perf_counter()
            os.pwrite(descriptor, data, number * APPEND_BYTES)
            os.fdatasync(descriptor)
            took.append(time.perf_counter() - begin_s)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=Path("build"), help="on the disk that is asked about")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    took: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for _ in range(options.rounds):
            for kind, prepare in KINDS.items():
                took[kind] += append(Path(folder), prepare)
    rows = [[kind, *(f"{sorted(of_kind)[int(len(of_kind) * share)] * 1e6:.0f}" for share in (0.1, 0.5, 0.9))]
            for kind, of_kind in took.items()]
    print(table(["append and fdatasync of 400 bytes, µs", "p10", "p50", "p90"], rows))


if __name__ == "__main__":
    main()
