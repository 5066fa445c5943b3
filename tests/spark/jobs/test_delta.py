"""The Delta side of the archive: one commit per micro-batch, replayed ones seen, small files joined."""
from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from gatehouse.spark.jobs import delta, parquet
from gatehouse.spark.jobs.files import write_files
from tests.spark.jobs.rows import SCHEMA, batch_of


def store(folder: Path, batch_id: int, *batches: pa.RecordBatch, application: str = "query-1") -> None:
    files = write_files(batches, folder, f"attempt-{batch_id}", 1 << 20)
    delta.commit(folder, batches[0].schema, files, application, batch_id)


def offsets(folder: Path) -> list[int]:
    return sorted(DeltaTable(str(folder)).to_pyarrow_table(columns=["offset"]).column("offset").to_pylist())


def test_the_first_commit_makes_the_table(tmp_path: Path):
    assert not delta.has_batch(tmp_path, "query-1", 0)
    store(tmp_path, 0, batch_of("plant", range(3)), batch_of("fleet", range(2)))
    table = DeltaTable(str(tmp_path))
    assert table.metadata().partition_columns == ["topic", "date"]
    assert table.count() == 5
    read = table.to_pyarrow_table().sort_by([("topic", "ascending"), ("offset", "ascending")])
    expected = pa.Table.from_batches([batch_of("fleet", range(2)), batch_of("plant", range(3))])
    assert read.select(SCHEMA.names).to_pylist() == expected.to_pylist()


def test_a_batch_that_was_committed_is_known(tmp_path: Path):
    for batch_id in range(3):
        store(tmp_path, batch_id, batch_of("plant", range(batch_id * 10, batch_id * 10 + 10)))
    assert [delta.has_batch(tmp_path, "query-1", batch_id) for batch_id in (0, 2, 3)] == [True, True, False]
    assert offsets(tmp_path) == list(range(30))


def test_files_that_nobody_committed_are_no_part_of_the_table(tmp_path: Path):
    store(tmp_path, 0, batch_of("plant", range(10)))
    write_files([batch_of("plant", range(10, 20))], tmp_path, "killed", 1 << 20)
    assert offsets(tmp_path) == list(range(10))


def test_a_table_of_another_checkpoint_is_refused(tmp_path: Path):
    store(tmp_path, 0, batch_of("plant", range(10)))
    with pytest.raises(delta.ForeignTable, match="store its rows twice"):
        delta.has_batch(tmp_path, "query-2", 0)


def test_new_columns_are_added(tmp_path: Path):
    store(tmp_path, 0, batch_of("plant", range(3)))
    wider = batch_of("plant", range(3, 5)).append_column("door", pa.array(["mqtt", "http"]))
    store(tmp_path, 1, wider)
    read = DeltaTable(str(tmp_path)).to_pyarrow_table().sort_by("offset")
    assert read.column("door").to_pylist() == [None, None, None, "mqtt", "http"]


def test_compaction_joins_small_files_of_crowded_days_only(tmp_path: Path):
    for batch_id in range(12):
        store(tmp_path, batch_id, batch_of("plant", range(batch_id, batch_id + 1)))
    store(tmp_path, 12, batch_of("fleet", range(1)))
    assert delta.compact(tmp_path, 10, 1 << 20, 168) == 1
    table = DeltaTable(str(tmp_path))
    assert len(table.file_uris()) == 2
    assert offsets(tmp_path) == sorted([*range(12), 0])
    assert table.transaction_version("query-1") == 12
    assert delta.compact(tmp_path, 10, 1 << 20, 168) == 0


def test_duckdb_reads_the_table(tmp_path: Path):
    store(tmp_path, 0, batch_of("plant", range(10)))
    messages = DeltaTable(str(tmp_path)).to_pyarrow_dataset()    # noqa: F841 (DuckDB finds it by its name)
    assert duckdb.sql("select count(*), sum(\"offset\") from messages where topic = 'plant'").fetchall() == [(10, 45)]


def test_parquet_files_of_another_checkpoint_are_not_replaced(tmp_path: Path):
    for batch_id in range(2):
        parquet.claim(tmp_path, "query-1", batch_id)
        files = write_files([batch_of("plant", range(3))], tmp_path, f".{batch_id}", 1 << 20)
        parquet.commit(tmp_path, files, batch_id)
    with pytest.raises(delta.ForeignTable, match="going on would replace them"):
        parquet.claim(tmp_path, "query-2", 0)
    parquet.claim(tmp_path, "query-1", 2)
    (tmp_path / parquet.OWNER).unlink()              # written before there was a note
    with pytest.raises(delta.ForeignTable):
        parquet.claim(tmp_path, "query-2", 0)
    parquet.claim(tmp_path, "query-1", 2)
    assert len(list(tmp_path.rglob("*.parquet"))) == 2


def test_a_parquet_batch_that_comes_again_replaces_itself(tmp_path: Path):
    for attempt, tasks in (("first", 3), ("second", 2)):
        files = [file for task in range(tasks)
                 for file in write_files([batch_of("plant", range(task * 6 // tasks, (task + 1) * 6 // tasks))],
                                         tmp_path, f".{attempt}-{task}", 1 << 20)]
        parquet.commit(tmp_path, files, 7)
    names = sorted(file.name for file in tmp_path.rglob("*.parquet"))
    assert names == ["batch-0000000007-0000.parquet", "batch-0000000007-0001.parquet"]
    found = duckdb.sql(f"select \"offset\" from read_parquet('{tmp_path}/**/*.parquet', hive_partitioning = true) "
                       "order by 1").fetchall()
    assert [offset for (offset,) in found] == list(range(6))
