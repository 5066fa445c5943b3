"""Selectors: every form and operator, the three truth values, types, and errors with their positions."""
from __future__ import annotations

import itertools

import pytest

from gatehouse.kernel.errors import CorruptBatch, InvalidSelector
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.selectors.like import MAX_LIKE_BYTES
from gatehouse.kernel.selectors.parser import MAX_DEPTH, MAX_TERMS
from gatehouse.kernel.selectors.selector import MAX_JSON_BYTES, parse_address, parse_headers, parse_selector, parse_tags
from gatehouse.kernel.selectors.tokens import MAX_TEXT_CHARS

HEADERS = ((b"unit", b"C"), (b"temp", b"21.5"), (b"count", b"7"), (b"limit", b"7.0"), (b"urgent", b"true"),
           (b"calm", b"false"), (b"content-type", b"text/plain"), (b"tags", b"hot"), (b"void", None), (b"empty", b""),
           (b"raw", b"\xff"), (b"twice", b"first"), (b"twice", b"second"), (b"name", "größe_50%".encode()),
           (b"key", b"a header"), (b"large", b"9007199254740993"))
NAMES = {"content_type": "content-type"}
WORDS = {"true": True, "false": False, "unknown": None}


def wanted(text: str) -> bool:
    selector = parse_selector(text, NAMES)
    parts = (b"line1/temp", "plant/line1/temp", "plant", 1_700_000_000_000)
    found = selector.matches(HEADERS, *parts)
    assert selector.matches_encoded(encode_headers(HEADERS), *parts) is found
    return found


def truth(condition: str) -> bool | None:
    """What a condition is, told by the two questions that a reader can ask."""
    yes, no = wanted(condition), wanted(f"NOT ({condition})")
    assert not (yes and no)
    return None if not yes and not no else yes


