"""A reader at the tail while one writer appends as fast as the hub takes it: its lag must stay flat.

    python -m bench.tail_lag [--seconds 60] [--batch 1000] [--partitions 16]

Lag is what is acknowledged and not yet read, looked at ten times a second. The log is bounded at 2 GB, so retention
deletes segments meanwhile. Not counted: the first two seconds.
"""
from __future__ import annotations

import argparse
import multiprocessing
import time
from statistics import median
from typing import Any, Final

from bench.load_kafka import Reader, Run, Writer, create_topic
from bench.load_pair import LoadFailed, dial
from bench.measure import table
from bench.servers import start_hub, work_folder

SIZE: Final = 100
WINDOW: Final = 8
LOOK_S: Final = 0.1
SKIP_S: Final = 2.0
LOG_BYTES: Final = 2 * 10**9
PARTS: Final = 6


def keep_writing(run: Run, written: Any) -> None:
    writer = Writer(run)
    while True:
        writer.step()
        written.value = writer.answered * run.batch


def keep_reading(run: Run, read: Any) -> None:
    connection = dial(run.port)
    reader = Reader(run)
    while True:
        reader.step(connection)
        read.value = reader.messages


def watch(run: Run, seconds: float) -> list[tuple[float, int, int]]:
    """(seconds since the start, acknowledged, lag), all in messages. Raises LoadFailed when a side stops."""
    written, read = multiprocessing.RawValue("q", 0), multiprocessing.RawValue("q", 0)
    children = [multiprocessing.Process(target=keep_reading, args=(run, read)),
                multiprocessing.Process(target=keep_writing, args=(run, written))]
    looks: list[tuple[float, int, int]] = []
    try:
        for child in children:
            child.start()
        began_s = time.perf_counter()
        while (now_s := time.perf_counter() - began_s) < SKIP_S + seconds:
            got = read.value    # first: what is read is acknowledged, or about to be
            if now_s >= SKIP_S:
                looks.append((now_s - SKIP_S, written.value, max(0, written.value - got)))
            time.sleep(LOOK_S)
            if not all(child.is_alive() for child in children):
                raise LoadFailed("a side has stopped, see above")
        return looks
    finally:
        for child in children:
            child.terminate()
            child.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=16)
    options = parser.parse_args()
    with work_folder() as folder:
        server = start_hub(folder / "hub", doors=("kafka",), settings={"KERNEL__RETENTION_BYTES": str(LOG_BYTES)})
        try:
            run = Run(server.ports["kafka"], "tail", options.partitions, options.batch, SIZE, 1 << 40, -1, WINDOW)
            create_topic(run)
            looks = watch(run, options.seconds)
        finally:
            server.stop()
    rows, part_s = [], options.seconds / PARTS
    for number in range(PARTS):
        part = [look for look in looks if part_s * number <= look[0] < part_s * (number + 1)]
        rate = (part[-1][1] - part[0][1]) / (part[-1][0] - part[0][0])
        lags = [lag for _, _, lag in part]
        rows.append([f"{part_s * number:.0f} to {part_s * (number + 1):.0f} s", f"{rate:,.0f}", f"{median(lags):,.0f}",
                     f"{max(lags):,}", f"{median(lags) / rate * 1e3:.1f}"])
    print(table(["reader at the tail, full append rate", "appended msg/s", "median lag, messages", "longest",
                 "median lag, ms"], rows))


if __name__ == "__main__":
    main()
