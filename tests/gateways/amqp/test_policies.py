"""Policies: which one counts for a name, and what it makes of a queue's own arguments; patterns that are bounded."""
from __future__ import annotations

import time
from typing import Any

import pytest

from gatehouse.gateways.amqp.arguments import QueueArguments, read_queue_arguments
from gatehouse.gateways.amqp.exchanges import Exchange
from gatehouse.gateways.amqp.policies import (
    InvalidPolicy,
    NoPattern,
    Policies,
    apply_to_queue,
    compile_pattern,
    effective,
    merged,
    read_policy,
)
from gatehouse.gateways.amqp.tables import Table, typed
from gatehouse.gateways.amqp.vhost import AmqpQueue, VirtualHost


def policies(*given: tuple[str, str, int, dict[str, Any], str]) -> Policies:
    found = Policies()
    for name, pattern, priority, definition, apply_to in given:
        found.put(name, read_policy(name, {"pattern": pattern, "priority": priority, "definition": definition,
                                           "apply-to": apply_to}))
    return found


def queue(name: str, **arguments: Any) -> AmqpQueue:
    table: Table = {f"x-{key.replace('_', '-')}": typed(value) for key, value in arguments.items()}
    return AmqpQueue(VirtualHost("/", lambda vhost, name: None), name, durable=True, auto_delete=False, owner=None,
                     arguments=table)


def test_the_highest_priority_counts_then_the_first_by_name():
    found = policies(("b", "^work", 1, {"max-length": 1}, "all"), ("a", "^work", 1, {"max-length": 2}, "queues"),
                     ("low", ".*", 0, {"max-length": 3}, "all"), ("x", ".*", 9, {"max-length": 4}, "exchanges"),
                     ("quorum", "^quo", 5, {"max-length": 5}, "quorum_queues"))
    for name, arguments, policy, length in (("work", {}, "a", 2), ("other", {}, "low", 3), ("quo", {}, "low", 3),
                                            ("quo", {"queue_type": "quorum"}, "quorum", 5)):
        one = queue(name, **arguments)
        assert apply_to_queue(one, found, Policies())
        assert (one.policy.name, one.settings.max_length) == (policy, length)
        assert not apply_to_queue(one, found, Policies())
    found.put("a", None)
    one = queue("work")
    apply_to_queue(one, found, Policies())
    assert one.policy.name == "b"


@pytest.mark.parametrize("said", ["", "undefined"])
def test_a_type_that_stands_for_none_is_classic(said: str) -> None:
    of_classic = policies(("p", ".*", 0, {"max-length": 3}, "classic_queues"))
    assert apply_to_queue(queue("q", queue_type=said), of_classic, Policies())


@pytest.mark.parametrize(("arguments", "said", "changed"), [
    ({}, {"message-ttl": 5, "expires": 6, "max-length-bytes": 7},
     {"message_ttl_ms": 5, "expires_ms": 6, "max_bytes": 7}),
    ({"message_ttl": 4}, {"message-ttl": 5}, {"message_ttl_ms": 4}),
    ({"message_ttl": 6}, {"message-ttl": 5}, {"message_ttl_ms": 5}),
    ({"max_length": 0}, {"max-length": 5}, {"max_length": 0}),
    ({}, {"overflow": "reject-publish"}, {"overflow": "reject-publish"}),
    ({"overflow": "drop-head"}, {"overflow": "reject-publish"}, {"overflow": "drop-head"}),
    ({}, {"dead-letter-exchange": "d", "dead-letter-routing-key": "k"},
     {"dead_letter_exchange": "d", "dead_letter_key": "k"}),
    ({"dead_letter_exchange": "own"}, {"dead-letter-exchange": "d", "dead-letter-routing-key": "k"},
     {"dead_letter_exchange": "own", "dead_letter_key": "k"}),
    ({}, {"dead-letter-routing-key": "k"}, {"dead_letter_key": None}),
    ({"queue_type": "quorum"}, {"delivery-limit": 50}, {"delivery_limit": 50}),
    ({"queue_type": "quorum"}, {"delivery-limit": -1}, {"delivery_limit": None}),
    ({"delivery_limit": 3}, {"delivery-limit": 50}, {"delivery_limit": 3}),
    ({"delivery_limit": 3}, {"delivery-limit": -1}, {"delivery_limit": 3}),
    ({}, {"ha-mode": "all"}, {}),
    ({"queue_type": "stream"}, {"max-age": "7D", "max-length-bytes": 5, "message-ttl": 6},
     {"max_age_ms": 604_800_000, "max_bytes": 5}),
    ({"queue_type": "stream", "max_age": "1h", "max_length_bytes": 3}, {"max-age": "7D", "max-length-bytes": 5},
     {"max_age_ms": 3_600_000, "max_bytes": 3}),
])
def test_arguments_and_policy_together(arguments: dict[str, Any], said: dict[str, Any], changed: dict[str, Any]):
    table: Table = {f"x-{key.replace('_', '-')}": typed(value) for key, value in arguments.items()}
    declared = read_queue_arguments(table)
    result = merged(declared, table, read_policy("p", {"pattern": "", "definition": said}).definition)
    given = {field: getattr(result, field) for field in changed}
    assert given == changed
    assert merged(declared, table, {}) == declared
    assert {field for field in QueueArguments.__slots__ if getattr(result, field) != getattr(declared, field)} \
        <= changed.keys()


