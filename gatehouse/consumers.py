"""Samples of groups and queues for the metrics page: is a consumer behind, and by how much.

Names are bounded: those that are furthest behind have rows of their own, the others one together.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gatehouse.kernel.groups.lags import Lag, Lags
from gatehouse.metrics import Sample

MOST: Final = 50
REST: Final = "(others)"
"""Not a name that anything has: names of groups may hold it, and of topics none does."""


def consumer_samples(lags: Lags, wall_ms: Callable[[], int]) -> Iterator[Sample]:
    """Of every group and queue; the busiest by name."""
    each, left_out = lags.look()
    yield "gatehouse_groups_left_out", (), left_out
    for kind in ("group", "queue"):
        rows = [lag for lag in each if bool(lag.group) == (kind == "group")]
        rows.sort(key=lambda lag: (-lag.lag, lag.tenant, lag.group, lag.of))
        for lag in rows[:MOST]:
            labels = (lag.tenant, lag.group, lag.of) if lag.group else (lag.tenant, lag.of)
            oldest_ms = lags.oldest_ms(lag)
            yield f"gatehouse_{kind}_oldest_seconds", labels, max(0, wall_ms() - oldest_ms) / 1000 if oldest_ms else 0
            yield from _counts(kind, labels, lag)
        if len(rows) > MOST:
            labels = (REST, REST, REST) if kind == "group" else (REST, REST)
            yield from _counts(kind, labels, _sum(rows[MOST:]))


def _counts(kind: str, labels: tuple[str, ...], lag: Lag) -> Iterator[Sample]:
    yield f"gatehouse_{kind}_lag_messages", labels, lag.lag
    for name in ("ready", "leased", "waiting"):
        yield f"gatehouse_{kind}_{name}_messages", labels, getattr(lag, name)


def _sum(rows: list[Lag]) -> Lag:
    return Lag(REST, REST, REST, sum(lag.lag for lag in rows), sum(lag.ready for lag in rows),
               sum(lag.leased for lag in rows), sum(lag.waiting for lag in rows))
