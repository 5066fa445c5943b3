"""`gatehouse spark analytics`: statistics of each address over windows of time, sent back to the hub as they change.

A message of `plant/line1/temp` is one reading; every micro-batch sends the windows that it changed, as JSON, to
`statistics/plant/line1/temp`, where MQTT and HTTP clients see them at once:

    {"address": "plant/line1/temp",
     "window_start": "2026-11-20T12:00:00.000Z", "window_end": "2026-11-20T12:01:00.000Z", "count": 60,
     "mean": 21.4, "min": 20.9, "max": 22.1, "p50": 21.4, "p95": 22.0, "p99": 22.1, "late": 0, "invalid": 0}

`late` counts readings that came after their own window was closed; they are counted in the window that was open then.
`invalid` counts values that are no number. A later message of the same window replaces an earlier one.

A reading's time is the message's own, and never later than the time at which the hub stored it: one device whose clock
is ahead would otherwise close everybody's windows. Percentiles are Spark's approximation (`percentile_approx`).
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.streaming.query import StreamingQuery

from gatehouse.spark.jobs.arguments import parse_arguments
from gatehouse.spark.jobs.failure import exit_code
from gatehouse.spark.jobs.lateness import marker
from gatehouse.spark.jobs.progress import follow
from gatehouse.spark.jobs.session import make_session, read_stream, sink_options
from gatehouse.spark.jobs.settings import AnalyticsSettings

COLUMNS: Final = ("topic", "address", "value", "timestamp", "append_time")
CONTENT_TYPE: Final = b"application/json"
PERCENTILE_ACCURACY: Final = 1_000
"""The rank that `percentile_approx` gives is off by at most one in so many."""


def start(spark: SparkSession, settings: AnalyticsSettings, once: bool = False) -> StreamingQuery:
    """The running query; `once` ends it where the topics ended when it began."""
    checkpoint = str(Path(settings.checkpoint).absolute())
    messages = read_stream(spark, settings, COLUMNS).where(F.col("topic") != settings.to)
    results = as_messages(statistics(readings(messages, settings, checkpoint), settings), settings.to)
    sink = sink_options(settings)

    def send(changed: DataFrame, batch_id: int) -> None:
        """At least once: a micro-batch that comes again sends the same windows, each replacing itself."""
        changed.write.format("gatehouse").options(**sink).mode("append").save()

    writer = results.writeStream.queryName("analytics").outputMode("update").foreachBatch(send)
    writer = writer.option("checkpointLocation", checkpoint)
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{settings.trigger_s} seconds").start()


def readings(messages: DataFrame, settings: AnalyticsSettings, checkpoint: str) -> DataFrame:
    """`address`, `reading` (null where it is no number), `late`, and `at`, the time at which it is counted."""
    as_udf: Any = arrow_udf     # its type asks for what it warns about
    count_at = as_udf(marker(checkpoint, round(settings.window_s * 1e6)), "long")
    measured = F.unix_micros(F.least("timestamp", "append_time"))
    return messages.select(
        "address", number_in(settings.value_field).alias("reading"), measured.alias("measured"),
        count_at(measured).alias("counted"),
    ).select(
        "address", "reading", (F.col("counted") != F.col("measured")).alias("late"),
        F.timestamp_micros("counted").alias("at"))


def number_in(value_field: str) -> Column:
    """The number that a value is, or that a field of its JSON object is; null for anything else, infinities too."""
    text: Column = F.col("value").cast("string")
    if value_field:
        text = F.get_json_object(text, f"$.{value_field}")
    number = text.try_cast("double")
    return F.when(F.abs(number) < F.lit(float("inf")), number)


def statistics(rows: DataFrame, settings: AnalyticsSettings) -> DataFrame:
    """One row per address and window."""
    window = F.window("at", f"{round(settings.window_s * 1e3)} milliseconds")
    on_time = F.when(~F.col("late"), F.col("reading"))
    fractions = F.array(*(F.lit(percentile / 100) for percentile in settings.percentiles))
    grouped = rows.withWatermark("at", f"{round(settings.lateness_s * 1e3)} milliseconds").groupBy("address", window)
    return grouped.agg(
        F.count(on_time).alias("count"), F.avg(on_time).alias("mean"), F.min(on_time).alias("min"),
        F.max(on_time).alias("max"), F.percentile_approx(on_time, fractions, PERCENTILE_ACCURACY).alias("percentiles"),
        F.count_if("late").alias("late"), F.count_if(~F.col("late") & F.col("reading").isNull()).alias("invalid"),
    ).select("address", "window", "count", "mean", "min", "max",
             *(F.col("percentiles")[number].alias(f"p{percentile:.12g}")
               for number, percentile in enumerate(settings.percentiles)), "late", "invalid")


def as_messages(results: DataFrame, topic: str) -> DataFrame:
    """The results as the sink takes them: an address, a JSON value, and its content type."""
    fields: list[Any] = ["address", _utc("window.start").alias("window_start"), _utc("window.end").alias("window_end")]
    fields += [F.col(f"`{name}`") for name in results.columns if name not in ("address", "window")]
    return results.select(
        F.concat(F.lit(f"{topic}/"), "address").alias("address"),
        F.to_json(F.struct(*fields), {"ignoreNullFields": "false"}).cast("binary").alias("value"),
        F.array(F.struct(F.lit("content-type").alias("key"), F.lit(CONTENT_TYPE).alias("value"))).alias("headers"))


def _utc(name: str) -> Column:
    return F.date_format(name, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def run(settings: AnalyticsSettings, once: bool = False) -> None:
    """Send statistics until told to stop. Raises JobFailed."""
    spark = make_session("gatehouse analytics", settings.master)
    follow(spark, [lambda: start(spark, settings, once)])


if __name__ == "__main__":
    settings, once = parse_arguments(AnalyticsSettings, "analytics")
    sys.exit(exit_code(lambda: run(settings, once)))
