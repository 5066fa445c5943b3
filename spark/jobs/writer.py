"""A micro-batch's write in Spark's two steps: tasks write files, the driver commits those of the tasks that count.

Spark tries a failed task again and tells the commit about one attempt of each; what the others wrote is named nowhere.
Orphans of Parquet folders begin with a dot, those of Delta tables are no part of the table.
"""
from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from gatehouse.spark.jobs import delta, parquet
from gatehouse.spark.jobs.files import WrittenFile, write_files


@dataclass
class TaskFiles(WriterCommitMessage):
    """What one task has written."""

    files: list[WrittenFile]


class ArchiveFiles(DataSource):
    """`df.write.format("gatehouse_archive")` with the options that `write_batch` sets; for the archive alone."""

    @classmethod
    def name(cls) -> str:
        return "gatehouse_archive"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        options = json.loads(self.options["write"])
        return ArchiveWriter(to_arrow_schema(schema, timezone="UTC"), BatchWrite(**options))


@dataclass(frozen=True, slots=True)
class BatchWrite:
    """One micro-batch's write."""

    folder: str
    format: str
    file_bytes: int
    application: str
    batch_id: int


class ArchiveWriter(DataSourceArrowWriter):  # decision 105
    """Writes in the tasks, commits in the driver."""

    def __init__(self, schema: pa.Schema, write: BatchWrite) -> None:
        self._schema = schema
        self._write = write

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskFiles:
        """In a task: write its rows."""
        hidden = "." if self._write.format == "parquet" else ""
        name = f"{hidden}batch-{self._write.batch_id:010d}-{uuid.uuid4().hex}"
        return TaskFiles(write_files(iterator, Path(self._write.folder), name, self._write.file_bytes))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver: the files of all tasks at once."""
        files = [file for message in messages if isinstance(message, TaskFiles) for file in message.files]
        folder = Path(self._write.folder)
        if self._write.format == "parquet":
            parquet.commit(folder, files, self._write.batch_id)
        elif files:
            delta.commit(folder, self._schema, files, self._write.application, self._write.batch_id)


def write_batch(frame: Any, write: BatchWrite) -> None:
    """Store a data frame as one micro-batch. Returns when it is committed."""
    frame.write.format(ArchiveFiles.name()).option("write", json.dumps(asdict(write))).mode("append").save()
