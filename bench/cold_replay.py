"""Live publishers while somebody replays the log from its start: their p99 must not double.

    python -m bench.cold_replay [--gb 1] [--rate 20000] [--rounds 5]

The log is far larger than the hub's cache of recent messages, and its files are put out of the system's page cache
before each replay. A Kafka client then reads all of it as fast as it comes, again and again, while MQTT publishes QoS 1
at a fixed rate. Each round measures alone, then while the client replays the log of a second hub, which shows what a
machine of few processors does to p99 by itself, then while it replays the log of the hub that is published to, and last
the replay alone, which must have the hub for itself. Loop turns of more than 10 ms are counted in each, by the hub.
"""
from __future__ import annotations

import argparse
import multiprocessing
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.load_kafka import Reader, Run
from bench.load_pair import dial
from bench.measure import LOAD, LOAD_HELP, Spread, measure_rate, median_spread, table
from bench.recovery import GB, PARTITIONS, SIZE, fill
from bench.servers import Server, forget_cached, start_hub, work_folder

BATCH: Final = 100
KINDS: Final = ("PUBACK", "delivery")
LONG_TURNS: Final = re.compile(r'^gatehouse_loop_long_turns_total\{of="(\w+)"\} ([\d.]+)', re.MULTILINE)


def keep_replaying(run: Run, end_messages: int, replayed: Any) -> None:
    """Read everything from the start, and again."""
    connection = dial(run.port)
    while True:
        reader, before = Reader(run), replayed.value
        while reader.messages < end_messages:
            reader.step(connection)
            replayed.value = before + reader.messages


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


def long_turns(hub: Server) -> int:
    """Turns of more than 10 ms so far, as the hub counts them: the kernel's and what else it saw."""
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/metrics", timeout=10) as page:
        return round(sum(float(count) for _, count in LONG_TURNS.findall(page.read().decode())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=int, default=1)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--load", type=Path, default=LOAD, help=LOAD_HELP)
    options = parser.parse_args()
    spreads: list[dict[str, list[Spread]]] = [{kind: [] for kind in KINDS} for _ in range(3)]
    rates: list[float] = []
    alone_rates: list[float] = []
    turns = [0, 0, 0]
    end_messages = options.gb * GB // (2 * SIZE)    # half of what is there: never the newest
    settings = {"KERNEL__RETENTION_BYTES": str(4 * options.gb * GB)}
    with work_folder() as folder, ExitStack() as stack:
        hub, other = (start_hub(folder / name, doors=("mqtt", "kafka", "http"), settings=settings)
                      for name in ("hub", "other"))
        for server in (hub, other):
            stack.callback(server.stop)
            fill(server, options.gb * GB, BATCH)
        for _ in range(options.rounds):
            for number, replayed_hub in enumerate((None, other, hub)):
                before = long_turns(hub)
                with ExitStack() as replays:
                    if replayed_hub is not None:
                        replays.enter_context(
                            replaying(replayed_hub, end_messages, rates if replayed_hub is hub else []))
                    add(spreads[number], measure_rate(options.load, hub, options.rate, options.seconds))
                turns[number] += long_turns(hub) - before
            with replaying(hub, end_messages, alone_rates):
                time.sleep(options.seconds)
    rows = []
    for kind in KINDS:
        alone, beside, replayed = (median_spread(found[kind]) for found in spreads)
        rows.append([f"send to {kind}, {options.rate:,} msg/s",
                     *(f"{one.p50:.2f}, {one.p99:.2f}, {one.longest:.1f}" for one in (alone, beside, replayed)),
                     f"{replayed.p99 / alone.p99:.1f} x, {replayed.p99 / beside.p99:.1f} x"])
    print(table(["p50, p99, longest in ms", "alone", "replay of another hub", "replay of this hub",
                 "p99 against these (aim: below 2 x)"], rows))
    print(f"\nthe replay got {median(rates):,.0f} msg/s, {median(rates) * SIZE / 1e6:,.0f} MB/s beside live messages, "
          f"{median(alone_rates):,.0f} msg/s, {median(alone_rates) * SIZE / 1e6:,.0f} MB/s alone")
    print("loop turns of more than 10 ms, all rounds together: {} alone, {} beside a replay of another hub, {} beside "
          "one of this hub".format(*turns))


def add(to: dict[str, list[Spread]], found: dict[str, Spread]) -> None:
    for kind, spread in found.items():
        to[kind].append(spread)


if __name__ == "__main__":
    main()