@pytest.mark.parametrize(("condition", "expected"), [
    # comparison with text, number, truth value
    ("unit = 'C'", True), ("unit = 'c'", False), ("unit <> 'C'", False), ("'C' = unit", True), ("unit = ''", False),
    ("empty = ''", True), ("raw = 'x'", False), ("missing = 'C'", None), ("void = 'C'", None), ("void <> 'C'", None),
    ("temp = 21.5", True), ("temp = 2.15e1", True), ("temp > 21", True), ("temp >= 21.5", True), ("temp < 21.5", False),
    ("temp <= 21", False), ("21 < temp", True), ("21 > temp", False), ("21.5 >= temp", True), ("30 <= temp", False),
    ("temp <> 3", True), ("unit > 3", None), ("unit = 3", None), ("unit <> 3", None), ("empty = 0", None),
    ("missing > 3", None), ("temp = '21.5'", True), ("count = 7.", True), ("count = .7e1", True), ("count = +7", True),
    ("limit = 7", True), ("limit = '7'", False), ("large = 9007199254740993", True),
    ("large = 9007199254740992", False),
    ("urgent = TRUE", True), ("urgent = false", False), ("calm <> TRUE", True), ("unit = TRUE", None),
    ("urgent = 'true'", True), ("urgent", True), ("calm", False), ("unit", None), ("missing", None), ("TRUE", True),
    ("FALSE", False), ("1 = 1.0", True), ("'a' = 'a'", True), ("TRUE <> FALSE", True), ("2 < 1", False),
    # names with names
    ("count = limit", True), ("count < temp", True), ("unit = unit", True), ("unit <> tags", True),
    ("unit < tags", None),
    ("unit = missing", None), ("count = unit", False), ("count <= unit", None),
    # BETWEEN, IN
    ("temp BETWEEN 21 AND 22", True), ("temp BETWEEN 21.5 AND 21.5", True), ("temp BETWEEN 22 AND 21", False),
    ("temp NOT BETWEEN 21 AND 22", False), ("unit BETWEEN 1 AND 2", None), ("temp BETWEEN 30 AND missing", False),
    ("temp BETWEEN 20 AND missing", None), ("temp NOT BETWEEN 30 AND missing", True),
    ("temp BETWEEN count + 14 AND 3 * limit + 1", True), ("5 BETWEEN 1 AND count", True),
    ("unit IN ('F', 'C')", True), ("unit IN ('F')", False), ("unit NOT IN ('F')", True), ("missing IN ('F')", None),
    ("missing NOT IN ('F')", None), ("count IN (1, -7, 7.0)", True), ("count IN (-7)", False), ("unit IN (1)", None),
    ("-count IN (-7)", True), ("'C' IN ('C')", True), ("count + 1 IN (+8)", True), ("count in ('7')", True),
    # LIKE
    ("unit LIKE 'C'", True), ("unit LIKE '%'", True), ("unit LIKE '_'", True), ("unit LIKE '__'", False),
    ("unit LIKE 'c'", False), ("name LIKE 'gr__e%'", True), ("name LIKE 'gr%!_50!%' ESCAPE '!'", True),
    ("name LIKE 'gr%!%!%' ESCAPE '!'", False), ("name LIKE '%ö%5_%'", True), ("name NOT LIKE '%x%'", True),
    ("empty LIKE ''", True), ("empty LIKE '%'", True), ("empty LIKE '_'", False), ("raw LIKE '%'", None),
    ("missing LIKE '%'", None), ("missing NOT LIKE '%'", None), ("temp LIKE '21%'", True),
    ("tags LIKE 'h!!' ESCAPE '!'", False),
    # IS NULL
    ("missing IS NULL", True), ("void IS NULL", True), ("unit IS NULL", False), ("unit IS NOT NULL", True),
    ("missing is not null", False), ("empty IS NULL", False),
    # arithmetic
    ("count + 1 = 8", True), ("count - 1 - 1 = 5", True), ("2 + 3 * 4 = 14", True), ("(2 + 3) * 4 = 20", True),
    ("count / 2 = 3.5", True), ("8 / 2 / 2 = 2", True), ("-count = -7", True), ("- -count = 7", True),
    ("+count = 7", True),
    ("-count * -1 = 7", True), ("count / 0 = 1", None), ("count / 0 <> 1", None), ("1e308 * 10 > 0", None),
    ("missing + 1 = 1", None), ("unit + 1 = 1", None), ("1 - missing * 0 = 1", None), ("0.1 + 0.2 > 0.3", True),
    # names
    ('"content-type" = \'text/plain\'', True), ("content_type = 'text/plain'", True), ('"content_type" IS NULL', True),
    ("content_type = \"content-type\"", True), ("twice = 'first'", True), ("key = 'line1/temp'", True),
    ("\"key\" = 'a header'", True), ("topic = 'plant'", True), ("address LIKE 'plant/%'", True),
    ("timestamp = 1700000000000", True), ("timestamp > 1.7e12", False), ("Unit IS NULL", True),
    # precedence
    ("TRUE OR FALSE AND FALSE", True), ("(TRUE OR FALSE) AND FALSE", False), ("NOT FALSE AND FALSE", False),
    ("NOT unit = 'F' AND temp > 20", True), ("not(unit='F')and temp>20or calm", True),
])
def test_conditions(condition: str, expected: bool | None) -> None:
    assert truth(condition) is expected


@pytest.mark.parametrize(("left", "right"), list(itertools.product(WORDS, repeat=2)))
def test_three_truth_values(left: str, right: str) -> None:
    """SQL-92, 8.12: AND is the least, OR the greatest, where false < unknown < true; NOT turns them round."""
    texts = {"true": "calm IS NOT NULL", "false": "unit = 'F'", "unknown": "missing = 1"}
    order = ("false", "unknown", "true")
    a, b = order.index(left), order.index(right)
    assert truth(f"{texts[left]} AND {texts[right]}") is WORDS[order[min(a, b)]]
    assert truth(f"{texts[left]} OR {texts[right]}") is WORDS[order[max(a, b)]]
    assert truth(f"NOT ({texts[left]})") is WORDS[order[2 - a]]


