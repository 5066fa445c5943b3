"""Every address goes to a topic and a key and back, or is known not to."""
from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from gatehouse.kernel.addresses.address import (
    KEY_ESCAPES,
    LEVEL_ESCAPES,
    check_address,
    escape,
    is_topic_name,
    join_address,
    split_address,
    unescape,
)
from gatehouse.kernel.errors import Unroutable
from tests.properties.strategies import addresses, any_addresses, raw_texts, topic_names


@given(raw_texts, st.sampled_from([KEY_ESCAPES, LEVEL_ESCAPES]))
@example("%25%2B", KEY_ESCAPES)
def test_escape_is_undone_by_unescape(text: str, characters: str) -> None:
    escaped = escape(text, characters)
    assert not set(escaped) & set(characters)
    assert unescape(escaped, characters) == text


@given(any_addresses, st.sampled_from([KEY_ESCAPES, LEVEL_ESCAPES]))
def test_unescape_is_undone_by_escape(address: str, characters: str) -> None:
    for level in address.split("/"):
        assert escape(unescape(level, characters), characters) == level


@given(addresses)
def test_topic_is_legal_and_the_way_back_leads_home(address: str) -> None:
    try:
        topic, key = split_address(address)
    except Unroutable:
        assert not is_topic_name(address.partition("/")[0]) or address.startswith("unrouted")
        return
    assert is_topic_name(topic)
    back = join_address(topic, key)
    assert back == address or (key == b"" and back == address.removesuffix("/"))


@given(topic_names, st.one_of(st.none(), st.binary(max_size=12), raw_texts.map(str.encode)))
def test_every_record_has_an_address(topic: str, key: bytes | None) -> None:
    address = join_address(topic, key)
    check_address(address)
    if key and topic != "unrouted" and address != topic:
        assert split_address(address) == (topic, key)
