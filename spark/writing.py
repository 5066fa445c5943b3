"""The sink: rows to topics or addresses, in record batches, written so that a repetition is recognised.

    value      string or binary, needed; null deletes where a topic is compacted
    key        string or binary
    topic      string; or the option `topic`
    address    string, instead of topic and key: where it goes is the hub's routes' word
    partition  int: instead of the key's own partition
    headers    array of (name, value)
    timestamp  when the sender made it; else when it is stored

A task cuts its rows into chunks of the same rows whenever it runs with the same input, and writes each with the
`Idempotency-Key` (query, batch, partition, chunk): one that the hub has is answered and not stored again. The hub
remembers keys for a time and up to a number (`kernel.idempotency_ms`, `kernel.max_idempotency_keys`); `docs/spark.md`
says what that means for exactly-once.
"""
from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from gatehouse.spark.encoding import CODECS, encode_batch
from gatehouse.spark.errors import GatehouseError, HubRefused
from gatehouse.spark.hub import Hub, HubAddress
from gatehouse.spark.options import WriteOptions
from gatehouse.spark.rows import Placed, Placer

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a micro-batch."""

TOO_LARGE: Final = frozenset(("message_too_large", "body_too_large"))
"""A topic's limit of a message is also that of a record batch."""

_PREFIX = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What one task wrote."""

    rows: int
    chunks: int


class ChunkWriter:  # decision 104
    """Writes the rows of one task; `name` tells it from every other task of every other query and batch."""

    def __init__(self, address: HubAddress, options: WriteOptions, name: str) -> None:
        self._hub = Hub(address)
        self._options = options
        self._placer = Placer(self._hub, options.topic)
        self._name = name
        self._rows = self._chunks = 0

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Everything; returns once it is durable at the hub. Raises HubRefused, InvalidRow."""
        waiting: list[pa.RecordBatch] = []
        size_bytes = 0
        try:
            for batch in self._cut(batches):
                waiting.append(batch)
                size_bytes += batch.nbytes
                if size_bytes >= self._options.batch_bytes:
                    self._write_chunk(waiting)
                    waiting, size_bytes = [], 0
            if waiting:
                self._write_chunk(waiting)
        finally:
            self._hub.close()
        return Written(self._rows, self._chunks)

    def _cut(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Spark counts rows, which may be large: no batch of more than `batchBytes`, on average over its rows."""
        for batch in batches:
            if batch.num_rows:
                rows = max(1, batch.num_rows * self._options.batch_bytes // max(1, batch.nbytes))
                yield from (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))

    def _write_chunk(self, batches: list[pa.RecordBatch]) -> None:
        (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        for part, (topic, placed) in enumerate(self._placer.place(batch)):
            self._send(topic, placed, f"{self._name}/{self._chunks}/{part}")
        self._rows += batch.num_rows
        self._chunks += 1

    def _send(self, topic: str, placed: Placed, key: str) -> None:
        """One request, or several where the hub takes only smaller ones; their keys say which part each is."""
        now_ms = time.time_ns() // 1_000_000
        codec = CODECS[self._options.compression]
        encoded = [(partition, encode_batch(rows, now_ms, codec)) for partition, rows in placed]
        body = b"".join([part for partition, batch in encoded for part in (_PREFIX.pack(partition, len(batch)), batch)])
        headers = {"Content-Type": "application/octet-stream", "Idempotency-Key": key}
        try:
            self._hub.request("POST", f"/v1/topics/{quote(topic, safe='')}/batches", body, headers)
        except HubRefused as error:
            if error.code in TOO_LARGE and sum(len(rows) for _, rows in placed) > 1:
                for half, part in enumerate(halves(placed)):
                    self._send(topic, part, f"{key}.{half}")
                return
            if error.code != "idempotency_conflict":
                raise
            raise GatehouseError(
                f"{key} was written before with other rows: this micro-batch is being repeated, and its rows came in "
                "another order or are others. Nothing was written twice. Sort within the partitions before writing, or "
                "checkpoint what is not deterministic") from None


def halves(placed: Placed) -> tuple[Placed, Placed]:
    """Half of the partitions each, or half of the rows of the only one. There are at least two rows."""
    if len(placed) > 1:
        middle = len(placed) // 2
        return placed[:middle], placed[middle:]
    ((partition, rows),) = placed
    middle = len(rows) // 2
    return [(partition, rows.take(np.arange(middle)))], [(partition, rows.take(np.arange(middle, len(rows))))]


def _task_name(own: str) -> str:
    """Query, batch and partition of the task that runs here; `own` where there is no query."""
    context = TaskContext.get()
    if context is None:
        raise GatehouseError("the sink runs in Spark's tasks only")
    query = context.getLocalProperty(QUERY_ID)
    batch = context.getLocalProperty(BATCH_ID)
    if own or query is None or batch is None:
        return f"{own}/{context.partitionId()}"
    return f"{query}/{batch}/{context.partitionId()}"


class BatchWriter(DataSourceArrowWriter):
    """A batch's: a task that runs again repeats its keys, another write has others."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._name = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one task."""
        return ChunkWriter(self._options.hub, self._options, _task_name(self._name)).write(iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """A stream's: the keys of a micro-batch are the same whenever it runs."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one task."""
        return ChunkWriter(self._options.hub, self._options, _task_name("")).write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: what a task wrote is durable when it ends."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: the batch will be repeated, and what it wrote is recognised then."""
