"""What limits cost: the same loads against one hub without limits, and with five that apply to each message.

    python -m bench.limits [--rounds 7] [--n 200000] [--load mqtt-pipe ...]

The limits are of the hub, the door, the user, the topic and an address filter, each in messages and bytes, in and out,
and so high that none of them is reached: what differs is that all is weighed and charged. One hub has the runs in
turn, and its limits come and go between them, as two hubs differ by more than limits cost; every second round goes the
other way about. Told are medians, and the median of what each round found.
"""
from __future__ import annotations

import argparse
import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Final

from bench.guard import DOORS, RATE, Options
from bench.measure import LOAD, run_load
from bench.servers import Server, start_hub, work_folder

LOADS: Final[tuple[tuple[str, str, Options], ...]] = (
    ("mqtt", "mqtt-pipe", {"qos": 1, "linger": 0.2}), ("mqtt", "mqtt-many", {"connections": 100}),
    ("amqp", "amqp-pipe", {"topic": "work"}), ("kafka", "kafka-pipe", {"topic": "batches"}), ("http", "http-many", {}))
"""(door, mode, options). Kafka counts ten messages for one of the others."""

FIVE: Final = ("hub", "door:*", "user:*", "topic:*", "address:#")
HIGH: Final = {"messages_per_s": 1e12, "bytes_per_s": 1e15}


def ask(server: Server, method: str, path: str, document: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the hub answers. Raises OSError where it refuses."""
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{server.ports['http']}{path}", body,
                                     {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    answered: dict[str, Any] = json.loads(text) if text else {}
    return answered


@contextmanager
def limited(server: Server) -> Iterator[None]:
    """Every message has five limits, in as out, until the end of this."""
    made = [ask(server, "POST", "/v1/limits", {"of": of, "direction": direction, **HIGH})
            for of in FIVE for direction in ("in", "out")]
    try:
        yield
    finally:
        for limit in made:
            ask(server, "DELETE", f"/v1/limits/{limit['id']}")


def run(server: Server, door: str, mode: str, options: Options) -> tuple[float, float]:
    """(messages a second, microseconds of the hub's processor for each)."""
    before_s = processor_s(server)
    said, _ = run_load(LOAD, server, door, mode, **options)
    used_s = processor_s(server) - before_s
    return float(RATE.findall(said)[-1].replace(",", "")), used_s / int(options["n"]) * 1e6


def processor_s(server: Server) -> float:
    """Of all its threads so far, to the nanosecond; /proc has it in hundredths of a second."""
    return time.clock_gettime(~server.pid << 3 | 2)    # Linux: the clock of a process, see clock_getcpuclockid(3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--n", type=int, default=200_000, help="of a pipe; HTTP sends a tenth, Kafka ten times")
    parser.add_argument("--load", nargs="+", default=[mode for _, mode, _ in LOADS])
    options = parser.parse_args()
    with work_folder() as folder:
        server = start_hub(folder / "hub", doors=DOORS)
        try:
            for door, mode, more in [each for each in LOADS if each[1] in options.load]:
                n = options.n // 10 if door == "http" else options.n * 10 if door == "kafka" else options.n
                tell(server, door, mode, {**more, "n": n}, options.rounds)
        finally:
            server.stop()


def tell(server: Server, door: str, mode: str, options: Options, rounds: int) -> None:
    """One line, after a run that counts for nothing."""
    run(server, door, mode, options)
    free: list[tuple[float, float]] = []
    five: list[tuple[float, float]] = []
    for turn in range(rounds):
        for is_limited in ((False, True) if turn % 2 == 0 else (True, False)):
            if not is_limited:
                free.append(run(server, door, mode, options))
                continue
            with limited(server):
                five.append(run(server, door, mode, options))
    (free_rate, free_us), (five_rate, five_us) = (
        tuple(median(column) for column in zip(*runs, strict=True)) for runs in (free, five))
    more = sorted(limited_us / free_us - 1 for (_, free_us), (_, limited_us) in zip(free, five, strict=True))
    print(f"{door:6} {mode:10} {free_rate:10,.0f} -> {five_rate:10,.0f} msg/s   {free_us:6.3f} -> {five_us:6.3f} us of "
          f"the hub's processor a message: {median(more):+.1%} (rounds {more[0]:+.1%} to {more[-1]:+.1%})", flush=True)


if __name__ == "__main__":
    main()
