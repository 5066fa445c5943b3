"""Kafka clients that do not come from PyPI, fetched once into build/: Java's with its tools, KafkaJS.

    python scripts/kafka_clients.py                  what the tests need
    python scripts/kafka_clients.py connect          Kafka Connect's file connectors and MirrorMaker 2 too

Java's clients come with Maven, KafkaJS with npm; which versions stands here.
"""
from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

BUILD: Final = Path(__file__).parents[1] / "build"
FETCH_S: Final = 900
JAVA_VERSIONS: Final = ("3.9.1", "4.2.0")
CONNECT_VERSION: Final = "4.2.0"
KAFKAJS: Final = "2.2.4"

POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>clients</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY: Final = ("    <dependency><groupId>org.apache.kafka</groupId><artifactId>{name}</artifactId>"
                     "<version>{version}</version></dependency>")


def java_client(version: str) -> Path:
    """The folder with the jars of Java's clients and tools."""
    return _jars(BUILD / f"kafka-tools-{version}", version, ("kafka-tools",))


def connectors() -> Path:
    """The folder with the jars of the file connectors and of MirrorMaker 2; the worker itself is among the tools."""
    return _jars(BUILD / f"kafka-connect-{CONNECT_VERSION}", CONNECT_VERSION,
                 ("connect-file", "connect-mirror", "connect-mirror-client"), "-DexcludeTransitive=true")


def _jars(folder: Path, version: str, names: tuple[str, ...], *options: str) -> Path:
    if not folder.is_dir():
        coming = _begin(folder)
        pom = coming / "pom.xml"
        dependencies = "\n".join([DEPENDENCY.format(name=name, version=version) for name in names])
        pom.write_text(POM.format(dependencies=dependencies))
        _run("mvn", "maven", ["-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
                              f"-DoutputDirectory={coming}", *options], coming)
        coming.rename(folder)
    return folder


def kafkajs() -> Path:
    """The folder in which node finds KafkaJS."""
    folder = BUILD / f"kafkajs-{KAFKAJS}"
    if not folder.is_dir():
        coming = _begin(folder)
        (coming / "package.json").write_text(json.dumps({"private": True, "dependencies": {"kafkajs": KAFKAJS}}))
        _run("npm", "npm", ["install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"], coming)
        coming.rename(folder)
    return folder


def _begin(folder: Path) -> Path:
    coming = folder.with_name(f"{folder.name}-coming")
    shutil.rmtree(coming, ignore_errors=True)
    coming.mkdir(parents=True)
    return coming


def _run(command: str, package: str, arguments: list[str], folder: Path) -> None:
    if shutil.which(command) is None:
        sys.exit(f"{command} is missing: on Debian, apt-get install {package}")
    subprocess.run([command, *arguments], cwd=folder, check=True, timeout=FETCH_S)


def main(arguments: list[str]) -> None:
    """Fetch them."""
    for version in JAVA_VERSIONS:
        java_client(version)
    kafkajs()
    if "connect" in arguments:
        connectors()


if __name__ == "__main__":
    main(sys.argv[1:])
