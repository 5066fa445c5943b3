"""Exchanges route as RabbitMQ's do; topic patterns are compared with a plain recursion."""
from __future__ import annotations

import random
from typing import Any

import pytest

from gatehouse.gateways.amqp.errors import ChannelFault
from gatehouse.gateways.amqp.exchanges import QUEUE, Destination, Exchange, binding_of
from gatehouse.gateways.amqp.tables import Table, typed


def exchange(kind: str, *bindings: tuple[str, str, dict[str, Any]]) -> Exchange:
    """Bindings: (queue, key, arguments)."""
    made = Exchange("x", kind, durable=True, auto_delete=False, internal=False, arguments={})
    for queue, key, arguments in bindings:
        assert made.bind(*bound(queue, key, arguments))
    return made


def table(values: dict[str, Any]) -> Table:
    return {name: typed(value) for name, value in values.items()}


def bound(queue: str, key: str, arguments: dict[str, Any] | None = None) -> tuple[Any, Table]:
    typed_arguments = table(arguments or {})
    return binding_of("x", Destination(QUEUE, queue), key, typed_arguments), typed_arguments


def route(of: Exchange, key: str, headers: dict[str, Any] | None = None) -> set[str]:
    return {place.name for place in of.router.route(key, table(headers or {}), {})}


def matches(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return matches(pattern[1:], words) or bool(words) and matches(pattern, words[1:])
    return bool(words) and pattern[0] in ("*", words[0]) and matches(pattern[1:], words[1:])


def split(key: str) -> list[str]:
    return key.split(".") if key else []


@pytest.mark.parametrize("seed", range(100))
def test_topic_patterns(seed: int) -> None:
    chance = random.Random(seed)
    words = ["a", "b", "", "$x", "+"]
    patterns = {".".join(chance.choices([*words, "*", "#"], k=chance.randint(0, 4))) for _ in range(8)}
    topic = exchange("topic", *[(pattern, pattern, {}) for pattern in patterns])
    for _ in range(40):
        key = ".".join(chance.choices(words, k=chance.randint(0, 4)))
        assert route(topic, key) == {one for one in patterns if matches(split(one), split(key))}, key
    for pattern in patterns:
        assert topic.unbind(bound(pattern, pattern)[0])
    assert route(topic, "a") == set()


def test_direct_and_fanout() -> None:
    direct = exchange("direct", ("q", "a", {}), ("r", "a", {}), ("q", "b", {}))
    assert [route(direct, key) for key in ("a", "b", "c")] == [{"q", "r"}, {"q"}, set()]
    assert direct.unbind(bound("q", "a")[0])
    assert not direct.unbind(bound("q", "a")[0])
    assert route(direct, "a") == {"r"}
    assert route(exchange("fanout", ("q", "a", {}), ("r", "b", {})), "c") == {"q", "r"}


@pytest.mark.parametrize(("arguments", "headers", "expected"), [
    ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 2}, True),
    ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1}, False),
    ({"a": 1}, {"a": 1}, True),                                 # all is the default
    ({"x-match": "any", "a": 1, "b": "x"}, {"b": "x"}, True),
    ({"x-match": "any", "a": 1}, {"a": 2}, False),
    ({"a": None}, {"a": "anything"}, True),                     # a void asks that the header is there
    ({"a": 1}, {"a": "1"}, False),                              # another type
    ({"x-match": "all"}, {}, True),
    ({"x-match": "any"}, {"a": 1}, False),
    ({"x-match": "all", "x-kind": "a"}, {}, True),              # x- counts only where it says so
    ({"x-match": "all-with-x", "x-kind": "a"}, {}, False),
    ({"x-match": "any-with-x", "x-kind": "a"}, {"x-kind": "a"}, True),
])
def test_headers(arguments: dict[str, Any], headers: dict[str, Any], expected: bool) -> None:
    assert bool(route(exchange("headers", ("q", "", arguments)), "", headers)) is expected


@pytest.mark.parametrize("arguments", [{"x-match": "most"}, {"x-match": 5}])
def test_a_match_that_is_none(arguments: dict[str, Any]) -> None:
    with pytest.raises(ChannelFault, match="PRECONDITION_FAILED - Invalid x-match"):
        exchange("headers", ("q", "", arguments))
