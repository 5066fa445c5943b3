"""Rules as they are asked: sections of one operation's allows or denies, found by address, name or hub. Pure.

A table holds the rules of one of those that rules speak of. Each section of it is compiled when it is first asked for;
from then on a rule that comes or goes is put into or taken out of it, which costs its levels and not the other rules.
`{user}` and `{client_id}` stand in the trie as levels of their own, which the asker's name and id lead to. Only where
they are part of a level, or of a name, a rule is compiled for each principal.
"""
from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from typing import Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.patterns import (
    ANY_NAME,
    CLIENT_ID,
    FRESH,
    USER,
    Levels,
    covers,
    escaped,
    fill_levels,
    fill_name,
    sample,
    speaks_of_client,
)
from gatehouse.gateways.admission.rules import ADDRESS, CLIENT, GROUP, HUB, TOPIC, Rule
from gatehouse.kernel.addresses.filters import MANY, ONE, FilterTrie

NAMED: Final = (TOPIC, GROUP, CLIENT)
"""Kinds whose rules are found by a name."""


class Names:
    """Rules on topics, groups or client ids, found by a name; of several with one pattern the oldest is found."""

    def __init__(self) -> None:
        self._exact: dict[str, list[Rule]] = {}
        self._prefixes: dict[str, list[Rule]] = {}
        self._sizes: list[int] = []                  # of prefixes, each size once, the shortest first
        self._of_size: dict[int, int] = {}           # prefixes that are so long

    def add(self, pattern: str, rule: Rule) -> None:
        if not pattern.endswith("*"):
            self._exact.setdefault(pattern, []).append(rule)
            return
        prefix = pattern[:-1]
        if prefix not in self._prefixes:
            size = len(prefix)
            self._of_size[size] = self._of_size.get(size, 0) + 1
            if self._of_size[size] == 1:
                insort(self._sizes, size)
        self._prefixes.setdefault(prefix, []).append(rule)

    def remove(self, pattern: str, rule: Rule) -> None:
        rules, key = (self._prefixes, pattern[:-1]) if pattern.endswith("*") else (self._exact, pattern)
        left = [other for other in rules[key] if other is not rule]
        if left:
            rules[key] = left
            return
        del rules[key]
        if rules is self._prefixes:
            size = len(key)
            self._of_size[size] -= 1
            if not self._of_size[size]:
                del self._of_size[size]
                self._sizes.remove(size)

    def find(self, name: str) -> Rule | None:
        rules = self._exact.get(name)
        if rules is None and self._prefixes:
            for size in self._sizes:
                rules = self._prefixes.get(name[:size]) if size <= len(name) else None
                if rules is not None:
                    break
        return None if rules is None else rules[0]

    def __len__(self) -> int:
        return len(self._exact) + len(self._prefixes)

    def find_any(self) -> Rule | None:
        """A rule that speaks of some name. Built-in rules do not count: no wildcard reaches their messages."""
        every = (*self._exact.values(), *self._prefixes.values())
        return next((rule for rules in every for rule in rules if not rule.built_in), None)

    def find_all(self) -> Rule | None:
        """A rule that speaks of every name."""
        rules = self._prefixes.get("")
        return None if rules is None else rules[0]


class RuleSubject:  # decision 81
    """Who asks: what `{user}` and `{client_id}` stand for, where they are whole levels of shared rules."""

    __slots__ = ("also", "client_id", "name")

    def __init__(self, name: str, client_id: str | None) -> None:
        self.name = name
        self.client_id = client_id
        self.also: dict[str, tuple[str, ...]] = {plain(escaped(name)): (USER,)}
        if client_id is not None:
            level = plain(escaped(client_id))
            self.also[level] = (*self.also.get(level, ()), CLIENT_ID)


def plain(level: str) -> str:
    """A level of an address, marked where it reads like a placeholder, so that it is not taken for one."""
    return FRESH + level if level in (USER, CLIENT_ID) else level


class Placed:
    """A rule on addresses with its pattern's levels. Compared by identity: rules may be alike."""

    __slots__ = ("levels", "rule")

    def __init__(self, rule: Rule, levels: Levels) -> None:
        self.rule = rule
        self.levels = levels


