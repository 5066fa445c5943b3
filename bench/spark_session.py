"""A Spark for measurements, with Spark's own Kafka connector, which comes once from Maven Central into build/."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from bench.servers import ROOT, ServerFailed

FETCH_S: Final = 900.0
CONNECTOR: Final = "4.2.0"
"""The newest that could be fetched; it runs in Spark 4.3."""

ARTIFACTS: Final = (("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR),
                    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
                    ("org.apache.kafka", "kafka-clients", "3.9.2"),
                    ("org.apache.commons", "commons-pool2", "2.13.1"))
"""What Spark does not have itself, named one by one: what they name themselves is asked of Spark's own mirrors."""

DEPENDENCY: Final = """\
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
"""
POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>connector</artifactId><version>1</version>
  <dependencies>
{}  </dependencies>
</project>
"""


def fetch_connector() -> list[Path]:
    """Its jars. Raises ServerFailed."""
    folder = ROOT / "build" / f"spark-kafka-{CONNECTOR}"
    if not folder.is_dir():
        if shutil.which("mvn") is None:
            raise ServerFailed("the connector needs mvn: on Debian, apt-get install maven")
        coming = folder.with_name(folder.name + "-coming")
        coming.mkdir(parents=True, exist_ok=True)
        pom = coming / "pom.xml"
        pom.write_text(POM.format("".join(DEPENDENCY.format(*artifact) for artifact in ARTIFACTS)))
        done = subprocess.run(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
                               f"-DoutputDirectory={coming}"], check=False, timeout=FETCH_S)
        if done.returncode:
            raise ServerFailed("mvn could not fetch the connector, see above")
        coming.rename(folder)
    return sorted(folder.glob("*.jar"))


def start_session(master: str, jars: list[Path]) -> SparkSession:
    """A session whose workers find this source tree."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("PYTHONPATH", str(ROOT))
    session: SparkSession = (
        SparkSession.builder.master(master).appName("gatehouse-bench").config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false").config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "2g").config("spark.driver.host", "127.0.0.1")
        .config("spark.jars", ",".join(map(str, jars))).getOrCreate())
    session.sparkContext.setLogLevel("ERROR")
    return session
