"""A Delta table as the archive keeps it: one commit per micro-batch, files of a sane size.

Exactly once: a commit carries Delta's transaction identifier (application = the streaming query, version = its
micro-batch). A micro-batch that comes again, because the driver died between the commit and Spark's checkpoint, is seen
by `has_batch` and written no second time. The archive is the only writer of its table.
"""
from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import TableNotFoundError
from deltalake.schema import Schema
from deltalake.transaction import AddAction

from gatehouse.spark.jobs.files import PARTITION_BY, WrittenFile

CONFIGURATION: Final[dict[str, str | None]] = {
    "delta.checkpointInterval": "20",                           # commits between two summaries of the log
    "delta.logRetentionDuration": "interval 7 days",
}
SMALL: Final = 0.5
"""A file below this part of a full one is small: compaction joins it with others."""


class ForeignTable(Exception):
    """The folder holds a table that this archive did not begin: going on would store its rows twice."""


def open_table(folder: Path) -> DeltaTable | None:
    """The table; None where there is none yet."""
    try:
        return DeltaTable(str(folder))
    except TableNotFoundError:
        return None


def has_batch(folder: Path, application: str, batch_id: int) -> bool:
    """Whether a micro-batch is in the table. Raises ForeignTable where the table has another application's alone."""
    table = open_table(folder)
    if table is None:
        return False
    version = table.transaction_version(application)
    if version is None and table.version() > 0:
        raise ForeignTable(f"the table in {folder} was written with another checkpoint: going on would store its rows "
                           "twice. Give the old `checkpoint`, or another folder with `to`")
    return version is not None and version >= batch_id


# decision 105
def commit(folder: Path, schema: pa.Schema, files: Iterable[WrittenFile], application: str, batch_id: int) -> None:
    """Add the files in one commit; makes the table first where there is none, and adds columns that are new."""
    table = open_table(folder) or DeltaTable.create(
        str(folder), Schema.from_arrow(schema), partition_by=list(PARTITION_BY), configuration=CONFIGURATION,
        name="gatehouse", description="Messages of a Gatehouse hub, by topic and day of storage")
    _widen(table, schema)
    now_ms = time.time_ns() // 1_000_000
    actions = [AddAction(file.path, file.size_bytes, {"topic": file.topic, "date": file.date}, now_ms, True, file.stats)
               for file in files]
    table.create_write_transaction(
        list(actions), "append", table.schema(), list(PARTITION_BY),
        commit_properties=CommitProperties(app_transactions=[Transaction(application, batch_id)]),
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True))


def _widen(table: DeltaTable, schema: pa.Schema) -> None:
    existing = {column.name for column in table.schema().fields}
    added = [column for column in Schema.from_arrow(schema).fields if column.name not in existing]
    if added:
        table.alter.add_columns(added)


def crowded_partitions(table: DeltaTable, compact_files: int, file_bytes: int) -> list[tuple[str, str]]:
    """Topics and days with at least so many small files."""
    actions = pa.table(table.get_add_actions(flatten=True))
    count: dict[tuple[str, str], int] = {}
    names = ("size_bytes", *(f"partition.{name}" for name in PARTITION_BY))
    for size, topic, date in zip(*(actions.column(name).to_pylist() for name in names), strict=True):
        if size < file_bytes * SMALL:
            place = (str(topic), str(date))
            count[place] = count.get(place, 0) + 1
    return [place for place, files in count.items() if files >= compact_files]


def compact(folder: Path, compact_files: int, file_bytes: int, vacuum_hours: int) -> int:
    """Join small files where there are many, delete what was replaced long ago; how many partitions were compacted."""
    table = open_table(folder)
    if table is None:
        return 0
    crowded = crowded_partitions(table, compact_files, file_bytes)
    for topic, date in crowded:
        table.optimize.compact(partition_filters=[("topic", "=", topic), ("date", "=", date)], target_size=file_bytes)
    if crowded and vacuum_hours > 0:
        table.vacuum(retention_hours=vacuum_hours, dry_run=False, enforce_retention_duration=False)
    return len(crowded)
