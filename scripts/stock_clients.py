"""Clients that are not among the locks, fetched once into build/: Kafka's from Java with its tools, KafkaJS, and for Go
kafka-go, franz-go and sarama; for AMQP Spring's with Java's below it, amqplib, and RabbitMQ's for Go; for MQTT Eclipse
Paho for Java and for Go, MQTT.js, and amqtt, which asks for versions of its own.

    python scripts/stock_clients.py                  what the tests need
    python scripts/stock_clients.py connect          Kafka Connect's file connectors and MirrorMaker 2 too

Java's clients come with Maven, those of Node with npm, those of Go with go; which versions stands here. Paho for Go,
franz-go and sarama need a later Go than Debian 12 has: they are left out where there is none.
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
BUILD: Final = ROOT / "build"
OF_MQTT: Final = ROOT / "tests" / "interop" / "mqtt"
OF_KAFKA: Final = ROOT / "tests" / "interop" / "kafka"
FETCH_S: Final = 900
JAVA_VERSIONS: Final = ("3.9.1", "4.2.0")
CONNECT_VERSION: Final = "4.2.0"
KAFKAJS: Final = "2.2.4"
KAFKA_GO: Final = "v0.4.47"            # the last that Debian 12's go compiles
FRANZ_GO: Final = "v1.22.3"
FRANZ_GO_ADMIN: Final = "v1.19.0"
SARAMA: Final = "v1.61.1"
OLDEST_GO_OF_KAFKA: Final = 26         # that compiles franz-go and sarama
SPRING_RABBIT: Final = "3.2.12"
AMQPLIB: Final = "0.10.9"
AMQP091_GO: Final = "v1.8.1"           # the last that Debian 12's go compiles
PAHO_JAVA: Final = "1.2.5"
PAHO_GO: Final = "v0.22.0"
OLDEST_GO: Final = 21                  # that compiles Paho for Go
MQTT_JS: Final = "5.10.4"
AMQTT: Final = "0.12.1"

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
COMPILER: Final = ("org.eclipse.jdt", "ecj", "3.40.0")
"""Of the tests' programs: a runtime of Java has none."""
OF_SPRING: Final = (("org.springframework.amqp", "spring-rabbit", SPRING_RABBIT), ("org.slf4j", "slf4j-nop", "2.0.16"),
                    COMPILER)
OF_PAHO: Final = (("org.eclipse.paho", "org.eclipse.paho.client.mqttv3", PAHO_JAVA),
                  ("org.eclipse.paho", "org.eclipse.paho.mqttv5.client", PAHO_JAVA), COMPILER)


def java_client(version: str) -> Path:
    """The folder with the jars of Kafka's clients and tools from Java."""
    return _jars(f"kafka-tools-{version}", ((KAFKA, "kafka-tools", version),))


def connectors() -> Path:
    """The folder with the jars of the file connectors and of MirrorMaker 2; the worker itself is among the tools."""
    return _jars(f"kafka-connect-{CONNECT_VERSION}", tuple([
        (KAFKA, name, CONNECT_VERSION) for name in ("connect-file", "connect-mirror", "connect-mirror-client")]),
        "-DexcludeTransitive=true")


def mirror_settings(near: str, far: str, topics: str, more: str) -> str:
    """For MirrorMaker 2 as one process, between two clusters of one server each; `more`: further lines."""
    topics_of_its_own = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage",
                         "config.storage", "status.storage")
    lines = ["clusters=near,far", f"near.bootstrap.servers={near}", f"far.bootstrap.servers={far}",
             "near->far.enabled=true", f"near->far.topics={topics}", "far->near.enabled=false", "replication.factor=1",
             *[f"{name}.replication.factor=1" for name in topics_of_its_own],
             "dedicated.mode.enable.internal.rest=false"]
    return "".join([f"{line}\n" for line in lines]) + more


def spring_rabbit() -> Path:
    """The folder with the jars of Spring AMQP, of RabbitMQ's client from Java below it, and of a compiler."""
    return _jars(f"spring-rabbit-{SPRING_RABBIT}", OF_SPRING)


def paho_java() -> Path:
    """The folder with Paho's jars, and the classes of `Sleeper.java`."""
    folder, source = _jars(f"paho-java-{PAHO_JAVA}", OF_PAHO), OF_MQTT / "Sleeper.java"
    if _is_older(folder / "Sleeper.class", source):
        compile_java(folder, folder, source)
    return folder


