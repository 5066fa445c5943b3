"""Sharing partitions out: everything once, evenly, and with as little moved as can be."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.assigned.assignors import ASSIGNORS, Parts, Wish, ranged, uniform

TOPICS = {"a": range(0, 6), "b": range(10, 13), "c": range(20, 21), "none": range(0, 0)}


def wishes_of(wants: dict[str, set[str]], has: Parts | None = None) -> dict[str, Wish]:
    return {member: Wish(frozenset(topics), (has or {}).get(member, frozenset()), member)
            for member, topics in wants.items()}


WANTS = st.dictionaries(st.sampled_from("tuvwxyz"), st.sets(st.sampled_from([*TOPICS, "unknown"])), min_size=1)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(wants=WANTS, had=WANTS)
def test_every_wanted_partition_has_one_member_that_wants_it(name: str, wants: dict[str, set[str]],
                                                             had: dict[str, set[str]]) -> None:
    before = ASSIGNORS[name](wishes_of(had), TOPICS)
    parts = ASSIGNORS[name](wishes_of(wants, before), TOPICS)
    given_out = [partition for part in parts.values() for partition in part]
    wanted = {partition for topics in wants.values() for topic in topics for partition in TOPICS.get(topic, ())}
    assert sorted(given_out) == sorted(wanted)
    for member, part in parts.items():
        assert part <= {partition for topic in wants[member] for partition in TOPICS.get(topic, ())}
    turned = dict(reversed(wishes_of(wants, before).items()))
    assert ASSIGNORS[name](turned, TOPICS) == parts


@given(st.integers(1, 9), st.integers(0, 40), st.integers(1, 9))
def test_uniform_is_even_and_moves_no_more_than_it_must(before: int, partitions: int, after: int) -> None:
    topics = {"t": range(partitions)}
    first = uniform(wishes_of({f"m{number}": {"t"} for number in range(before)}), topics)
    then = uniform(wishes_of({f"m{number}": {"t"} for number in range(after)}, first), topics)
    counts = sorted(map(len, then.values()))
    assert counts[-1] - counts[0] <= 1
    least, more = divmod(partitions, after)
    quotas = sorted([least + (number < more) for number in range(after)], reverse=True)
    stay = sorted([len(first[member]) for member in then if member in first], reverse=True)
    kept = sum([len(then[member] & first.get(member, frozenset())) for member in then])
    assert kept == sum([min(had, quota) for had, quota in zip(stay, quotas, strict=False)])


def test_uniform_evens_out_members_that_want_different_topics() -> None:
    has = {"x": frozenset(TOPICS["a"]), "y": frozenset()}
    parts = uniform(wishes_of({"x": {"a", "b"}, "y": {"a"}}, has), TOPICS)
    assert {member: len(part) for member, part in parts.items()} == {"x": 5, "y": 4}


def test_range_gives_each_member_the_same_slice_of_each_topic() -> None:
    topics = {"a": range(0, 5), "b": range(10, 15)}
    parts = ranged({"m2": Wish(frozenset("ab"), frozenset(), "i1"), "m1": Wish(frozenset("ab"), frozenset(), "i2")},
                   topics)
    assert parts == {"m2": {0, 1, 2, 10, 11, 12}, "m1": {3, 4, 13, 14}}


def test_ten_thousand_partitions_of_a_hundred_members() -> None:
    topics = {"t": range(10_000)}
    members = {f"m{number}": {"t"} for number in range(100)}
    parts = uniform(wishes_of(members, {"m0": frozenset(range(10_000))}), topics)
    assert set(map(len, parts.values())) == {100}
