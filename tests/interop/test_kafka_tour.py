"""The first hour of gateways/kafka/README.md works as it stands there, pasted into one shell (on other ports)."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from scripts.stock_clients import java_client
from tests.running_hub import ROOT, RunningHub, config_of, sound_hub

LIMIT_S: Final = 280
TOOLS: Final = {"kafka-topics": "TopicCommand", "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand",
                "kafka-console-producer": "ConsoleProducer", "kafka-console-consumer": "consumer.ConsoleConsumer"}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    settings = "group_min_session_timeout_ms = 500\ngroup_initial_rebalance_delay_ms = 100\n"
    with sound_hub(tmp_path, config_of(("http", "kafka"), 'fsync = "commit"') + settings) as running:
        yield running


def tools_in(folder: Path) -> Path:
    """Kafka's console tools under the names that they have in its archive, but for their ending."""
    folder.mkdir()
    java = f"exec java -Xshare:auto -XX:TieredStopAtLevel=1 -Xmx256m -cp '{java_client('4.2.0')}/*'"
    for name, program in TOOLS.items():
        tool = folder / name
        tool.write_text(f'#!/bin/sh\n{java} org.apache.kafka.tools.{program} "$@"\n')
        tool.chmod(0o755)
    return folder


def script_of(hub: RunningHub) -> str:
    """The blocks of that part, for this hub, whose members are found to be gone sooner."""
    text = (ROOT / "gateways" / "kafka" / "README.md").read_text()
    part = text.partition("\n## The first hour\n")[2].partition("\n## ")[0]
    script = "\n".join(re.findall(r"```sh\n(.*?)```", part, re.DOTALL))
    for port, door in ((8080, "http"), (9092, "kafka")):
        script, count = re.subn(rf"127\.0\.0\.1:{port}\b", f"127.0.0.1:{hub.port(door)}", script)
        assert count, door
    script, count = re.subn(r"session\.timeout\.ms=6000", "session.timeout.ms=1500", script)
    assert count == 1
    return script.replace(".venv/bin/python", sys.executable)


def test_the_first_hour(hub: RunningHub, tmp_path: Path) -> None:
    tools = tools_in(tmp_path / "tools")
    done = subprocess.run(["bash", "-e", "-c", script_of(hub)], capture_output=True, text=True, timeout=LIMIT_S,
                          check=False, env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"})
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "Created topic orders." in lines
    assert sum(line.split()[:2] == ["billing", "orders"] for line in lines) == 8, "described, and reset"
    assert sum("\tPartition: " in line and "Topic: orders" in line for line in lines) == 6, done.stdout
    assert [line.strip() for line in lines if line.strip().isdigit()] == ["1000", "1100"]
    assert sum(line.split()[:2] == ["shipping", "orders"] for line in lines) == 6
    assert lines[-2:] == ["read 1200", "committed 1200"]
