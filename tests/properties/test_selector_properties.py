"""Conditions against a naive evaluator of SQL-92's definitions; LIKE against the standard's recursion; garbage."""
from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from gatehouse.kernel.errors import InvalidSelector
from gatehouse.kernel.selectors.like import parse_like
from gatehouse.kernel.selectors.selector import parse_selector

Tree = tuple[Any, ...]

NAMES = ("a", "b", "c", "d")
some_texts = st.sampled_from(["", "x", "xy", "it's", "true", "%", "ö_"])
some_values = st.none() | st.sampled_from([b"0", b"1", b"-2", b"2.5", b"true", b"false", b"x", b"xy", b"", b"it's"])
some_headers = st.dictionaries(st.sampled_from(NAMES), some_values)
names = st.sampled_from(NAMES).map(lambda name: ("name", name))
number_literals = st.sampled_from(["0", "1", "2", "2.5", "4e0"]).map(lambda text: ("number", text))
text_literals = some_texts.map(lambda text: ("text", text))
truth_literals = st.booleans().map(lambda value: ("truth", value))
numbers = st.recursive(names | number_literals, lambda deeper: st.one_of(
    st.tuples(st.just("negated"), deeper), st.tuples(st.sampled_from("+-*/"), deeper, deeper)), max_leaves=4)
tests = st.one_of(
    names, truth_literals,
    st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), numbers, numbers),
    st.tuples(st.sampled_from(["=", "<>"]), names, text_literals | truth_literals),
    st.tuples(st.just("between"), numbers, numbers, numbers),
    st.tuples(st.just("in"), names, st.lists(text_literals, min_size=1, max_size=3)
              | st.lists(number_literals, min_size=1, max_size=3)),
    st.tuples(st.just("like"), names, some_texts),
    st.tuples(st.just("null"), names))
conditions = st.recursive(tests, lambda deeper: st.one_of(
    st.tuples(st.just("not"), deeper), st.tuples(st.sampled_from(["and", "or"]), deeper, deeper)), max_leaves=6)


def written(tree: Tree) -> str:
    """A tree in SQL's words, every part in brackets of its own."""
    match tree:
        case ("name" | "number", text):
            return str(text)
        case ("text", text):
            return "'" + text.replace("'", "''") + "'"
        case ("truth", value):
            return "TRUE" if value else "False"
        case ("negated", operand):
            return f"(- {written(operand)})"
        case ("between", operand, low, high):
            return f"({written(operand)} between {written(low)} AND {written(high)})"
        case ("in", operand, items):
            return f"({written(operand)} IN ({', '.join(written(item) for item in items)}))"
        case ("like", operand, pattern):
            return f"({written(operand)} LIKE {written(('text', pattern))})"
        case ("null", operand):
            return f"({written(operand)} Is Null)"
        case ("not", operand):
            return f"(Not {written(operand)})"
        case (operator, left, right):
            return f"({written(left)} {operator} {written(right)})"
    raise AssertionError(tree)


def number(tree: Tree, headers: dict[str, bytes | None]) -> Fraction | None:
    """The exact value of a sum; None for NULL."""
    match tree:
        case ("name", name):
            try:
                return Fraction((headers.get(name) or b"x").decode())
            except ValueError:
                return None
        case ("number", text):
            return Fraction(text)
        case ("negated", operand):
            value = number(operand, headers)
            return None if value is None else -value
    left, right = number(tree[1], headers), number(tree[2], headers)
    if left is None or right is None or (tree[0] == "/" and right == 0):
        return None
    return {"+": left + right, "-": left - right, "*": left * right}[tree[0]] if tree[0] != "/" else left / right


