"""The trie and the one-filter matcher against a naive recursive one."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gatehouse.kernel.addresses.filters import MANY, ONE, FilterTrie, matches

some_levels = st.sampled_from(["a", "b", "", "$a"])
some_addresses = st.lists(some_levels, min_size=1, max_size=6).map(tuple)
some_filters = st.lists(st.one_of(some_levels, st.sampled_from([ONE, MANY])), min_size=1, max_size=6).map(tuple)


def naive(pattern: tuple[str, ...], levels: tuple[str, ...]) -> bool:
    """The definition, with no thought of cost."""
    if pattern[0] in (ONE, MANY) and levels[0].startswith("$"):
        return False
    return _naive(pattern, levels)


def _naive(pattern: tuple[str, ...], levels: tuple[str, ...]) -> bool:
    if not pattern:
        return not levels
    if pattern[0] == MANY:
        return any(_naive(pattern[1:], levels[taken:]) for taken in range(len(levels) + 1))
    return bool(levels) and pattern[0] in (ONE, levels[0]) and _naive(pattern[1:], levels[1:])


@given(some_filters, some_addresses)
def test_matches_is_the_definition(pattern: tuple[str, ...], levels: tuple[str, ...]) -> None:
    assert matches(pattern, levels) == naive(pattern, levels)


@given(st.lists(some_filters, max_size=12, unique=True), st.lists(some_addresses, max_size=6))
def test_trie_is_the_definition(patterns: list[tuple[str, ...]], addresses: list[tuple[str, ...]]) -> None:
    trie: FilterTrie[tuple[str, ...]] = FilterTrie()
    for pattern in patterns:
        trie.insert(pattern, pattern)
    for levels in addresses:
        found = trie.match(levels)
        assert sorted(found) == sorted(pattern for pattern in patterns if naive(pattern, levels))


class TrieAgainstSet(RuleBasedStateMachine):
    """Inserting and removing in any order leaves what a plain set would hold."""

    def __init__(self) -> None:
        super().__init__()
        self.trie: FilterTrie[int] = FilterTrie()
        self.model: set[tuple[tuple[str, ...], int]] = set()

    @rule(pattern=some_filters, value=st.integers(0, 2))
    def insert(self, pattern: tuple[str, ...], value: int) -> None:
        assert self.trie.insert(pattern, value) == ((pattern, value) not in self.model)
        self.model.add((pattern, value))

    @rule(pattern=some_filters, value=st.integers(0, 2))
    def remove(self, pattern: tuple[str, ...], value: int) -> None:
        assert self.trie.remove(pattern, value) == ((pattern, value) in self.model)
        self.model.discard((pattern, value))

    @rule(levels=some_addresses)
    def match(self, levels: tuple[str, ...]) -> None:
        expected = sorted(value for pattern, value in self.model if naive(pattern, levels))
        assert sorted(self.trie.match(levels)) == expected

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert len(self.trie) == len(self.model)
        assert set(self.trie.pairs()) == self.model


TestTrieAgainstSet = TrieAgainstSet.TestCase
