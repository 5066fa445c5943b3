"""The Kafka door beside Apache Kafka 4: one writer, one reader of all partitions, large and small batches.

    python -m bench.against_kafka [--rounds 3] [--partitions 16 1000 10000] [--batches 1000 10] [--flush-at 16]

Kafka acknowledges what is in the page cache; this hub what is on disk. So at the partition counts of `--flush-at` a
second Kafka, which also forces every batch to disk before it answers, is measured as well. Each round asks ours, then
Kafka; every run has a topic of its own, made before it and deleted before the next: what is measured is messages, and
ten thousand partitions are twenty thousand mapped files with Kafka. A first round, to warm up the JVMs, is not counted.
"""
from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

from bench.apache_kafka import create_topic, delete_topic, start_kafka
from bench.measure import LOAD, LOAD_HELP, Pipe, measure_pipe, median_pipe, table
from bench.servers import Server, start_hub, work_folder

SMALL_BATCH: Final = 100         # from here on a request carries so little that a tenth of the messages are enough
WARM_UP_PARTITIONS: Final = 16
QUIET_SHARE: Final = 0.2         # of one processor, over QUIET_LOOK_S: what a server may use and be called quiet
QUIET_LOOK_S: Final = 1.0
QUIET_LIMIT_S: Final = 60.0


def wait_quiet(server: Server) -> None:
    """Until it has finished what it does behind an answer: making and deleting the files of partitions."""
    end_s = time.monotonic() + QUIET_LIMIT_S
    while time.monotonic() < end_s:
        before = server.cpu()
        time.sleep(QUIET_LOOK_S)
        used = server.cpu().since(before)
        if used.user_s + used.system_s < QUIET_SHARE * QUIET_LOOK_S:
            return


class Comparison:
    """The servers (the hub, Kafka, perhaps a flushing Kafka) and how many runs there have been."""

    def __init__(self, servers: list[Server], load: Path, n: int) -> None:
        self.servers = servers
        self.load = load
        self.n = n
        self.runs = 0

    def measure(self, server: Server, partitions: int, batch: int) -> Pipe:
        self.runs += 1
        topic = f"run-{self.runs}"
        n = self.n if batch >= SMALL_BATCH else self.n // 10
        create_topic(server, topic, partitions)
        wait_quiet(server)
        try:
            return measure_pipe(self.load, server, "kafka", "kafka-pipe", topic=topic, partitions=partitions,
                                batch=batch, n=n)
        finally:
            delete_topic(server, topic)
            wait_quiet(server)

    def compare(self, counts: list[int], batch: int, rounds: int, flush_at: list[int]) -> dict[int, dict[str, Pipe]]:
        """Medians by partition count and server. A round goes over all of them, so that they meet the same machine."""
        found: dict[int, dict[str, list[Pipe]]] = {count: defaultdict(list) for count in counts}
        for _ in range(rounds):
            for count in counts:
                for server in self.servers if count in flush_at else self.servers[:2]:
                    pipe = self.measure(server, count, batch)
                    found[count][server.name].append(pipe)
                    print(f"batches of {batch}, {count} partitions: {server.name} {pipe.end_to_end:,.0f} msg/s, "
                          f"{pipe.user_us:.2f} + {pipe.system_us:.2f} µs", file=sys.stderr, flush=True)
        return {count: {name: median_pipe(pipes) for name, pipes in by_name.items()}
                for count, by_name in found.items()}


def rows_of(partitions: int, batch: int, found: dict[str, Pipe]) -> list[list[str]]:
    ours = found["hub"]
    return [[f"batches of {batch:,}, {partitions:,} partitions: {name}", f"{pipe.end_to_end:,.0f}",
             f"{pipe.mb_per_s:,.1f}", f"{ours.end_to_end / pipe.end_to_end:.1f} x",
             f"{pipe.user_us:.2f} + {pipe.system_us:.2f}"] for name, pipe in found.items()]


def level(batch: int, hub: dict[int, Pipe]) -> str:
    """How the number of partitions tells on the hub."""
    rates = [pipe.end_to_end for pipe in hub.values()]
    costs = [pipe.user_us + pipe.system_us for pipe in hub.values()]
    return (f"hub, batches of {batch:,}, {min(hub):,} to {max(hub):,} partitions: slowest at "
            f"{min(rates) / max(rates):.0%} of the fastest (aim: 90%), processor time per message {min(costs):.2f} to "
            f"{max(costs):.2f} µs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--n", type=int, default=2_000_000, help="messages; a tenth of it in small batches")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 16, 1_000, 10_000])
    parser.add_argument("--batches", type=int, nargs="+", default=[1_000, 10])
    parser.add_argument("--flush-at", type=int, nargs="*", default=[16])
    parser.add_argument("--load", type=Path, default=LOAD, help=LOAD_HELP)
    options = parser.parse_args()
    with work_folder() as folder:
        servers: list[Server] = []
        try:
            servers.append(start_hub(folder / "hub", doors=("kafka",)))
            servers.append(start_kafka(folder / "kafka"))
            if options.flush_at:
                servers.append(start_kafka(folder / "kafka-flush", flush=True))
            comparison = Comparison(servers, options.load, options.n)
            rows: list[list[str]] = []
            levels: list[str] = []
            for batch in options.batches:
                comparison.compare([WARM_UP_PARTITIONS], batch, 1, [WARM_UP_PARTITIONS])
                found = comparison.compare(options.partitions, batch, options.rounds, options.flush_at)
                for partitions, by_name in found.items():
                    rows += rows_of(partitions, batch, by_name)
                levels.append(level(batch, {count: by_name["hub"] for count, by_name in found.items() if count >= 16}))
            print(table(["100-byte messages", "msg/s", "MB/s", "hub against it", "user + system µs"], rows))
            print("", *levels, sep="\n", flush=True)
        finally:
            for server in servers:
                server.stop()


if __name__ == "__main__":
    main()
