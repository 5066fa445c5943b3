"""Why connections ended: every one counted, few logged."""
from __future__ import annotations

import logging
from collections import Counter

import pytest

from gatehouse.gateways.connections.listener import LOGGED_ENDS_PER_SECOND, REASONS_MAX, Endings


def test_ends_are_counted_by_kind_and_logged_within_bounds(caplog: pytest.LogCaptureFixture) -> None:
    clock_ms = 5000
    counts: Counter[str] = Counter()
    endings = Endings("echo", counts, lambda: clock_ms)
    with caplog.at_level(logging.INFO, "gatehouse.gateways"):
        for _ in range(LOGGED_ENDS_PER_SECOND * 3):
            endings.note("203.0.113.7:5", "bad_peer: 42")
        endings.note("203.0.113.7:5", "")
        clock_ms = 6000
        endings.note("203.0.113.7:5", "other")
    assert counts == {"closed_bad_peer": LOGGED_ENDS_PER_SECOND * 3, "closed_other": 1}
    said = [record.message for record in caplog.records]
    assert said.count("echo 203.0.113.7:5 closed: bad_peer: 42") == LOGGED_ENDS_PER_SECOND
    assert said[-2:] == [f"echo: {LOGGED_ENDS_PER_SECOND * 2} more connections ended in that second",
                         "echo 203.0.113.7:5 closed: other"]


def test_kinds_beyond_the_bound_are_counted_together() -> None:
    counts: Counter[str] = Counter()
    endings = Endings("echo", counts, lambda: 0)
    for number in range(REASONS_MAX + 10):
        endings.note("peer", f"reason{number}")
    assert len(counts) == REASONS_MAX + 1 and counts["closed_other"] == 10
