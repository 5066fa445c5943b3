"""The options of jobs under spark-submit, and the settings they are made from."""
from __future__ import annotations

import pytest

from gatehouse.spark.jobs.arguments import parse_arguments
from gatehouse.spark.jobs.session import sink_options, source_options
from gatehouse.spark.jobs.settings import AnalyticsSettings, ArchiveSettings


def test_every_setting_is_an_option():
    settings, once = parse_arguments(AnalyticsSettings, "analytics", [
        "--url", "http://hub:8080", "--topics", "plant,fleet", "--window-s", "10", "--percentiles", "50,99.9",
        "--fail-on-data-loss", "false", "--once"])
    assert once
    assert settings == AnalyticsSettings(url="http://hub:8080", topics=("plant", "fleet"), window_s=10.0,
                                         percentiles=(50.0, 99.9), fail_on_data_loss=False)


@pytest.mark.parametrize(("arguments", "problem"), [
    ([], "one of topics, pattern and filter"),
    (["--topics", "a", "--filter", "a/#"], "one of topics, pattern and filter"),
    (["--topics", "a", "--max-rows", "0"], "--max-rows must be at least 1"),
    (["--topics", "a", "--max-rows", "x"], "--max-rows"),
    (["--topics", "a", "--fail-on-data-loss", "maybe"], "--fail-on-data-loss"),
    (["--topics", "a", "--format", "csv"], "--format"),
    (["--topics", "a", "--trigger-s", "1e9"], "--trigger-s must be at most 86400"),
])
def test_what_is_wrong_is_said(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        parse_arguments(ArchiveSettings, "archive", arguments)
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_a_secret_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GATEHOUSE_SPARK_PASSWORD", "secret")
    settings, _ = parse_arguments(ArchiveSettings, "archive", ["--topics", "a", "--user", "me", "--url", "http://hub"])
    assert settings.password == "secret"
    assert sink_options(settings) == {"url": "http://hub", "user": "me", "password": "secret"}


def test_the_results_cannot_be_what_is_read():
    with pytest.raises(ValueError, match="cannot be read at the same time"):
        AnalyticsSettings(topics=("statistics",))


def test_percentiles_are_within_a_hundred():
    with pytest.raises(ValueError, match="from 0 to 100"):
        AnalyticsSettings(topics=("a",), percentiles=(101.0,))


def test_what_is_left_empty_is_no_option_of_the_source():
    assert source_options(ArchiveSettings(url="http://hub", pattern="p.*")) == {
        "url": "http://hub", "subscribePattern": "p.*", "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000000", "failOnDataLoss": "true"}
