"""The Spark session that a job runs in, spark-submit's where it runs under that, else one of its own; and the stream of
messages that it reads, from its settings."""
from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession

from gatehouse.spark.jobs.failure import JobFailed
from gatehouse.spark.jobs.settings import JobSettings

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


def read_stream(spark: SparkSession, settings: JobSettings, columns: Sequence[str] = ()) -> DataFrame:
    """The messages that the settings name, as `format("gatehouse")` gives them; all columns unless some are named."""
    reader = spark.readStream.format("gatehouse").options(**source_options(settings))
    return (reader.option("columns", ",".join(columns)) if columns else reader).load()


def source_options(settings: JobSettings) -> dict[str, str]:
    """The source's options; what is left empty is left out."""
    return _given(connection(settings) | {
        "subscribe": ",".join(settings.topics),
        "subscribePattern": settings.pattern,
        "filter": settings.filter,
        "startingOffsets": settings.starting,
        "maxOffsetsPerTrigger": str(settings.max_rows),
        "failOnDataLoss": str(settings.fail_on_data_loss).lower(),
    })


def sink_options(settings: JobSettings) -> dict[str, str]:
    """The sink's options; the rows say where they go."""
    return _given(connection(settings))


def connection(settings: JobSettings) -> dict[str, str]:
    """Where the hub is, and who asks."""
    return {"url": settings.url, "user": settings.user, "password": settings.password, "token": settings.token,
            "tlsCa": settings.tls_ca}


def _given(options: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value}
