"""Live publishers while somebody replays the log from its start: their p99 must not double.

    python -m bench.cold_replay [--gb 1] [--rate 20000] [--rounds 5]

The log is far larger than the hub's cache of recent messages, and its files are put out of the system's page cache
before each replay. A Kafka client then reads all of it as fast as it comes, again and again, while MQTT publishes QoS 1
at a fixed rate; each round measures without, then with the replay.
"""
from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.load_kafka import Reader, Run
from bench.load_pair import dial
from bench.measure import LOAD, LOAD_HELP, Spread, measure_rate, median_spread, table
from bench.recovery import GB, PARTITIONS, SIZE, fill
from bench.servers import Server, start_hub, work_folder

BATCH: Final = 100
KINDS: Final = ("PUBACK", "delivery")


def keep_replaying(run: Run, end_messages: int, replayed: Any) -> None:
    """Read everything from the start, and again."""
    connection = dial(run.port)
    while True:
        reader, before = Reader(run), replayed.value
        while reader.messages < end_messages:
            reader.step(connection)
            replayed.value = before + reader.messages


def forget_cached(folder: Path) -> None:
    """Put the files out of the page cache; what is not on disk yet stays."""
    for file in folder.iterdir():
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def replaying(server: Server, end_messages: int, rates: list[float]) -> Iterator[None]:
    """A replay in the background; adds how many messages a second it got."""
    forget_cached(server.folder / "data" / "log")
    run = Run(server.ports["kafka"], "fill", PARTITIONS, BATCH, SIZE, 1 << 40, -1, 1)
    replayed = multiprocessing.RawValue("q", 0)
    child = multiprocessing.Process(target=keep_replaying, args=(run, end_messages, replayed))
    began_s = time.perf_counter()
    child.start()
    try:
        yield
        rates.append(replayed.value / (time.perf_counter() - began_s))
    finally:
        child.terminate()
        child.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=int, default=1)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--load", type=Path, default=LOAD, help=LOAD_HELP)
    options = parser.parse_args()
    alone: dict[str, list[Spread]] = {kind: [] for kind in KINDS}
    beside: dict[str, list[Spread]] = {kind: [] for kind in KINDS}
    rates: list[float] = []
    with work_folder() as folder:
        server = start_hub(folder / "hub", doors=("mqtt", "kafka"),
                           settings={"KERNEL__RETENTION_BYTES": str(4 * options.gb * GB)})
        try:
            fill(server, options.gb * GB, BATCH)
            end_messages = options.gb * GB // (2 * SIZE)    # half of what is there: never the newest
            for _ in range(options.rounds):
                for kind, spread in measure_rate(options.load, server, options.rate, options.seconds).items():
                    alone[kind].append(spread)
                with replaying(server, end_messages, rates):
                    during = measure_rate(options.load, server, options.rate, options.seconds)
                for kind, spread in during.items():
                    beside[kind].append(spread)
        finally:
            server.stop()
    rows = []
    for kind in KINDS:
        quiet, busy = median_spread(alone[kind]), median_spread(beside[kind])
        rows.append([f"send to {kind}, {options.rate:,} msg/s",
                     f"{quiet.p50:.2f}, {quiet.p99:.2f}, {quiet.longest:.1f}",
                     f"{busy.p50:.2f}, {busy.p99:.2f}, {busy.longest:.1f}", f"{busy.p99 / quiet.p99:.1f} x"])
    print(table(["p50, p99, longest in ms", "alone", "beside a replay", "p99 (aim: below 2 x)"], rows))
    middle = sorted(rates)[len(rates) // 2]
    print(f"\nthe replay got {middle:,.0f} msg/s, {middle * SIZE / 1e6:,.0f} MB/s")


if __name__ == "__main__":
    main()
