"""Topics for the measurements with Spark: many 100-byte messages with keys, in record batches, over the Kafka door.

    records   keys `line<n>/temp` of 1,000 lines, values of 60 to 140 bytes, 100 on average; 1,000 a batch

A few batches are made once and sent again and again; servers set only their base offset.
"""
from __future__ import annotations

import random
import socket
import struct
import time
from typing import Final

from bench.load_kafka import PRODUCE, Run, create_topic, request_head, text
from bench.load_pair import LoadFailed, receive
from gatehouse.kernel.message import Piece
from gatehouse.kernel.records.batch import as_batch, encode_key, varint

TOPIC: Final = "measured"
PARTITIONS: Final = 8
BATCH: Final = 1_000
KINDS: Final = 16                # different batches
WINDOW: Final = 16               # requests in flight
LINES: Final = 1_000


def batch_of(seed: int) -> bytes:
    """One record batch."""
    chance = random.Random(seed)
    records = []
    for i in range(BATCH):
        key, value = b"line%d/temp" % chance.randrange(LINES), chance.randbytes(chance.randint(60, 140))
        body = b"\0\0" + varint(i) + encode_key(key) + varint(len(value)) + value + b"\0"
        records.append(varint(len(body)) + body)
    now_ms = time.time_ns() // 1_000_000          # Kafka deletes at once what is older than its retention
    return as_batch(Piece(0, BATCH, False, b"".join(records), now_ms, now_ms, 0), 0)


def fill(port: int, rows: int, *, create: bool = True) -> None:
    """Send this many rows to the topic. Raises LoadFailed."""
    if create:
        create_topic(Run(port, TOPIC, PARTITIONS, BATCH, 100, rows, 1, WINDOW))
    kinds = [batch_of(seed) for seed in range(KINDS)]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for first in range(0, rows // BATCH, WINDOW):
            numbers = range(first, min(first + WINDOW, rows // BATCH))
            connection.sendall(b"".join(_request(kinds[number % KINDS], number % PARTITIONS) for number in numbers))
            for _ in numbers:
                answer = receive(connection, struct.unpack(">i", receive(connection, 4))[0])
                error = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(TOPIC) + 4 + 4)[0]
                if error:
                    raise LoadFailed(f"Produce answered error {error}")


def _request(batch: bytes, partition: int) -> bytes:
    body = struct.pack(">hhii", -1, 1, 30_000, 1) + text(TOPIC) + struct.pack(">iii", 1, partition, len(batch)) + batch
    return request_head(PRODUCE, 7, len(body)) + body