@pytest.mark.parametrize(("value", "number"), [
    (b"7", "7"), (b"007", "7"), (b"+7", "7"), (b"-7", "-7"), (b"7.", "7"), (b".5", "0.5"), (b"-.5", "-0.5"),
    (b"7e0", "7"), (b"1E+2", "100"), (b"-0", "0"), (b"9" * 40, "9" * 40),
])
def test_values_that_are_numbers(value: bytes, number: str) -> None:
    assert parse_selector(f"n = {number}").matches(((b"n", value),))


@pytest.mark.parametrize("value", [
    b"", b" 7", b"7 ", b"7\n", b"0x7", b"1_0", b"nan", b"inf", b"-infinity", b"1e999", b"e1", b".", b"+", b"--7", b"7e",
    b"1e1.5", "\u0667".encode(), b"9" * 41, b"\xff", None,
])
def test_values_that_are_none(value: bytes | None) -> None:
    for condition in ("n > 0", "n <= 0", "NOT n = 0", "n + 0 = n"):
        assert not parse_selector(condition).matches(((b"n", value),))


@pytest.mark.parametrize(("text", "expected"), [
    ("tags:hot", True), ("tags: cold || hot ", True), ("tags:cold", False), ("tags:*", True), ("tags:ho t||x", False),
    ("headers:unit=C", True), ("headers: unit = C , temp=21.5", True), ("headers:unit=C, temp=22", False),
    ("headers:missing=", False), ("headers:empty=", True), ("headers:unit=C=", False),
    ("headers:content-type=text/plain", True),
    ("headers:twice=second", False), ("headers:key=a header", True),
    ("plant/+/temp", True), ("plant/#", True), ("#", True), ("+", False), ("plant/line2/temp", False),
    ("address:plant", False),
    ("address:plant/#", True), ("address:+/+/+", True), ("address:a b", False),
])
def test_the_other_forms(text: str, expected: bool) -> None:
    assert wanted(text) is expected


def test_what_a_tag_selector_asks_can_be_looked_up() -> None:
    assert parse_tags("a || b").tags == {b"a", b"b"}
    assert parse_tags("*").tags is None
    assert parse_selector("tags = 'a'").tags is None
    assert not parse_tags("a").matches(())
    assert not parse_tags("a").matches(((b"tags", None),))


def test_only_the_address_of_selectors_that_name_it_is_needed() -> None:
    assert parse_address("a/+").reads_address
    assert parse_selector("NOT address = 'x'").reads_address
    assert not parse_selector("\"address\" = 'x' AND key = 'y'").reads_address


def test_a_message_without_key_has_none() -> None:
    assert parse_selector("key IS NULL").matches((), None)
    assert parse_selector("key = ''").matches((), b"")