def test_an_exchange_gets_an_alternate_unless_it_has_one():
    found = policies(("p", "^e", 0, {"alternate-exchange": "aside"}, "all"))
    for arguments, alternate in ((Table(), "aside"), ({"alternate-exchange": typed("own")}, "own")):
        exchange = Exchange("e1", "fanout", durable=True, auto_delete=False, internal=False, arguments=arguments)
        found.apply_to_exchange(exchange)
        assert exchange.alternate == alternate
        found.put("p", read_policy("p", {"pattern": "^x", "definition": {"alternate-exchange": "aside"}}))
        found.apply_to_exchange(exchange)
        assert exchange.alternate == (None if alternate == "aside" else "own")
        found = policies(("p", "^e", 0, {"alternate-exchange": "aside"}, "all"))


@pytest.mark.parametrize(("document", "why"), [
    ({"definition": {"max-length": 1}}, "pattern should be binary"),
    ({"pattern": "(", "definition": {"max-length": 1}}, "pattern should be regular expression but is invalid"),
    ({"pattern": "a", "definition": {}}, "no policy provided"),
    ({"pattern": "a", "definition": {"nope": 5}}, "[{nope,5}] are not recognised policy settings"),
    ({"pattern": "a", "definition": {"max-length": "x"}}, "'x' is not a valid maximum length"),
    ({"pattern": "a", "definition": {"max-length": -1}}, "-1 is not a valid maximum length"),
    ({"pattern": "a", "definition": {"expires": 0}}, "0 is not a valid queue expiry"),
    ({"pattern": "a", "definition": {"overflow": "x"}}, "not a valid overflow value"),
    ({"pattern": "a", "definition": {"max-length": 1}, "apply-to": "cats"}, "apply-to should be one of"),
    ({"pattern": "a", "definition": {"max-length": 1}, "priority": "1"}, "priority should be a number"),
])
def test_what_is_no_policy(document: dict[str, Any], why: str):
    with pytest.raises(InvalidPolicy) as refused:
        read_policy("p", document)
    assert why in str(refused.value)


@pytest.mark.parametrize("text", ["(a+)+$", "(a*)*", r"(a)\1", "(a{1,99}b*)*c", ".*.*.*.*x", "a" * 2_000, "[",
                                  "(" * 500])
def test_patterns_that_could_take_for_ever_are_none(text: str):
    with pytest.raises(NoPattern):
        compile_pattern(text)


@pytest.mark.parametrize("text", ["", ".*", "^amq\\.", "^(work|play)\\.[a-z]+$", "^a.*b.*c.*$", "(?i)x{1,3}",
                                  "^(?!amq\\.).*"])
def test_patterns_that_people_write_are_matched_soon(text: str):
    began_s = time.process_time()
    compile_pattern(text).search("ab" * 127)
    assert time.process_time() - began_s < 1


# ---- operators

@pytest.mark.parametrize(("said", "by_operators", "both"), [
    ({"max-length": 10}, {"max-length": 5}, {"max-length": 5}),
    ({"max-length": 3}, {"max-length": 5}, {"max-length": 3}),
    ({}, {"expires": 5}, {"expires": 5}),
    ({"delivery-limit": -1}, {"delivery-limit": 7}, {"delivery-limit": 7}),
    ({"delivery-limit": 9}, {"delivery-limit": -1}, {"delivery-limit": 9}),
    ({"overflow": "reject-publish"}, {"message-ttl": 5}, {"overflow": "reject-publish", "message-ttl": 5}),
])
def test_a_policy_and_that_of_operators_together(said: dict[str, Any], by_operators: dict[str, Any],
                                                 both: dict[str, Any]):
    one = queue("work")
    apply_to_queue(one, policies(("p", "", 0, said, "all")) if said else Policies(),
                   policies(("o", "", 0, by_operators, "queues")))
    assert one.operator_policy.name == "o" and effective(one.policy, one.operator_policy) == both


@pytest.mark.parametrize("definition", [{"overflow": "drop-head"}, {"dead-letter-exchange": "x"}, {"max-age": "1D"}])
def test_operators_set_limits_alone(definition: dict[str, Any]):
    with pytest.raises(InvalidPolicy, match="not recognised policy settings"):
        read_policy("o", {"pattern": "", "definition": definition}, of_operators=True)


def test_an_age_that_is_none_is_refused():
    with pytest.raises(InvalidPolicy, match="max-age"):
        read_policy("p", {"pattern": "", "definition": {"max-age": "7 days"}})
