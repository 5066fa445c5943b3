"""`gatehouse drill` against a hub of its own: what clients see of a bad day, and that nothing is lost."""
from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

from tests.running_hub import RunningHub, config_of, free_port, gatehouse, sound_hub


def config(port: int, allow: bool = True) -> str:
    return f"[hub]\nallow_drills = {str(allow).lower()}\n" + config_of(("http",)).replace(":0\"", f":{port}\"")


def run_drill(port: int, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = gatehouse("drill", *arguments, "--url", f"http://127.0.0.1:{port}", "--json")
    return done, json.loads(done.stdout) if done.stdout else {}


def test_a_held_disk_makes_publishers_wait_and_loses_nothing(tmp_path: Path) -> None:
    port = free_port()
    with sound_hub(tmp_path, config(port)):
        done, report = run_drill(port, "held-disk", "--seconds", "1.5")
    assert done.returncode == 0, done.stderr
    before, meanwhile, afterwards = report["phases"]
    assert report["lost"] == 0
    assert before["acknowledged"] and afterwards["acknowledged"]
    assert meanwhile["acknowledged"] == meanwhile["published"]
    assert meanwhile["longest_ms"] > 1_000                       # the first of them waited for nearly all of it


def test_full_memory_is_seen_and_is_over_afterwards(tmp_path: Path) -> None:
    port = free_port()
    with sound_hub(tmp_path, config(port)) as hub:
        done, report = run_drill(port, "full-memory", "--seconds", "2")
        assert "the drill is over: full_memory" in hub.wait_log_line("the drill is over")
    assert done.returncode == 0, done.stderr
    assert report["lost"] == 0
    assert report["phases"][2]["acknowledged"]


def test_what_a_killed_hub_has_acknowledged_is_there_when_it_is_back(tmp_path: Path) -> None:
    port = free_port()
    hubs = [RunningHub(tmp_path, config(port))]
    hubs[0].wait_ready()

    def start_again() -> None:
        hubs[0].ended()
        hubs.append(RunningHub(tmp_path, config(port)))
        hubs[1].wait_ready()

    restarting = threading.Thread(target=start_again)
    restarting.start()
    try:
        done, report = run_drill(port, "killed-hub")
        restarting.join()
        assert done.returncode == 0, done.stderr
        assert report["lost"] == 0
        assert report["phases"][1]["acknowledged"] < report["phases"][1]["published"]
        assert report["phases"][2]["acknowledged"]
        assert report["errors"]
    finally:
        for hub in hubs:
            hub.kill()


def test_a_hub_that_does_not_allow_it_is_left_alone(tmp_path: Path) -> None:
    port = free_port()
    with sound_hub(tmp_path, config(port, allow=False)):
        done, report = run_drill(port, "killed-hub")
    assert done.returncode != 0 and not report
    assert "allow_drills" in done.stderr
