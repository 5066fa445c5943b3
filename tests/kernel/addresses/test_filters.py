"""Filters by example: what matches, what is refused, and what a match may cost."""
from __future__ import annotations

import pytest

from gatehouse.kernel.addresses.address import MAX_LEVELS, levels_of
from gatehouse.kernel.addresses.filters import FilterTrie, InvalidFilter, matches, parse_filter

MATCHING = [
    ("plant/line1/temp", "plant/line1/temp"),
    ("plant/+/temp", "plant/line1/temp"),
    ("plant/+/temp", "plant//temp"),                          # an empty level is a level
    ("plant/+", "plant/"),
    ("plant/#", "plant"),                                     # the parent too
    ("plant/#", "plant/"),
    ("plant/#", "plant/line1/temp"),
    ("#", "plant"), ("#", "/"), ("+", "plant"), ("+/+", "/a"), ("/+", "/a"),
    ("#/temp", "temp"), ("#/temp", "a/b/temp"), ("a/#/b", "a/b"), ("a/#/b", "a/x/b/b"), ("a/#/+/#", "a/b"),
    ("#/#", "a"), ("#/a/#/a/#", "a/a"), ("+/#", "a"),
    ("$SYS/#", "$SYS"), ("$SYS/+", "$SYS/x"), ("a/#", "a/$b"), ("+/$b", "a/$b"),
    ("a/*", "a/*"),                                           # only '+' and '#' are wildcards
]

NOT_MATCHING = [
    ("plant/+", "plant"), ("plant/+", "plant/a/b"), ("plant", "plant/"), ("plant/#", "plants"), ("plant/#", "x/plant"),
    ("#", "$SYS"), ("+", "$SYS"), ("+/x", "$SYS/x"), ("#/x", "$SYS/x"), ("#/$SYS", "$SYS"),
    ("a/#/b", "a"), ("a/#/b", "a/b/c"), ("#/+/+", "a"), ("+", "/a"), ("a", "A"), ("a/*", "a/b"),
]


@pytest.mark.parametrize(("text", "address"), MATCHING)
def test_matches(text: str, address: str) -> None:
    assert matches(parse_filter(text), levels_of(address))
    assert trie_of(text).match(levels_of(address)) == [text]


@pytest.mark.parametrize(("text", "address"), NOT_MATCHING)
def test_matches_not(text: str, address: str) -> None:
    assert not matches(parse_filter(text), levels_of(address))
    assert trie_of(text).match(levels_of(address)) == []


@pytest.mark.parametrize("text", [
    "", "a/+b", "a#", "a/b#", "++", "##", "+#", "a\0", "\udfff", "x" * 65536, "/" * MAX_LEVELS,
])
def test_these_are_no_filters(text: str) -> None:
    with pytest.raises(InvalidFilter):
        parse_filter(text)


@pytest.mark.parametrize("text", ["#", "+", "/", "a/#", "a/#/b", "x" * 65535])
def test_these_are_filters(text: str) -> None:
    assert "/".join(parse_filter(text)) == text


def test_a_value_appears_once_per_matching_filter() -> None:
    trie: FilterTrie[str] = FilterTrie()
    for text in ("a/#", "a/+", "a/b", "a/#/b", "#", "c"):
        assert trie.insert(parse_filter(text), "me")
    assert trie.match(("a", "b")) == ["me"] * 5
    assert not trie.insert(("c",), "me")
    assert len(trie) == 6


def test_several_values_under_one_filter_keep_their_order() -> None:
    trie: FilterTrie[int] = FilterTrie()
    for value in (3, 1, 2):
        trie.insert(("a", "#"), value)
    assert trie.match(("a",)) == [3, 1, 2]


def test_removing_releases_what_nothing_needs() -> None:
    trie = trie_of("a/b/c")
    trie.insert(("a", "b"), "short")
    assert trie.remove(("a", "b", "c"), "a/b/c")
    assert not trie.remove(("a", "b", "c"), "a/b/c")
    assert not trie.remove(("a", "x"), "a")
    assert list(trie.pairs()) == [(("a", "b"), "short")]
    assert trie.remove(("a", "b"), "short")
    assert len(trie) == 0
    assert list(trie._root.children) == []


def test_removing_a_filter_leaves_longer_ones() -> None:
    trie = trie_of("a/#/b")
    trie.insert(("a", "#"), "a/#")
    assert trie.remove(("a", "#"), "a/#")
    assert trie.match(("a", "x", "b")) == ["a/#/b"]
    assert trie.match(("a", "x")) == []


def test_many_wildcards_in_mid_filter_cost_no_exponential_search() -> None:
    pattern = tuple(["#", "a"] * (MAX_LEVELS // 2 - 1) + ["b"])
    trie: FilterTrie[str] = FilterTrie()
    trie.insert(pattern, "x")
    address = ("a",) * MAX_LEVELS
    assert trie.match(address) == []
    assert not matches(pattern, address)
    assert trie.match((*address[1:], "b")) == ["x"]


def trie_of(text: str) -> FilterTrie[str]:
    trie: FilterTrie[str] = FilterTrie()
    trie.insert(parse_filter(text), text)
    return trie


@pytest.mark.parametrize(("wanted", "found"), [
    ("plant/7", {"plant/+", "plant/#", "plant/{n}"}), ("plant/8", {"plant/+", "plant/#"}),
    ("plant/#", {"plant/+", "plant/#", "plant/{n}", "plant/7/x"}), ("+/7/x", {"plant/7/x", "plant/#"}),
    ("7", {"{n}"}), ("$own/7", {"$own/#"}), ("#", {"plant/+", "plant/#", "plant/{n}", "plant/7/x", "{n}"}),
    ("other/7", set()), ("#/7/x", {"plant/7/x", "plant/#"})])
def test_what_overlaps_a_filter(wanted: str, found: set[str]) -> None:
    """`{n}` stands for 7 here."""
    trie: FilterTrie[str] = FilterTrie()
    for pattern in ("plant/+", "plant/#", "plant/{n}", "plant/7/x", "{n}", "$own/#"):
        trie.insert(parse_filter(pattern), pattern)
    assert set(trie.overlapping(parse_filter(wanted), {"7": ("{n}",)})) == found


def test_many_wildcards_do_not_make_a_search() -> None:
    trie: FilterTrie[int] = FilterTrie()
    trie.insert(parse_filter("#/" * 30 + "a"), 1)
    assert list(trie.overlapping(parse_filter("#/" * 60 + "b"))) == []
    assert 1 in trie.overlapping(parse_filter("#/" * 60 + "+/a"))


def test_a_node_has_any_number_of_values_and_children() -> None:
    trie: FilterTrie[int] = FilterTrie()
    empty: FilterTrie[int] = FilterTrie()
    for value in range(10):
        assert trie.insert(("plant", str(value)), value)
        assert trie.insert(("plant",), value) and not trie.insert(("plant",), value)
    assert trie.match(("plant",)) == list(range(10)), "in the order in which they came"
    assert empty.match(("plant",)) == [], "nodes without children share nothing that another fills"
    for value in range(10):
        assert trie.remove(("plant",), value) and not trie.remove(("plant",), value)
        assert trie.match(("plant",)) == list(range(value + 1, 10))
    for value in range(10):
        assert trie.match(("plant", str(value))) == [value]
        assert trie.remove(("plant", str(value)), value)
    assert len(trie) == 0 and trie.match(("plant", "3")) == []
    assert trie.insert(("plant",), 3) and trie.match(("plant",)) == [3]
