"""Rows as the archive stores them, made without Spark."""
from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

SCHEMA: Final = pa.schema([
    pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("offset", pa.int64()),
    pa.field("value", pa.binary()), pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    pa.field("date", pa.date32())])
DAY: Final = datetime.date(2026, 11, 20)


def batch_of(topic: str, offsets: Iterable[int], day: datetime.date = DAY) -> pa.RecordBatch:
    """One row per offset, a second apart from midnight on."""
    midnight = datetime.datetime.combine(day, datetime.time(), datetime.UTC)
    rows = [{"topic": topic, "partition": 0, "offset": offset, "value": f"value {offset}".encode(),
             "timestamp": midnight + datetime.timedelta(seconds=offset), "headers": [{"key": "n", "value": b"1"}],
             "date": day} for offset in offsets]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
