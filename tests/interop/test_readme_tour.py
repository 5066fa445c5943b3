"""The five-minute tour of the README works as it stands there, pasted into a shell (on other ports)."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.running_hub import ROOT, RunningHub


def tour() -> str:
    """The shell block of the README."""
    return next(iter(re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)))


def test_the_tour(hub: RunningHub):
    script = tour()
    for port, door in ((8080, "http"), (9092, "kafka"), (5672, "amqp")):
        assert f"127.0.0.1:{port}" in script
        script = script.replace(f"127.0.0.1:{port}", f"127.0.0.1:{hub.port(door)}")
    script = script.replace("-h 127.0.0.1", f"-h 127.0.0.1 -p {hub.port('mqtt')}")
    for program in ("gatehouse", "python"):
        script = script.replace(f".venv/bin/{program}", str(Path(sys.executable).with_name(program)))
    done = subprocess.run(["bash", "-e", "-c", script], capture_output=True, text=True, timeout=60, check=False,
                          cwd=ROOT, env=os.environ | {"GATEHOUSE_URL": f"http://127.0.0.1:{hub.port('http')}"})
    assert done.returncode == 0, done.stdout + done.stderr
    out = done.stdout
    for line in ("line1/temp = 21.5", "line2/temp = 19.0", "line3/temp = 23.1", "line7/temp = 22.0", "hello, queue",
                 "24.5"):
        assert line in out
    page = next(json.loads(line) for line in out.splitlines() if line.startswith('{"messages"'))
    assert {(message["key"], message["value"], message["door"]) for message in page["messages"]} == {
        ("line1/temp", "21.5", "http"), ("line2/temp", "19.0", "mqtt"), ("line3/temp", "23.1", "kafka"),
        ("line7/temp", "22.0", "amqp")}
    assert "plant/line4/temp 20.2" in out
    consumed = [line.split("  ")[1] for line in out.splitlines() if line[:1].isdigit() and line.count("  ") == 2]
    taken = [line.split()[2] for line in out.splitlines() if line.startswith("worker takes") and line.endswith(" None")]
    assert sorted(consumed + taken) == [f"plant/line{number}/temp" for number in (1, 2, 3, 4, 7)]
    assert "topic plant, key 'line1/temp'" in out
