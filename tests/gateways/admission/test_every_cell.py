"""The decision in every cell there is: a kind of thing, an operation on it, what the rules say."""
from __future__ import annotations

import pytest

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.rights import ask_rights
from gatehouse.gateways.admission.routed import RoutedTopics
from gatehouse.gateways.admission.rule_set import RuleSet
from gatehouse.gateways.admission.rules import KINDS, Rule, read_rule
from tests.gateways.admission.test_rights import ALTER, ROUTES, asked, rules

THINGS = {"address": ("a/b", "a/#", "z/#"), "topic": ("a", "a*", "z*"), "group": ("a", "a*", "z*"),
          "client": ("a", "a*", "z*"), "hub": ("", "", "")}
"""Of each kind: one, a pattern that it is of, and one that it is not."""

CELLS = [(kind, operation) for kind in KINDS for operation in sorted(KINDS[kind], key=lambda one: one.value)]


def decided(kind: str, operation: Operation, *texts: str, who: str = "u", key: str = "") -> bool:
    """By rules and, where there is one, the restriction of an API key, all about `operation` on `kind`: `EFFECT WHO
    PATTERN [TENANT]`, with `+` for the pattern that fits and `-` for the one that does not."""
    on, fits, other = THINGS[kind]

    def full(text: str) -> Rule:
        effect, whom, pattern, *tenant = text.split()
        chosen = fits if pattern == "+" else other
        table = {"effect": effect, "who": whom, "kind": kind, "operations": [operation.value],
                 "pattern": chosen, "tenant": tenant[0] if tenant else "/"}
        return read_rule(table)

    some = RuleSet([full(text) for text in texts], RoutedTopics(ROUTES))
    name, _, rest = who.partition("+")
    group, _, tenant = rest.partition("=")
    limits = (full(f"allow everyone {key}"),) if key else None
    rights = some.rights(name, [group] if group else [], tenant or "/", restriction=limits)
    return ask_rights(rights, kind, operation, on).allowed


@pytest.mark.parametrize(("kind", "operation"), CELLS, ids=[f"{kind}-{one.value}" for kind, one in CELLS])
def test_every_operation_on_every_kind(kind: str, operation: Operation) -> None:
    """What is the same for all of them; client ids may be had as long as no rule allows some."""
    def may(*texts: str, who: str = "u", key: str = "") -> bool:
        return decided(kind, operation, *texts, who=who, key=key)

    assert may() is (kind == "client"), "no rule"
    assert may("allow user:u +") and may("allow everyone +") and may("allow group:g +", who="u+g")
    assert may("allow user:v +", "allow group:h +", who="u+g") is (kind == "client"), "somebody else's"
    assert not may("deny user:u +") and not may("allow user:u +", "deny everyone +"), "deny wins"
    assert not may("deny group:g +", "allow user:u +", who="u+g"), "over a rule that is nearer, too"
    assert may("allow user:u + *", who="u+=blue") and may("allow user:u + blue", who="u+=blue")
    assert may("allow user:u + blue") is (kind == "client"), "another tenant's"
    assert may("allow user:u +", "deny everyone + blue")
    assert may(who="u+admins") and may("deny everyone + *", who="u+admins"), "administrators"
    if kind != "hub":
        assert not may("allow user:u -") and may("allow user:u +", "deny everyone -"), "elsewhere"
    if kind != "client":                                 # which keys are not restricted to
        assert may("allow user:u +", key="+") and not may(key="+"), "a key may a part of what its user may"
    if kind not in ("client", "hub"):
        assert not may("allow user:u +", key="-") and not may(who="u+admins", key="-")


def test_an_operation_on_a_kind_allows_no_other_one() -> None:
    for kind, operation in CELLS:
        others = sorted(one.value for one in KINDS[kind] - {operation})
        pattern = {} if kind == "hub" else {"pattern": THINGS[kind][1]}
        table = {"who": "everyone", "kind": kind, **pattern}
        if kind != "client":
            some = RuleSet([read_rule({**table, "operations": others})], RoutedTopics(ROUTES))
            assert not ask_rights(some.rights("u", ()), kind, operation, THINGS[kind][0]).allowed, (kind, operation)
        every = RuleSet([read_rule(table)], RoutedTopics(ROUTES))
        assert ask_rights(every.rights("u", ()), kind, operation, THINGS[kind][0]).allowed, (kind, operation)


@pytest.mark.parametrize("operation", sorted(KINDS["topic"], key=lambda one: one.value))
def test_where_addresses_and_topics_meet(operation: Operation) -> None:
    """(a rule on, a question about) the other: a topic's rule is its addresses', its addresses' together the topic's,
    but to alter; a deny of either is one of the other."""
    what = operation.value
    of_topic = asked(rules(f"allow user:u {what} topic a"), "u")
    of_address = asked(rules(f"allow user:u {what} address a/#"), "u")
    of_one = asked(rules(f"allow user:u {what} address a/b"), "u")
    assert of_topic.of_address(operation, "a/b").allowed
    assert of_address.of_topic(operation, "a").allowed is (operation is not ALTER)
    assert not of_one.of_topic(operation, "a").allowed
    denied_topic = asked(rules(f"allow user:u {what} address #", f"deny user:u {what} topic a"), "u")
    denied_one = asked(rules(f"allow user:u {what} topic a", f"deny user:u {what} address a/b"), "u")
    assert not denied_topic.of_address(operation, "a/b").allowed and not denied_one.of_topic(operation, "a").allowed
    assert denied_one.of_address(operation, "a/c").allowed and not denied_one.of_address(operation, "a/b").allowed
