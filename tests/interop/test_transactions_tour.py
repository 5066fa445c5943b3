"""The commands of docs/transactions.md work as they stand there, from top to bottom, in one shell (on other ports)."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.running_hub import ROOT, RunningHub


def script_of(hub: RunningHub) -> str:
    """Its shell blocks, for this hub."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "transactions.md").read_text(), re.DOTALL)
    script = "\n".join(blocks)
    for port, door in ((8080, "http"), (9092, "kafka"), (5672, "amqp"), (1883, "mqtt")):
        script, count = re.subn(rf"(127\.0\.0\.1\"?(?::|, )){port}\b", rf"\g<1>{hub.port(door)}", script)
        assert count, door
    script = script.replace("-h 127.0.0.1", f"-h 127.0.0.1 -p {hub.port('mqtt')}")
    for program in ("gatehouse", "python"):
        script = script.replace(f".venv/bin/{program}", str(Path(sys.executable).with_name(program)))
    return script


def test_the_tour(hub: RunningHub, tmp_path: Path) -> None:
    done = subprocess.run(["bash", "-e", "-c", script_of(hub)], capture_output=True, text=True, timeout=280, cwd=ROOT,
                          check=False, env=os.environ | {"GATEHOUSE_URL": f"http://127.0.0.1:{hub.port('http')}",
                                                         "TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    out = done.stdout
    for line in ("already_decided", '"value":"one of two"', '"value":"by MQTT"', "subscribed None", "$txn/decided",
                 "'state': 'committed'", "unanswered"):
        assert line in out, out
    bills = {line for line in out.splitlines() if line.startswith("bill for ")}
    assert bills == {f"bill for by {door}" for door in ("HTTP", "MQTT", "paho", "AMQP", "Kafka", "Python")}, out
    assert out.splitlines()[-2:] == ["25", "25"], out
