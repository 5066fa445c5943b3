"""A Spark session as small as one can be."""
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

# Whoever starts a Spark gives it this Python: see `worker_start`.
WORKERS: Final = {"WORKER_PYTHON": sys.executable, "PYSPARK_PYTHON": str(Path(__file__).with_name("worker_python"))}


def new_session(master: str) -> SparkSession:
    """A session of this process."""
    os.environ.update(WORKERS)
    session: SparkSession = (
        SparkSession.builder.master(master).appName("gatehouse-tests").config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false").config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g").config("spark.driver.host", "127.0.0.1")
        # Tests are over before the optimising compiler, or a collector's own threads, have paid for themselves.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        # It gives its own processes fifteen seconds to find each other.
        .config("spark.python.authenticate.socketTimeout", "250s")
        .config("spark.sql.session.timeZone", "UTC").getOrCreate())
    session.sparkContext.setLogLevel("ERROR")
    return session
