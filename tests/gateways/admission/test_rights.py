"""The decision, by a table; and by a naive model that asks every rule about every address."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.own_topics import ROUTES as OWN_ROUTES
from gatehouse.gateways.admission.patterns import fill_levels, overlaps
from gatehouse.gateways.admission.rights import DEAD_LETTERS, Verdict
from gatehouse.gateways.admission.routed import RoutedTopics
from gatehouse.gateways.admission.rule_set import RuleSet
from gatehouse.gateways.admission.rules import InvalidRule, Rule, read_rule
from gatehouse.kernel.addresses.filters import FilterTrie, matches
from gatehouse.kernel.addresses.placing import QUEUE_PREFIX
from gatehouse.kernel.addresses.routes import RouteEntry, Routes
from gatehouse.kernel.groups.group_settings import DEAD_LETTER_PREFIX

ROUTES = Routes((RouteEntry("fleet/{vehicle}/gps/#", "positions"), RouteEntry("by/{name}/#", "of-{name}")), OWN_ROUTES)
PUBLISH, CONSUME, CREATE, ALTER = Operation.PUBLISH, Operation.CONSUME, Operation.CREATE, Operation.ALTER


def rule(text: str) -> Rule:
    """`allow user:ann publish,consume address plant/# [TENANT]`."""
    effect, who, operations, kind, *rest = text.split()
    table = {"effect": effect, "who": who, "kind": kind}
    if operations != "*":
        table["operations"] = operations.split(",")                       # type: ignore[assignment]
    if kind != "hub":
        table["pattern"] = rest.pop(0)
    if rest:
        table["tenant"] = rest.pop(0)
    return read_rule(table, "1")


def rules(*texts: str) -> RuleSet:
    return RuleSet([rule(text) for text in texts], RoutedTopics(ROUTES))


CLIENTS = rules(
    "allow user:ann connect client sensor-*", "allow user:ann connect client panel",
    "deny everyone connect client root-*", "deny user:ann connect client sensor-9*",
    "allow group:own connect client {user}", "allow group:own connect client {user}-*",
    "allow user:tom connect client t blue")


@pytest.mark.parametrize(("who", "client_id", "allowed", "why"), [
    ("ann", "sensor-1", True, "sensor-*"), ("ann", "panel", True, "panel"), ("ann", "panel2", False, "other"),
    ("ann", "sensor-99", False, "denied by"), ("ann", "", False, "other"), ("ann", "Sensor-1", False, "other"),
    ("bob", "sensor-1", True, "no rule says"), ("bob", "root-1", False, "denied by"), ("bob", "", True, "no rule says"),
    ("eve+own", "eve", True, "{user}"), ("eve+own", "eve-7", True, "{user}-*"), ("eve+own", "evel", False, "other"),
    ("eve+own", "root-1", False, "denied by"), ("root+own", "root-1", False, "denied by"),
    ("*+own", "anything", False, "other"), ("{user}+own", "{user}", True, "{user}"),
    ("{user}+own", "eve", False, "other"), ("root+admins", "root-1", True, "admins"),
    ("tom", "x", True, "no rule says"), ("tom/blue", "x", False, "other"),
    ("tom/blue", "t", True, "t in tenant blue")])
def test_client_ids(who: str, client_id: str, allowed: bool, why: str) -> None:
    who, _, tenant = who.partition("/")
    name, *groups = who.split("+")
    verdict = CLIENTS.rights(name, groups, tenant or "/").of_client(Operation.CONNECT, client_id)
    assert (verdict.allowed, why in verdict.why) == (allowed, True), verdict


def test_a_rule_on_client_ids_asks_for_no_client_id() -> None:
    for pattern in ("{client_id}", "a-{client_id}", "a*b", ""):
        with pytest.raises(InvalidRule):
            read_rule({"who": "everyone", "kind": "client", "pattern": pattern})
    with pytest.raises(InvalidRule):
        rule("allow everyone publish client x")


RULES = rules(
    "allow user:ann publish,consume address plant/#", "deny everyone consume address plant/secret/#",
    "allow group:ops * address #", "deny user:eve * address #", "allow group:ops * topic *",
    "allow everyone publish address home/{user}/#", "allow everyone publish,consume address dev/{client_id}/#",
    "deny everyone publish address dev/{client_id}/firmware", "allow user:bob consume topic orders",
    "allow user:bob publish,create topic log.*", "deny group:ops alter topic log.*",
    "allow user:bob consume group billing", "allow user:bob consume address fleet/#",
    "allow user:kim consume topic positions", "allow group:relays relay hub", "allow user:tom publish address x/# blue",
    "deny user:kim consume topic plant")


@pytest.mark.parametrize(("who", "operation", "wanted", "allowed"), [
    ("ann", PUBLISH, "plant/line1", True), ("ann", CONSUME, "plant/line1/temp", True), ("ann", CONSUME, "plant", True),
    ("ann", CONSUME, "plant/#", False), ("ann", CONSUME, "plant/line1/#", True), ("ann", CONSUME, "#", False),
    ("ann", CONSUME, "plant/secret/x", False), ("ann", CREATE, "plant/x", False), ("ann", PUBLISH, "plants", False),
    ("bob+ops", CONSUME, "anything/at/all", True), ("bob+ops", CONSUME, "plant/secret/x", False),
    ("bob+ops", CONSUME, "#", False), ("bob+ops", PUBLISH, "#", False), ("bob+ops", PUBLISH, "plant/#", True),
    ("eve+ops", PUBLISH, "x", False), ("ann", PUBLISH, "home/ann/door", True), ("ann", PUBLISH, "home/bob/door", False),
    ("ann", PUBLISH, "dev/c1/x", False), ("ann@c1", PUBLISH, "dev/c1/x", True), ("ann@c1", PUBLISH, "dev/c2/x", False),
    ("ann@c1", PUBLISH, "dev/c1/firmware", False), ("root+admins", PUBLISH, "dev/any/firmware", True),
    ("root+admins", CONSUME, "$audit/#", True), ("bob", CONSUME, "orders/1", True), ("bob", CONSUME, "orders/#", True),
    ("bob", PUBLISH, "orders/1", False), ("bob", PUBLISH, "log.app/x", True), ("bob", CREATE, "log.app/x", True),
    ("bob", CONSUME, "fleet/7/gps/lat", True), ("kim", CONSUME, "fleet/7/gps/lat", True),
    ("kim", CONSUME, "fleet/7/gps/#", False), ("kim", CONSUME, "fleet/7/#", False),
    ("kim", CONSUME, "positions/x", True), ("bob+ops", CONSUME, "audit/x", False),
("bob+ops", PUBLISH, "audit/x", False), ("bob+ops", CONSUME, "$audit/x", False),
    ("tom", PUBLISH, "x/y", False), ("tom=blue", PUBLISH, "x/y", True), ("kim", CONSUME, "+/x", False)])
def test_addresses(who: str, operation: Operation, wanted: str, allowed: bool) -> None:
    assert asked(RULES, who).of_address(operation, wanted).allowed is allowed


CREATING = rules(
    "allow user:ann publish address plant/#", "allow user:part publish address plant/line1/#",
    "allow user:wide publish address #", "allow user:wide publish address +/#", "allow user:top publish topic orders",
    "allow user:top publish topic log.*", "allow everyone publish address {user}/#",
    "allow user:maker create,publish address +/new/#", "allow user:no publish address plant/#",
    "deny user:no create address plant/#", "allow user:car publish address fleet/#",
    "allow user:car publish address by/#")


@pytest.mark.parametrize(("who", "address", "allowed"), [
    ("ann", "plant/line1/temp", True), ("ann", "plant", True), ("ann", "plants/x", False), ("ann", "ann/door", True),
    ("ann", "bob/door", False), ("part", "plant/line1/temp", False), ("wide", "plant/x", False),
    ("top", "orders/1", True), ("top", "log.app/1", False), ("maker", "any/new/x", True), ("maker", "any/old", False),
    ("no", "plant/x", False), ("root+admins", "plant/x", True), ("car", "fleet/7", True),
    ("car", "fleet/7/gps/lat", False), ("car", "by/me/x", False), ("ann", "#", False)])
def test_who_publishes_at_all_of_a_first_level_by_name_has_its_topic_made(who: str, address: str, allowed: bool
                                                                         ) -> None:
    assert asked(CREATING, who).of_creating(address).allowed is allowed


def test_that_makes_the_topic_and_gives_no_other_right() -> None:
    rights = asked(CREATING, "ann")
    assert not rights.of_address(CREATE, "plant/x").allowed and not rights.of_topic(CREATE, "plant").allowed


@pytest.mark.parametrize(("only", "allowed"), [("plant/#", True), ("plant/line1/#", False)])
def test_a_restricted_key_makes_topics_as_its_restriction_says(only: str, allowed: bool) -> None:
    restricted = CREATING.rights("root", ("admins",), "/", None, (rule(f"allow everyone publish address {only}"),))
    assert restricted.of_creating("plant/line1/temp").allowed is allowed


@pytest.mark.parametrize(("who", "operation", "topic", "allowed"), [
    ("ann", CONSUME, "plant", False), ("ann", PUBLISH, "plant", True), ("bob", CONSUME, "orders", True),
    ("bob", PUBLISH, "orders", False), ("bob", CREATE, "log.app", True), ("bob", ALTER, "log.app", False),
    ("bob", CONSUME, "positions", False), ("kim", CONSUME, "positions", True), ("bob+ops", ALTER, "log.app", False),
    ("bob+ops", ALTER, "plant", True), ("bob+ops", CONSUME, "plant", False), ("bob+ops", CONSUME, "audit", False),
    ("bob+ops", CREATE, "audit", False), ("bob+ops", PUBLISH, "unrouted", False),
    ("root+admins", CONSUME, "audit", True),
    ("bob+ops", CONSUME, "of-x", True), ("kim", CONSUME, "plant", False)])
def test_whole_topics(who: str, operation: Operation, topic: str, allowed: bool) -> None:
    assert asked(RULES, who).of_topic(operation, topic).allowed is allowed


def test_to_alter_at_an_address_alters_queues_and_exchanges_and_no_topic() -> None:
    rights = asked(rules("allow user:u * address plant/#", "allow user:u * address $queue/#"), "u")
    assert rights.of_address(ALTER, "$queue/work").allowed and rights.of_address(ALTER, "plant").allowed
    assert rights.of_topic(CREATE, "plant").allowed and not rights.of_topic(ALTER, "plant").allowed
    denied = asked(rules("allow user:u alter topic *", "deny user:u alter address plant/#"), "u")
    assert denied.of_topic(ALTER, "orders").allowed and not denied.of_topic(ALTER, "plant").allowed


@pytest.mark.parametrize("tenant", ["/", "blue"])
def test_nobody_but_administrators_writes_dead_letters(tenant: str) -> None:
    """A letter says where it came from and is redriven there: who could write one could publish anywhere."""
    assert f"{QUEUE_PREFIX}{DEAD_LETTER_PREFIX}" == DEAD_LETTERS + "/"
    some = rules("allow everyone * address $queue/# *")
    rights = some.rights("ann", (), tenant)
    assert not rights.of_address(PUBLISH, "$queue/$dead-letters/billing").allowed
    assert rights.of_address(CONSUME, "$queue/$dead-letters/billing").allowed
    assert rights.of_address(PUBLISH, "$queue/work").allowed
    assert some.rights("root", ("admins",), tenant).of_address(PUBLISH, "$queue/$dead-letters/billing").allowed


@pytest.mark.parametrize("kind", ["check", "half"])
def test_what_tells_of_a_groups_transactions_is_for_its_members(kind: str) -> None:
    some = rules("allow everyone * address #", "allow everyone * topic *", "allow user:ann transact group shop")
    ann, bob, root = (asked(some, who) for who in ("ann", "bob", "root+admins"))
    assert [who.of_topic(CONSUME, f"txn-{kind}.shop").allowed for who in (ann, bob, root)] == [True, False, True]
    assert not ann.of_topic(CONSUME, f"txn-{kind}.billing").allowed
    for wanted in (f"$txn-{kind}/shop/#", f"$txn-{kind}/#", f"$txn-{kind}/shop/17", f"$txn-{kind}"):
        for operation in (CONSUME, PUBLISH):
            assert [who.of_address(operation, wanted).allowed for who in (ann, bob, root)] == [False, False, True]
    assert bob.of_address(CONSUME, "#").allowed, "which sees none of it"
    only_members = rules("allow user:ann transact group shop")
    assert not asked(only_members, "ann").of_topic(CONSUME, f"txn-{kind}.shop").allowed


def test_a_topic_takes_the_right_to_everything_that_is_routed_into_it() -> None:
    both = rules("allow user:u consume address of-x/#", "allow user:u consume address by/x/#")
    assert asked(both, "u").of_topic(CONSUME, "of-x").allowed
    half = rules("allow user:u consume address of-x/#")
    assert not asked(half, "u").of_topic(CONSUME, "of-x").allowed
    assert not asked(both, "u").of_topic(CONSUME, "of-y").allowed
    denied = rules("allow user:u consume topic of-x", "deny user:u consume address by/+/secret")
    assert not asked(denied, "u").of_topic(CONSUME, "of-x").allowed


def test_a_denied_topic_is_denied_at_its_addresses() -> None:
    some = rules("allow user:u * address #", "deny user:u consume topic positions", "deny user:u publish topic se*")
    rights = asked(some, "u")
    assert not rights.of_address(CONSUME, "fleet/7/gps/lat").allowed
    assert not rights.of_address(CONSUME, "fleet/+/gps/lat").allowed
    assert not rights.of_address(CONSUME, "#").allowed
    assert rights.of_address(CONSUME, "fleet/7/fuel").allowed
    assert not rights.of_address(PUBLISH, "secret/x").allowed and rights.of_address(CONSUME, "secret/x").allowed


def test_groups_and_the_hub() -> None:
    assert asked(RULES, "bob").of_group(CONSUME, "billing").allowed
    assert not asked(RULES, "bob").of_group(ALTER, "billing").allowed
    assert not asked(RULES, "ann").of_group(CONSUME, "billing").allowed
    assert asked(RULES, "r+relays").of_hub(Operation.RELAY).allowed
    assert not asked(RULES, "r+relays").of_hub(Operation.ADMINISTER).allowed
    assert asked(RULES, "root+admins").of_hub(Operation.ADMINISTER).allowed


def test_a_restricted_key_may_less_than_its_user() -> None:
    limits = (rule("allow everyone publish address plant/{user}/#"),)
    for groups in ((), ("admins",)):
        rights = rules("allow user:ann * address #").rights("ann", groups, restriction=limits)
        assert rights.of_address(PUBLISH, "plant/ann/x").allowed
        refused = rights.of_address(PUBLISH, "plant/bob/x")
        assert not refused.allowed and "API key" in refused.why
        assert not rights.of_hub(Operation.ADMINISTER).allowed and not rights.of_topic(CONSUME, "plant").allowed


def test_a_verdict_says_which_rule_it_was() -> None:
    verdict = asked(RULES, "ann").of_address(CONSUME, "plant/#")
    assert verdict == Verdict(False, "denied by the rule: deny everyone: consume on address plant/secret/# (1)",
                              rule("deny everyone consume address plant/secret/#"))


@pytest.mark.parametrize("table", [
    {}, {"who": "ann", "pattern": "x"}, {"who": "user:", "pattern": "x"}, {"who": "user:a"},
    {"who": "user:a", "pattern": "a+"}, {"who": "user:a", "pattern": "x", "operations": []},
    {"who": "user:a", "pattern": "x", "operations": None}, {"who": "user:a", "kind": "hub", "pattern": None},
    {"who": "user:a", "pattern": "x", "operations": "publish"},
    {"who": "user:a", "pattern": "x", "operations": ["fly"]},
    {"who": "user:a", "pattern": "x", "operations": ["administer"]},
    {"who": "user:a", "pattern": "a*b", "kind": "topic"},
    {"who": "user:a", "pattern": "x", "kind": "hub"}, {"who": "user:a", "pattern": "x", "effect": "maybe"},
    {"who": "user:a", "pattern": "x", "kind": "door"}, {"who": "user:a", "pattern": "x", "colour": "red"},
    {"who": "user:a\0", "pattern": "x"}, {"who": 7, "pattern": "x"}, {"who": "user:a", "pattern": "x", "tenant": ""}])
def test_what_is_no_rule(table: dict[str, object]) -> None:
    with pytest.raises(InvalidRule):
        read_rule(table)


def asked(some: RuleSet, who: str):                                        # type: ignore[no-untyped-def]
    """The rights of `NAME[+GROUP][@CLIENT][=TENANT]`."""
    who, _, tenant = who.partition("=")
    who, _, client = who.partition("@")
    name, _, group = who.partition("+")
    return some.rights(name, [group] if group else [], tenant or "/", client or None)


def test_who_is_called_like_a_placeholder_gains_nothing() -> None:
    some = rules("allow everyone publish address #", "deny everyone publish address home/{user}/#",
                 "deny everyone publish address dev/{client_id}/#", "deny everyone publish address of-{user}/#")
    for name in ("{user}", "{client_id}", "ann"):
        rights = asked(some, f"{name}@{name}")
        assert not rights.of_address(PUBLISH, f"home/{name}/x").allowed
        assert not rights.of_address(PUBLISH, f"dev/{name}/x").allowed
        assert not rights.of_address(PUBLISH, f"of-{name}/x").allowed
        assert rights.of_address(PUBLISH, "home/other/x").allowed
    assert asked(some, "ann@c").of_address(PUBLISH, "home/{user}/x").allowed, "an address is no pattern"
    assert not asked(some, "ann").of_address(PUBLISH, "dev/any/x").allowed, "an unknown client is any"


# --- the naive model -------------------------------------------------------------------------------------------------

LEVELS = ("a", "b", "z")
ADDRESSES = [address for size in range(1, 5) for address in product(LEVELS, repeat=size)]
patterns = st.lists(st.sampled_from(("a", "b", "+", "#", "{user}", "{client_id}")), min_size=1, max_size=3).map(tuple)
wants = st.lists(st.sampled_from(("a", "b", "+", "#")), min_size=1, max_size=3).map(tuple)
some_rules = st.lists(st.tuples(st.booleans(), st.sampled_from(("user:a", "group:g", "user:x", "everyone")), patterns),
                      max_size=5)


def naive(known: Sequence[tuple[bool, str, tuple[str, ...]]], wanted: tuple[str, ...], client: str | None) -> bool:
    """Deny if some address of the filter is denied; allow if one allow has them all."""
    mine = [(allows, pattern) for allows, who, pattern in known if who in ("user:a", "group:g", "everyone")]
    asked_for = [address for address in ADDRESSES if matches(wanted, address)]
    for allows, pattern in mine:
        if not allows and any(matches(fill_levels(pattern, "a", client), address) for address in asked_for):
            return False
    return any(all(matches(fill_levels(pattern, "a", client), address) for address in asked_for)
               for allows, pattern in mine if allows and (client is not None or "{client_id}" not in pattern))


@given(some_rules, wants, st.sampled_from((None, "b")))
@settings(max_examples=500, deadline=None)
def test_the_naive_model_decides_the_same(known: list[tuple[bool, str, tuple[str, ...]]], wanted: tuple[str, ...],
                                          client: str | None) -> None:
    compiled = RuleSet([Rule(allows, who, frozenset((CONSUME,)), "address", "/".join(pattern))
                        for allows, who, pattern in known], RoutedTopics(Routes()))
    verdict = compiled.rights("a", ("g",), client_id=client).of_address(CONSUME, "/".join(wanted))
    assert verdict.allowed is naive(known, wanted, client), verdict.why


@given(st.lists(st.one_of(wants, wants.map(lambda levels: ("$x", *levels))), max_size=6),
       st.one_of(wants, wants.map(lambda levels: ("$x", *levels))))
@settings(max_examples=300, deadline=None)
def test_a_trie_finds_what_overlaps(known: list[tuple[str, ...]], wanted: tuple[str, ...]) -> None:
    trie: FilterTrie[tuple[str, ...]] = FilterTrie()
    for one in known:
        trie.insert(one, one)
    assert set(trie.overlapping(wanted)) == {one for one in known if overlaps(one, wanted)}


# --- rules that come and go ------------------------------------------------------------------------------------------

texts = st.builds("{} {} {}".format, st.sampled_from(("allow", "deny")),
                  st.sampled_from(("user:a", "group:g", "everyone", "user:anonymous")), st.sampled_from((
                      "publish address a/#", "publish address a/{client_id}", "publish,consume address a/x{user}",
                      "publish address {user}/b", "publish address # blue", "publish address +/b *", "* hub",
                      "publish topic a", "publish topic a*", "publish topic *", "publish topic x{user}*",
                      "consume group g", "consume group g* blue", "connect client {user}", "connect client {user}-*",
                      "connect client c*")))
changes = st.lists(st.one_of(texts, st.integers(0, 20), st.just("ask")), max_size=30)


def answers(some: RuleSet) -> list[bool]:
    found = []
    for who in ("a", "a+g", "b@c", "a@b", "a+g=blue"):
        rights = asked(some, who)
        found += [rights.of_address(PUBLISH, on).allowed for on in ("a", "a/b", "a/xa", "a/#", "z")]
        found += [rights.of_topic(PUBLISH, "a").allowed, rights.of_topic(PUBLISH, "xa1").allowed,
                  rights.of_group(CONSUME, "gg").allowed, rights.of_hub(Operation.ADMINISTER).allowed,
                  rights.of_client(Operation.CONNECT, "a-1").allowed, some.speaks_of_client_to("a", ("g",))]
    return [*found, some.speaks_of_anonymous]


@given(changes)
@settings(max_examples=150, deadline=None)
def test_changed_rules_decide_as_rules_that_were_compiled_so(steps: list[str | int]) -> None:
    """Whatever came and went, and whatever was asked (and so compiled) in between."""
    some, held = rules(), list[Rule]()
    for step in steps:
        if step == "ask":
            answers(some)
        elif isinstance(step, str):
            held.append(rule(step))
            some.add(held[-1])
        elif held:
            some.remove(held.pop(step % len(held)))
    fresh = RuleSet(held, RoutedTopics(ROUTES))
    assert answers(some) == answers(fresh) == answers(RuleSet(held, RoutedTopics(ROUTES)).prepare())
    assert len(some) == len(held)
    some.become(held[1:])
    assert answers(some) == answers(RuleSet(held[1:], RoutedTopics(ROUTES)))


def test_rules_that_read_alike_go_one_by_one() -> None:
    some, twins = rules(), [rule("allow everyone publish address a"), rule("allow everyone publish address a")]
    for one in twins:
        some.add(one)
    asked(some, "b").of_address(PUBLISH, "a")
    some.remove(twins[0])
    assert asked(some, "b").of_address(PUBLISH, "a").allowed
    some.remove(twins[1])
    assert not asked(some, "b").of_address(PUBLISH, "a").allowed and len(some) == 0


SOME = rules("allow user:ann publish address plant/line1/temp", "allow user:ann consume address plant/+/temp",
             "allow user:bob consume address #", "deny user:bob consume address payroll/#",
             "deny user:bob consume address plant/line1/#", "allow user:eve publish topic plant",
             "allow user:own consume address inbox/{user}/#")


@pytest.mark.parametrize(("who", "operation", "wanted", "allowed"), [
    ("ann", PUBLISH, "plant/#", True), ("ann", CONSUME, "plant/#", True), ("ann", PUBLISH, "plan/#", False),
    ("ann", CREATE, "plant/#", False), ("ann", PUBLISH, "plant/line2/#", False), ("ann", PUBLISH, "plant", False),
    ("bob", CONSUME, "plant/#", True), ("bob", CONSUME, "payroll/#", False), ("bob", PUBLISH, "plant/#", False),
    ("eve", PUBLISH, "plant/#", True), ("eve", PUBLISH, "payroll/#", False),
    ("own", CONSUME, "inbox/#", True), ("nobody", CONSUME, "plant/#", False), ("root+admins", ALTER, "x/#", True)])
def test_whether_there_is_any_address_below(who: str, operation: Operation, wanted: str, allowed: bool) -> None:
    name, *groups = who.split("+")
    assert SOME.rights(name, groups).of_some(operation, wanted) is allowed


@given(st.lists(st.sampled_from([
    "allow user:ann publish address plant/a", "allow user:ann publish address +/a",
    "deny user:ann publish address plant/#",
    "deny user:ann publish address plant/a", "allow user:ann publish address #"]), unique=True))
def test_who_may_do_something_below_is_told_so(texts: list[str]) -> None:
    """Never the other way round: at an address where it is allowed there is some address where it is."""
    rights = rules(*texts).rights("ann", ())
    if any(rights.of_address(PUBLISH, address).allowed for address in ("plant/a", "plant/b", "plant")):
        assert rights.of_some(PUBLISH, "plant/#")
