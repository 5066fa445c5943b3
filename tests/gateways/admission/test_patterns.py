"""Cover and overlap of patterns, against a naive model that writes down every short address."""
from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.gateways.admission import patterns
from gatehouse.gateways.admission.patterns import InvalidPattern, covers, escaped, fill_levels, fill_name, overlaps
from gatehouse.kernel.addresses.filters import matches

LEVELS = ("a", "b", "$x", "z")          # z stands in no pattern
ADDRESSES = [address for size in range(1, 7) for address in product(LEVELS, repeat=size)
             if not any(level.startswith("$") for level in address[1:])]

pattern = st.lists(st.sampled_from(("a", "b", "+", "#")), min_size=1, max_size=4).map(tuple)
any_pattern = st.one_of(pattern, pattern.map(lambda levels: ("$x", *levels[:3])))


@pytest.mark.parametrize(("allow", "wanted", "covered"), [
    ("plant/#", "plant/line1/temp", True), ("plant/#", "plant", True), ("plant/#", "plants", False),
    ("plant/+/temp", "plant/line1/temp", True), ("plant/+/temp", "plant/+/temp", True),
    ("plant/+/temp", "plant/#", False), ("plant/#", "plant/+/temp", True), ("plant/#", "#", False),
    ("#", "#", True), ("#", "+/+", True), ("+/#", "#", True), ("#", "$queue/work", False), ("#", "$queue/#", False),
    ("$queue/#", "$queue/+", True), ("#/temp", "plant/#/temp", True), ("#/temp", "plant/#", False),
    ("plant/#/temp", "plant/temp", True), ("#/+", "+/#", True), ("+/+/#", "#", False), ("a/+/#/b", "a/#/+/b", True),
    ("a//b", "a/+/b", False), ("a/+/b", "a//b", True)])
def test_an_allow_covers_all_of_what_is_wanted(allow: str, wanted: str, covered: bool) -> None:
    assert covers(tuple(allow.split("/")), tuple(wanted.split("/"))) is covered


@pytest.mark.parametrize(("deny", "wanted", "both"), [
    ("plant/secret/#", "plant/#", True), ("plant/secret/#", "plant/+/temp", True),
    ("plant/secret", "plant/+/temp", False),
    ("plant/secret/#", "#", True), ("$audit/#", "#", False), ("$audit/#", "+/x", False), ("$audit/#", "$audit", True),
    ("#", "$audit/x", False), ("#/a", "a/#", True), ("+/b", "a/+", True), ("a/#/c", "a/b", False)])
def test_a_deny_that_touches_what_is_wanted(deny: str, wanted: str, both: bool) -> None:
    assert overlaps(tuple(deny.split("/")), tuple(wanted.split("/"))) is both
    assert overlaps(tuple(wanted.split("/")), tuple(deny.split("/"))) is both


@given(any_pattern, any_pattern)
@settings(max_examples=400, deadline=None)
def test_the_naive_model_says_the_same(first: tuple[str, ...], second: tuple[str, ...]) -> None:
    of_first = {address for address in ADDRESSES if matches(first, address)}
    of_second = {address for address in ADDRESSES if matches(second, address)}
    assert covers(first, second) is (of_second <= of_first)
    assert overlaps(first, second) is bool(of_first & of_second)


@given(any_pattern, any_pattern)
def test_what_covers_matches_the_sample(first: tuple[str, ...], second: tuple[str, ...]) -> None:
    """By which the compiled table finds its candidates."""
    if covers(first, second):
        assert matches(first, patterns.sample(second))


@pytest.mark.parametrize(("text", "user", "client", "filled"), [
    ("dev/{client_id}/#", "ann", "c1", "dev/c1/#"), ("dev/{client_id}/#", "ann", None, "dev/+/#"),
    ("u-{user}/x", "ann", None, "u-ann/x"), ("{user}/#", "a/b+#*\0", None, "a%2Fb%2B%23%2A%00/#"),
    ("{client_id}/#", "ann", "$queue", "%24queue/#"), ("{user}/{client_id}", "{client_id}", "x", "{client_id}/x"),
    ("{user}/{client_id}", "u", "{user}", "u/{user}"), ("{other}", "u", "c", "{other}"),
    ("{user}", "a%2Bb", None, "a%252Bb")])
def test_placeholders(text: str, user: str, client: str | None, filled: str) -> None:
    assert "/".join(fill_levels(tuple(text.split("/")), user, client)) == filled


def test_placeholders_in_names() -> None:
    assert fill_name("{user}.*", "ann", None) == "ann.*"
    assert fill_name("of-{client_id}-x", "ann", None) == "of-*"
    assert fill_name("of-{client_id}-x", "ann", "*") == "of-%2A-x"
    assert fill_name("plain", "ann", None) == "plain"


@given(st.text(max_size=20))
def test_no_name_gets_out_of_its_level(value: str) -> None:
    assert not set(escaped(value)) & set("/+#*\0") and not escaped(value).startswith("$")


@pytest.mark.parametrize("text", ["", "a/b+", "a#/b", "x\0", "/".join(["x"] * 600)])
def test_what_is_no_address_pattern(text: str) -> None:
    with pytest.raises(InvalidPattern):
        patterns.parse_address_pattern(text)


@pytest.mark.parametrize("text", ["", "a*b", "**", "x" * 256, "\0"])
def test_what_is_no_name_pattern(text: str) -> None:
    with pytest.raises(InvalidPattern):
        patterns.check_name_pattern(text)
