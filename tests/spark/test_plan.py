"""Ranges over tasks, and limits over partitions."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.spark.plan import MAX_TASK_ROWS, MAX_TASKS, Range, share, split, task_count

RANGES = st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 5000)), max_size=20).map(
    lambda pairs: [Range("t", "u", partition, at, at + rows) for partition, (at, rows) in enumerate(pairs)])


@given(RANGES, st.integers(1, 40))
def test_a_split_holds_every_row_once_and_evenly(ranges: list[Range], tasks: int) -> None:
    lists = split(ranges, tasks)
    rows = sum(one.rows for one in ranges)
    assert sum(one.rows for part in lists for one in part) == rows
    assert len(lists) == min(tasks, rows)
    assert all(one.rows > 0 for part in lists for one in part)
    sizes = [sum(one.rows for one in part) for part in lists]
    assert not sizes or max(sizes) - min(sizes) <= 1
    joined: dict[int, int] = {one.partition: one.offset for one in ranges}
    for part in lists:
        for one in part:
            assert one.offset == joined[one.partition]
            joined[one.partition] = one.end
    assert all(joined[one.partition] == one.end for one in ranges)


@given(st.dictionaries(st.tuples(st.just("t"), st.integers(0, 99)), st.integers(0, 10_000), max_size=40),
       st.integers(1, 5000))
def test_a_limit_is_shared_and_starves_nobody(lags: dict[tuple[str, int], int], limit: int) -> None:
    shares = share(lags, limit)
    total = sum(lags.values())
    assert sum(shares.values()) == min(limit, total)
    assert all(0 <= shares[partition] <= lag for partition, lag in lags.items())
    if limit >= len(lags):
        assert all(shares[partition] > 0 for partition, lag in lags.items() if lag)


def test_tasks_are_few_for_few_rows_and_never_too_large() -> None:
    assert task_count(0, 4, 0, 0) == 1
    assert task_count(10, 4, 0, 0) == 1
    assert task_count(10, 4, 8, 0) == 8
    assert task_count(10_000_000, 8, 0, 0) == 16
    assert task_count(1_000, 4, 0, 100) == 10
    assert task_count(10**9, 8, 0, 0) == 10**9 // MAX_TASK_ROWS


def test_claimed_offsets_make_no_endless_list_of_tasks() -> None:
    assert task_count(2_000_000_000, 1, 0, 1) == MAX_TASKS