class Section:
    """The allows, or the denies, of one operation."""

    def __init__(self) -> None:
        self.addresses: FilterTrie[Placed] = FilterTrie()
        self.names = {kind: Names() for kind in NAMED}
        self.of_hub: list[Rule] = []
        self._placed: dict[int, Placed] = {}         # by the rule's identity

    @property
    def hub(self) -> Rule | None:
        return self.of_hub[0] if self.of_hub else None

    def place(self, rule: Rule, levels: Levels) -> None:
        placed = self._placed[id(rule)] = Placed(rule, levels)
        self.addresses.insert(levels, placed)

    def displace(self, rule: Rule) -> None:
        placed = self._placed.pop(id(rule))
        self.addresses.remove(placed.levels, placed)

    def covering(self, wanted: Levels, asker: RuleSubject) -> Rule | None:
        """A rule whose pattern covers all of this filter."""
        is_address = ONE not in wanted and MANY not in wanted
        for placed in self.addresses.overlapping(wanted if is_address else sample(wanted), asker.also):
            if is_address or covers(fill_levels(placed.levels, asker.name, asker.client_id), wanted):
                return placed.rule
        return None

    def naming(self, first: str, asker: RuleSubject) -> Rule | None:
        """A rule that speaks of all of this first level and names it, or names the topic that is called so."""
        rule = self.names[TOPIC].find(first)
        if rule is not None and not rule.pattern.endswith(ANY_NAME):
            return rule
        for placed in self.addresses.overlapping(sample((first, MANY)), asker.also):
            levels = fill_levels(placed.levels, asker.name, asker.client_id)
            if levels[0] not in (ONE, MANY) and covers(levels, (first, MANY)):
                return placed.rule
        return None

    def overlapping(self, wanted: Levels, asker: RuleSubject) -> Rule | None:
        """A rule whose pattern shares an address with this filter."""
        return next((placed.rule for placed in self.addresses.overlapping(wanted, asker.also)), None)


Key = tuple[Operation, bool, bool]
"""A section's operation, whether it is of allows, and whether who asks has a client id."""


class Table:
    """Rules, compiled by operation when one is first asked for; for one asker, or shared by all.

    Rules are told apart by identity: two may read alike.
    """

    def __init__(self, rules: Iterable[Rule], asker: RuleSubject | None = None) -> None:
        self._rules = {id(rule): rule for rule in rules}
        self._asker = asker
        self._sections: dict[Key, Section] = {}

    def section(self, operation: Operation, allows: bool, asker: RuleSubject) -> Section:
        return self.section_of((operation, allows, asker.client_id is not None))

    def section_of(self, key: Key) -> Section:
        section = self._sections.get(key)
        if section is None:
            section = self._sections[key] = Section()
            for rule in self._rules.values():
                if _belongs(rule, key):
                    self._put(rule, section, key)
        return section

    def add(self, rule: Rule) -> None:
        self._rules[id(rule)] = rule
        for key, section in self._sections.items():
            if _belongs(rule, key):
                self._put(rule, section, key)

    def remove(self, rule: Rule) -> None:
        del self._rules[id(rule)]
        for key, section in self._sections.items():
            if not _belongs(rule, key):
                continue
            if rule.kind == ADDRESS:
                section.displace(rule)
            elif rule.kind == HUB:
                section.of_hub = [other for other in section.of_hub if other is not rule]
            else:
                section.names[rule.kind].remove(self._name(rule), rule)

    def _put(self, rule: Rule, section: Section, key: Key) -> None:
        if rule.kind == ADDRESS:
            section.place(rule, self._levels(rule, key[2]))
        elif rule.kind == HUB:
            section.of_hub.append(rule)
        else:
            section.names[rule.kind].add(self._name(rule), rule)

    def _levels(self, rule: Rule, knows_client: bool) -> Levels:
        """The levels of a rule's pattern. Placeholders stay where they are whole levels of shared rules; an unknown
        client id is any level."""
        levels = tuple(rule.pattern.split("/"))
        if self._asker is not None:
            return fill_levels(levels, self._asker.name, self._asker.client_id)
        return levels if knows_client else tuple([ONE if level == CLIENT_ID else level for level in levels])

    def _name(self, rule: Rule) -> str:
        if self._asker is None:
            return rule.pattern
        return fill_name(rule.pattern, self._asker.name, self._asker.client_id)


def _belongs(rule: Rule, key: Key) -> bool:
    """Whether a section holds the rule. No allow gives rights to a client that is not known."""
    operation, allows, knows_client = key
    return (rule.allows is allows and operation in rule.operations
            and (knows_client or not allows or not speaks_of_client(rule.pattern)))


def is_personal(rule: Rule) -> bool:
    """Whether a rule is compiled for each asker, because a placeholder in it is not a whole level."""
    parts = rule.pattern.split("/") if rule.kind == ADDRESS else [rule.pattern + " "]
    return any(placeholder in part and part != placeholder for part in parts for placeholder in (USER, CLIENT_ID))
