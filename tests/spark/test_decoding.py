"""Values as columns: what is not what it should be goes to a column of its own."""
from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from gatehouse.spark.decoding import decode_values
from gatehouse.spark.errors import InvalidOption

SCHEMA = "sensor string, celsius double"


def frame_of(spark: SparkSession, *values: bytes | None) -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], "value binary").coalesce(1)


def test_json_with_a_schema(spark: SparkSession) -> None:
    values = (b'{"sensor": "a", "celsius": 21.5}', b'{"sensor": "b"}', b"not json",
              b'{"sensor": "c", "celsius": "hot"}', None, b"", b"\xff\xfe")
    rows = decode_values(frame_of(spark, *values), "json", SCHEMA).collect()
    assert [row.decoded and tuple(row.decoded) for row in rows] == [("a", 21.5), ("b", None), *[None] * 5]
    assert [row.bad_value and bytes(row.bad_value) for row in rows[:4]] == [None, None, values[2], values[3]]
    assert rows[4].bad_value is None
    assert bytes(rows[6].bad_value) == b"\xff\xfe"
    assert set(rows[0].decoded.asDict()) == {"sensor", "celsius"}


def test_csv_with_a_schema(spark: SparkSession) -> None:
    rows = decode_values(frame_of(spark, b"a;21.5", b"b;hot", None), "csv", SCHEMA, options={"sep": ";"},
                         decoded="reading", bad="wrong").collect()
    assert [row.reading and tuple(row.reading) for row in rows] == [("a", 21.5), None, None]
    assert [row.wrong and bytes(row.wrong) for row in rows] == [None, b"b;hot", None]


def test_an_unknown_format_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidOption, match="json, csv, avro, protobuf, not 'xml'"):
        decode_values(frame_of(spark, b""), "xml", SCHEMA)
