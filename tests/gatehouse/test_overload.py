"""What is measured becomes what is left undone, in the log, in the status and in the metrics."""
from __future__ import annotations

import asyncio
import logging

import pytest

from gatehouse.gateways.kit import FakeHub
from gatehouse.kernel.shedding import Rung
from gatehouse.memory import SEEN_MOST, MemoryBudget, default_bytes
from gatehouse.metrics import METRICS
from gatehouse.overload import Overload


class Measured:
    """A hub whose memory, disk and loop a test sets."""

    def __init__(self, limit_bytes: int = 1_000) -> None:
        self.hub = FakeHub()
        self.counted = self.seen = self.unflushed_ms = self.asked_back = 0
        self.budget = MemoryBudget(limit_bytes, self._give_back, resident=lambda: self.seen)
        self.budget.add("unsent", lambda: self.counted)
        self.overload = Overload(asyncio.new_event_loop(), self.hub.kernel.shedding, self.hub.admission, self.budget,
                                 lambda: self.unflushed_ms, late_s=1.0, flush_s=5.0)
        self.now_s = 0.0

    def _give_back(self) -> None:
        self.asked_back += 1

    def look(self, count: int = 1, late_s: float = 0.0) -> int:
        for _ in range(count):
            self.now_s += 0.5
            self.overload.look(self.now_s, late_s)
        return self.hub.kernel.shedding.level


def test_memory_that_is_counted_has_publishers_wait_until_it_is_there_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    measured = Measured()
    measured.counted = 1_000
    assert measured.look() == Rung.PUBLISHERS and measured.hub.admission.limits.publishing_waits
    assert "memory is at 100% of its budget" in caplog.text and "qos_0, new_connections, publishers" in caplog.text
    measured.counted = 100
    assert measured.look(2) == Rung.NEW_CONNECTIONS and not measured.hub.admission.limits.publishing_waits
    assert measured.look(16) == Rung.NOTHING and "overload is over" in caplog.text


def test_memory_that_nobody_counts_is_asked_back_and_no_publisher_waits_for_it() -> None:
    measured = Measured()
    measured.seen = 5_000
    assert measured.look() == Rung.NEW_CONNECTIONS and measured.asked_back == 1
    assert measured.budget.share() == SEEN_MOST


@pytest.mark.parametrize(("unflushed_ms", "late_s"), [(5_000, 0.0), (0, 1.0)])
def test_a_disk_that_blocks_and_a_loop_that_is_late_climb_the_ladder(unflushed_ms: int, late_s: float) -> None:
    measured = Measured()
    measured.unflushed_ms = unflushed_ms
    assert [measured.look(1, late_s) for _ in range(7)] == [0, 1, 2, 3, 4, 5, 5]
    measured.unflushed_ms = 0
    assert measured.look(24) == Rung.NOTHING


def test_it_is_shown_and_a_hub_that_ends_leaves_nothing_undone() -> None:
    measured = Measured()
    measured.counted = 960
    measured.look()
    shown = measured.overload.describe()
    assert shown["level"] == 4 and shown["left_undone"][-1] == "new_connections"
    assert shown["held_bytes"] == {"unsent": 960} and shown["memory_share"] == 0.96
    samples = {(name, labels): value for name, labels, value in measured.overload.samples()}
    assert samples["gatehouse_overload_level", ()] == 4 and samples["gatehouse_memory_held_bytes", ("unsent",)] == 960
    assert {name for name, _ in samples} <= set(METRICS)
    measured.overload.stop()
    assert measured.hub.kernel.shedding.level == Rung.NOTHING


def test_where_nothing_is_set_the_budget_is_a_part_of_what_there_is() -> None:
    assert MemoryBudget(0, lambda: None).limit_bytes == default_bytes() > 64 << 20
