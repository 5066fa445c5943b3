"""Ranges of partitions, and how they are split over tasks. Pure."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

MIN_TASK_ROWS: Final = 100_000
"""Fewer rows are not worth a task of their own: starting one costs as much as reading them."""

MAX_TASK_ROWS: Final = 5_000_000
"""What is read again when a task fails."""

COMMON_TASKS: Final = 16

MAX_TASKS: Final = 100_000
"""However many offsets there are: a stored batch may claim two milliards and hold ten records."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets from `offset` up to, without, `end` of one partition."""

    topic: str
    uuid: str
    partition: int
    offset: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.offset


def task_count(rows: int, ranges: int, min_tasks: int, max_task_rows: int) -> int:
    """How many tasks read this many rows of this many ranges; at least one."""
    most = max_task_rows or MAX_TASK_ROWS
    common = min(-(-rows // MIN_TASK_ROWS), max(ranges, COMMON_TASKS))
    return min(MAX_TASKS, max(1, common, min(min_tasks, rows), -(-rows // most)))


def split(ranges: Sequence[Range], tasks: int) -> list[list[Range]]:
    """The ranges cut into this many lists of equally many rows, in order; fewer where there are fewer rows."""
    total = sum(range_.rows for range_ in ranges)
    tasks = min(tasks, total)
    lists: list[list[Range]] = []
    current: list[Range] = []
    seen = 0
    for range_ in ranges:
        while range_.rows:
            room = (len(lists) + 1) * total // tasks - seen
            taken = min(room, range_.rows)
            current.append(replace(range_, end=range_.offset + taken))
            range_ = replace(range_, offset=range_.offset + taken)
            seen += taken
            if taken == room:
                lists.append(current)
                current = []
    return lists


def share(lags: dict[tuple[str, int], int], limit: int) -> dict[tuple[str, int], int]:
    """At most `limit` rows over partitions: one for each that lags, the rest in proportion to how far each does.

    With fewer rows than partitions, those that lag most get one; the others will lag most soon.
    """
    if sum(lags.values()) <= limit:
        return dict(lags)
    order = sorted((partition for partition, lag in lags.items() if lag),
                   key=lambda partition: (-lags[partition], partition))
    shares = dict.fromkeys(lags, 0) | dict.fromkeys(order[:limit], 1)
    left = limit - sum(shares.values())
    open_rows = sum(lags.values()) - len(order)
    if left:
        for partition in order:
            shares[partition] += (lags[partition] - 1) * left // open_rows
    left = limit - sum(shares.values())
    for partition in order:                        # what rounding left: less than a row a partition
        if left and shares[partition] < lags[partition]:
            shares[partition] += 1
            left -= 1
    return shares
