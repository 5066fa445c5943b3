"""The request target: levels decoded one by one, strictly."""
from __future__ import annotations

import pytest

from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.routes.publish import address_of_path
from gatehouse.gateways.http.target import decode_levels, decode_number, decode_query, decode_seconds, split_target


@pytest.mark.parametrize(("target", "path", "query"), [
    ("/a/b?c=d", "/a/b", "c=d"),
    ("/a?b?c", "/a", "b?c"),
    ("http://host:8080/a/b?c=d", "/a/b", "c=d"),
    ("http://host", "/", ""),
    ("//a", "//a", ""),
    ("*", "*", ""),
])
def test_splits_origin_and_absolute_form(target: str, path: str, query: str) -> None:
    assert split_target(target) == (path, query)


@pytest.mark.parametrize(("raw", "levels"), [
    ("plant/line1/temp", ["plant", "line1", "temp"]),
    ("a//b", ["a", "", "b"]),
    ("/a/", ["", "a", ""]),
    ("a%2Fb/c", ["a/b", "c"]),
    ("a%2fb", ["a/b"]),
    ("maschine%203/gr%C3%BC%C3%9Fe", ["maschine 3", "grüße"]),
    ("grüße", ["grüße"]),
    ("a+b", ["a+b"]),
    ("..", [".."]),
])
def test_decodes_every_level_for_itself(raw: str, levels: list[str]) -> None:
    assert decode_levels(raw) == levels


@pytest.mark.parametrize("raw", ["a%", "a%2", "a%zz", "a%00b", "a\0b", "%FF", "%C3", "\udcff"])
def test_refuses_what_cannot_be_decoded(raw: str) -> None:
    with pytest.raises(Refusal) as refused:
        decode_levels(raw)
    assert refused.value.code == "invalid_address"


@pytest.mark.parametrize(("raw", "address"), [
    ("plant/line1", "plant/line1"),
    ("c/a%2Fb", "c/a%2Fb"),             # a slash inside a level stays inside it
    ("a%252Fb", "a%252Fb"),             # a level that reads %2F is told apart from it
    ("a%2Bb/%23", "a%2Bb/%23"),           # what MQTT takes for wildcards
    ("50%25", "50%"),
])
def test_address_of_a_path(raw: str, address: str) -> None:
    assert address_of_path(raw) == address


def test_query() -> None:
    known = frozenset(("from", "max"))
    assert decode_query("", known) == {}
    assert decode_query("from=2024-01-01T00%3A00%3A00Z&max=5", known) == {"from": "2024-01-01T00:00:00Z", "max": "5"}
    assert decode_query("max=", known) == {"max": ""}


@pytest.mark.parametrize(("raw", "code"), [
    ("form=1", "unknown_parameter"), ("max=1&max=2", "invalid_parameter"), ("max=%FF", "invalid_parameter"),
    ("max=%2", "invalid_parameter"), ("&".join(f"a{i}=1" for i in range(33)), "invalid_parameter"),
])
def test_query_refusals(raw: str, code: str) -> None:
    with pytest.raises(Refusal) as refused:
        decode_query(raw, frozenset(("from", "max")))
    assert refused.value.code == code


@pytest.mark.parametrize("text", ["", "-1", "0", "11", "1.5", "٣", "1" * 30, " 5"])
def test_numbers_out_of_range(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        decode_number({"max": text}, "max", 5, 1, 10)
    assert refused.value.code == "invalid_parameter"


def test_numbers() -> None:
    assert decode_number({}, "max", 5, 1, 10) == 5
    assert decode_number({"max": "10"}, "max", 5, 1, 10) == 10


def test_seconds() -> None:
    assert decode_seconds({}, "wait", 10) == 0
    assert decode_seconds({"wait": "1.5"}, "wait", 10) == 1.5
    assert decode_seconds({"wait": "1e-05"}, "wait", 10) == 1e-05
    for text in ("", "-1", "11", "1e2", "1e", "inf", "nan", "1,5"):
        with pytest.raises(Refusal):
            decode_seconds({"wait": text}, "wait", 10)
