"""May this principal do that there? One decision, and the rule that made it. Pure.

    Rights      what one principal may, from the tables of its name, its groups and everyone (`compiled_rules`)
    Verdict     yes or no, by which rule, in words

What holds: a deny that overlaps what is wanted forbids it; else one allow must cover all of what is wanted; else it is
denied. A rule on a topic speaks of every address that is stored there, as the routes say; the right to a whole topic
is a rule on it, or rights to every filter that leads into it; but to alter at an address is to alter the queue or the
exchange there, and a topic is altered by a rule on it alone.

Who publishes has a missing topic made by the right to create there, or by a rule that lets him publish at all of a
first level and names it (`plant/#`), for the topic of that name; a wildcard in place of the name (`#`) makes none.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from gatehouse.gateways.admission.accounts import ADMINS
from gatehouse.gateways.admission.compiled_rules import Names, RuleSubject, Section, Table, plain
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.own_topics import (
    AUDIT_LEVEL,
    AUDIT_TOPIC,
    CHECKS_LEVEL,
    HELD_LEVEL,
    JOURNEYS_LEVEL,
    JOURNEYS_TOPIC,
    group_of,
)
from gatehouse.gateways.admission.patterns import Levels
from gatehouse.gateways.admission.principal import DEFAULT_TENANT
from gatehouse.gateways.admission.routed import RoutedTopics
from gatehouse.gateways.admission.rules import ADDRESS, CLIENT, EVERY_TENANT, EVERYONE, GROUP, HUB, KINDS, TOPIC, Rule
from gatehouse.kernel.addresses.filters import MANY, ONE

DEAD_LETTERS: Final = "$queue/$dead-letters"
"""First levels of the queues of groups' dead letters."""

BUILT_IN: Final = (  # decision 83
    Rule(False, EVERYONE, KINDS[TOPIC], TOPIC, AUDIT_TOPIC, DEFAULT_TENANT, "hub-1"),
    Rule(False, EVERYONE, KINDS[ADDRESS], ADDRESS, f"{AUDIT_LEVEL}/{MANY}", DEFAULT_TENANT, "hub-2"),
    Rule(False, EVERYONE, frozenset((Operation.PUBLISH,)), ADDRESS, f"{DEAD_LETTERS}/{MANY}", EVERY_TENANT, "hub-3"),
    Rule(False, EVERYONE, KINDS[ADDRESS], ADDRESS, f"{CHECKS_LEVEL}/{MANY}", EVERY_TENANT, "hub-4"),
    Rule(False, EVERYONE, KINDS[ADDRESS], ADDRESS, f"{HELD_LEVEL}/{MANY}", EVERY_TENANT, "hub-5"),
    Rule(False, EVERYONE, KINDS[TOPIC], TOPIC, JOURNEYS_TOPIC, DEFAULT_TENANT, "hub-6"),
    Rule(False, EVERYONE, KINDS[ADDRESS], ADDRESS, f"{JOURNEYS_LEVEL}/{MANY}", DEFAULT_TENANT, "hub-7"))
"""What holds for everyone but administrators. Dead letters are the hub's to write: a letter says where it came from,
and whoever redrives it has it stored there."""


