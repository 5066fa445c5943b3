"""Which rows the sink refuses, and what it says; nothing is written before a whole chunk has its place."""
from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from gatehouse.spark.errors import InvalidRow
from gatehouse.spark.hub import Hub, HubAddress
from gatehouse.spark.rows import Placer
from tests.spark.door import HttpDoor

TEXT = pa.array(["1", "2"])


def place(door: HttpDoor, option: str, /, **columns: Any) -> list[Any]:
    batch = pa.RecordBatch.from_pydict(columns)
    return list(Placer(Hub(HubAddress(door.url)), option).place(batch))


@pytest.mark.parametrize(("topic", "columns", "said"), [
    ("plant", {"key": TEXT}, "at least 'value'"),
    ("plant", {"value": TEXT, "colour": TEXT}, "these have value, colour"),
    ("plant", {"value": pa.array([1, 2])}, "make it one with to_json or cast"),
    ("plant", {"value": TEXT, "key": pa.array([1.5, 2])}, "the column 'key' is a string or binary, not double"),
    ("", {"value": TEXT}, "need a column 'topic' or 'address'"),
    ("", {"value": TEXT, "topic": pa.array(["plant", None])}, "1 of 2 rows have no topic"),
    ("no name", {"value": TEXT}, "'no name' is not there and cannot be made"),
    ("plant", {"value": TEXT, "partition": pa.array([0, 9])},
     "a row asks for partition 9; 'plant' has the partitions 0 to 3"),
    ("plant", {"value": TEXT, "address": TEXT}, "an address says topic and key"),
    ("", {"value": TEXT, "address": pa.array(["a/+", "b"])}, "'a/[+]' is no address to publish to"),
    ("", {"value": TEXT, "address": pa.array(["$SYS/x", "b"])}, "no address to publish to"),
    ("", {"value": TEXT, "address": pa.array([None, "b"])}, "1 rows have no address"),
    ("plant", {"value": TEXT, "timestamp": pa.array([None, 1], pa.timestamp("us", "UTC"))}, "1 rows have no timestamp"),
])
def test_rows_that_are_refused(door: HttpDoor, topic: str, columns: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRow, match=said):
        place(door, topic, **columns)


def test_an_option_goes_before_the_column_topic(door: HttpDoor) -> None:
    ((topic, placed),) = place(door, "plant", value=TEXT, topic=pa.array(["a", "b"]))
    assert (topic, sum(len(rows) for _, rows in placed)) == ("plant", 2)
