"""The Spark session that a job runs in: spark-submit's where it runs under that, else one of its own."""
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from gatehouse.spark.jobs.failure import JobFailed

LOCAL_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Local tasks share one machine: two hundred state stores, Spark's default, would be two hundred files a batch.
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    # The progress line says how far a job is; Spark's own log would hide it.
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
}


def make_session(name: str, master: str) -> SparkSession:
    """The session to run in. Under spark-submit what was submitted decides. Raises JobFailed."""
    # Workers must run this interpreter, where the source is installed; Spark's default is whatever python3 is found.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:    # set by spark-submit for the driver that it starts
        if master.startswith("local"):              # a machine whose own name nobody knows is enough for itself
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.master(master)
        for key, value in LOCAL_SETTINGS.items():
            builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise JobFailed("Spark does not start: it needs Java 17 or later, on the path or in JAVA_HOME "
                        f"({error})") from None
    spark.conf.set("spark.sql.session.timeZone", "UTC")    # days and times in results are UTC everywhere
    return spark
