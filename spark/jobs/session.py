"""The Spark session that a job runs in: spark-submit's where it runs under that, else one of its own."""
from __future__ import annotations

import os
import sys
from typing import Final

from pyspark.sql import SparkSession

LOCAL_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Local tasks share one machine: two hundred state stores, Spark's default, would be two hundred files a batch.
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    # The progress line says how far a job is; Spark's warnings about a batch that took longer would hide it.
    "spark.log.level": "ERROR",
}


def make_session(name: str, master: str) -> SparkSession:
    """The session to run in. Under spark-submit what was submitted decides."""
    # Workers must run this interpreter, where the source is installed; Spark's default is whatever python3 is found.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:    # set by spark-submit for the driver that it starts
        builder = builder.master(master)
        for key, value in LOCAL_SETTINGS.items():
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")    # days and times in results are UTC everywhere
    return spark
