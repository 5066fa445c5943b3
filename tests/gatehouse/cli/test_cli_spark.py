"""`gatehouse spark`: its options, and the tables of the configuration file they override. No Spark is started."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse import exits
from gatehouse.cli.main import run
from gatehouse.config.config import ConfigError, load, load_job
from gatehouse.config.settings import Text
from gatehouse.serve import read_specs
from gatehouse.spark.jobs.settings import AnalyticsSettings, ArchiveSettings

FILE = """
[gateways.http]
listen = ["127.0.0.1:8080"]
[spark.archive]
topics = ["plant", "fleet"]
to = "/srv/archive"
password = { env = "ARCHIVE_PASSWORD" }
[spark.analytics]
filter = "plant/+/temp"
window_s = 10
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "gateways.toml"
    file.write_text(FILE)
    return file


def test_the_file_says_what_a_job_does(config: Path):
    assert load_job(config, {"ARCHIVE_PASSWORD": "secret"}, "archive", {}) == ArchiveSettings(
        topics=("plant", "fleet"), to="/srv/archive", password="secret")
    assert load_job(config, {}, "analytics", {}) == AnalyticsSettings(filter="plant/+/temp", window_s=10.0)


def test_the_environment_comes_before_the_file_and_options_before_both(config: Path):
    environ = {"GATEHOUSE__SPARK__ANALYTICS__WINDOW_S": "20", "GATEHOUSE__SPARK__ANALYTICS__LATENESS_S": "5"}
    found = load_job(config, environ, "analytics", {"window_s": Text("option", "30"), "topics": Text("option", "a,b")})
    assert found == AnalyticsSettings(topics=("a", "b"), window_s=30.0, lateness_s=5.0)


def test_a_job_needs_no_file(tmp_path: Path):
    assert load_job(tmp_path / "none.toml", {}, "archive", {"pattern": Text("option", "p.*")}) == ArchiveSettings(
        pattern="p.*")


@pytest.mark.parametrize(("given", "problem"), [
    ({}, "one of topics, pattern and filter says what to read"),
    ({"topics": "a", "max_rows": "many"}, "option: spark.archive.max_rows: must be a whole number"),
    ({"topics": "a", "format": "deltas"}, "did you mean 'delta'?"),
    ({"topics": "a", "to": "s3://bucket/x"}, "object stores are not built yet"),
])
def test_what_is_wrong_is_one_line_each(tmp_path: Path, given: dict[str, str], problem: str):
    with pytest.raises(ConfigError) as error:
        load_job(tmp_path / "none.toml", {}, "archive", {name: Text("option", text) for name, text in given.items()})
    assert len(error.value.lines) == 1
    assert problem in error.value.lines[0]


def test_the_hub_checks_the_tables_of_jobs(tmp_path: Path):
    file = tmp_path / "gateways.toml"
    file.write_text('[spark.archiv]\ntopics = ["a"]\n[spark.analytics]\ntopics = ["a"]\nwindow = 3\n')
    with pytest.raises(ConfigError) as error:
        load(file, {}, read_specs())
    assert error.value.lines == [
        f"{file}: spark.archiv: unknown job; did you mean 'archive'?",
        f"{file}: spark.analytics.window: unknown setting; did you mean 'window_s'?"]


def test_wrong_options_end_before_spark_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = ["spark", "archive", "--config", str(tmp_path / "none.toml"), "--topics", "a", "--trigger-s", "-1"]
    assert run(arguments) == exits.USAGE
    assert "spark.archive.trigger_s: must be at least 0.0" in capsys.readouterr().err
    assert run(["spark", "archive", "--password", "x"]) == exits.USAGE
    assert "No such option" in capsys.readouterr().err
