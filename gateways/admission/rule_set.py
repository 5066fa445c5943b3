"""All rules there are at one time, by those that they speak of; a change of one is a change of its place alone. Pure.

So a rule that is added, taken back or changed holds with the next decision, whatever the number of the others: nothing
is compiled again, and no decision is made by rules of before. What a reload brings may be everything, so it is compiled
on another thread (`prepare`) and then put in the place of the old.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gatehouse.gateways.admission.accounts import ADMINS
from gatehouse.gateways.admission.compiled_rules import RuleSubject, Table, is_personal
from gatehouse.gateways.admission.patterns import speaks_of_client
from gatehouse.gateways.admission.principal import DEFAULT_TENANT
from gatehouse.gateways.admission.rights import BUILT_IN, Rights
from gatehouse.gateways.admission.routed import RoutedTopics
from gatehouse.gateways.admission.rules import EVERY_TENANT, EVERYONE, Rule


class Part:
    """The rules, in one tenant, for one `who` that rules speak of."""

    __slots__ = ("personal", "shared", "tenant")

    def __init__(self, rules: Iterable[Rule], tenant: str) -> None:
        self.tenant = tenant
        here = [rule for rule in rules if self.holds(rule)]
        self.personal = {id(rule): rule for rule in here if is_personal(rule)}
        """Rules that are compiled for each asker."""

        self.shared = Table([rule for rule in here if id(rule) not in self.personal])

    def holds(self, rule: Rule) -> bool:
        return rule.tenant in (self.tenant, EVERY_TENANT)

    def add(self, rule: Rule) -> None:
        if is_personal(rule):
            self.personal[id(rule)] = rule
        else:
            self.shared.add(rule)

    def remove(self, rule: Rule) -> None:
        if self.personal.pop(id(rule), None) is None:
            self.shared.remove(rule)


class RuleSet:  # decision 81
    """All rules: those of the database, those of the configuration, and the built-in ones."""

    def __init__(self, rules: Iterable[Rule], topics: RoutedTopics) -> None:
        self.topics = topics
        self._rules: dict[int, Rule] = {}
        self._of: dict[str, dict[int, Rule]] = {}
        self._parts: dict[str, dict[str, Part]] = {}
        self._speaking: Counter[str] = Counter()     # rules with {client_id}, by those that they speak of
        self._of_anonymous = 0
        for rule in BUILT_IN:
            self._of.setdefault(rule.who, {})[id(rule)] = rule
        for rule in rules:
            self.add(rule)

    def __len__(self) -> int:
        return len(self._rules)

    @property
    def speaks_of_anonymous(self) -> bool:
        return self._of_anonymous > 0

    # ---- changes

    def add(self, rule: Rule) -> None:
        self._rules[id(rule)] = rule
        self._of.setdefault(rule.who, {})[id(rule)] = rule
        self._count(rule, 1)
        for part in self._parts.get(rule.who, {}).values():
            if part.holds(rule):
                part.add(rule)

    def remove(self, rule: Rule) -> None:
        """Remove a rule that is here, found by its identity."""
        del self._rules[id(rule)]
        of = self._of[rule.who]
        del of[id(rule)]
        self._count(rule, -1)
        for part in self._parts.get(rule.who, {}).values():
            if part.holds(rule):
                part.remove(rule)
        if not of:
            del self._of[rule.who]
            self._parts.pop(rule.who, None)

    def become(self, rules: Iterable[Rule]) -> None:
        """Hold these rules and no others: takes in what has changed while this set was compiled."""
        wanted = {id(rule): rule for rule in rules}
        for key, rule in list(self._rules.items()):
            if key not in wanted:
                self.remove(rule)
        for key, rule in wanted.items():
            if key not in self._rules:
                self.add(rule)

    def _count(self, rule: Rule, step: int) -> None:
        self._of_anonymous += step * rule.speaks_of_anonymous
        if speaks_of_client(rule.pattern):
            self._speaking[rule.who] += step

    def prepare(self) -> RuleSet:
        """Compile what will be asked for; returns itself. To be called on the only thread that knows this object so
        far."""
        for who, rules in self._of.items():
            tenants = {rule.tenant for rule in rules.values()} - {EVERY_TENANT} | {DEFAULT_TENANT}
            operations = {operation for rule in rules.values() for operation in rule.operations}
            for tenant in tenants:
                shared = self._part(who, tenant).shared
                for operation in operations:
                    for allows in (False, True):
                        for knows_client in (False, True) if self._speaking[who] else (False,):
                            shared.section_of((operation, allows, knows_client))
        return self

    # ---- what they give

    def rights(self, name: str, groups: Iterable[str], tenant: str = DEFAULT_TENANT, client_id: str | None = None,
               restriction: tuple[Rule, ...] | None = None) -> Rights:
        """What this user may in this tenant. A restriction (of an API key) must allow it as well."""
        parts = [self._part(who, tenant) for who in self._whos(name, groups) if who in self._of]
        tables = [part.shared for part in parts]
        personal = [rule for part in parts for rule in part.personal.values()]
        asker = RuleSubject(name, client_id)
        if personal:
            tables.append(Table(personal, asker))
        limits = None if restriction is None else Table(restriction, asker)
        return Rights(tables, self.topics, ADMINS in groups, limits, asker)

    def speaks_of_client_to(self, name: str, groups: Iterable[str]) -> bool:
        """Whether some rule for this user speaks of `{client_id}`."""
        return any(self._speaking[who] > 0 for who in self._whos(name, groups)) if self._speaking else False

    @staticmethod
    def _whos(name: str, groups: Iterable[str]) -> list[str]:
        return [f"user:{name}", *[f"group:{group}" for group in sorted(groups)], EVERYONE]

    def _part(self, who: str, tenant: str) -> Part:
        parts = self._parts.setdefault(who, {})
        part = parts.get(tenant)
        if part is None:
            part = parts[tenant] = Part(self._of[who].values(), tenant)
        return part
