"""Record batches to Parquet files, one per topic and day: what a task of the archive does.

    FOLDER/topic=plant/date=2026-11-20/NAME-0.parquet

The partition columns stand in the folders' names and not in the files. A file that nobody commits is nothing to any
reader of a table: a task that is killed or tried again leaves files behind that no commit names.
"""
from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

PARTITION_BY: Final = ("topic", "date")
COMPRESSION: Final = "zstd"
DICTIONARY_LIMIT_BYTES: Final = 256 << 10
"""Columns of few values (address, door, content type) are a fraction of the size; one of many falls back by itself."""

MAX_OPEN_FILES: Final = 64
"""A task reads few topics and days at a time; one that reads more closes its oldest file."""

STATISTICS_TYPES: Final = (pa.types.is_integer, pa.types.is_timestamp)
"""What readers skip files by: offsets and times. Bounds of keys and values would be as large as the data."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a task has written, for the commit. `path` is from the table's folder on."""

    path: str
    topic: str
    date: str
    rows: int
    size_bytes: int
    stats: str


def file_schema(schema: pa.Schema) -> pa.Schema:
    """The columns that stand in a file."""
    return pa.schema([column for column in schema if column.name not in PARTITION_BY])


def write_files(batches: Iterable[pa.RecordBatch], folder: Path, name: str, file_bytes: int) -> list[WrittenFile]:
    """Write the batches, which have the columns `topic` (text) and `date` (date); each file ends beyond `file_bytes`.

    `name` begins the files' names and must be of this attempt alone.
    """
    written: list[WrittenFile] = []
    open_files: dict[tuple[str, str], _OpenFile] = {}
    count = 0
    for batch in batches:
        for place, part in split(batch):
            if place not in open_files:
                if len(open_files) == MAX_OPEN_FILES:
                    written.append(open_files.pop(next(iter(open_files))).close())
                open_files[place] = _OpenFile(folder, place, f"{name}-{count}.parquet", part.schema)
                count += 1
            if open_files[place].append(part) >= file_bytes:
                written.append(open_files.pop(place).close())
    return written + [file.close() for file in open_files.values()]


def split(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, str], pa.RecordBatch]]:
    """The parts of a batch by topic and day, without the partition columns, each in the batch's order."""
    if batch.num_rows == 0:
        return
    columns = [batch.column(name) for name in PARTITION_BY]
    rest = batch.select(file_schema(batch.schema).names)
    pairs = pa.table(columns, names=PARTITION_BY).group_by(list(PARTITION_BY)).aggregate([]).to_pylist()
    for pair in pairs:
        place = (pair["topic"], pair["date"].isoformat())
        if len(pairs) == 1:
            yield place, rest
            continue
        wanted = pc.and_(*(pc.equal(column, pair[name]) for name, column in zip(PARTITION_BY, columns, strict=True)))
        yield place, rest.filter(wanted)


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(self, folder: Path, place: tuple[str, str], name: str, schema: pa.Schema) -> None:
        self._topic, self._date = place
        self._path = f"topic={self._topic}/date={self._date}/{name}"
        self._file = folder / self._path
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._sink = pa.OSFile(str(self._file), "wb")
        bounded = [column.name for column in schema if any(test(column.type) for test in STATISTICS_TYPES)]
        self._writer = pq.ParquetWriter(self._sink, schema, compression=COMPRESSION, write_statistics=bounded,
                                        dictionary_pagesize_limit=DICTIONARY_LIMIT_BYTES)
        self._rows = 0
        self._bounds = {name: _Bounds() for name in bounded}

    def append(self, batch: pa.RecordBatch) -> int:
        """Write a batch; the file's size so far in bytes."""
        self._writer.write_batch(batch)
        self._rows += batch.num_rows
        for name, bounds in self._bounds.items():
            bounds.add(batch.column(name))
        return int(self._sink.tell())

    def close(self) -> WrittenFile:
        self._writer.close()
        self._sink.close()
        return WrittenFile(self._path, self._topic, self._date, self._rows, self._file.stat().st_size, self._stats())

    def _stats(self) -> str:
        """What Delta's protocol calls per-file statistics: readers skip files by them."""
        columns = {name: bounds for name, bounds in self._bounds.items() if bounds.low is not None}
        return json.dumps({
            "numRecords": self._rows,
            "minValues": {name: _as_text(bounds.low) for name, bounds in columns.items()},
            "maxValues": {name: _as_text(bounds.high) for name, bounds in columns.items()},
            "nullCount": {name: bounds.nulls for name, bounds in self._bounds.items()}})


class _Bounds:
    """Smallest and largest value of a column, and how many are missing."""

    __slots__ = ("low", "high", "nulls")

    def __init__(self) -> None:
        self.low: Any = None
        self.high: Any = None
        self.nulls = 0

    def add(self, column: pa.Array) -> None:
        self.nulls += column.null_count
        extremes = pc.min_max(column).as_py()
        if extremes["min"] is not None:
            self.low = extremes["min"] if self.low is None else min(self.low, extremes["min"])
            self.high = extremes["max"] if self.high is None else max(self.high, extremes["max"])


def _as_text(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value
