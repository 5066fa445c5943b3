"""What journeys take and how quickly one is found among many; and whether a flood of errors stays within its budget.

    python -m bench.journey_lookups [--messages 100000]

A kernel in a world of one thread, with its log and its index on disk; every message is followed: stored, handed out,
acked. Shown are the bytes of an event, with its index, and the time of a look-up by id among all of them. Then a
million messages an hour fail, for three minutes of the world's clock.
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
from gatehouse.kernel.journeys.settings import JourneySettings
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.store import RocksStore

LOOKUPS = 2_000
FAILING_A_MINUTE = 1_000_000 // 60


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def look_up(folder: Path, count: int) -> None:
    """Fill a kernel, then ask it."""
    (folder / "log").mkdir()
    store = RocksStore(folder / "index")
    case = Case(JourneySettings(topics={"orders": 1.0}), store=store, folder=folder / "log",
                settings=KernelSettings(segment_bytes=64 << 20))
    ids: list[int] = []
    begun = time.process_time()
    for _ in range(count // BURST):
        ids += [position[2] for position in case.publish()]
    case.hub.world.advance(60_000)
    took = time.process_time() - begun
    statistics = case.hub.kernel.statistics()
    events = statistics["journey_events_total"]
    print(f"{events} events of {count} messages, {took / count * 1e6:.0f} us of the processor a message")
    topic = case.hub.kernel.topic("journeys")
    assert topic is not None
    sizes: list[int] = []
    case.hub.kernel.sizes([topic.partition_id(0)], sizes.extend)
    case.hub.run()
    log_bytes = sum(sizes)
    print(f"{log_bytes / events:.0f} bytes of log and {size_of(folder / 'index') / events:.0f} bytes of index an event "
          "(the index of the messages themselves is in it)")
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


def fail() -> None:
    """Every message is given back once and dies, as many as a million an hour."""
    case: Any = Case(JourneySettings(rate=0.0, errors_per_minute=1_000), rejects=True)
    for _ in range(3 * 60):
        case.publish(FAILING_A_MINUTE // 60)
        case.hub.world.advance(1_000)
    statistics = case.hub.kernel.statistics()
    print(f"{3 * FAILING_A_MINUTE} messages that die in three minutes: {statistics['journey_events_total']} events, "
          f"{statistics['journey_events_left_out_total']} counted and left out")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="That are followed.")
    with tempfile.TemporaryDirectory() as folder:
        look_up(Path(folder), parser.parse_args().messages)
    fail()


if __name__ == "__main__":
    main()
