"""The archive against a real hub: what the doors acknowledged is in the table once, whatever format, however often."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from gatehouse.demo.replay import replay
from gatehouse.spark.jobs import archive as job
from gatehouse.spark.jobs.archive import Archive
from gatehouse.spark.jobs.progress import cause_of
from gatehouse.spark.jobs.settings import ArchiveSettings
from gatehouse_client.sync import SyncClient
from tests.running_hub import RunningHub
from tests.spark.session import WORKERS

DEADLINE_S = 600
SPAN_S = 4 * 3_600

pytestmark = pytest.mark.timeout(900)
"""A day of telemetry is a million messages, and the first test waits for Spark to start."""


def archive(spark: SparkSession, settings: ArchiveSettings) -> None:
    """Everything that is there now. Raises StreamingQueryException."""
    query = Archive(settings).start(spark, once=True)
    assert query.awaitTermination(DEADLINE_S)


def publish(client: SyncClient, topic: str, count: int, first: int = 0) -> list[str]:
    """Messages on some addresses; their values."""
    values = [f"{topic} {number}" for number in range(first, first + count)]
    client.publish_many([client.message(f"{topic}/line{number % 5}/temp", value, headers=[("n", "1")],
                                        content_type="text/plain") for number, value in enumerate(values)])
    return values


def stored(folder: Path) -> list[str]:
    """Every value in the Delta table, repeated ones too."""
    column = DeltaTable(str(folder)).to_pyarrow_table(columns=["value"]).column("value")
    return sorted(value.decode() for value in column.to_pylist())


def test_topics_become_a_table_of_every_column(spark: SparkSession, url: str, client: SyncClient, folder: Path):
    values = publish(client, "every", 20) + publish(client, "other", 5)
    archive(spark, ArchiveSettings(url=url, topics=("every", "other"), to=str(folder)))
    assert stored(folder) == sorted(values)
    rows = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    row = next(row for row in rows if row["value"] == b"every 3")
    assert (row["topic"], row["key"], row["address"], row["door"]) == (
        "every", b"line3/temp", "every/line3/temp", "http")
    assert row["content_type"] == "text/plain"
    assert row["date"] == row["append_time"].date()
    assert ("n", b"1") in [(header["key"], header["value"]) for header in row["headers"]]


def test_a_later_start_goes_on_where_the_one_before_ended(spark: SparkSession, url: str, client: SyncClient,
                                                          folder: Path):
    settings = ArchiveSettings(url=url, topics=("later",), to=str(folder), max_rows=4)
    values = publish(client, "later", 10)
    archive(spark, settings)
    version = DeltaTable(str(folder)).version()
    assert version >= 3, "one commit per micro-batch"
    archive(spark, settings)
    assert DeltaTable(str(folder)).version() == version
    values += publish(client, "later", 5, 10)
    archive(spark, settings)
    assert stored(folder) == sorted(values)


def test_a_batch_that_spark_repeats_is_stored_once(spark: SparkSession, url: str, client: SyncClient, folder: Path):
    """As after a driver that died between the table's commit and the checkpoint's."""
    settings = ArchiveSettings(url=url, topics=("repeated",), to=str(folder))
    values = publish(client, "repeated", 10)
    archive(spark, settings)
    values += publish(client, "repeated", 10, 10)
    archive(spark, settings)
    commits = folder / "_checkpoint" / "commits"
    newest = max((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    values += publish(client, "repeated", 10, 20)
    archive(spark, settings)
    assert stored(folder) == sorted(values)


def test_a_lost_checkpoint_is_refused_and_nothing_is_stored_twice(spark: SparkSession, url: str, client: SyncClient,
                                                                  folder: Path):
    settings = ArchiveSettings(url=url, topics=("lost",), to=str(folder))
    values = publish(client, "lost", 10)
    archive(spark, settings)
    shutil.rmtree(folder / "_checkpoint")
    with pytest.raises(StreamingQueryException) as failure:
        archive(spark, settings)
    assert "going on would store its rows twice" in cause_of(failure.value)
    assert stored(folder) == sorted(values)


def test_many_small_commits_are_compacted(spark: SparkSession, url: str, client: SyncClient, folder: Path):
    client.define_topic("small", partitions=1)
    values = publish(client, "small", 12)
    archive(spark, ArchiveSettings(url=url, topics=("small",), to=str(folder), max_rows=2, compact_files=3))
    assert stored(folder) == sorted(values)
    assert len(DeltaTable(str(folder)).file_uris()) <= 3


def test_parquet_files_for_readers_without_delta(spark: SparkSession, url: str, client: SyncClient, folder: Path):
    settings = ArchiveSettings(url=url, topics=("plain",), to=str(folder), format="parquet", max_rows=4)
    values = publish(client, "plain", 10)
    archive(spark, settings)
    archive(spark, settings)
    found = duckdb.sql(f"select value from read_parquet('{folder}/topic=*/*/*.parquet', hive_partitioning = true) "
                       "where topic = 'plain'").fetchall()
    assert sorted(value.decode() for (value,) in found) == sorted(values)


def test_a_lost_checkpoint_replaces_no_parquet_files(spark: SparkSession, url: str, client: SyncClient, folder: Path):
    publish(client, "replaced", 10)
    settings = ArchiveSettings(url=url, topics=("replaced",), to=str(folder), format="parquet", max_rows=4)
    archive(spark, settings)
    files = sorted(folder.rglob("batch-*.parquet"))
    shutil.rmtree(folder / "_checkpoint")
    publish(client, "instead", 1)
    with pytest.raises(StreamingQueryException) as failure:
        archive(spark, replace(settings, topics=("instead",)))
    assert "going on would replace them" in cause_of(failure.value)
    assert sorted(folder.rglob("batch-*.parquet")) == files


def test_the_job_runs_under_spark_submit(url: str, client: SyncClient, folder: Path):
    """As on a cluster: the file of the installed module, its options, and the master that was submitted."""
    values = publish(client, "submitted", 10)
    command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2,3]", "--conf",
               "spark.ui.enabled=false", "--driver-java-options", "-XX:TieredStopAtLevel=1", job.__file__,
               "--url", url, "--topics", "submitted", "--to", str(folder), "--once"]
    environ = os.environ | WORKERS
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "archive: 10 rows" in done.stdout, "spark-submit passes the job's own lines on there"
    assert stored(folder) == sorted(values)


def test_hours_of_telemetry_give_the_same_counts_everywhere(spark: SparkSession, hub: RunningHub, url: str,
                                                             folder: Path):
    """Replayed fast; then DuckDB and Spark count what the table holds, and the hub's own offsets agree."""
    count = replay(f"127.0.0.1:{hub.port('kafka')}", 1_790_000_000_000, SPAN_S)
    archive(spark, ArchiveSettings(url=url, topics=("machine",), to=str(folder), max_rows=65_000))
    table = DeltaTable(str(folder))
    messages = table.to_pyarrow_dataset()    # noqa: F841 (DuckDB finds it by its name)
    ask = ("select address, count(*), count(distinct timestamp), sum(cast(decode(value{charset}) as double)) "
           "from messages group by address order by address")
    by_duckdb = duckdb.sql(ask.format(charset="")).fetchall()
    spark.read.option("basePath", str(folder)).parquet(*table.file_uris()).createOrReplaceTempView("messages")
    by_spark = [tuple(row) for row in spark.sql(ask.format(charset=", 'UTF-8'")).collect()]
    assert [row[:3] for row in by_duckdb] == [row[:3] for row in by_spark]
    assert [row[3] for row in by_duckdb] == pytest.approx([row[3] for row in by_spark])
    assert {row[1:3] for row in by_duckdb} == {(SPAN_S, SPAN_S)}
    assert table.count() == sum(row[1] for row in by_duckdb) == count
