"""A Spark session as small as one can be."""
from __future__ import annotations

from pyspark.sql import SparkSession


def new_session(master: str) -> SparkSession:
    """A session of this process."""
    session: SparkSession = (
        SparkSession.builder.master(master).appName("gatehouse-tests").config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false").config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g").config("spark.driver.host", "127.0.0.1")
        # Tests are over before the optimising compiler has paid for itself.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        # It gives its own processes fifteen seconds to find each other.
        .config("spark.python.authenticate.socketTimeout", "250s")
        .config("spark.sql.session.timeZone", "UTC").getOrCreate())
    session.sparkContext.setLogLevel("ERROR")
    return session
