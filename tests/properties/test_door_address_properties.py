"""Every address goes to every door and back; the number of levels never changes."""
from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from gatehouse.gateways.amqp.addresses import (
    MAX_SHORTSTR_BYTES,
    TOPIC_EXCHANGE,
    address_of_amqp,
    amqp_by_exchange,
    amqp_whole,
    filter_of_binding,
    level_of_word,
    routing_key_of,
    word_of_level,
)
from gatehouse.gateways.http.addresses import address_of_http, http_path
from gatehouse.gateways.mqtt.column import address_of_mqtt
from gatehouse.kernel.addresses.address import check_address, levels_of
from gatehouse.kernel.addresses.filters import MANY, ONE, matches
from gatehouse.kernel.errors import InvalidAddress
from tests.properties.strategies import any_addresses, level_texts, raw_texts

long_addresses = st.tuples(any_addresses, st.sampled_from(["ü", "x", ".", "%2E", "/"]), st.integers(80, 260)).map(
    lambda drawn: drawn[0] + drawn[1] * drawn[2])


@given(any_addresses)
def test_mqtt(address: str) -> None:
    assert address_of_mqtt(address) == address


@given(any_addresses)
def test_http(address: str) -> None:
    path = http_path(address)
    assert path.isascii() and path.count("/") == address.count("/")
    assert address_of_http(path) == address


@given(raw_texts.filter(bool))
@example("%a25")
def test_any_http_path_has_the_levels_it_shows(path: str) -> None:
    try:
        address = address_of_http(path)
    except InvalidAddress:                       # percent-encoded bytes that are not UTF-8
        assert "%" in path
        return
    check_address(address)
    assert address.count("/") == path.count("/")


@given(level_texts)
@example("%25%2E.")
def test_level_to_word_and_back(level: str) -> None:
    word = word_of_level(level)
    assert "." not in word
    assert level_of_word(word) == level


@given(raw_texts)
def test_any_word_is_one_level_and_stays_it(text: str) -> None:
    level = level_of_word(text.replace(".", ""))
    assert not set(level) & set("/+#\0")
    assert level_of_word(word_of_level(level)) == level


@given(st.one_of(any_addresses, long_addresses))
def test_amqp(address: str) -> None:
    for name in (amqp_whole(address), amqp_by_exchange(address)):
        if name is not None:
            assert len(name.routing_key.encode()) <= MAX_SHORTSTR_BYTES >= len(name.exchange.encode())
            assert address_of_amqp(*name) == address


@given(any_addresses)
def test_amqp_keeps_the_number_of_levels(address: str) -> None:
    assert routing_key_of(address).count(".") == address.count("/")
    assert amqp_whole(address).x_address is None or len(routing_key_of(address).encode()) > MAX_SHORTSTR_BYTES


@given(any_addresses)
def test_short_addresses_need_x_address_only_for_one_empty_level(address: str) -> None:
    name = amqp_by_exchange(address)
    if name is not None and len(address) < 30:
        assert (name.x_address is None) or address.endswith("/") and address.count("/") == 1


@given(raw_texts, raw_texts)
def test_everything_published_over_amqp_has_an_address(exchange: str, routing_key: str) -> None:
    address = address_of_amqp(exchange, routing_key)
    check_address(address)
    assert address_of_amqp(*amqp_whole(address)) == address


@given(any_addresses, st.data())
def test_bindings_match_what_filters_match(address: str, data: st.DataObject) -> None:
    """A binding of an address's words, some replaced by wildcards, is the filter with the same levels replaced."""
    levels = list(levels_of(address))
    words = routing_key_of(address).split(".")
    for index in range(len(levels)):
        wildcard = data.draw(st.sampled_from(["", "*", "#"]))
        if wildcard or words[index] in ("*", "#"):
            levels[index], words[index] = (MANY, "#") if wildcard == "#" or words[index] == "#" else (ONE, "*")
    pattern = ".".join(words)
    if pattern:
        assert filter_of_binding(TOPIC_EXCHANGE, pattern) == tuple(levels)
        assert matches(tuple(levels), levels_of(address)) or address.startswith("$")
