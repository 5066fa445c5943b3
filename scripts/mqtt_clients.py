"""MQTT clients that do not come from PyPI, fetched once into build/: Eclipse Paho for Java and for Go, MQTT.js.

    python scripts/mqtt_clients.py

Paho for Java comes with Maven, MQTT.js with npm, Paho for Go with Go's own tools; which versions stands here. What the
tests let them do is in `tests/interop/mqtt/`: it is built here, too.
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
SOURCES: Final = ROOT / "tests" / "interop" / "mqtt"
FETCH_S: Final = 900
PAHO_JAVA: Final = "1.2.5"
PAHO_GO: Final = "v0.22.0"
OLDEST_GO: Final = 21
MQTT_JS: Final = "5.10.4"

POM: Final = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>clients</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.eclipse.paho</groupId><artifactId>org.eclipse.paho.client.mqttv3</artifactId><version>{PAHO_JAVA}</version></dependency>
    <dependency><groupId>org.eclipse.paho</groupId><artifactId>org.eclipse.paho.mqttv5.client</artifactId><version>{PAHO_JAVA}</version></dependency>
  </dependencies>
</project>
"""


def java_clients() -> Path:
    """The folder with Paho's jars, and the classes of `Sleeper.java`."""
    folder = BUILD / f"paho-java-{PAHO_JAVA}"
    if not folder.is_dir():
        coming = _begin(folder)
        pom = coming / "pom.xml"
        pom.write_text(POM)
        _run("mvn", "maven", ["-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
                              f"-DoutputDirectory={coming}"], coming)
        coming.rename(folder)
    source = SOURCES / "Sleeper.java"
    classes = folder / "Sleeper.class"
    if not classes.is_file() or classes.stat().st_mtime < source.stat().st_mtime:
        _run("javac", "default-jdk-headless", ["-cp", f"{folder}/*", "-d", str(folder), str(source)], folder)
    return folder


def has_go() -> bool:
    """Whether there is a Go that is new enough for its client: Debian 12's is not."""
    program = shutil.which("go")
    if program is None:
        return False
    said = subprocess.run([program, "env", "GOVERSION"], capture_output=True, text=True, timeout=FETCH_S).stdout
    numbers = said.strip().removeprefix("go").split(".")
    return len(numbers) > 1 and numbers[0] == "1" and numbers[1].isdigit() and int(numbers[1]) >= OLDEST_GO


def go_client() -> Path:
    """The program that `sleeper.go` is."""
    folder = BUILD / f"paho-go-{PAHO_GO}"
    source = SOURCES / "sleeper.go"
    program = folder / "sleeper"
    if not program.is_file() or program.stat().st_mtime < source.stat().st_mtime:
        coming = _begin(folder)
        shutil.copy(source, coming)
        _run("go", "golang-go", ["mod", "init", "sleeper"], coming)
        _run("go", "golang-go", ["get", f"github.com/eclipse/paho.golang@{PAHO_GO}"], coming)
        _run("go", "golang-go", ["build", "-o", "sleeper", "."], coming)
        shutil.rmtree(folder, ignore_errors=True)
        coming.rename(folder)
    return program


def mqtt_js() -> Path:
    """MQTT.js as one file for browsers."""
    folder = BUILD / f"mqtt-js-{MQTT_JS}"
    if not folder.is_dir():
        coming = _begin(folder)
        (coming / "package.json").write_text(json.dumps({"private": True, "dependencies": {"mqtt": MQTT_JS}}))
        _run("npm", "npm", ["install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"], coming)
        coming.rename(folder)
    return folder / "node_modules" / "mqtt" / "dist" / "mqtt.min.js"


def _begin(folder: Path) -> Path:
    coming = folder.with_name(f"{folder.name}-coming")
    shutil.rmtree(coming, ignore_errors=True)
    coming.mkdir(parents=True)
    return coming


def _run(command: str, package: str, arguments: list[str], folder: Path) -> None:
    if shutil.which(command) is None:
        sys.exit(f"{command} is missing: on Debian, apt-get install {package}")
    subprocess.run([command, *arguments], cwd=folder, check=True, timeout=FETCH_S,
                   env={**os.environ, "GOFLAGS": "-mod=mod"})


def main() -> None:
    """Fetch all of them; that for Go where there is Go."""
    java_clients()
    if has_go():
        go_client()
    mqtt_js()


if __name__ == "__main__":
    main()