@pytest.mark.parametrize(("text", "position", "expected"), [
    ("", 0, "a name or a value"), ("   ", 3, "a name or a value"), ("a b", 2, "AND, OR or the end"),
    ("a =", 3, "a name or a value"),
    ("a = 1 = 2", 6, "AND, OR or the end"), ("= 1", 0, "a name or a value"), ("a AND", 5, "a name or a value"),
    ("a || b", 2, "AND, OR or the end"), ("a ? b", 2, "a name, a value or an operator"), ("'x", 0, "a text that ends"),
    ("a = 'it's'", 9, "a text that ends"), ('"x = 1', 0, "a name in double quotes"),
    ('"" = 1', 0, "a name in double quotes"),
    ("(a", 2, ")"), ("a)", 1, "AND, OR or the end"), ("()", 1, "a name or a value"), ("NULL", 0, "a name or a value"),
    ("a IS", 4, "NULL"), ("a IS NOT 1", 9, "NULL"), ("1 IS NULL", 0, "a name"), ("a NOT = 1", 6, "BETWEEN, IN or LIKE"),
    ("a BETWEEN 1 OR 2", 12, "AND"), ("a BETWEEN 'a' AND 'b'", 10, "a number or a name"),
    ("'a' BETWEEN 1 AND 2", 0, "a number"),
    ("a BETWEEN 1 AND TRUE", 16, "a number or a name"),
    ("a IN ()", 6, "a text in single quotes or a number"), ("a IN 1", 5, "("), ("a IN (1", 7, ")"),
    ("a IN (1, 'b')", 9, "a number"),
    ("a IN ('b', 1)", 11, "a text"), ("a IN (b)", 6, "a text in single quotes"), ("a IN (-'b')", 7, "a number"),
    ("1 IN ('a')", 0, "a name, or a text"), ("TRUE IN (1)", 0, "a name, or a number"),
    ("a LIKE b", 7, "a pattern in single quotes"), ("1 LIKE 'x'", 0, "a name"),
    ("a LIKE 'x' ESCAPE 1", 18, "a character"),
    ("a LIKE 'x' ESCAPE ''", 18, "one character"), ("a LIKE 'x' ESCAPE '!!'", 18, "one character"),
    ("a LIKE 'x!y' ESCAPE '!'", 7, "a pattern in which '!'"), ("a LIKE 'x!' ESCAPE '!'", 7, "a pattern in which '!'"),
    ("a > 'x'", 4, "a number"), ("'x' < a", 0, "a number"), ("a >= TRUE", 5, "a number"), ("1 = 'x'", 4, "a number"),
    ("a + 1 = TRUE", 8, "a number"), ("'x' = 1", 6, "a text"), ("TRUE = 1", 7, "TRUE or FALSE"),
    ("a + 'x' = 1", 4, "a number or a name"), ("'x' + 1 = 1", 0, "a number or a name"),
    ("-TRUE = 1", 1, "a number or a name"),
    ("(a = 1) + 1 = 2", 0, "a number or a name"), ("(a = 1) = TRUE", 0, "a name or a value"),
    ("a = (b = 1)", 4, "a name or a value"),
    ("1", 0, "a condition"), ("'x'", 0, "a condition"), ("a + 1", 0, "a condition"), ("a AND 1", 6, "a condition"),
    ("1 OR a", 0, "a condition"), ("NOT 1", 4, "a condition"), ("a OR b AND -c", 11, "a condition"),
    ("a = 1e999", 4, "a number of at most"), ("a = " + "9" * 41, 4, "a number of at most"),
    ("a = 0x1", 5, "AND, OR or the end"),
    ("tags:", 5, "a tag"), ("tags:a ||", 9, "a tag"), ("tags:a | b", 5, "a tag"), ("headers:", 8, "name=value"),
    ("headers:a=1,b", 12, "name=value"), ("headers:=1", 8, "name=value"), ("headers:a=1,a=2", 12, "each header once"),
    ("a/b#", 0, "a filter of addresses"), ("address:", 8, "a filter of addresses"),
    ("address:a\0", 8, "a filter of addresses"),
    ("a = '\ud800'", 5, "a character"), ("tags:\udfff", 5, "a character"),
    ("(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1), MAX_DEPTH + 1, "at most 32"),
    ("NOT " * (MAX_DEPTH + 1) + "a", 4 * (MAX_DEPTH + 1), "at most 32"),
    ("1 = " + "-" * (MAX_DEPTH + 1) + "1", 4 + MAX_DEPTH + 1, "at most 32"),
    (" AND ".join(["a"] * (MAX_TERMS + 1)), 6 * MAX_TERMS, "the end: a selector has at most"),
    ("tags:" + "||".join(["a"] * (MAX_TERMS + 1)), 5 + 3 * MAX_TERMS, "a tag"),
    ("headers:" + ",".join(f"h{i:03}=" for i in range(MAX_TERMS + 1)), 8 + 6 * MAX_TERMS, "name=value"),
    ("a" * (MAX_TEXT_CHARS + 1), MAX_TEXT_CHARS, "the end: a selector has at most"),
    ("tags:" + "a" * MAX_TEXT_CHARS, MAX_TEXT_CHARS, "the end: a selector has at most"),
    ("a/" * MAX_TEXT_CHARS, MAX_TEXT_CHARS, "the end: a selector has at most"),
])
def test_errors_have_a_position_and_say_what_may_stand_there(text: str, position: int, expected: str) -> None:
    with pytest.raises(InvalidSelector) as caught:
        parse_selector(text)
    assert (caught.value.position, caught.value.expected[:len(expected)]) == (position, expected)
    assert str(caught.value).startswith(f"at character {position + 1}: expected {expected}")


def test_what_is_just_within_the_bounds() -> None:
    deepest = "(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH
    assert parse_selector(deepest).matches(((b"a", b"true"),))
    longest = " + ".join(["a"] * (MAX_TERMS - 1)) + f" = {MAX_TERMS - 1}"
    assert parse_selector(longest).matches(((b"a", b"1"),))
    assert parse_headers(",".join(f"h{i}=" for i in range(MAX_TERMS))).text.endswith("h255=")


@pytest.mark.parametrize("pattern", ["%a" * 40 + "%b", "%" + "a_" * 40 + "b%", "_%" * 40 + "b", "%" * 200 + "b"])
def test_a_hostile_pattern_ends(pattern: str) -> None:
    selector = parse_selector(f"a LIKE '{pattern}'")
    assert not selector.matches(((b"a", b"a" * MAX_LIKE_BYTES),))
    assert selector.matches(((b"a", b"a" * (MAX_LIKE_BYTES - 1) + b"b"),))


def test_like_reads_no_value_that_is_too_long() -> None:
    for condition in ("a LIKE '%'", "a NOT LIKE '%'"):
        assert not parse_selector(condition).matches(((b"a", b"a" * (MAX_LIKE_BYTES + 1)),))


def test_a_lying_length_among_encoded_headers_is_found() -> None:
    selector = parse_selector("a = 'x'")
    whole = encode_headers(((b"z", b"y"), (b"a", b"x")))
    assert selector.matches_encoded(whole)
    for cut in range(len(whole)):
        with pytest.raises(CorruptBatch):
            selector.matches_encoded(whole[:cut])


DOCUMENT = b'{"temp": 21.5, ' \
    b'"rooms": [{"name": "hall"}, 7], "on": true, "none": null, "gr\xc3\xb6\xc3\x9fe": 1, "n": "21"}'


@pytest.mark.parametrize(("condition", "found"), [
    ("value.temp > 20", True), ("value.temp = '21.5'", True), ("value.rooms.0.name = 'hall'", True),
    ("value.rooms.1 = 7", True), ("value.rooms.2 IS NULL", True), ("value.rooms.x IS NULL", True), ("value.on", True),
    ("value.none IS NULL", True), ("value.größe = 1", True), ("value.n > 20", True), ("value.temp.x IS NULL", True),
    ("value.rooms = '[{\"name\":\"hall\"},7]'", True), ('"value.temp" IS NULL', True), ("value LIKE '{%}'", True),
    ("value.rooms.00001 = 7", True), ("value.rooms.000001 IS NULL", True), ("value. IS NULL", True)])
def test_what_stands_in_a_json_value(condition: str, found: bool) -> None:
    selector = parse_selector(condition)
    assert selector.matches((), value=DOCUMENT) is found
    assert selector.matches_encoded(b"\0", value=DOCUMENT) is found


@pytest.mark.parametrize("value", [None, b"", b"21", b"{", b"\xff", b'{"temp": ' + b"[" * 2000, b'"temp"',
                                   b'{"temp": 5, "x": "' + b"x" * MAX_JSON_BYTES + b'"}'])
def test_what_cannot_be_looked_into_has_nothing(value: bytes | None) -> None:
    assert parse_selector("value.temp IS NULL").matches((), value=value)