def truth(tree: Tree, headers: dict[str, bytes | None]) -> bool | None:
    """The definition, with no thought of cost."""
    match tree:
        case ("truth", value):
            return bool(value)
        case ("name", name):
            return {b"true": True, b"false": False}.get(headers.get(name) or b"")
        case ("not", operand):
            return {True: False, False: True, None: None}[truth(operand, headers)]
        case ("and" | "or" as word, left, right):
            found = {truth(left, headers), truth(right, headers)}
            decides = word == "or"
            return decides if decides in found else None if None in found else not decides
        case ("null", ("name", name)):
            return headers.get(name) is None
        case ("like", ("name", name), pattern):
            value = headers.get(name)
            return None if value is None else fits(pattern, value.decode())
        case ("between", operand, low, high):
            return truth(("and", ("<=", low, operand), ("<=", operand, high)), headers)
        case ("in", operand, items):
            found = {truth(("=", operand, item), headers) for item in items}
            return True if True in found else None if None in found else False
    return compared(tree, headers)


def compared(tree: Tree, headers: dict[str, bytes | None]) -> bool | None:
    operator, left, right = tree
    first: Any
    second: Any
    if right[0] == "text":
        first, second = headers.get(left[1]), right[1].encode()
    elif right[0] == "truth":
        first, second = truth(left, headers), right[1]
    else:
        first, second = number(left, headers), number(right, headers)
        if (first is None or second is None) and left[0] == right[0] == "name" and operator in ("=", "<>"):
            first, second = headers.get(left[1]), headers.get(right[1])
    if first is None or second is None:
        return None
    return {"=": first == second, "<>": first != second, "<": first < second, "<=": first <= second,
            ">": first > second, ">=": first >= second}[operator] if not isinstance(first, bytes) else (
        (first == second) == (operator == "="))


def fits(pattern: str, text: str) -> bool:
    """SQL-92, 8.5: the definition of LIKE without ESCAPE, by recursion."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(fits(pattern[1:], text[at:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and fits(pattern[1:], text[1:])


def exact(tree: Tree, headers: dict[str, bytes | None]) -> bool:
    """Whether no division rounds, so that floats and fractions agree."""
    if tree[0] == "/":
        value = number(tree, headers)
        if value is not None and Fraction(float(value)) != value:
            return False
    return all(exact(part, headers) for part in tree if isinstance(part, tuple))


@given(conditions, some_headers)
def test_a_condition_is_its_definition(tree: Tree, headers: dict[str, bytes | None]) -> None:
    assume(exact(tree, headers))
    pairs = tuple((name.encode(), value) for name, value in headers.items())
    expected = truth(tree, headers)
    assert parse_selector(written(tree)).matches(pairs) is (expected is True)
    assert parse_selector(f"NOT {written(tree)}").matches(pairs) is (expected is False)


@given(st.text("ab%_", max_size=8), st.text("ab", max_size=10))
def test_like_is_its_definition(pattern: str, text: str) -> None:
    assert parse_like(pattern, "", 0).fits(text) == fits(pattern, text)


@given(st.text("ab%_!", max_size=8))
def test_an_escaped_pattern_fits_itself_only(text: str) -> None:
    pattern = parse_like("".join("!" + one if one in "%_!" else one for one in text), "!", 0)
    assert pattern.fits(text)
    assert not pattern.fits(text + "a")
    assert not pattern.fits("c" + text[1:])


some_words = st.sampled_from(["a", "b", "'x'", '"q-r"', "1", "2.5", "AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS",
                              "NULL", "BETWEEN", "TRUE", "(", ")", ",", "=", "<>", "<", "+", "-", "*", "/", "||",
                              "tags:", "#"])


@given(st.text(max_size=60) | st.lists(some_words, max_size=14).map(" ".join))
def test_garbage_raises_only_invalid_selector(text: str) -> None:
    try:
        selector = parse_selector(text)
    except InvalidSelector as error:
        assert 0 <= error.position <= len(text)
    else:
        assert selector.matches(((b"a", b"1"), (b"b", b"x")), b"k", "a/b", "a", 1) in (True, False)