def compile_java(jars: Path, target: Path, source: Path) -> None:
    """Compile a program for Java 17 with the compiler among the jars, into the folder `target`."""
    path = os.pathsep.join([str(jar) for jar in sorted(jars.glob("*.jar"))])
    _run("java", "default-jre-headless", ["-jar", str(next(jars.glob("ecj-*.jar"))), "-17", "-nowarn", "-cp", path,
                                          "-d", str(target), str(source)], target)


def kafkajs() -> Path:
    """The folder in which node finds KafkaJS."""
    return _modules("kafkajs", KAFKAJS)


def amqplib() -> Path:
    """The folder in which node finds amqplib."""
    return _modules("amqplib", AMQPLIB)


def mqtt_js() -> Path:
    """MQTT.js as one file for browsers."""
    return _modules("mqtt", MQTT_JS) / "node_modules" / "mqtt" / "dist" / "mqtt.min.js"


def amqtt() -> Path:
    """The folder in which Python finds amqtt, its client and its broker."""
    folder = BUILD / f"amqtt-{AMQTT}"
    if not folder.is_dir():
        coming = _begin(folder)
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target",
                        str(coming), f"amqtt=={AMQTT}"], check=True, timeout=FETCH_S)
        coming.rename(folder)
    return folder


def has_recent_go(oldest: int = OLDEST_GO) -> bool:
    """Whether there is a Go 1.`oldest` or later; by default one that compiles Paho's client."""
    program = shutil.which("go")
    if program is None:
        return False
    said = subprocess.run([program, "env", "GOVERSION"], capture_output=True, text=True, timeout=FETCH_S).stdout
    numbers = said.strip().removeprefix("go").split(".")
    return len(numbers) > 1 and numbers[0] == "1" and numbers[1].isdigit() and int(numbers[1]) >= oldest


def paho_go() -> Path:
    """The program that `sleeper.go` is, compiled with Paho."""
    return _go_program(f"paho-go-{PAHO_GO}", f"github.com/eclipse/paho.golang {PAHO_GO}", OF_MQTT / "sleeper.go")


def amqp091_go(program: Path) -> Path:
    """A program in Go that is given RabbitMQ's client, compiled."""
    return _go_program(f"amqp091-go-{AMQP091_GO}", f"github.com/rabbitmq/amqp091-go {AMQP091_GO}", program)


def kafka_go() -> Path:
    """The program that `kafka_go_hour.go` is, compiled with kafka-go."""
    return _go_program(f"kafka-go-{KAFKA_GO}", f"github.com/segmentio/kafka-go {KAFKA_GO}",
                       OF_KAFKA / "kafka_go_hour.go")


def franz_go() -> Path:
    """The program that `franz_go_hour.go` is, compiled with franz-go."""
    return _go_program(f"franz-go-{FRANZ_GO}", f"github.com/twmb/franz-go {FRANZ_GO}", OF_KAFKA / "franz_go_hour.go",
                       f"github.com/twmb/franz-go/pkg/kadm {FRANZ_GO_ADMIN}")


def sarama() -> Path:
    """The program that `sarama_hour.go` is, compiled with sarama."""
    return _go_program(f"sarama-{SARAMA}", f"github.com/IBM/sarama {SARAMA}", OF_KAFKA / "sarama_hour.go")


def _go_program(name: str, module: str, source: Path, *others: str) -> Path:
    folder = BUILD / name
    if not folder.is_dir():
        coming = _begin(folder)
        needs = "".join([f"require {needed}\n" for needed in (module, *others)])
        (coming / "go.mod").write_text(f"module tests\n\ngo 1.16\n\n{needs}")
        (coming / "main.go").write_bytes(source.read_bytes())
        _run("go", "golang-go", ["mod", "tidy"], coming)
        coming.rename(folder)
    made = folder / "program"
    if _is_older(made, source):
        (folder / "main.go").write_bytes(source.read_bytes())
        _run("go", "golang-go", ["build", "-o", str(made), "."], folder)
    return made


def _is_older(made: Path, source: Path) -> bool:
    return not made.is_file() or made.stat().st_mtime < source.stat().st_mtime


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
    amqp091_go(ROOT / "tests" / "interop" / "amqp091_hour.go")
    kafka_go()
    paho_java()
    mqtt_js()
    amqtt()
    if has_recent_go():
        paho_go()
    if has_recent_go(OLDEST_GO_OF_KAFKA):
        franz_go()
        sarama()
    if "connect" in arguments:
        connectors()


if __name__ == "__main__":
    main(sys.argv[1:])
