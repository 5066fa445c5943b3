"""From `kill -9` to `gatehouse ready`, with the index and with the index deleted.

    python -m bench.recovery [--gb 1 [10]] [--batch 100]

The hub is filled over the Kafka door (16 partitions, batches of 100 messages of 100 bytes) and killed while it is being
written to; its files are put out of the system's page cache before each start. Starting an empty hub is shown beside
it, since much of a start is Python's imports. What was acknowledged is read back at the end. 10 GB need 25 GB of free
disk.
"""
from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from typing import Final

from bench.load_kafka import Reader, Run, Writer, create_topic
from bench.load_pair import LoadFailed, dial
from bench.measure import table
from bench.servers import Server, forget_cached, start_hub, work_folder

GB: Final = 10**9
SIZE: Final = 100
PARTITIONS: Final = 16
WINDOW: Final = 32


def fill(server: Server, size_bytes: int, batch: int, topic: str = "fill") -> int:
    """Write until that many bytes of batches are acknowledged, with more on their way; returns how many messages."""
    run = Run(server.ports["kafka"], topic, PARTITIONS, batch, SIZE, 1 << 40, -1, WINDOW)
    create_topic(run)
    writer = Writer(run)
    while writer.answered * len(writer.batch) < size_bytes:
        writer.step()
    return writer.answered * batch


def read_back(server: Server, batch: int, messages: int, topic: str = "fill") -> None:
    """Raises LoadFailed where there are fewer."""
    run = Run(server.ports["kafka"], topic, PARTITIONS, batch, SIZE, messages, -1, WINDOW)
    reader = Reader(run)
    with dial(run.port) as connection:
        while reader.messages < messages:
            before = reader.messages
            reader.step(connection)
            if reader.messages == before:
                raise LoadFailed(f"{messages - before} of {messages} messages are gone")


def timed_start(folder: Path, settings: dict[str, str]) -> tuple[Server, float]:
    if (folder / "data" / "log").exists():
        forget_cached(folder / "data" / "log")
    began_s = time.perf_counter()
    server = start_hub(folder, doors=("kafka",), settings=settings)
    return server, time.perf_counter() - began_s


def measure(folder: Path, gb: int, batch: int) -> list[str]:
    """One row: how long each start took, in seconds."""
    settings = {"KERNEL__RETENTION_BYTES": str(4 * gb * GB)}
    server, empty_s = timed_start(folder, settings)
    messages = fill(server, gb * GB, batch)
    server.kill()
    log_bytes = sum(file.stat().st_size for file in (folder / "data" / "log").iterdir())
    server, with_index_s = timed_start(folder, settings)
    server.kill()
    shutil.rmtree(folder / "data" / "index")
    server, without_s = timed_start(folder, settings)
    resident = server.resident_bytes()
    read_back(server, batch, messages)
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
