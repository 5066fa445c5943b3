"""What recording journeys costs at each door: the same loads against hubs with tracing off, as a hub is set up, at 1 %
of all messages, and with every message followed.

    python -m bench.tracing_doors [--rounds 4] [--seconds 2] [--doors mqtt amqp kafka http]

Each round runs a load against the hubs one after the other, the first of them another one each time, and what it says
of a hub is held against the hub without tracing in the same round: whatever else the machine does, it does to
neighbours. Every load is first run once at each hub, to warm it and to see how many messages it sends in `--seconds`,
so that start and end of a run count for little. All of it takes some five minutes. Shown are medians of rounds, with
the quartiles of their ratios: of the rate, and of the hub's own processor time for a message, which a busy machine
changes less.

`as set` is `rate = 0.01` with the 200 messages a second that a hub follows at most unless it is told otherwise;
`1 %` has no such bound, so that it is one of a hundred however many there are. The aims: at 1 % 97 % of the rate
without, with every message half of it.
"""
from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median, quantiles
from typing import Final, NamedTuple

from bench.guard import DOORS, Options, rate
from bench.servers import Server, start_hub, work_folder

LOADS: Final[tuple[tuple[str, str, Options], ...]] = (
    ("mqtt", "mqtt-pipe", {"qos": 1, "linger": 0.2}), ("mqtt", "mqtt-many", {"connections": 500}),
    ("amqp", "amqp-pipe", {}), ("kafka", "kafka-pipe", {"topic": "tens", "batch": 10}),
    ("kafka", "kafka-pipe", {"topic": "hundreds", "batch": 100}), ("http", "http-many", {}))
"""(door, mode, options)."""

SETTINGS: Final = {"off": "enabled = false", "as set": "", "1 %": "rate = 0.01\nfollowed_per_second = 1000000",
                   "all": "rate = 1.0\nfollowed_per_second = 1000000"}
FIRST_N: Final = 20_000
"""Messages of the run that says how many a run has."""

KEPT: Final = "[kernel]\nretention_bytes = 4294967296\nsegment_bytes = 67108864\n"
"""What a hub keeps of a run: the next one does not need it, and the disk has an end."""


class Run(NamedTuple):
    """One load against one hub."""

    messages_s: float
    processor_us: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0, help="About so long is a run.")
    parser.add_argument("--doors", nargs="*", default=[], help="These alone.")
    parser.add_argument("--loads", nargs="*", default=[], help="These alone: mqtt-pipe ...")
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), help="These beside `off`: as set, 1 %%, all.")
    options = parser.parse_args()
    with work_folder() as folder:
        hubs: dict[str, Server] = {}
        try:
            for at, name in enumerate(dict.fromkeys(["off", *options.settings])):
                hubs[name] = start_hub(Path(folder) / str(at), doors=DOORS, more=f"{KEPT}[tracing]\n{SETTINGS[name]}\n")
            for door, mode, more in LOADS:
                if options.doors and door not in options.doors or options.loads and mode not in options.loads:
                    continue
                rates = [rate(hub, door, mode, {**more, "n": FIRST_N}, False)[0] for hub in hubs.values()]
                n = max(FIRST_N, int(max(rates) * options.seconds) // 1_000 * 1_000)
                show(f"{mode} {more.get('batch', '')}", n, measure(hubs, door, mode, {**more, "n": n}, options.rounds))
        finally:
            for hub in hubs.values():
                hub.stop()


def measure(hubs: dict[str, Server], door: str, mode: str, options: Options, rounds: int) -> list[dict[str, Run]]:
    """Every hub once a round, each round in another order."""
    names = list(hubs)
    measured: list[dict[str, Run]] = []
    for turn in range(rounds):
        first = turn % len(names)
        order = names[first:] + names[:first]
        runs = {name: Run(*rate(hubs[name], door, mode, options, False))
                for name in (order if turn % 2 else reversed(order))}
        measured.append(runs)
    return measured


def show(load: str, n: int, measured: list[dict[str, Run]]) -> None:
    """Two lines: the rate, and the processor time of a message."""
    for field, what, width in (("messages_s", "msg/s", 0), ("processor_us", "us of the processor", 2)):
        parts = []
        for name in measured[0]:
            values = [getattr(runs[name], field) for runs in measured]
            ratios = [getattr(runs[name], field) / getattr(runs["off"], field) for runs in measured]
            low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
            parts.append(f"{name} {median(values):10,.{width}f}" + ("" if name == "off" else
                                                                   f" ({middle:4.2f}: {low:4.2f} to {high:4.2f})"))
        print(f"{load:15}{n if not width else '':>10} {what:20} {'   '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
