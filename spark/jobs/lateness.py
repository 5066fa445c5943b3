"""Which readings came after their window was closed, by Spark's own rule and exactly.

Spark drops a row whose window ended at or before the watermark, and counts what it drops only after it has joined rows
to groups. So each reading is looked at before: a late one is moved to the watermark's own time, which is always in an
open window, and marked, so that it is counted there (`late`) and takes part in nothing else.

The watermark that a micro-batch runs under stands in the query's checkpoint before the micro-batch begins,
`offsets/BATCH`: a line `v1`, a line of JSON with `batchWatermarkMs`, the offsets. Spark tells every task its
micro-batch's number.
"""
from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

BATCH_ID: Final = "streaming.sql.batchId"
REMEMBERED: Final = 8


def window_ends(event_us: pa.Array, window_us: int) -> pa.Array:
    """End of the window of each time; windows begin at multiples of their length since 1970. Null where the time is."""
    floored = pc.floor(pc.divide(pc.cast(event_us, pa.float64(), safe=False), float(window_us)))
    return pc.multiply(pc.add(pc.cast(floored, pa.int64()), 1), window_us)


def counted_at(event_us: pa.Array, watermark_us: int, window_us: int) -> pa.Array:
    """The time at which each reading is counted: its own, or where it is late the watermark's."""
    late = pc.less_equal(window_ends(event_us, window_us), watermark_us)
    return pc.if_else(late, pa.scalar(watermark_us, pa.int64()), event_us)


@functools.lru_cache(REMEMBERED)
def watermark_us(checkpoint: str, batch_id: str) -> int:
    """The watermark of a micro-batch, in microseconds since 1970."""
    lines = (Path(checkpoint) / "offsets" / batch_id).read_text().splitlines()
    return int(json.loads(lines[1])["batchWatermarkMs"]) * 1000


def marker(checkpoint: str, window_us: int) -> Callable[[pa.Array], pa.Array]:  # decision 106
    """`counted_at` as a function of one column, for the tasks."""
    def count_at(event_us: pa.Array) -> pa.Array:
        context = TaskContext.get()
        batch_id = None if context is None else context.getLocalProperty(BATCH_ID)
        if batch_id is None:
            raise RuntimeError("lateness is known only inside a streaming query")
        return counted_at(event_us, watermark_us(checkpoint, batch_id), window_us)
    return count_at
