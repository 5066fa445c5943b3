"""Addresses, topic names and the default rule, by example."""
from __future__ import annotations

import pytest

from gatehouse.kernel.addresses.address import (
    KEY_ESCAPES,
    LEVEL_ESCAPES,
    MAX_ADDRESS_BYTES,
    MAX_LEVELS,
    check_address,
    escape,
    is_address,
    is_topic_name,
    join_address,
    levels_of,
    split_address,
    unescape,
)
from gatehouse.kernel.errors import InvalidAddress, Unroutable


@pytest.mark.parametrize("address", [
    "plant/line1/temp", "a", "/", "//", "a//b", "/a", "a/", " ", "ü/日本", "a.b/c", "%", "a/%2F", "*", "$SYS/x",
    "x" * MAX_ADDRESS_BYTES, "/" * (MAX_LEVELS - 1),
])
def test_these_are_addresses(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize("address", [
    "", "a\0", "a/+", "a/#", "a+b", "\ud800", "x" * (MAX_ADDRESS_BYTES + 1), "ü" * 32768, "/" * MAX_LEVELS,
])
def test_these_are_not(address: str) -> None:
    with pytest.raises(InvalidAddress):
        check_address(address)
    assert not is_address(address)


@pytest.mark.parametrize("name", ["a", "Plant-1_x.y", "...", "_a", "a__", ".a", "x" * 249, "unrouted"])
def test_legal_topic_names(name: str) -> None:
    assert is_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "__a", "__", "a b", "a/b", "ü", "$a", "x" * 250, "a\n", ".\n", "٣"])
def test_illegal_topic_names(name: str) -> None:
    assert not is_topic_name(name)


@pytest.mark.parametrize(("address", "topic", "key"), [
    ("plant/line1/temp", "plant", b"line1/temp"),
    ("plant", "plant", None),
    ("plant/", "plant", b""),
    ("plant//x", "plant", b"/x"),
    ("plant/ü", "plant", "ü".encode()),
    ("plant/a%2Bb", "plant", b"a+b"),
    ("plant/%23", "plant", b"#"),
    ("plant/%00", "plant", b"\0"),
    ("plant/%252B", "plant", b"%2B"),
    ("plant/%2b", "plant", b"%2b"),
    ("plant/%41", "plant", b"%41"),
    ("plant/a%2Fb", "plant", b"a%2Fb"),
])
def test_default_rule(address: str, topic: str, key: bytes | None) -> None:
    assert split_address(address) == (topic, key)


@pytest.mark.parametrize("address", ["machine 3/temp", "/plant", "__x/y", "../y", "x" * 250, "unrouted", "unrouted/a"])
def test_a_first_level_that_can_be_no_topic(address: str) -> None:
    with pytest.raises(Unroutable):
        split_address(address)


@pytest.mark.parametrize("address", ["$SYS/x", "$", "$queue/a", "$delayed/1/a"])
def test_hub_addresses_are_not_created_by_use(address: str) -> None:
    with pytest.raises(InvalidAddress):
        split_address(address)


@pytest.mark.parametrize(("topic", "key", "address"), [
    ("plant", b"line1/temp", "plant/line1/temp"),
    ("plant", None, "plant"),
    ("plant", b"", "plant"),
    ("plant", b"\xff", "plant"),
    ("plant", b"\xed\xa0\x80", "plant"),                      # a surrogate is not UTF-8
    ("plant", b"a+b#c\0", "plant/a%2Bb%23c%00"),
    ("plant", b"%2B", "plant/%252B"),
    ("plant", b"x" * MAX_ADDRESS_BYTES, "plant"),             # too long to be an address
    ("plant", b"/" * MAX_LEVELS, "plant"),
    ("unrouted", b"machine 3/temp", "machine 3/temp"),
    ("unrouted", None, "unrouted"),
    ("unrouted", b"plant/x", "plant/x"),                      # its topic was gone when it fell due
    ("unrouted", b"$SYS/x", "unrouted/$SYS/x"),
])
def test_way_back(topic: str, key: bytes | None, address: str) -> None:
    assert join_address(topic, key) == address


def test_an_empty_level_is_a_level() -> None:
    assert levels_of("/a//") == ("", "a", "", "")


@pytest.mark.parametrize(("raw", "escaped"), [
    ("a/b", "a%2Fb"), ("%2F", "%252F"), ("%252F", "%25252F"), ("%2f", "%2f"), ("100%", "100%"), ("%25", "%25"),
    ("%25/", "%25%2F"), ("%%2B", "%%252B"), ("+", "%2B"),
])
def test_escapes_of_a_level(raw: str, escaped: str) -> None:
    assert escape(raw, LEVEL_ESCAPES) == escaped
    assert unescape(escaped, LEVEL_ESCAPES) == raw


def test_a_slash_in_a_key_separates_levels() -> None:
    assert escape("a/%2F", KEY_ESCAPES) == "a/%2F"
