"""Few MQTT connections with one message in flight: what a frame of a few messages lets through.

    python -m bench.few_connections [--connections 1 10 100] [--turns 0 40] [--rounds 5] [--n 3000]

A message of QoS 1 is acknowledged after `fdatasync`. So one connection cannot have more than one message in the time of
a sync and of a round trip on the loopback; both are measured in each round beside the hub: the sync as the log does it,
in room that was allocated before, the trip with two processes that do nothing else. `--turns` are values of
`kernel.gather_turns`, a hub for each; all are asked in turn, and medians of the rounds are printed.
"""
from __future__ import annotations

import argparse
import os
import socket
import time
from pathlib import Path
from statistics import median
from typing import Final

from bench.load_pair import receive
from bench.measure import LOAD, measure_many, table
from bench.preallocation import allocate, append
from bench.servers import start_hub, work_folder

PUBLISH_BYTES: Final = 120
PUBACK_BYTES: Final = 4
TRIPS: Final = 2_000
AIM: Final = 0.6                 # of the limit, one connection


def trip_s() -> float:
    """The median of a publish's bytes there and an acknowledgement's back, between two processes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        child = os.fork()
        if not child:
            answering, _ = listening.accept()
            answering.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while len(answering.recv(PUBLISH_BYTES)) == PUBLISH_BYTES:
                answering.sendall(bytes(PUBACK_BYTES))
            os._exit(0)
        took = []
        with socket.create_connection(listening.getsockname()) as asking:
            asking.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(TRIPS):
                begin_s = time.perf_counter()
                asking.sendall(bytes(PUBLISH_BYTES))
                receive(asking, PUBACK_BYTES)
                took.append(time.perf_counter() - begin_s)
        os.waitpid(child, 0)
    return median(took)


def measure(folder: Path, options: argparse.Namespace) -> tuple[float, float, dict[tuple[int, int], list[float]]]:
    """Medians of sync and trip in seconds, and messages a second by (turns, connections), round by round."""
    rates: dict[tuple[int, int], list[float]] = {}
    syncs: list[float] = []
    trips: list[float] = []
    hubs = {turns: start_hub(folder / f"hub-{turns}", doors=("mqtt",),
                             settings={"KERNEL__GATHER_TURNS": str(turns)}) for turns in options.turns}
    try:
        for _ in range(options.rounds):
            syncs += append(folder, allocate)
            trips.append(trip_s())
            for count in options.connections:
                for turns, hub in hubs.items():
                    pipe = measure_many(LOAD, hub, count, options.n * min(count, 10))
                    rates.setdefault((turns, count), []).append(pipe.end_to_end)
    finally:
        for hub in hubs.values():
            hub.stop()
    return median(syncs), median(trips), rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--turns", type=int, nargs="+", default=[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--n", type=int, default=3_000, help="messages of one connection; ten times that of many")
    options = parser.parse_args()
    with work_folder() as folder:
        sync_s, back_s, rates = measure(folder, options)
    limit = 1 / (sync_s + back_s)
    print(f"fdatasync {sync_s * 1e6:.0f} µs, a round trip {back_s * 1e6:.0f} µs: one connection at most {limit:,.0f} "
          "messages a second; load average "
          f"{os.getloadavg()[0]:.1f}")
    rows = [[f"{count}, `gather_turns` {turns}", f"{median(of_these):,.0f}", f"{median(of_these) / limit / count:.2f}",
             f">= {AIM}" if count == 1 else ""]
            for (turns, count), of_these in sorted(rates.items(), key=lambda item: item[0][::-1])]
    print(table(["connections with one in flight", "msg/s", "of what sync and trip let through", "aim"], rows))


if __name__ == "__main__":
    main()
