"""Chunks that the hub finds too large, rows that Spark batches too large."""
from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from gatehouse.spark.errors import HubRefused
from gatehouse.spark.hub import HubAddress
from gatehouse.spark.options import WriteOptions
from gatehouse.spark.writing import ChunkWriter
from tests.spark.door import HttpDoor


def write(door: HttpDoor, name: str, values: list[str], **options: Any) -> int:
    address = HubAddress(door.url)
    batch = pa.RecordBatch.from_pydict({"key": [f"k{value}" for value in values], "value": values})
    written = ChunkWriter(address, WriteOptions(address, "plant", **options), name).write(iter([batch]))
    assert written.rows == len(values)
    return written.chunks


def test_large_arrow_batches_are_cut(door: HttpDoor) -> None:
    numbers = [str(number).zfill(500) for number in range(2_000)]
    assert write(door, "a", numbers, batch_bytes=100_000) > 8
    assert sorted(door.values("plant")) == list(range(2_000))


def test_a_topic_with_a_lower_limit_gets_smaller_batches_and_each_row_once(door: HttpDoor) -> None:
    door.ask("PUT", "/v1/topics/plant", {"partitions": 2, "max_message_bytes": 3_000})
    numbers = [str(number).zfill(400) for number in range(100)]
    for _ in range(2):          # the second time it is a repetition
        assert write(door, "a", numbers) == 1
        assert sorted(door.values("plant")) == list(range(100))


def test_a_row_that_is_too_large_is_refused_in_the_hubs_words(door: HttpDoor) -> None:
    door.ask("PUT", "/v1/topics/plant", {"max_message_bytes": 3_000})
    with pytest.raises(HubRefused, match="413 message_too_large"):
        write(door, "a", ["x" * 4_000])