Find = Callable[[Section], Rule | None]
Allowing = Callable[[list[Table], Operation, Levels], Rule | None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision and its reason."""

    allowed: bool
    why: str
    rule: Rule | None = None
    creates: Verdict | None = None
    """The verdict on creating the topic, where somebody asks about publishing at an address: whether a missing topic is
    made."""

    def as_dict(self) -> dict[str, Any]:
        """The verdict for people and programs; the rule is in the words."""
        creates = self.creates
        return {"allowed": self.allowed, "why": self.why,
                "creates": None if creates is None else {"allowed": creates.allowed, "why": creates.why}}


_ADMIN: Final = Verdict(True, f"allowed: the group {ADMINS} may do everything, whatever the rules say")  # decision 86
_ANY_CLIENT: Final = Verdict(True, "allowed: no rule says which client ids may be had")
_NOTHING: Final = Verdict(False, "denied: no rule allows it")
_RESTRICTED: Final = Verdict(False, "denied: the API key is restricted to something else")


class Rights:
    """What one principal may."""

    def __init__(self, tables: list[Table], topics: RoutedTopics, admin: bool, limits: Table | None,
                 asker: RuleSubject) -> None:
        self._tables = tables
        self._topics = topics
        self._admin = admin
        self._limits = limits
        self._asker = asker

    def of_address(self, operation: Operation, wanted: str) -> Verdict:
        """The verdict on an operation at an address, or with a filter."""
        return self._at_address(operation, wanted, self._allowing_address)

    def restricts(self, operation: Operation, wanted: str) -> bool:
        """Whether the API key is restricted to something else, whatever its user may."""
        levels = tuple(map(plain, wanted.split("/")))
        return self._limits is not None and self._allowing_address([self._limits], operation, levels) is None

    def of_creating(self, address: str) -> Verdict:
        """The verdict on creating the topic of an address by publishing there."""
        return self._at_address(Operation.CREATE, address, self._allowing_creation)

    def of_some(self, operation: Operation, filter_text: str) -> bool:
        """Whether an operation may be allowed at some address within this filter. For what may be shown, or is judged
        again at each address: denies within the filter count only where one rule covers all of it."""
        if self.of_address(operation, filter_text).allowed:
            return True
        levels = tuple(map(plain, filter_text.split("/")))
        tables = self._tables if self._limits is None else [self._limits]
        denies = [table.section(operation, False, self._asker) for table in self._tables]
        allows = [table.section(operation, True, self._asker) for table in tables]
        topics = self._topics.topics_of(levels)
        return (not any(section.covering(levels, self._asker) for section in denies)
                and not self._allowing_topics_of([section.names[TOPIC] for section in denies], levels)
                and any(section.overlapping(levels, self._asker) or _names_some(section.names[TOPIC], topics)
                        for section in allows))

    def of_topic(self, operation: Operation, topic: str) -> Verdict:  # decision 93
        """The verdict on an operation with a topic as a whole. A topic that tells of a group's transactions takes the
        right to transact in that group, too."""
        group = group_of(topic)
        if group and operation in (Operation.CONSUME, Operation.PUBLISH):
            verdict = self.of_group(Operation.TRANSACT, group)
            if not verdict.allowed:
                return verdict
        filters = self._topics.filters_into(topic)
        if self._limits is not None and self._allowing_topic([self._limits], operation, topic, filters) is None:
            return _RESTRICTED
        if self._admin:
            return _ADMIN
        for table in self._tables:
            denies = table.section(operation, False, self._asker)
            rule = denies.names[TOPIC].find(topic)
            for levels in filters:
                rule = rule or denies.overlapping(levels, self._asker)
            if rule is not None:
                return _denied(rule)
        rule = self._allowing_topic(self._tables, operation, topic, filters)
        return _NOTHING if rule is None else _allowed(rule)

    def of_group(self, operation: Operation, group: str) -> Verdict:
        """The verdict on an operation with a consumer group."""
        return self._by_rule(operation, lambda section: section.names[GROUP].find(group))

    def of_hub(self, operation: Operation) -> Verdict:
        """The verdict on an operation with the hub itself."""
        return self._by_rule(operation, lambda section: section.hub)

    def of_client(self, operation: Operation, client_id: str) -> Verdict:  # decision 87
        """The verdict on a client id. Where no rule allows the user some, it may have any that none denies; so may API
        keys."""
        if self._admin:
            return _ADMIN
        sections = [[table.section(operation, allows, self._asker).names[CLIENT] for table in self._tables]
                    for allows in (False, True)]
        denying, allowing = [next(filter(None, [names.find(client_id) for names in candidates]), None)
                             for candidates in sections]
        if denying is not None:
            return _denied(denying)
        if allowing is not None:
            return _allowed(allowing)
        return Verdict(False, "denied: the rules allow other client ids") if any(sections[True]) else _ANY_CLIENT

    # ---- inside

    def _at_address(self, operation: Operation, wanted: str, allowing: Allowing) -> Verdict:  # decision 80
        levels = tuple(map(plain, wanted.split("/")))
        if self._limits is not None and allowing([self._limits], operation, levels) is None:
            return _RESTRICTED
        if self._admin:
            return _ADMIN
        rule = self._denying_address(operation, levels)
        if rule is not None:
            return _denied(rule)
        rule = allowing(self._tables, operation, levels)
        return _NOTHING if rule is None else _allowed(rule)

    def _by_rule(self, operation: Operation, find: Find) -> Verdict:
        if self._limits is not None and find(self._limits.section(operation, True, self._asker)) is None:
            return _RESTRICTED
        if self._admin:
            return _ADMIN
        for allows in (False, True):
            for table in self._tables:
                rule = find(table.section(operation, allows, self._asker))
                if rule is not None:
                    return _allowed(rule) if allows else _denied(rule)
        return _NOTHING

    def _denying_address(self, operation: Operation, levels: Levels) -> Rule | None:
        topics: frozenset[str] | None = frozenset()
        asked = False
        for table in self._tables:
            denies = table.section(operation, False, self._asker)
            rule = denies.overlapping(levels, self._asker)
            if rule is not None:
                return rule
            if not denies.names[TOPIC]:
                continue
            if not asked:
                topics, asked = self._topics.topics_of(levels), True
            rule = (denies.names[TOPIC].find_any() if topics is None
                    else next(filter(None, map(denies.names[TOPIC].find, sorted(topics))), None))
            if rule is not None:
                return rule
        return None

    def _allowing_address(self, tables: list[Table], operation: Operation, levels: Levels) -> Rule | None:
        allows = [table.section(operation, True, self._asker) for table in tables]
        for section in allows:
            rule = section.covering(levels, self._asker)
            if rule is not None:
                return rule
        named = [section.names[TOPIC] for section in allows if section.names[TOPIC]]
        return self._allowing_topics_of(named, levels) if named else None

    def _allowing_creation(self, tables: list[Table], operation: Operation, levels: Levels) -> Rule | None:
        rule = self._allowing_address(tables, operation, levels)
        if rule is not None or self._topics.topics_of(levels) != frozenset((levels[0],)):
            return rule
        publishes = [table.section(Operation.PUBLISH, True, self._asker) for table in tables]
        return next(filter(None, [section.naming(levels[0], self._asker) for section in publishes]), None)

    def _allowing_topics_of(self, named: list[Names], levels: Levels) -> Rule | None:
        """The rule that gives the right to every topic that these addresses are stored in."""
        topics = self._topics.topics_of(levels)
        if topics is None:
            return next(filter(None, [names.find_all() for names in named]), None)
        rules = [next(filter(None, [names.find(topic) for names in named]), None) for topic in sorted(topics)]
        return None if None in rules or not rules else rules[0]

    def _allowing_topic(self, tables: list[Table], operation: Operation, topic: str,
                        filters: Iterable[Levels]) -> Rule | None:
        sections = [table.section(operation, True, self._asker) for table in tables]
        for section in sections:
            rule = section.names[TOPIC].find(topic)
            if rule is not None:
                return rule
        if operation is Operation.ALTER:
            return None
        rules = [next(filter(None, [section.covering(levels, self._asker) for section in sections]), None)
                 for levels in filters]
        return None if None in rules else rules[0]


def _names_some(names: Names, topics: frozenset[str] | None) -> bool:
    """Whether a rule speaks of one of these topics; None: of any."""
    return names.find_any() is not None if topics is None else any(map(names.find, topics))


def ask_rights(rights: Rights, kind: str, operation: Operation, on: str) -> Verdict:
    """The verdict on a question of this kind. Raises ValueError for an unknown kind."""
    if kind == HUB:
        return rights.of_hub(operation)
    asked = {ADDRESS: rights.of_address, TOPIC: rights.of_topic, GROUP: rights.of_group, CLIENT: rights.of_client
             }.get(kind)
    if asked is None:
        raise ValueError(f"{kind[:40]!r} is none of {', '.join(KINDS)}")
    verdict = asked(operation, on)
    if kind == ADDRESS and operation is Operation.PUBLISH and verdict.allowed and not {ONE, MANY} & set(on.split("/")):
        return replace(verdict, creates=rights.of_creating(on))
    return verdict


def _allowed(rule: Rule) -> Verdict:
    return Verdict(True, f"allowed by the rule: {rule}", rule)


def _denied(rule: Rule) -> Verdict:
    return Verdict(False, f"denied by the rule: {rule}", rule)
