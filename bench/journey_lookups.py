"""What journeys take and how quickly one is found among many; and whether a flood of errors stays within its budget.

    python -m bench.journey_lookups [--messages 100000] [--alone 30000]

A kernel in a world of one thread, with its log and its index on disk; every message is followed: stored, handed out,
acked. Shown are the bytes of an event, with its index, and the time of a look-up by id among all of them: first of
bursts, of which one event tells much, then of messages that each have events of their own, since each has a correlation
id. Ten million events are `--messages 3400000`. Then a million messages an hour fail, for three minutes of the world's
clock, and at last for an hour of it. The aims: 200 bytes an event, p99 of a look-up 50 ms.
"""
from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.journeys import BURST, Case
from gatehouse.kernel.journeys.looking import Journey
from gatehouse.kernel.settings import JourneySettings, KernelSettings
from gatehouse.kernel.state.store import RocksStore

LOOKUPS = 2_000
FAILING_AN_HOUR = 1_000_000
ERRORS_A_MINUTE = 1_000


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def filled(folder: Path, count: int, alone: bool, journeys: JourneySettings | None) -> tuple[Case, list[int]]:
    """A kernel that has stored so many messages, and their ids."""
    folder.mkdir()
    (folder / "log").mkdir()
    store = RocksStore(folder / "index")
    case = Case(journeys, store=store, folder=folder / "log", settings=KernelSettings(segment_bytes=64 << 20))
    ids: list[int] = []
    for burst in range(count // BURST):
        ids += [position[2] for position in (case.publish_alone(burst * BURST) if alone else case.publish())]
    case.hub.world.advance(60_000)
    return case, ids


def look_up(folder: Path, count: int, alone: bool) -> None:
    """Fill a kernel, then ask it."""
    plain, name = folder.with_suffix(".off"), "each with its own" if alone else "in bursts"
    without, _ = filled(plain, count, alone, None)
    begun = time.process_time()
    case, ids = filled(folder, count, alone, JourneySettings(topics={"orders": 1.0}))
    took = time.process_time() - begun
    statistics = case.hub.kernel.statistics()
    events = statistics["journey_events_total"]
    print(f"{events} events of {count} messages, {name}, {took / count * 1e6:.0f} us of the processor a message")
    log_bytes = statistics["log_bytes"] - without.hub.kernel.statistics()["log_bytes"]
    index_bytes = size_of(folder / "index") - size_of(plain / "index")
    print(f"{log_bytes / events:.1f} bytes of log, with the trace contexts of their messages, and "
          f"{index_bytes / events:.1f} of index an event")
    times: list[float] = []
    used: list[float] = []
    found: list[Journey] = []
    for message_id in random.Random(7).choices(ids, k=LOOKUPS):
        begun, begun_used = time.perf_counter(), time.process_time()
        case.hub.kernel.looking.journey(message_id, "/", lambda journey, error: found.append(journey))
        case.hub.run()
        times.append((time.perf_counter() - begun) * 1_000)
        used.append((time.process_time() - begun_used) * 1_000)
    assert all(len(journey.events) >= 3 for journey in found) and len(found) == LOOKUPS
    for name, took_ms in (("by the clock", sorted(times)), ("of the processor", sorted(used))):
        print(f"a look-up among {events} events: p50 {took_ms[LOOKUPS // 2]:.2f} ms, "
              f"p99 {took_ms[LOOKUPS * 99 // 100]:.2f} ms {name}")


def fail(minutes: int) -> None:
    """Every message dies, as many as a million an hour; the budget is a thousand events a minute."""
    case: Any = Case(JourneySettings(rate=0.0, errors_per_minute=ERRORS_A_MINUTE), rejects=True)
    begun = time.process_time()
    died = 0
    for second in range(1, minutes * 60 + 1):
        count = FAILING_AN_HOUR * second // 3_600 - died
        case.publish(count)
        died += count
        case.hub.world.advance(1_000)
    took_s = time.process_time() - begun
    statistics = case.hub.kernel.statistics()
    events, left_out = statistics["journey_events_total"], statistics["journey_events_left_out_total"]
    print(f"{died} messages that die in {minutes} minutes: {events} events, {left_out} counted "
          f"and left out, {took_s:.1f} s of the processor")
    assert events <= (minutes + 1) * ERRORS_A_MINUTE, "the budget of errors holds"
    assert events + left_out == died, "what is not recorded is counted, and nothing twice"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000, help="That are followed, in bursts.")
    parser.add_argument("--alone", type=int, default=30_000, help="That are followed, each with events of its own.")
    parser.add_argument("--hour", action="store_true", help="A million messages fail, in an hour of the world's clock.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        look_up(Path(folder) / "bursts", options.messages, False)
        look_up(Path(folder) / "alone", options.alone, True)
    fail(60 if options.hour else 3)


if __name__ == "__main__":
    main()
