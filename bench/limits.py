"""What limits cost: the same loads against a hub without limits, and against one with five that apply to each message.

    python -m bench.limits [--rounds 3] [--n 100000] [--load mqtt-pipe ...]

Each load runs against both hubs in turn, every second round the other way about. The limits are of the hub, the door,
the user, the topic and an address filter, each in messages and bytes, and so high that none of them is reached: what
differs is that every burst is weighed and charged.
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
    ("amqp", "amqp-pipe", {"topic": "work"}), ("kafka", "kafka-pipe", {"topic": "batches"}), ("http", "http-many", {}))
"""(door, mode, options). Kafka counts ten messages for one of the others."""

HIGH: Final = 'messages_per_s = 1e12\nbytes_per_s = 1e15\n'


def start_limited(folder: Path) -> Server:
    """A hub whose every message has five limits. Raises ServerFailed."""
    five = ("hub", "door:*", "user:*", "topic:*", "address:#")
    return start_hub(folder, doors=DOORS, more="\n".join(f'[[limits]]\nof = "{of}"\n{HIGH}' for of in five))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--n", type=int, default=100_000, help="of a pipe; HTTP sends a tenth, Kafka ten times")
    parser.add_argument("--load", nargs="+", default=[mode for _, mode, _ in LOADS])
    options = parser.parse_args()
    with work_folder() as folder:
        free, limited = start_hub(folder / "free", doors=DOORS), start_limited(folder / "limited")
        try:
            for door, mode, more in [each for each in LOADS if each[1] in options.load]:
                n = options.n // 10 if door == "http" else options.n * 10 if door == "kafka" else options.n
                tell(free, limited, door, mode, {**more, "n": n}, options.rounds)
        finally:
            for server in (free, limited):
                server.stop()


def tell(free: Server, limited: Server, door: str, mode: str, options: Options, rounds: int) -> None:
    """One line: both hubs in turn, medians."""
    hubs = free, limited
    runs: list[tuple[tuple[float, float], ...]] = []
    for turn in range(rounds):
        pair = [rate(hub, door, mode, options, False) for hub in (hubs if turn % 2 == 0 else hubs[::-1])]
        runs.append(tuple(pair if turn % 2 == 0 else pair[::-1]))
    (free_rate, free_us), (limited_rate, limited_us) = (
        tuple(median(run[which][part] for run in runs) for part in (0, 1)) for which in (0, 1))
    print(f"{door:6} {mode:10} {free_rate:10,.0f} -> {limited_rate:10,.0f} msg/s   "
          f"{free_us:6.3f} -> {limited_us:6.3f} us of the hub's processor a message ({limited_us / free_us - 1:+.1%})",
          flush=True)


if __name__ == "__main__":
    main()
