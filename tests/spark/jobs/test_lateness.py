"""A reading is late when its window had ended at or before the watermark: Spark's rule, on both sides of it."""
from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.spark.jobs.lateness import counted_at, marker, watermark_us, window_ends

WINDOW_US = 10_000_000


@pytest.mark.parametrize(("at", "end"), [(0, 10), (9, 10), (10, 20), (-1, 0), (-10, 0), (-11, -10),
                                         (1_795_170_003, 1_795_170_010)])
def test_windows_begin_at_multiples_of_their_length(at: int, end: int):
    assert window_ends(pa.array([at * 1_000_000]), WINDOW_US).to_pylist() == [end * 1_000_000]


@pytest.mark.parametrize(("watermark", "late"), [(0, False), (9_999_999, False), (10_000_000, True),
                                                 (10_000_001, True)])
def test_a_window_closes_when_the_watermark_reaches_its_end(watermark: int, late: bool):
    counted = counted_at(pa.array([3_000_000]), watermark, WINDOW_US).to_pylist()
    assert counted == ([watermark] if late else [3_000_000])


def test_a_missing_time_stays_missing():
    assert counted_at(pa.array([None, 5], pa.int64()), 0, WINDOW_US).to_pylist() == [None, 5]


@given(st.integers(0, 4_000_000_000_000_000), st.integers(0, 4_000_000_000_000_000), st.integers(1, 86_400_000))
def test_what_is_counted_is_always_in_an_open_window(at: int, watermark: int, window_ms: int):
    (counted,) = counted_at(pa.array([at]), watermark, window_ms * 1000).to_pylist()
    (end,) = window_ends(pa.array([counted]), window_ms * 1000).to_pylist()
    assert end > watermark
    assert end == (counted // (window_ms * 1000) + 1) * window_ms * 1000


def test_the_watermark_stands_in_the_checkpoint(tmp_path: Path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "7").write_text('v1\n{"batchWatermarkMs":1795170050000,"batchTimestampMs":0}\n{}')
    assert watermark_us(str(tmp_path), "7") == 1_795_170_050_000_000


def test_outside_a_query_there_is_no_watermark():
    with pytest.raises(RuntimeError, match="only inside a streaming query"):
        marker("nowhere", WINDOW_US)(pa.array([1]))
