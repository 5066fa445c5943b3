"""Partition heads against a dictionary: they only grow, in whatever order pages and entries come."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.message import Entries
from gatehouse.kernel.state.state import PAGE_PARTITIONS, Watermarks

PARTITIONS = (0, 1, PAGE_PARTITIONS - 1, PAGE_PARTITIONS, 5 * PAGE_PARTITIONS + 3, 1 << 50)
entries_lists = st.lists(st.tuples(st.sampled_from(PARTITIONS), st.integers(0, 1_000), st.integers(1, 50)), max_size=20)


def entries_of(found: list[tuple[int, int, int]]) -> Entries:
    entries = Entries()
    for partition_id, first_offset, count in found:
        for column in entries.columns():
            column.append(0)
        entries.partition_id[-1], entries.first_offset[-1], entries.count[-1] = partition_id, first_offset, count
    return entries


def bounds(heads: Watermarks) -> list[tuple[int, int]]:
    return [(heads.log_start(partition_id), heads.next_offset(partition_id)) for partition_id in PARTITIONS]


@given(entries_lists)
def test_next_offsets_are_behind_everything_that_entered(found: list[tuple[int, int, int]]) -> None:
    heads = Watermarks()
    heads.apply(entries_of(found))
    expected = [max([first + count for of, first, count in found if of == partition_id], default=0)
                for partition_id in PARTITIONS]
    assert heads.next_offsets(list(PARTITIONS)) == expected == [heads.next_offset(partition_id)
                                                                for partition_id in PARTITIONS]
    assert heads.dirty == {partition_id // PAGE_PARTITIONS for partition_id, _, _ in found}


@given(entries_lists, entries_lists)
def test_applying_again_or_in_another_order_changes_nothing(first: list[tuple[int, int, int]],
                                                            second: list[tuple[int, int, int]]) -> None:
    one, other = Watermarks(), Watermarks()
    for found in (first, second):
        one.apply(entries_of(found))
    for found in (second, first, first):
        other.apply(entries_of(found))
    assert bounds(one) == bounds(other)


@given(entries_lists, entries_lists)
def test_pages_carry_everything_and_merge_with_what_is_there(first: list[tuple[int, int, int]],
                                                             second: list[tuple[int, int, int]]) -> None:
    one, other, both = Watermarks(), Watermarks(), Watermarks()
    one.apply(entries_of(first))
    other.apply(entries_of(second))
    both.apply(entries_of(first + second))
    for number in list(one.pages):
        other.merge(number, one.packed(number))
    assert bounds(other) == bounds(both)


@given(entries_lists, st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 1_100)))
def test_new_starts_never_pass_the_end_and_never_fall(found: list[tuple[int, int, int]],
                                                      starts: dict[int, int]) -> None:
    heads = Watermarks()
    heads.apply(entries_of(found))
    before = bounds(heads)
    for round_starts in (starts, dict.fromkeys(starts, 0)):
        pages = heads.pages_starting_at(round_starts)
        for number, page in pages.items():
            heads.merge(number, page)
        expected = [(min(starts.get(partition_id, 0), high), high)
                    for partition_id, (_, high) in zip(PARTITIONS, before, strict=True)]
        assert bounds(heads) == expected
