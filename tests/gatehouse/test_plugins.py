"""A plugin whose code does not load: nobody is held up who has it not in his configuration."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gatehouse import exits
from tests.running_hub import COMMAND_LINE, DEADLINE_S, ROOT, RunningHub

CONFIG = '[gateways.http]\nlisten = ["127.0.0.1:0"]\n'
WHY = "the plugin smoke of the package smoke-signals (entry point smoke_signals:GATEWAY) does not load: " \
      "ModuleNotFoundError: No module named 'wood'"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a configuration, and a broken package where Python looks for packages."""
    packages = tmp_path / "packages"
    info = packages / "smoke_signals-1.0.dist-info"
    info.mkdir(parents=True)
    (packages / "smoke_signals.py").write_text("import wood\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: smoke-signals\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gatehouse.gateways]\nsmoke = smoke_signals:GATEWAY\n")
    monkeypatch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}{os.pathsep}{packages}")
    (tmp_path / "gateways.toml").write_text(CONFIG)
    return tmp_path


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", COMMAND_LINE, *arguments, "--config", str(folder / "gateways.toml")],
                          capture_output=True, text=True, timeout=DEADLINE_S, cwd=ROOT)


def test_check_and_users_work_and_check_says_it(folder: Path) -> None:
    done = command(folder, "check")
    assert done.returncode == exits.OK and f"note: {WHY}; it is not configured" in done.stdout
    done = command(folder, "users", "list", "--data", str(folder / "data"))
    assert done.returncode == exits.OK, done.stderr


def test_a_hub_starts_with_one_line(folder: Path) -> None:
    hub = RunningHub(folder, CONFIG, program=COMMAND_LINE)
    try:
        hub.wait_ready()
        assert [line for line in hub.log().splitlines() if "smoke" in line][0].endswith(f"{WHY}; it is not configured")
        assert hub.stop()[0] == exits.OK
    finally:
        hub.kill()


@pytest.mark.parametrize("subcommand", ["check", "serve"])
def test_who_configures_it_is_told_why_it_cannot_be(folder: Path, subcommand: str) -> None:
    (folder / "gateways.toml").write_text(CONFIG + "[gateways.smoke]\n")
    done = command(folder, subcommand)
    assert done.returncode == exits.USAGE
    told = (done.stdout + done.stderr).splitlines()
    assert [line for line in told if "gateways.smoke: " + WHY in line]
    assert "Traceback" not in done.stderr
