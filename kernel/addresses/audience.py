"""Subscribers by the filters of one tenant, with what tells whether something could match differently by now. Pure."""
from __future__ import annotations

from typing import Final, Generic, TypeVar

from gatehouse.kernel.addresses.address import levels_of
from gatehouse.kernel.addresses.filters import MANY, ONE, FilterTrie
from gatehouse.kernel.message import FirstLevel

T = TypeVar("T")

FIRST_LEVELS_MAX: Final = 65_536       # that have a counter of their own
OTHERS: Final = FirstLevel()
"""The counter that all others share, of all audiences: it moves more often than it need."""


class Audience(Generic[T]):
    """Who hears of which addresses, in one tenant. Each first level counts the changes that could matter to it. A
    subscriber is no tuple."""

    __slots__ = ("_by_first", "_first_levels", "_options", "_trie", "_wild")

    def __init__(self) -> None:
        self._trie: FilterTrie[T | tuple[T, int]] = FilterTrie()     # alone, where its options are 0
        self._options: dict[tuple[tuple[str, ...], T], int] = {}       # those that are not 0: most of a fleet's are
        self._first_levels: dict[str, FirstLevel] = {}
        self._wild = 0                               # filters that begin with a wildcard
        self._by_first: dict[str, int] = {}          # other filters, by first level

    def __len__(self) -> int:
        return len(self._trie)

    def add(self, pattern: tuple[str, ...], subscriber: T, options: int) -> bool:
        """A subscriber's filter. False where it had the filter already; then its options are replaced."""
        is_new = not self.remove(pattern, subscriber)
        if options:
            self._options[pattern, subscriber] = options
        self._trie.insert(pattern, (subscriber, options) if options else subscriber)
        self._count(pattern[0], 1)
        return is_new

    def remove(self, pattern: tuple[str, ...], subscriber: T) -> bool:
        """False where there was no such filter."""
        options = self._options.pop((pattern, subscriber), 0)
        if not self._trie.remove(pattern, (subscriber, options) if options else subscriber):
            return False
        self._count(pattern[0], -1)
        return True

    def _count(self, first: str, by: int) -> None:
        if first in (ONE, MANY):
            self._wild += by
            assert self._wild >= 0, "a filter goes once"
            self.touch()
            return
        left = self._by_first.get(first, 0) + by
        assert left >= 0, "a filter goes once"
        if left:
            self._by_first[first] = left
        else:
            del self._by_first[first]
        level = self._first_levels.get(first, OTHERS)
        level.version += 1

    def first_level(self, name: str) -> FirstLevel:
        """The change counter of a first level."""
        level = self._first_levels.get(name)
        if level is None:
            if len(self._first_levels) >= FIRST_LEVELS_MAX:
                return OTHERS
            level = self._first_levels[name] = FirstLevel()
        return level

    def match(self, address: str) -> list[tuple[T, int]]:
        """(subscriber, options) of every filter that matches an address."""
        return [value if isinstance(value, tuple) else (value, 0) for value in self._trie.match(levels_of(address))]

    def touch(self) -> None:
        """Everything must be looked at again."""
        for level in (OTHERS, *self._first_levels.values()):
            level.version += 1

    def may_match(self, first_levels: frozenset[str] | None) -> bool:
        """Whether any filter could match addresses with one of these first levels (None: any)."""
        if not len(self._trie):
            return False
        if self._wild or first_levels is None:
            return True
        return not first_levels.isdisjoint(self._by_first)
