"""Record batches become files of one topic and day each, with the statistics that readers skip files by."""
from __future__ import annotations

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.spark.jobs.files import MAX_OPEN_FILES, split, write_files
from tests.spark.jobs.rows import batch_of


def test_a_batch_of_one_topic_and_day_is_not_copied():
    batch = batch_of("plant", range(5))
    ((place, part),) = split(batch)
    assert place == ("plant", "2026-11-20")
    assert part.column("value").buffers()[2].address == batch.column("value").buffers()[2].address


def test_a_batch_is_cut_by_topic_and_day_in_its_order():
    second_day = datetime.date(2026, 11, 21)
    batches = [batch_of("plant", range(3)), batch_of("fleet", range(2)), batch_of("plant", range(3, 6)),
               batch_of("plant", range(6, 8), second_day)]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    parts = {place: part.column("offset").to_pylist() for place, part in split(joined)}
    assert parts == {("plant", "2026-11-20"): [0, 1, 2, 3, 4, 5], ("fleet", "2026-11-20"): [0, 1],
                     ("plant", "2026-11-21"): [6, 7]}


def test_files_hold_the_rows_and_their_bounds(tmp_path: Path):
    (file,) = write_files([batch_of("plant", range(10)), batch_of("plant", range(10, 15))], tmp_path, "one", 1 << 20)
    table = pq.ParquetFile(tmp_path / file.path).read()
    assert file.path == "topic=plant/date=2026-11-20/one-0.parquet"
    assert table.column("offset").to_pylist() == list(range(15))
    assert "topic" not in table.column_names
    assert file.rows == 15
    assert file.size_bytes == (tmp_path / file.path).stat().st_size
    stats = json.loads(file.stats)
    assert (stats["numRecords"], stats["minValues"]["offset"], stats["maxValues"]["offset"]) == (15, 0, 14)
    assert stats["maxValues"]["timestamp"] == "2026-11-20T00:00:14.000000Z"
    assert stats["nullCount"]["offset"] == 0


def test_a_full_file_ends_and_another_begins(tmp_path: Path):
    batches = [batch_of("plant", range(start, start + 1000)) for start in range(0, 5000, 1000)]
    files = write_files(batches, tmp_path, "many", 1)
    assert [file.rows for file in files] == [1000] * 5
    assert len({file.path for file in files}) == 5


def test_open_files_are_bounded(tmp_path: Path):
    batches = [batch_of(f"topic{number}", range(2)) for number in range(MAX_OPEN_FILES + 10)] * 2
    files = write_files(batches, tmp_path, "wide", 1 << 20)
    assert sum(file.rows for file in files) == 4 * (MAX_OPEN_FILES + 10)
    assert len({file.path for file in files}) == len(files)


def test_nothing_to_write_is_no_file(tmp_path: Path):
    assert write_files([batch_of("plant", range(0))], tmp_path, "none", 1) == []
    assert list(tmp_path.iterdir()) == []
