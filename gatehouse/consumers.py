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


def consumer_samples(lags: Lags, wall_ms: Callable[[], int], by_name: bool = True) -> Iterator[Sample]:
    """Of every group and queue; those furthest behind by name, unless nobody is to read names."""
    each, left_out = lags.look()
    yield "gatehouse_groups_left_out", (), left_out
    for kind in ("group", "queue"):
        rows = [lag for lag in each if bool(lag.group) == (kind == "group")]
        rows.sort(key=lambda lag: (-lag.lag, lag.tenant, lag.group, lag.of))
        rest_labels = (REST, REST, REST) if kind == "group" else (REST, REST)
        ages_s = [_age_s(lags.oldest_ms(lag), wall_ms()) for lag in rows[:MOST]]
        if not by_name:
            yield f"gatehouse_{kind}_oldest_seconds", rest_labels, max(ages_s, default=0)
            yield from _counts(kind, rest_labels, _sum(rows))
            continue
        for lag, age_s in zip(rows, ages_s, strict=False):
            labels = (lag.tenant, lag.group, lag.of) if lag.group else (lag.tenant, lag.of)
            yield f"gatehouse_{kind}_oldest_seconds", labels, age_s
            yield from _counts(kind, labels, lag)
        if len(rows) > MOST:
            yield from _counts(kind, rest_labels, _sum(rows[MOST:]))


def _age_s(oldest_ms: int, now_ms: int) -> float:
    return max(0, now_ms - oldest_ms) / 1000 if oldest_ms else 0


def _counts(kind: str, labels: tuple[str, ...], lag: Lag) -> Iterator[Sample]:
    yield f"gatehouse_{kind}_lag_messages", labels, lag.lag
    for name in ("ready", "leased", "waiting"):
        yield f"gatehouse_{kind}_{name}_messages", labels, getattr(lag, name)


def _sum(rows: list[Lag]) -> Lag:
    return Lag(REST, REST, REST, sum(lag.lag for lag in rows), sum(lag.ready for lag in rows),
               sum(lag.leased for lag in rows), sum(lag.waiting for lag in rows))
