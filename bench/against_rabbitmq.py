"""The AMQP door beside Debian's rabbitmq-server, classic and quorum queues: pipes with confirms, one in flight, and
many connections with one in flight.

    python -m bench.against_rabbitmq [--rounds 3] [--n 300000] [--load PATH]

Both servers run through the whole measurement; each round asks ours, then RabbitMQ with a classic, then with a quorum
queue. Messages are persistent, the consumer acknowledges by hand. Ours confirms after fdatasync, RabbitMQ's quorum
queue after fsync of its log, its classic queue after the sync of its store, or once a consumer has acknowledged.
"""
from __future__ import annotations

import argparse
from pathlib import Path

from bench.measure import LOAD, LOAD_HELP, Pipe, measure_many, measure_pipe, median_pipe, table
from bench.rabbitmq import start_rabbitmq
from bench.servers import Server, start_hub, work_folder

QUEUE_TYPES = ("classic", "quorum")
WINDOWS = ((2000, 1, ">= 4 x"), (1, 50, ">= 1.5 x"))
"""(messages in flight, what the number of messages is divided by, aim)"""
CONNECTIONS = ((100, 6, ">= 4 x"),)
"""The same with one message in flight on each of so many connections, which publish alone."""


def compare(hub: Server, rabbit: Server, rounds: int, load: Path, n: int, window: int) -> list[Pipe]:
    """Medians: ours, classic, quorum; the rounds take them in turn."""
    who = [(hub, QUEUE_TYPES[0]), *[(rabbit, kind) for kind in QUEUE_TYPES]]
    pipes: list[list[Pipe]] = [[] for _ in who]
    for _ in range(rounds):
        for (server, kind), of_server in zip(who, pipes, strict=True):
            of_server.append(measure_pipe(load, server, "amqp", "amqp-pipe", n=n, window=window, queue_type=kind,
                                          topic=f"load-{kind}"))
    return [median_pipe(of_server) for of_server in pipes]


def compare_many(hub: Server, rabbit: Server, rounds: int, load: Path, n: int, connections: int) -> list[Pipe]:
    """As `compare`."""
    who = [(hub, QUEUE_TYPES[0]), *[(rabbit, kind) for kind in QUEUE_TYPES]]
    runs: list[list[Pipe]] = [[] for _ in who]
    for _ in range(rounds):
        for (server, kind), of_server in zip(who, runs, strict=True):
            of_server.append(measure_many(load, server, connections, n, "amqp", queue_type=kind, topic=f"many-{kind}"))
    return [median_pipe(of_server) for of_server in runs]


def row(what: str, aim: str, pipes: list[Pipe]) -> list[str]:
    ours, *theirs = pipes
    rates = [f"{pipe.end_to_end:,.0f}" for pipe in pipes]
    ratios = [f"{ours.end_to_end / pipe.end_to_end:.1f} x" for pipe in theirs]
    cpu = [f"{pipe.user_us:.1f} + {pipe.system_us:.1f}" for pipe in pipes]
    return [what, *rates, *ratios, aim, *cpu]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--n", type=int, default=300_000, help="messages of a pipe; a fiftieth with one in flight")
    parser.add_argument("--load", type=Path, default=LOAD, help=LOAD_HELP)
    options = parser.parse_args()
    with work_folder() as folder:
        servers: list[Server] = [start_hub(folder / "hub", doors=("amqp",))]
        try:
            servers.append(start_rabbitmq(folder / "rabbitmq"))
            hub, rabbit = servers
            rows = [row(f"{window} in flight", aim,
                        compare(hub, rabbit, options.rounds, options.load, options.n // part, window))
                    for window, part, aim in WINDOWS]
            rows += [row(f"{count} connections with 1", aim,
                         compare_many(hub, rabbit, options.rounds, options.load, options.n // part, count))
                     for count, part, aim in CONNECTIONS]
        finally:
            for server in servers:
                server.stop()
    print(table(["100-byte messages, confirmed", "hub msg/s", "classic msg/s", "quorum msg/s", "to classic",
                 "to quorum", "aim", "hub user + system µs", "classic", "quorum"], rows))


if __name__ == "__main__":
    main()
