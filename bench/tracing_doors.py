"""What recording journeys costs at each door: the same loads against hubs with tracing off, at 1 %, and with every
message followed.

    python -m bench.tracing_doors [--rounds 3] [--n 50000] [--doors mqtt amqp kafka http]

Each load runs against the three hubs in turn. `followed_per_second` is out of the way at 1 %, so that it is one of a
hundred messages however many there are. The aims: at 1 % 97 % of the rate without, with every message half of it.
"""
from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from typing import Final

from bench.guard import DOORS, Options, rate
from bench.servers import Server, start_hub, work_folder

LOADS: Final[tuple[tuple[str, str, Options], ...]] = (
    ("mqtt", "mqtt-pipe", {"qos": 1, "linger": 0.2}), ("mqtt", "mqtt-many", {"connections": 100}),
    ("amqp", "amqp-pipe", {}),
    ("kafka", "kafka-pipe", {"topic": "batches"}), ("http", "http-many", {}))
"""(door, mode, options). HTTP sends a tenth of the others, Kafka ten times as much."""

SETTINGS: Final = {"off": "enabled = false", "1 %": "rate = 0.01\nfollowed_per_second = 1000000",
                   "all": "rate = 1.0\nfollowed_per_second = 1000000"}
TIMES: Final = {"http": 0.1, "kafka": 10}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--doors", nargs="*", default=[], help="These alone.")
    parser.add_argument("--n", type=int, default=50_000, help="of a pipe; HTTP sends a tenth, Kafka ten times")
    options = parser.parse_args()
    with work_folder() as folder:
        hubs: dict[str, Server] = {}
        try:
            for at, (name, table) in enumerate(SETTINGS.items()):
                hubs[name] = start_hub(Path(folder) / str(at), doors=DOORS, more=f"[tracing]\n{table}\n")
            for door, mode, more in [load for load in LOADS if not options.doors or load[0] in options.doors]:
                tell(hubs, door, mode, {**more, "n": int(options.n * TIMES.get(door, 1))}, options.rounds)
        finally:
            for hub in hubs.values():
                hub.stop()


def tell(hubs: dict[str, Server], door: str, mode: str, options: Options, rounds: int) -> None:
    """Two lines: all hubs in turn, medians, and how much of the rate without tracing that is; and the hub's own
    processor time of a message, which a busy machine changes less."""
    runs = [{name: rate(hub, door, mode, options, False) for name, hub in hubs.items()} for _ in range(rounds)]
    for at, what, width in ((0, "msg/s", 0), (1, "us of the processor", 2)):
        medians = {name: median(run[name][at] for run in runs) for name in hubs}
        parts = [f"{name} {medians[name]:10,.{width}f} ({median(run[name][at] / run['off'][at] for run in runs):4.2f})"
                 for name in hubs]
        print(f"{door:6} {mode:10} {what:20} {'   '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
