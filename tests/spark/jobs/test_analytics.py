"""Statistics against a real hub: readings go in by a door, windows come back as messages of another topic."""
from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from gatehouse.spark.jobs import analytics
from gatehouse.spark.jobs.settings import AnalyticsSettings
from gatehouse_client.sync import SyncClient

pytestmark = pytest.mark.timeout(900)
"""The first test waits for Spark to start."""

BEGIN_MS = 1_695_170_000_000
"""At the beginning of a window, and before any day on which this runs: no time is later than that of storing."""


def publish(client: SyncClient, address: str, *readings: object, at_s: int = 0) -> None:
    """Readings a second apart."""
    for number, reading in enumerate(readings):
        client.publish(address, str(reading), timestamp=BEGIN_MS + (at_s + number) * 1000)


def results(client: SyncClient, topic: str) -> dict[tuple[str, int], dict[str, Any]]:
    """The newest message of each address and window (seconds after the beginning)."""
    newest = {}
    for message in client.read(topic):
        assert message.properties["content_type"] == "application/json"
        value = message.json()
        assert message.address == f"{topic}/{value['address']}"
        newest[value["address"], seconds(value["window_start"])] = value
    return newest


def seconds(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() - BEGIN_MS / 1000)


@pytest.fixture
def running(spark: SparkSession, url: str, tmp_path: Path) -> Callable[..., Any]:
    """A context with a running query; the settings that all tests here share."""
    @contextmanager
    def run(**given: Any) -> Iterator[StreamingQuery]:
        settings = AnalyticsSettings(url=url, checkpoint=str(tmp_path / "analytics"), window_s=10.0, lateness_s=5.0,
                                     trigger_s=0.0, **given)
        query = analytics.start(spark, settings)
        try:
            yield query
        finally:
            query.stop()
    return run


def test_windows_and_late_readings_are_counted_exactly(running, client: SyncClient):
    publish(client, "press/a", 1, 2, 3, "broken", "nan", "inf")
    publish(client, "press/b", 10.5)
    with running(topics=("press",), to="press-statistics") as query:
        query.processAllAvailable()
        publish(client, "press/a", 100, at_s=60)
        query.processAllAvailable()
        publish(client, "press/a", 5, 6, 7)                      # long after the watermark, 55 s
        publish(client, "press/a", 8, at_s=51)                   # behind it, in a window that is open
        query.processAllAvailable()
    found = results(client, "press-statistics")
    first = found["press/a", 0]
    assert {name: first[name] for name in ("count", "mean", "min", "max", "p50", "late", "invalid")} == {
        "count": 3, "mean": 2.0, "min": 1.0, "max": 3.0, "p50": 2.0, "late": 0, "invalid": 3}
    assert (found["press/b", 0]["count"], found["press/b", 0]["p99"]) == (1, 10.5)
    assert found["press/a", 60]["count"] == 1
    assert (found["press/a", 50]["late"], found["press/a", 50]["count"], found["press/a", 50]["mean"]) == (3, 1, 8.0)
    assert sum(window["late"] for window in found.values()) == 3


def test_a_restart_keeps_open_windows(running, client: SyncClient):
    publish(client, "lathe/a", 1, 2)
    with running(topics=("lathe",), to="lathe-statistics") as query:
        query.processAllAvailable()
    publish(client, "lathe/a", 3, at_s=5)
    with running(topics=("lathe",), to="lathe-statistics") as query:
        query.processAllAvailable()
    assert results(client, "lathe-statistics")["lathe/a", 0]["count"] == 3


def test_a_field_of_a_json_value_and_percentiles_of_ones_own(running, client: SyncClient):
    publish(client, "oven/a", *(json.dumps({"sensor": {"temp": number}}) for number in range(10)), at_s=10)
    with running(filter="oven/+", to="oven-statistics", value_field="sensor.temp", percentiles=(10.0, 99.9)) as query:
        query.processAllAvailable()
    window = results(client, "oven-statistics")["oven/a", 10]
    assert (window["count"], window["p10"], window["p99.9"], window["invalid"]) == (10, 0.0, 9.0, 0)
    assert "p50" not in window


def test_a_clock_that_is_ahead_does_not_close_the_windows_of_others(running, client: SyncClient):
    client.publish("clock/ahead", "1", timestamp=4_102_444_800_000)    # the year 2100
    with running(topics=("clock",), to="clock-statistics") as query:
        query.processAllAvailable()
        client.publish("clock/right", "1")
        query.processAllAvailable()
    found = results(client, "clock-statistics")
    assert {address: (window["count"], window["late"]) for (address, _), window in found.items()} == {
        "clock/ahead": (1, 0), "clock/right": (1, 0)}
