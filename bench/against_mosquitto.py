"""The MQTT door beside Debian's mosquitto: pipes, many connections, lateness at a rate and at half of its own peak.

    python -m bench.against_mosquitto [--rounds 5] [--n 600000] [--connections 10 100 500 4000] [--rates 20000 0]
                                      [--load PATH]

Both servers run through the whole measurement; each round asks ours, then mosquitto. Ours stores every QoS 1 message
with fdatasync before its PUBACK; mosquitto, with persistence off, stores nothing. mosquitto runs without its limits of
messages in flight and queued, which would make it drop.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.measure import (
    LOAD,
    LOAD_HELP,
    Pipe,
    Spread,
    measure_many,
    measure_pipe,
    measure_rate,
    median_pipe,
    median_spread,
    table,
)
from bench.servers import Server, start_hub, start_mosquitto, work_folder

Measure = Callable[[Server], Pipe]
AIMS = {10: ">= 0.7 x", 100: ">= 1.0 x", 500: ">= 1.1 x", 4_000: ">= 1.0 x"}
"""By connections with one message in flight."""


def compare(servers: list[Server], rounds: int, measure: Measure) -> list[Pipe]:
    """Medians for each server; the rounds take the servers in turn."""
    pipes: list[list[Pipe]] = [[] for _ in servers]
    for _ in range(rounds):
        for server, of_server in zip(servers, pipes, strict=True):
            of_server.append(measure(server))
    return [median_pipe(of_server) for of_server in pipes]


def row(name: str, aim: str, ours: Pipe, theirs: Pipe) -> list[str]:
    def cpu(pipe: Pipe) -> str:
        return f"{pipe.user_us:.2f} + {pipe.system_us:.2f}"

    def rate(pipe: Pipe) -> str:
        return f"{pipe.end_to_end:,.0f}" + ("" if pipe.received_share == 1 else f" ({pipe.received_share:.1%} arrived)")

    return [name, rate(ours), rate(theirs), f"{ours.end_to_end / theirs.end_to_end:.1f} x", aim, cpu(ours), cpu(theirs)]


def compare_rates(servers: list[Server], rounds: int, load: Path, rates: list[int], seconds: float) -> None:
    spreads: list[dict[str, list[Spread]]] = [{"PUBACK": [], "delivery": []} for _ in servers]
    for _ in range(rounds):
        for server, rate, of_server in zip(servers, rates, spreads, strict=True):
            for kind, spread in measure_rate(load, server, rate, seconds).items():
                of_server[kind].append(spread)
    rows = []
    for server, rate, of_server in zip(servers, rates, spreads, strict=True):
        for kind, found in of_server.items():
            middle = median_spread(found)
            rows.append([f"{server.name}, send to {kind}", f"{rate:,}", f"{middle.p50:.2f}", f"{middle.p99:.2f}",
                         f"{middle.longest:.1f}"])
    print(table(["QoS 1 at a rate", "msg/s", "p50 ms", "p99 ms", "longest ms"], rows), flush=True)


def many(options: argparse.Namespace, connections: int, server: Server) -> Pipe:
    """Fewer messages where few connections bring them."""
    return measure_many(options.load, server, connections, min(options.n // 3, 2_000 * connections + 5_000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--n", type=int, default=600_000,
                        help="messages of a pipe; a third of them with --connections")
    parser.add_argument("--connections", type=int, nargs="+", default=[500], help="with one message in flight each")
    parser.add_argument("--rates", type=int, nargs="*", default=[20_000, 0],
                        help="messages a second at which it is measured how late they are; 0: half of its own peak")
    parser.add_argument("--seconds", type=float, default=5, help="of each run at a fixed rate")
    parser.add_argument("--load", type=Path, default=LOAD, help=LOAD_HELP)
    options = parser.parse_args()
    with work_folder() as folder:
        servers = [start_hub(folder / "hub", doors=("mqtt",)), start_mosquitto(folder / "mosquitto")]
        try:
            measures: list[tuple[str, str, Measure]] = [
                ("QoS 1 pipe", ">= 10 x", partial(measure_pipe, options.load, door="mqtt", mode="mqtt-pipe", qos=1,
                                                 n=options.n)),
                ("QoS 0 pipe", ">= 12 x", partial(measure_pipe, options.load, door="mqtt", mode="mqtt-pipe", qos=0,
                                                 n=options.n)),
                *((f"{count} connections, QoS 1, one in flight", AIMS.get(count, ""), partial(many, options, count))
                  for count in options.connections)]
            rows, peaks = [], [0, 0]
            for name, aim, measure in measures:
                ours, theirs = compare(servers, options.rounds, measure)
                rows.append(row(name, aim, ours, theirs))
                if name == "QoS 1 pipe":
                    peaks = [int(ours.end_to_end), int(theirs.end_to_end)]
            print(table(["100-byte messages", "hub msg/s", "mosquitto msg/s", "ratio", "aim", "hub user + system µs",
                         "mosquitto user + system µs"], rows) + "\n", flush=True)
            for rate in options.rates:
                compare_rates(servers, options.rounds, options.load, [rate or peak // 2 for peak in peaks],
                              options.seconds)
        finally:
            for server in servers:
                server.stop()


if __name__ == "__main__":
    main()
