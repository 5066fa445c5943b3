"""Clients that do not come from PyPI, fetched once into build/: Kafka's from Java with its tools, KafkaJS; for AMQP
Spring's with Java's below it, amqplib, and RabbitMQ's for Go.

    python scripts/stock_clients.py                  what the tests need
    python scripts/stock_clients.py connect          Kafka Connect's file connectors and MirrorMaker 2 too

Java's clients come with Maven, those of Node with npm, that of Go with go; which versions stands here.
"""
from __future__ import annotations

import json
import os
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
SPRING_RABBIT: Final = "3.2.12"
AMQPLIB: Final = "0.10.9"
AMQP091_GO: Final = "v1.8.1"           # the last that Debian 12's go compiles

POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>clients</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
KAFKA: Final = "org.apache.kafka"
DEPENDENCY: Final = ("    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
                     "</dependency>")
OF_SPRING: Final = (("org.springframework.amqp", "spring-rabbit", SPRING_RABBIT), ("org.slf4j", "slf4j-nop", "2.0.16"),
                    ("org.eclipse.jdt", "ecj", "3.40.0"))
"""ecj compiles the tests' program: a runtime of Java has no compiler."""


def java_client(version: str) -> Path:
    """The folder with the jars of Kafka's clients and tools from Java."""
    return _jars(f"kafka-tools-{version}", ((KAFKA, "kafka-tools", version),))


def connectors() -> Path:
    """The folder with the jars of the file connectors and of MirrorMaker 2; the worker itself is among the tools."""
    return _jars(f"kafka-connect-{CONNECT_VERSION}", tuple([
        (KAFKA, name, CONNECT_VERSION) for name in ("connect-file", "connect-mirror", "connect-mirror-client")]),
        "-DexcludeTransitive=true")


def spring_rabbit() -> Path:
    """The folder with the jars of Spring AMQP, of RabbitMQ's client from Java below it, and of a compiler."""
    return _jars(f"spring-rabbit-{SPRING_RABBIT}", OF_SPRING)


def kafkajs() -> Path:
    """The folder in which node finds KafkaJS."""
    return _modules("kafkajs", KAFKAJS)


def amqplib() -> Path:
    """The folder in which node finds amqplib."""
    return _modules("amqplib", AMQPLIB)


def amqp091_go(program: Path) -> Path:
    """A program in Go that is given RabbitMQ's client, compiled."""
    folder = BUILD / f"amqp091-go-{AMQP091_GO}"
    if not folder.is_dir():
        coming = _begin(folder)
        needs = f"require github.com/rabbitmq/amqp091-go {AMQP091_GO}\n"
        (coming / "go.mod").write_text(f"module tests\n\ngo 1.16\n\n{needs}")
        (coming / "main.go").write_bytes(program.read_bytes())
        _run("go", "golang-go", ["mod", "tidy"], coming)
        coming.rename(folder)
    made = folder / "program"
    (folder / "main.go").write_bytes(program.read_bytes())
    _run("go", "golang-go", ["build", "-o", str(made), "."], folder)
    return made


def _jars(name: str, artifacts: tuple[tuple[str, str, str], ...], *options: str) -> Path:
    folder = BUILD / name
    if not folder.is_dir():
        coming = _begin(folder)
        pom = coming / "pom.xml"
        pom.write_text(POM.format(dependencies="\n".join([DEPENDENCY.format(*artifact) for artifact in artifacts])))
        _run("mvn", "maven", ["-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
                              f"-DoutputDirectory={coming}", *options], coming)
        coming.rename(folder)
    return folder


def _modules(name: str, version: str) -> Path:
    folder = BUILD / f"{name}-{version}"
    if not folder.is_dir():
        coming = _begin(folder)
        (coming / "package.json").write_text(json.dumps({"private": True, "dependencies": {name: version}}))
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
    environment = {**os.environ, "GOFLAGS": "-mod=mod"} if command == "go" else None
    subprocess.run([command, *arguments], cwd=folder, check=True, timeout=FETCH_S, env=environment)


def main(arguments: list[str]) -> None:
    """Fetch them."""
    for version in JAVA_VERSIONS:
        java_client(version)
    kafkajs()
    spring_rabbit()
    amqplib()
    amqp091_go(Path(__file__).parents[1] / "tests" / "interop" / "amqp091_hour.go")
    if "connect" in arguments:
        connectors()


if __name__ == "__main__":
    main(sys.argv[1:])
