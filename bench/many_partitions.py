"""A million partitions that exist: what they cost in memory, and what the index costs on disk for each message.

    python -m bench.many_partitions [--topics 100] [--partitions 10000]

Through the Kafka door of a running hub: topics of many partitions, one 100-byte message in each partition. Resident
memory is compared with the same hub before, and after a restart, when the newest messages are no longer in its cache.
The index is measured as it lies on disk after a clean stop, less that of an empty hub: sparse (those one-message
partitions) and dense (16 partitions, over MQTT and in Kafka batches of 10).
"""
from __future__ import annotations

import argparse
import socket
import struct
import time
from pathlib import Path
from typing import Final

from bench.load_kafka import PRODUCE, PRODUCE_TIMEOUT_MS, Run, create_topic, record_batch, request_head, text
from bench.load_pair import LoadFailed, dial, receive
from bench.measure import LOAD, measure_pipe, table
from bench.servers import Server, start_hub, work_folder

MIB: Final = 1 << 20
SIZE: Final = 100
DENSE_N: Final = 1_000_000
CHECKPOINT_S: Final = 5.0        # two of the hub's own intervals, and a little
ANSWER: Final = struct.Struct(">ihqqq")          # partition, error, base offset, append time, log start


def write_each(connection: socket.socket, topic: str, partitions: int, batch: bytes) -> None:
    """One Produce with the same batch for every partition. Raises LoadFailed."""
    body = struct.pack(">hhii", -1, -1, PRODUCE_TIMEOUT_MS, 1) + text(topic) + struct.pack(">i", partitions)
    body += b"".join([struct.pack(">ii", number, len(batch)) + batch for number in range(partitions)])
    connection.sendall(request_head(PRODUCE, 7, len(body)) + body)
    answer = receive(connection, struct.unpack(">i", receive(connection, 4))[0])
    at = 4 + 4 + 2 + len(topic) + 4
    errors = [row[1] for row in ANSWER.iter_unpack(answer[at:at + partitions * ANSWER.size]) if row[1]]
    if errors:
        raise LoadFailed(f"Produce answered error {errors[0]}")


def fill_partitions(server: Server, topics: int, partitions: int) -> None:
    batch = record_batch(1, SIZE)
    for number in range(topics):
        run = Run(server.ports["kafka"], f"many-{number}", partitions, 1, SIZE, partitions, -1, 1)
        create_topic(run)
        with dial(run.port) as connection:
            write_each(connection, run.topic, partitions, batch)


def index_bytes(server: Server) -> int:
    """Stop the hub; what its index takes on disk."""
    server.stop()
    return sum(file.stat().st_size for file in (server.folder / "data" / "index").rglob("*") if file.is_file())


def measure_dense(folder: Path, door: str, mode: str, **options: int) -> int:
    server = start_hub(folder, doors=(door,))
    try:
        measure_pipe(LOAD, server, door, mode, n=DENSE_N, **options)
        time.sleep(CHECKPOINT_S)
        return index_bytes(server)
    finally:
        server.stop()


def measure_sparse(folder: Path, topics: int, partitions: int) -> tuple[list[list[str]], int]:
    """The rows about memory, and the bytes of the index."""
    server = start_hub(folder, doors=("kafka",))
    try:
        empty = server.resident_bytes()
        fill_partitions(server, topics, partitions)
        time.sleep(CHECKPOINT_S)
        full = server.resident_bytes()
        size = index_bytes(server)
        server = start_hub(folder, doors=("kafka",))
        again = server.resident_bytes()
    finally:
        server.stop()
    rows = [["empty hub", f"{empty / MIB:.0f}", ""],
            ["after a message to each", f"{full / MIB:.0f}", f"{(full - empty) / MIB:.0f}"],
            ["the same, started again", f"{again / MIB:.0f}", f"{(again - empty) / MIB:.0f}"]]
    return rows, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=10_000, help="of each topic; at most 20,000")
    options = parser.parse_args()
    n = options.topics * options.partitions
    with work_folder() as folder:
        nothing = index_bytes(start_hub(folder / "empty"))
        memory, sparse = measure_sparse(folder / "sparse", options.topics, options.partitions)
        mqtt = measure_dense(folder / "mqtt", "mqtt", "mqtt-pipe", qos=1)
        kafka = measure_dense(folder / "kafka", "kafka", "kafka-pipe", batch=10, partitions=16)
    head = f"{n:,} partitions in {options.topics:,} topics (aim: 300 MiB above)"
    print(table([head, "resident MiB", "above empty"], memory))
    rows = [[f"sparse: {n:,} partitions, a message each", f"{(sparse - nothing) / n:.1f}"],
            ["dense: one partition over MQTT, QoS 1", f"{(mqtt - nothing) / DENSE_N:.2f}"],
            ["16 partitions, Kafka batches of 10", f"{(kafka - nothing) / DENSE_N:.2f}"]]
    print("\n" + table(["index on disk", "bytes a message"], rows), flush=True)


if __name__ == "__main__":
    main()
