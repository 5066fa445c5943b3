"""A Spark for measurements, with Spark's own Kafka connector, which comes once from Maven Central into build/."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from bench.servers import ROOT, ServerFailed

FETCH_S: Final = 900.0
POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>connector</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


def fetch_connector() -> list[Path]:
    """Its jars and those that Spark lacks. Raises ServerFailed."""
    version = pyspark.__version__
    folder = ROOT / "build" / f"spark-kafka-{version}"
    if not folder.is_dir():
        if shutil.which("mvn") is None:
            raise ServerFailed("the connector needs mvn: on Debian, apt-get install maven")
        coming = folder.with_name(folder.name + "-coming")
        coming.mkdir(parents=True, exist_ok=True)
        pom = coming / "pom.xml"
        pom.write_text(POM.format(version=version))
        done = subprocess.run(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
                               "-DincludeScope=runtime", f"-DoutputDirectory={coming}"], check=False, timeout=FETCH_S)
        if done.returncode:
            raise ServerFailed("mvn could not fetch the connector, see above")
        coming.rename(folder)
    wanted = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
    return [jar for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(wanted)]


def start_session(master: str, jars: list[Path]) -> SparkSession:
    """A session whose workers find this source tree."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    session: SparkSession = (
        SparkSession.builder.master(master).appName("gatehouse-bench").config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false").config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "2g").config("spark.driver.host", "127.0.0.1")
        .config("spark.jars", ",".join(map(str, jars))).getOrCreate())
    session.sparkContext.setLogLevel("ERROR")
    return session
