"""Doors on ports that copy every value, both ways: nothing crosses by identity, so the two sides could be processes."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUITES = ["mqtt/test_session.py", "mqtt/test_login.py", "mqtt/test_outbox.py", "mqtt/test_retained.py",
          "mqtt/test_with_kernel.py", "amqp/test_session.py", "amqp/test_rights.py", "amqp/test_tx.py",
          "amqp/test_with_kernel.py",
          "kafka/test_session.py", "kafka/test_produce.py",
          "http/test_publish.py", "http/test_messages.py", "http/test_reading.py", "http/test_bulk.py",
          "http/test_topics.py", "http/test_groups.py", "http/test_taking.py", "http/test_rights.py",
          "http/test_events.py", "http/test_retained.py", "http/test_websocket.py"]


def test_the_doors_suites_pass_on_ports_that_copy() -> None:
    suites = [str(ROOT / "tests" / "gateways" / name) for name in SUITES]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "tests.gateways.copying"]
    done = subprocess.run([*command, *suites], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
