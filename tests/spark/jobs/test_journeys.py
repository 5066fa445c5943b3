"""Rates and times per door, topic and group, from a real hub's topic of journeys."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gatehouse.spark.jobs.journeys import events, fields_of, report
from gatehouse.tracing.events import Event, Kind, encode
from gatehouse_client.sync import SyncClient
from tests.interop.asking import ask
from tests.running_hub import RunningHub, config_of, sound_hub

pytestmark = pytest.mark.timeout(900)
"""The first test waits for Spark to start."""


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[RunningHub]:
    """A hub that follows every message."""
    with sound_hub(tmp_path, config_of(("http",)) + "[tracing.topics.orders]\n") as hub:
        yield hub


def test_what_is_no_event_is_left_out() -> None:
    event = Event(Kind.ACKED, 7, group="billing", attempt=2)
    assert fields_of(encode(event)) == (7, 1, 1, Kind.ACKED, "", "", "billing", 2)
    assert fields_of(encode(event._replace(rows=5, step=3))) == (7, 5, 3, Kind.ACKED, "", "", "billing", 2)
    assert [fields_of(value) for value in (None, b"", b"\x01\xff", encode(event)[:-1])] == [None] * 4


def test_rates_and_times_of_each_door_topic_and_group(spark: SparkSession, followed: RunningHub) -> None:
    url = f"http://127.0.0.1:{followed.port('http')}"
    with SyncClient(url) as client:
        for number in range(5):
            client.publish(f"orders/{number}", "x")
    ask(followed, "PUT", "/v1/groups/billing", {"kind": "leased", "retry": {"delays_ms": [0]}})
    taken = released = 0
    while taken < 5:
        popped = ask(followed, "POST", "/v1/groups/billing/pop?topic=orders&wait=30&max=1")[1]["messages"]
        handle = {"receipt_handles": [popped[0]["receipt_handle"]]}
        if not released:
            released = 1
            assert ask(followed, "POST", "/v1/groups/billing/release", handle)[0] == 200
            continue
        assert ask(followed, "POST", "/v1/groups/billing/ack", handle)[0] == 200
        taken += 1
    ask(followed, "POST", "/v1/publish", {"messages": [{"address": "other/1", "value": "takes what waits along"}]})
    rows = {(row["door"], row["topic"], row["group"]): row for row in report(events(spark, {"url": url})).collect()}
    entered, left = rows["http", "orders", None], rows["http", "orders", "billing"]
    assert (entered["messages"], left["messages"], left["failed"]) == (5, 5, 1)
    assert 0 <= left["p50_ms"] <= left["p99_ms"] and entered["per_second"] > 0
