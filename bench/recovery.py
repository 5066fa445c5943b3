"""From `kill -9` to `gatehouse ready`, with the index and with the index deleted.

    python -m bench.recovery [--gb 1 [10]] [--batch 100]

The hub is filled over the Kafka door (16 queues, batches of 100 messages of 100 bytes) and killed while it is being
written to. What the system has in its page cache stays there, as after a crash of the hub alone; starting an empty hub
is shown beside it, since most of that is Python's imports. 10 GB need 25 GB of free disk.
"""
from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from typing import Final

from bench.load_kafka import Run, Writer, create_topic
from bench.measure import table
from bench.servers import Server, start_hub, work_folder

GB: Final = 10**9
SIZE: Final = 100
PARTITIONS: Final = 16
WINDOW: Final = 32


def fill(server: Server, size_bytes: int, batch: int, topic: str = "fill") -> None:
    """Write until that many bytes of batches are acknowledged; the connection stays as busy as it was."""
    run = Run(server.ports["kafka"], topic, PARTITIONS, batch, SIZE, 1 << 40, -1, WINDOW)
    create_topic(run)
    writer = Writer(run)
    while writer.answered * len(writer.batch) < size_bytes:
        writer.step()


def timed_start(folder: Path, settings: dict[str, str]) -> tuple[Server, float]:
    began_s = time.perf_counter()
    server = start_hub(folder, doors=("kafka",), settings=settings)
    return server, time.perf_counter() - began_s


def measure(folder: Path, gb: int, batch: int) -> list[str]:
    """One row: how long each start took, in seconds."""
    settings = {"KERNEL__RETENTION_BYTES": str(4 * gb * GB)}
    server, empty_s = timed_start(folder, settings)
    fill(server, gb * GB, batch)
    server.kill()
    log_bytes = sum(file.stat().st_size for file in (folder / "data" / "log").iterdir())
    server, with_index_s = timed_start(folder, settings)
    server.kill()
    shutil.rmtree(folder / "data" / "index")
    server, without_s = timed_start(folder, settings)
    resident = server.resident_bytes()
    server.stop()
    return [f"{log_bytes / GB:.1f} GB of log", f"{empty_s:.1f} s", f"{with_index_s:.1f} s", f"{without_s:.1f} s",
            f"{resident / 1e6:,.0f} MB"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=int, nargs="+", default=[1])
    parser.add_argument("--batch", type=int, default=100)
    options = parser.parse_args()
    rows = []
    for gb in options.gb:
        with work_folder() as folder:
            rows.append(measure(folder / "hub", gb, options.batch))
    print(table(["kill -9 to ready", "empty hub", "with its index", "index deleted", "resident after that"], rows))


if __name__ == "__main__":
    main()
