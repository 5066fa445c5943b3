"""Every call of the HTTP door says what it is, and that is what it does.

What a call answers is held against its declaration by every test of the door (`tests/gateways/http/conformity.py`) and
by schemathesis; here is what can be told without calling it.
"""
from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.declaring import Declared
from gatehouse.gateways.http.door import Bodies, Call, Door
from gatehouse.gateways.http.openapi import CAPTURE, CAPTURES, TAGS, Route, build_document, operation_id, routes_of
from gatehouse.gateways.http.problems import CONTENT_TYPE, PROBLEMS
from gatehouse.gateways.http.routes import build_table
from gatehouse.kernel.errors import KernelError

TABLE = build_table()
ROUTES = routes_of(TABLE.endpoints)
NAMES = [f"{route.method} {route.pattern}" for route in ROUTES]
DOCUMENT = orjson.loads(orjson.dumps(build_document(ROUTES, HttpConfig(), "hub", anonymous=True)))
OF_NOTHING = {"not_found", "method_not_allowed"}
"""Answered where no call was found."""

TOLD_INSIDE = {"GET /v1/topics/{topic}/messages": {"corrupt_batch"},
               "POST /v1/batches/fetch": {"unknown_topic", "unknown_partition"},
               **{name: {"receipt_expired"} for name in NAMES if re.search("/(ack|extend|release|redrive)$", name)}}
"""Codes that a call tells of a part of its answer and does not refuse with."""

METHODS = {name: method for kind in (Door, Call) for name, method in vars(kind).items() if inspect.isfunction(method)}


def test_every_call_is_declared():
    for endpoint in TABLE.endpoints:
        for method, handler in endpoint.handlers.items():
            assert isinstance(handler, Declared), f"{method} {endpoint.pattern} has no @declare"


def test_the_document_is_valid():
    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_generators_of_clients_can_read_the_document():
    """What openapi-generator (Python, TypeScript, Go, Java) and openapi-python-client make nothing of, or nothing that
    compiles."""
    names = DOCUMENT["components"]["schemas"].keys()
    assert not [name for name in names if name.removeprefix("New") in names - {name}], "Go has New... for making one"
    for path, schema in _pieces(DOCUMENT):
        kind = schema.get("type")
        kinds = {kind} if isinstance(kind, str) else set(kind or ())
        assert not {"array", "object"} & kinds or isinstance(kind, str), path
        assert kind != "null" or path[-2] in ("anyOf", "oneOf"), path
        assert "integer" not in kinds or schema.get("maximum", 1 << 31) < 1 << 31 or schema["format"] == "int64", path
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            assert not [one["name"] for one in operation.get("parameters", ()) if not _is_plain(one["schema"])]
            bodies = operation.get("requestBody", {}).get("content", {})
            assert "*/*" not in bodies or "application/octet-stream" in bodies
            problems = [answer["content"][CONTENT_TYPE]["schema"] for answer in operation["responses"].values()
                        if CONTENT_TYPE in answer.get("content", ())]
            assert problems and all(schema["$ref"].endswith("/Problem") for schema in problems), "one type for them all"


def _pieces(piece: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Everything in the document that has a type, and where it stands."""
    if isinstance(piece, list):
        piece = dict(enumerate(piece))
    if isinstance(piece, dict):
        if isinstance(piece.get("type"), str | list) and path[-1] != "properties":
            yield path, piece
        for name, inside in piece.items():
            if name not in ("example", "examples"):
                yield from _pieces(inside, (*path, str(name)))


def _is_plain(schema: dict[str, Any]) -> bool:
    return isinstance(schema.get("type"), str) or "enum" in schema


@pytest.mark.parametrize("route", ROUTES, ids=NAMES)
def test_a_declaration_says_what_people_need(route: Route):
    declared = route.declared
    assert declared.summary[:1].isupper() and len(declared.summary.split()) >= 2 and len(declared.summary) < 120
    assert declared.tag in TAGS
    assert {name for name, _ in CAPTURE.findall(route.pattern)} <= CAPTURES.keys() | declared.path.keys()
    assert all(parameter.help.endswith(".") for parameter in declared.query + declared.headers)
    assert declared.answers and all(answer.status < 400 and answer.help for answer in declared.answers)
    assert route.method in ("GET", "DELETE") or declared.bodies or declared.query or not declared.public


def test_operations_have_names_of_their_own():
    names = [operation_id(route) for route in ROUTES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("route", ROUTES, ids=NAMES)
def test_every_code_that_a_call_can_refuse_with_is_declared(route: Route):
    declared = route.declared.problems_at(CAPTURE.search(route.pattern) is not None)
    assert declared <= PROBLEMS.keys()
    name = f"{route.method} {route.pattern}"
    found = set(_codes(route.declared.run, set())) - OF_NOTHING - TOLD_INSIDE.get(name, set())
    assert found <= declared, f"{sorted(found - declared)} of {name}"


def test_every_example_is_what_its_schema_says():
    shown = list(_examples(DOCUMENT))
    assert len(shown) > 10
    for schema, example in shown:
        Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(example)


def _examples(piece: object) -> Iterator[tuple[dict, object]]:
    if isinstance(piece, list):
        for one in piece:
            yield from _examples(one)
    if isinstance(piece, dict):
        if "schema" in piece and "example" in piece:
            yield piece["schema"], piece["example"]
        for example in piece.get("examples", ()):
            yield piece, example
        for one in piece.values():
            yield from _examples(one)


def _codes(function: object, seen: set[object]) -> Iterator[str]:
    """The codes of what a function raises, and those that it calls: what it names of this door, as far as that can be
    read."""
    if not isinstance(function, FunctionType) or function in seen or not _is_ours(function):
        return
    seen.add(function)
    for code in _with_inner(function.__code__):
        names = set(code.co_names)
        if "Refusal" in names:
            yield from (constant for constant in code.co_consts if constant in PROBLEMS)
        for name in names:
            named = function.__globals__.get(name)
            if inspect.isclass(named) and issubclass(named, KernelError) and named.code in PROBLEMS:
                yield named.code
            read_body = Bodies.read if name == "read" and "bodies" in names else None
            for called in (named, METHODS.get(name), read_body):
                yield from _codes(called, seen)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _with_inner(constant)


def _is_ours(function: FunctionType) -> bool:
    return re.match(r"gateways\.http(\.|$)", function.__module__) is not None
