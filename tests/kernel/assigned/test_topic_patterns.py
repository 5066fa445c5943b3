"""Regular expressions of topics: the same language as Python's, in bounded time, and what is refused."""
from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.assigned import topic_patterns
from gatehouse.kernel.assigned.topic_patterns import MAX_LENGTH, MAX_PROGRAM, TopicPattern
from gatehouse.kernel.errors import InvalidPattern

NAMES = ["a", "b", "ab", "abc", "aab", "A", "plant", "plant.line1", "plant-7", "x_1", "7", "orders.eu.2026", ".", "-"]

ATOMS = st.sampled_from(["a", "b", "ab", ".", r"\.", r"\d", r"\w", r"\W", "[ab]", "[^a]", "[a-c1]", r"[\d-]", "^", "$",
                         "(?:)", r"\-"])


def _extended(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = inner.map(lambda text: f"(?:{text})")
    return st.one_of(
        st.tuples(inner, inner).map("".join), st.tuples(inner, inner).map("|".join),
        st.tuples(group, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,}", "*?", "+?"])).map("".join),
        inner.map(lambda text: f"({text})"))


EXPRESSIONS = st.recursive(ATOMS, _extended, max_leaves=8)


@given(EXPRESSIONS, st.lists(st.text("ab1.-A", max_size=6), max_size=5))
def test_the_language_is_pythons(expression: str, names: list[str]) -> None:
    expected = {name for name in NAMES + names if re.fullmatch(expression, name)}
    assert TopicPattern(expression).matching(NAMES + names) == expected


@pytest.mark.parametrize(("expression", "matched"), [
    ("^plant.*", {"plant", "plant.line1", "plant-7"}), (r"\Qplant.line1\E", {"plant.line1"}), (r"\Q-", {"-"}),
    ("(?i)a", {"a", "A"}), ("(?i)[b-c]B?", {"b"}), ("(?P<kind>plant|orders).*", {"plant", "plant.line1", "plant-7",
                                                                                 "orders.eu.2026"}),
    ("(?<kind>x)_1", {"x_1"}), ("", set()), ("[]a]", {"a"}), ("[a-]", {"a", "-"}), ("é|7", {"7"}), ("a{1}b", {"ab"}),
])
def test_what_only_some_spell_so(expression: str, matched: set[str]) -> None:
    assert TopicPattern(expression).matching(NAMES) == matched


@pytest.mark.parametrize("expression", [
    "(", ")", "a)", "[a", "[", "*", "a**", "a+?*", "a++", "{2}", "a{", "a{2", "a{x}", "a{3,2}", "a{99999}",
    "a{1001}",
    "\\", r"\1", r"\b", r"\p{L}", "(?=a)", "(?!a)", "(?<=a)", "(?i:a)", "a(?i)", "(?P<>a)", "(?", "[[:alpha:]]",
    "[b-a]",
    r"[a-\d]", r"[\1]", "(" * 51 + ")" * 51, "a" * (MAX_LENGTH + 1), f"(?:a{{{MAX_PROGRAM}}}){{2}}",
    "((((){1000}){1000}){1000}){1000}",
])
def test_what_is_refused(expression: str) -> None:
    with pytest.raises(InvalidPattern):
        TopicPattern(expression)


def test_an_expression_that_others_are_slow_on_is_not() -> None:
    names = ["a" * 200 + "-"] * 100
    assert TopicPattern("(?:(?:a*)*)*b").matching(names) == set()


def test_work_is_bounded_and_so_is_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_patterns, "MAX_STATES", 10)
    names = [bin(number)[2:].replace("0", "a").replace("1", "b") for number in range(1 << 10)]
    pattern = TopicPattern("[ab]*a[ab]{8}")
    assert pattern.matching(names) == {name for name in names if re.fullmatch("[ab]*a[ab]{8}", name)}
    assert len(pattern._states) <= 10 >= len(pattern._accepting)
    monkeypatch.setattr(topic_patterns, "ALLOWANCE", 10_000)
    with pytest.raises(InvalidPattern, match="too much work"):
        pattern.matching(names)
