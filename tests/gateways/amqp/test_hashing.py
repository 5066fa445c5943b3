"""The consistent-hash exchange: shares, what stays where it was, and what is hashed."""
from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gatehouse.gateways.amqp.errors import ChannelFault
from gatehouse.gateways.amqp.exchanges import QUEUE, Destination, Exchange, binding_of
from gatehouse.gateways.amqp.tables import Table, typed

KEYS = [f"key-{number}" for number in range(20_000)]


def exchange(arguments: dict[str, Any] | None = None, **weights: str) -> Exchange:
    made = Exchange("hash", "x-consistent-hash", durable=True, auto_delete=False, internal=False,
                    arguments={name: typed(value) for name, value in (arguments or {}).items()})
    for queue, weight in weights.items():
        made.bind(binding_of("hash", Destination(QUEUE, queue), weight, Table()), Table())
    return made


def where(of: Exchange, key: str, headers: dict[str, Any] | None = None, **properties: Any) -> str:
    table = {name: typed(value) for name, value in (headers or {}).items()}
    (place,) = of.router.route(key, table, properties)
    return place.name


def test_bindings_get_their_shares():
    shares = Counter(where(exchange(a="1", b="1", c="2"), key) for key in KEYS[:4_000])
    assert {name: round(count / 1_000) for name, count in shares.items()} == {"a": 1, "b": 1, "c": 2}


def test_a_binding_that_comes_or_goes_moves_its_own_keys_alone():
    few, more = exchange(a="1", b="1"), exchange(a="1", b="1", c="1")
    moved = [key for key in KEYS[:3_000] if where(few, key) != where(more, key)]
    assert {where(more, key) for key in moved} == {"c"}
    assert 800 < len(moved) < 1_200
    more.unbind(binding_of("hash", Destination(QUEUE, "c"), "1", Table()))
    assert all(where(few, key) == where(more, key) for key in KEYS[:3_000])


def test_the_same_key_goes_to_the_same_queue_whoever_computes_it():
    for key in KEYS[:50]:
        assert len({where(exchange(a="3", b="10", c="7"), key) for _ in range(3)}) == 1


@pytest.mark.parametrize(("arguments", "said"), [
    ({"hash-header": "device"}, lambda number: {"headers": {"device": number}}),
    ({"hash-property": "message_id"}, lambda number: {"message_id": str(number)}),
    ({"hash-property": "timestamp"}, lambda number: {"timestamp": number})])
def test_what_is_hashed_instead_of_the_key(arguments, said):
    of = exchange(arguments, a="1", b="1")
    assert of.router.looks_inside
    for number in range(30):
        assert len({where(of, key, **said(number)) for key in KEYS[:5]}) == 1
    assert len({where(of, "key", **said(number)) for number in range(30)}) == 2
    assert len({where(of, key) for key in KEYS[:30]}) == 1                  # nothing of it is there


def test_nothing_is_bound():
    assert list(exchange().router.route("key", Table(), {})) == []


@pytest.mark.parametrize(("arguments", "why"), [
    ({"hash-header": "a", "hash-property": "message_id"}, "hash-header and hash-property are mutually exclusive"),
    ({"hash-property": "foo"}, "Unsupported property: foo"), ({"hash-header": 5}, "hash-header")])
def test_arguments_that_cannot_be(arguments, why):
    with pytest.raises(ChannelFault, match=why):
        exchange(arguments)


@pytest.mark.parametrize(("weight", "why"), [
    ("abc", 'The binding key must be an integer: <<"abc">>'), ("0", "The binding key must be greater than 0"),
    ("-4", "The binding key must be greater than 0"), ("", "The binding key must be an integer")])
def test_weights_that_are_none(weight, why):
    with pytest.raises(ChannelFault) as refused:
        exchange(a=weight)
    assert why in str(refused.value)
