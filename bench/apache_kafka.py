"""Apache Kafka as a peer: fetched from Maven Central with mvn, formatted and started as one KRaft node.

    python -m bench.apache_kafka           fetch only

The jars come once, into build/kafka-VERSION (40 MB). Kafka acknowledges a batch when it is in the page cache; with
`flush=True` it forces every batch to disk first (log.flush.interval.messages=1), which is what this hub promises.
"""
from __future__ import annotations

import shutil
import subprocess
import sys
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic

from bench.servers import ROOT, Server, ServerFailed, free_ports, wait_for_port

VERSION: Final = "4.2.0"
HEAP: Final = "1g"
FETCH_S: Final = 900.0
START_S: Final = 60.0

# KRaft writes one atomic record batch per request and bounds it at 10,000 records, the topic's own included.
PARTITIONS_PER_REQUEST: Final = 5_000
ADMIN_TIMEOUT_MS: Final = 120_000

POM: Final = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>peer</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""

PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/log
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.segment.delete.delay.ms=0
"""
FLUSH: Final = "log.flush.interval.messages=1\n"


def fetch_jars() -> Path:
    """The folder of all jars. Raises ServerFailed."""
    folder = ROOT / "build" / f"kafka-{VERSION}"
    if folder.is_dir():
        return folder
    if shutil.which("mvn") is None or shutil.which("java") is None:
        raise ServerFailed("Kafka needs java and mvn: on Debian, apt-get install default-jre-headless maven")
    coming = folder.with_name(folder.name + "-coming")
    coming.mkdir(parents=True, exist_ok=True)
    pom = coming / "pom.xml"
    pom.write_text(POM)
    done = subprocess.run(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
                           f"-DoutputDirectory={coming}"], check=False, timeout=FETCH_S)
    if done.returncode:
        raise ServerFailed("mvn could not fetch Kafka, see above")
    coming.rename(folder)
    return folder


def start_kafka(folder: Path, *, flush: bool = False) -> Server:
    """Format a log and start a broker on it. Raises ServerFailed."""
    jars = fetch_jars()
    folder.mkdir(exist_ok=True)
    port, controller = free_ports(2)
    properties = folder / "server.properties"
    text = PROPERTIES.format(port=port, controller=controller, folder=folder)
    properties.write_text(text + FLUSH if flush else text)
    java = ["java", f"-Xms{HEAP}", f"-Xmx{HEAP}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-cp", f"{jars}/*",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    with (folder / "kafka.log").open("ab") as log:
        formatted = subprocess.run([*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)],
                                   stdout=log, stderr=log, check=False, timeout=START_S)
        if formatted.returncode:
            raise ServerFailed(f"Kafka could not format {folder}: " + (folder / "kafka.log").read_text()[-500:])
        child = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=log, stderr=log)
    wait_for_port(port, child, "Kafka", START_S)
    return Server("Kafka, flushing" if flush else "Kafka", child, folder, {"kafka": port})


@contextmanager
def admin_of(server: Server) -> Iterator[Any]:
    """A client that creates and deletes topics."""
    admin = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{server.ports['kafka']}",
                             request_timeout_ms=ADMIN_TIMEOUT_MS)
    try:
        yield admin
    finally:
        admin.close()


def create_topic(server: Server, name: str, partitions: int) -> None:
    """In as many requests as its controller needs. It answers before the partitions are there."""
    with admin_of(server) as admin:
        there = min(partitions, PARTITIONS_PER_REQUEST)
        admin.create_topics([NewTopic(name, there, 1)])
        while there < partitions:
            there = min(partitions, there + PARTITIONS_PER_REQUEST)
            admin.create_partitions({name: NewPartitions(there)})


def delete_topic(server: Server, name: str) -> None:
    with admin_of(server) as admin:
        admin.delete_topics([name])


if __name__ == "__main__":
    try:
        print(fetch_jars().relative_to(ROOT))
    except ServerFailed as failure:
        sys.exit(str(failure))
