"""`gatehouse explain` from a configuration alone."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from gatehouse import exits
from gatehouse.cli.main import run

CONFIG = """
[gateways.mqtt]
listen = ["127.0.0.1:1883"]

[[routes]]
filter = "fleet/{vehicle}/gps/#"
topic  = "positions"
key    = "{address}"
partition_key  = "{vehicle}"
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "gateways.toml"
    file.write_text(CONFIG)
    return str(file)


def test_for_people(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "mqtt:fleet/7/gps/lat", "--config", config]) == exits.OK
    out = capsys.readouterr().out
    assert "routes[0], filter fleet/{vehicle}/gps/#" in out
    assert "topic positions, key 'fleet/7/gps/lat'" in out
    assert "exchange amq.topic, routing key 'fleet.7.gps.lat'" in out


def test_for_programs(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "kafka:plant:line1/temp", "--config", config, "--json"]) == exits.OK
    told = json.loads(capsys.readouterr().out)
    assert (told["address"], told["topic"], told["key"]) == ("plant/line1/temp", "plant", "line1/temp")


@pytest.mark.parametrize(("where", "words"), [
    ("mqtt:a/#", "'#'"), ("smtp:a", "no door 'smtp'"), ("kafka:no topic", "no topic name"),
    ("plant/line1", "DOOR:ADDRESS"),
])
def test_what_cannot_be_explained_is_one_line(
        config: str, capsys: pytest.CaptureFixture[str], where: str, words: str) -> None:
    assert run(["explain", where, "--config", config]) == exits.USAGE
    captured = capsys.readouterr()
    assert captured.out == "" and words in captured.err and captured.err.count("\n") == 1
