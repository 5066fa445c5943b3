"""The columns of the source, in the order in which they are given unless the reader asks for others."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gatehouse.spark.errors import InvalidOption

HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
"""A header as the Kafka connector shows it: its name is `key`."""

ENVELOPE: Final = StructType([
    StructField("id", StringType()),
    StructField("content_encoding", StringType()),
    StructField("utf8", BooleanType()),
    StructField("correlation_id", BinaryType()),
    StructField("reply_to", StringType()),
    StructField("expires_at", TimestampType()),
    StructField("priority", IntegerType()),
    StructField("deliver_at", TimestampType()),
    StructField("retain", BooleanType()),
    StructField("durable", BooleanType()),
    StructField("traceparent", StringType()),
])
"""The properties that cross doors and have no column of their own."""

COLUMNS: Final[dict[str, DataType]] = {
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "key": BinaryType(),
    "value": BinaryType(),
    "headers": ArrayType(HEADER),
    "timestamp": TimestampType(),
    "append_time": TimestampType(),
    "address": StringType(),
    "door": StringType(),
    "message_id": LongType(),
    "content_type": StringType(),
    "principal": StringType(),
    "trace_id": StringType(),
    "envelope": ENVELOPE,
}

EXTRA: Final[dict[str, DataType]] = {"timestampType": IntegerType()}
"""Columns of the Kafka connector, given where they are asked for."""


def schema_of(names: Sequence[str]) -> StructType:
    """The schema of these columns, of all where none are named. Raises InvalidOption."""
    columns = COLUMNS | EXTRA
    for name in names:
        if name not in columns:
            raise InvalidOption(f"there is no column {name!r}; there are: {', '.join(columns)}")
    return StructType([StructField(name, columns[name]) for name in names or COLUMNS])


def check_schema(schema: StructType) -> StructType:
    """A schema that the reader gave, which may be some of the columns. Raises InvalidOption for other types."""
    ours = {field.name: field for field in schema_of(schema.fieldNames())}
    for field in schema:
        if field.dataType != ours[field.name].dataType:
            raise InvalidOption(f"column {field.name!r} has the type {ours[field.name].dataType.simpleString()}, "
                                f"not {field.dataType.simpleString()}")
    return schema
