"""A driver of its own for tests that kill it: copies topic `plant` to topic `copy`, micro-batch by micro-batch.

    python -m tests.spark.copying URL CHECKPOINT

Ends when everything that was there has been copied.
"""
from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.spark.session import new_session

ROWS_PER_BATCH = 4_000


def start_copy(session: SparkSession, url: str, checkpoint: str,
               rows_per_batch: int = ROWS_PER_BATCH) -> StreamingQuery:
    """The running query. Values are copied; small chunks, so that a task can be killed between two."""
    source = (session.readStream.format("gatehouse").options(
        url=url, subscribe="plant", startingOffsets="earliest", maxOffsetsPerTrigger=rows_per_batch, minPartitions=2,
        fetchBytes=20_000).load())
    return (source.selectExpr("key", "value").writeStream.format("gatehouse")
            .options(url=url, topic="copy", batchBytes=20_000, checkpointLocation=checkpoint)
            .trigger(availableNow=True).start())


def main() -> None:
    session = new_session("local[2,3]")
    start_copy(session, sys.argv[1], sys.argv[2]).awaitTermination()
    session.stop()


if __name__ == "__main__":
    main()
