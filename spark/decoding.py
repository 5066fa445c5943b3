"""Values as columns of their own: JSON and CSV with a schema, Avro and Protobuf where Spark has their jars.

    decode_values(frame, "json", "sensor string, celsius double")

adds a column `decoded` with the fields and a column `bad_value`, which holds the value where it is not what the format
and the schema say. A bad value never ends a query. Spark's own parsers do the work, in the JVM.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from gatehouse.spark.errors import InvalidOption

FORMATS: Final = ("json", "csv", "avro", "protobuf")
CORRUPT: Final = "_corrupt_record"
"""Where Spark's parsers put what they cannot read; taken out of `decoded` again."""


def decode_values(frame: DataFrame, format: str, schema: str | StructType, *, value: str = "value",
                  decoded: str = "decoded", bad: str = "bad_value", message: str = "",
                  options: Mapping[str, str] | None = None) -> DataFrame:
    """The frame with two more columns: `decoded`, a struct, and `bad`, the bytes of a value that could not be decoded.

    `schema` is Spark's (DDL or a StructType) for json and csv, a JSON of Avro for avro, the path of a descriptor file
    for protobuf, whose `message` names the type. A null value is null and not bad. Raises InvalidOption.
    """
    if format not in FORMATS:
        raise InvalidOption(f"values are decoded as {', '.join(FORMATS)}, not {format!r}; leave raw ones as they are")
    given = dict(options or {})
    if format in ("json", "csv"):
        return _by_text(frame, format, schema, value, decoded, bad, given)
    if not isinstance(schema, str):
        raise InvalidOption(f"the schema of {format} is a text")
    read = _avro(F.col(value), schema, given) if format == "avro" else _protobuf(F.col(value), message, schema, given)
    return frame.withColumn(decoded, read).withColumn(
        bad, F.when(F.col(value).isNotNull() & F.col(decoded).isNull(), F.col(value)))


def _by_text(frame: DataFrame, format: str, schema: str | StructType, value: str, decoded: str, bad: str,
             options: dict[str, str]) -> DataFrame:
    wanted = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(wanted, StructType):
        raise InvalidOption(f"the schema of {format} names columns, as in 'sensor string, celsius double'")
    full = StructType([*wanted.fields, StructField(CORRUPT, StringType())])
    options = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    text = F.col(value).cast("string")
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in full)
    parsed = F.from_json(text, full, options) if format == "json" else F.from_csv(text, columns, options)
    is_bad = F.col(value).isNotNull() & (F.col(decoded).isNull() | F.col(f"{decoded}.{CORRUPT}").isNotNull())
    return (frame.withColumn(decoded, parsed).withColumn(bad, F.when(is_bad, F.col(value)))
            .withColumn(decoded, F.when(F.col(bad).isNull(), F.col(decoded).dropFields(CORRUPT))))


def _avro(value: Column, schema: str, options: dict[str, str]) -> Column:
    from pyspark.sql.avro.functions import from_avro
    try:
        return from_avro(value, schema, {**options, "mode": "PERMISSIVE"})
    except (PySparkException, TypeError) as error:
        raise InvalidOption(f"Avro needs Spark's own package, org.apache.spark:spark-avro_2.13: {error}") from None


def _protobuf(value: Column, message: str, descriptor: str, options: dict[str, str]) -> Column:
    from pyspark.sql.protobuf.functions import from_protobuf
    try:
        return from_protobuf(value, message, descriptor, {**options, "mode": "PERMISSIVE"})
    except (PySparkException, TypeError) as error:
        raise InvalidOption(f"Protobuf needs Spark's own package, org.apache.spark:spark-protobuf_2.13: {error}"
                            ) from None
