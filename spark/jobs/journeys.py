"""What the topic `journeys` says of a hub: messages a second, and how long they take, per door, topic and group.

    python -m gatehouse.spark.jobs.journeys --url http://hub:8080 --user root        (GATEHOUSE_SPARK_PASSWORD)

    {"door": "mqtt", "topic": "orders", "group": "billing", "messages": 120, "per_second": 2.0, "p50_ms": 14,
     "p99_ms": 180, "failed": 3}

One line for each door and topic that messages came in by, with `group` null: how many were followed from the start; and
one for each group that acknowledged them: the time from stored to acknowledged, and how many hand-outs failed. What is
followed is a part of all messages (`tracing.rate`), and `per_second` is of that part. The topic is the first level of
the address.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gatehouse.spark.jobs.failure import exit_code
from gatehouse.spark.jobs.session import make_session
from gatehouse.spark.source import GatehouseSource
from gatehouse.tracing.events import CorruptEvent, Kind, decode

TOPIC: Final = "journeys"
SCHEMA: Final = "first long, rows int, step int, kind int, door string, address string, who string, attempt int"
FAILED: Final = [int(kind) for kind in (Kind.RELEASED, Kind.LEASE_OVER, Kind.GIVEN_UP)]
ACCURACY: Final = 1_000
"""The rank of a percentile is off by at most one in so many."""


def fields_of(value: bytes | None) -> tuple[int, int, int, int, str, str, str, int] | None:
    """What a record of the topic says, read on an executor; None where it is no event, or one of a later hub."""
    try:
        event = decode(bytes(value or b""), 0)
    except CorruptEvent:
        return None
    return (event.message_id, event.rows or 1, event.step or 1, event.kind, event.door, event.address, event.group,
            event.attempt)


def events(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Every event that the topic keeps, one row for each message that it tells of. `options`: those of the source,
    which say where the hub is."""
    records = spark.read.format("gatehouse").options(**options).option("subscribe", TOPIC).load()
    read_event = F.udf(fields_of, SCHEMA, useArrow=False)
    read = records.select(read_event("value").alias("event"), F.unix_millis("timestamp").alias("at"))
    happened = read.where(F.col("event").isNotNull()).select("event.*", "at")
    last = F.col("first") + (F.col("rows") - 1) * F.col("step")
    each = F.explode(F.sequence(F.col("first"), last, F.col("step").cast("long"))).alias("id")
    return happened.select(each, "kind", "door", "address", "who", "attempt", "at")


def report(happened: DataFrame) -> DataFrame:
    """How many messages were stored and acknowledged, and how long they took: a row for each line."""
    stored = happened.where(F.col("kind") == int(Kind.STORED)).select(
        "id", "door", F.col("at").alias("stored_at"), F.substring_index("address", "/", 1).alias("topic"))
    entered = stored.groupBy("door", "topic").agg(
        F.count("*").alias("messages"), _per_second("stored_at"), F.lit(None).cast("long").alias("p50_ms"),
        F.lit(None).cast("long").alias("p99_ms"), F.lit(0).cast("long").alias("failed"))
    acked = happened.where(F.col("kind") == int(Kind.ACKED)).groupBy("id", "who").agg(F.min("at").alias("acked_at"))
    took = F.col("acked_at") - F.col("stored_at")
    left = acked.join(stored, "id").groupBy("door", "topic", "who").agg(
        F.count("*").alias("messages"), _per_second("acked_at"),
        F.percentile_approx(took, F.lit(0.5), ACCURACY).alias("p50_ms"),
        F.percentile_approx(took, F.lit(0.99), ACCURACY).alias("p99_ms"))
    failures = happened.where(F.col("kind").isin(FAILED)).select("id", "who")
    failed = failures.join(stored, "id").groupBy("door", "topic", "who").agg(F.count("*").alias("failed"))
    of_groups = left.join(failed, ["door", "topic", "who"], "full").na.fill(0, ["messages", "failed"])
    columns: Any = ["door", "topic", F.col("who").alias("group"), "messages", "per_second", "p50_ms", "p99_ms",
                    "failed"]
    with_none = entered.withColumn("who", F.lit(None).cast("string"))
    return with_none.select(*columns).unionByName(of_groups.select(*columns)).orderBy("door", "topic", "group")


def _per_second(name: str) -> Any:
    """How many a second there were from the first to the last."""
    seconds = F.greatest((F.max(name) - F.min(name)) / 1000, F.lit(1.0))
    return F.round(F.count("*") / seconds, 3).alias("per_second")


def run(options: Mapping[str, str], master: str) -> None:
    """Print the lines."""
    spark = make_session("gatehouse journeys", master)
    spark.dataSource.register(GatehouseSource)
    for row in report(events(spark, options)).collect():
        print(json.dumps(row.asDict()))


def main() -> int:
    """As a command."""
    parser = argparse.ArgumentParser(prog="journeys", description="Rates and times of messages that a hub followed.")
    parser.add_argument("--url", required=True, help="HTTP door of the hub.")
    parser.add_argument("--user", default="", help="An administrator: the topic is theirs.")
    parser.add_argument("--tls-ca", default="", help="File of the authority that signed the hub's certificate.")
    parser.add_argument("--master", default="local[*]", help="Where Spark runs, unless spark-submit says it.")
    asked = parser.parse_args()
    options = {"url": asked.url, "user": asked.user, "password": os.environ.get("GATEHOUSE_SPARK_PASSWORD", ""),
               "token": os.environ.get("GATEHOUSE_SPARK_TOKEN", ""), "tlsCa": asked.tls_ca}
    return exit_code(lambda: run({name: value for name, value in options.items() if value}, asked.master))


if __name__ == "__main__":
    sys.exit(main())
