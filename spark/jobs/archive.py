"""`gatehouse spark archive`: topics to a table that grows, one commit per micro-batch, each message once.

Every column of the source is kept, and `date`: the day (UTC) on which the hub stored the message. Under spark-submit:

    spark-submit --master spark://… $(python -c 'import gatehouse.spark.jobs.archive as job; print(job.__file__)') \\
        --url http://hub:8080 --topics plant --to /shared/archive

A start goes on where the one before ended, however that ended: Spark's checkpoint says which micro-batch was in work,
and the table knows whether it had been committed.
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from gatehouse.spark.jobs import delta, parquet
from gatehouse.spark.jobs.arguments import parse_arguments
from gatehouse.spark.jobs.failure import exit_code
from gatehouse.spark.jobs.progress import follow
from gatehouse.spark.jobs.session import make_session, read_stream
from gatehouse.spark.jobs.settings import ArchiveSettings
from gatehouse.spark.jobs.writer import ArchiveFiles, BatchWrite, write_batch

QUERY_ID: str = "sql.streaming.queryId"


class Archive:
    """What happens to each micro-batch."""

    def __init__(self, settings: ArchiveSettings) -> None:
        self._settings = settings
        self._folder = Path(settings.to).absolute()
        self._batches = 0

    def start(self, spark: SparkSession, once: bool = False) -> StreamingQuery:
        """The running query; `once` ends it where the topics ended when it began."""
        spark.dataSource.register(ArchiveFiles)
        messages = read_stream(spark, self._settings).withColumn("date", stored_on())
        writer = messages.writeStream.queryName("archive").foreachBatch(self._store).option(
            "checkpointLocation", str(Path(self._settings.checkpoint_folder).absolute()))
        if once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._settings.trigger_s} seconds").start()

    def _store(self, messages: DataFrame, batch_id: int) -> None:
        settings = self._settings
        is_delta = settings.format == "delta"
        application = str(messages.sparkSession.sparkContext.getLocalProperty(QUERY_ID))
        if not is_delta:
            parquet.claim(self._folder, application, batch_id)
        elif delta.has_batch(self._folder, application, batch_id):
            return
        write_batch(messages, BatchWrite(str(self._folder), settings.format, settings.file_bytes, application,
                                         batch_id))
        self._batches += 1
        if is_delta and self._batches % settings.compact_files == 0:
            delta.compact(self._folder, settings.compact_files, settings.file_bytes, settings.vacuum_hours)


def stored_on() -> Any:
    """The day on which a message was stored: the hub's own time, which no sender can set to the year 9999."""
    return F.to_date(F.coalesce("append_time", "timestamp"))


def run(settings: ArchiveSettings, once: bool = False) -> None:
    """Archive until told to stop. Raises JobFailed."""
    spark = make_session("gatehouse archive", settings.master)
    follow(spark, [lambda: Archive(settings).start(spark, once)])


if __name__ == "__main__":
    settings, once = parse_arguments(ArchiveSettings, "archive")
    sys.exit(exit_code(lambda: run(settings, once)))
