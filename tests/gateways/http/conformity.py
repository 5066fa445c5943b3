"""Holds every answer that a test gets against the document: its status, its problem's code, its body."""
from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import orjson
from jsonschema import Draft202012Validator

from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.dispatch import Endpoint
from gatehouse.gateways.http.exchange import split_target
from gatehouse.gateways.http.openapi import build_document, routes_of
from gatehouse.gateways.http.problems import CONTENT_TYPE
from gatehouse.gateways.http.routes import build_table

NEVER_DECLARED = {"not_found", "method_not_allowed"}
"""What no call answers: nothing was called."""


@cache
def document() -> dict[str, Any]:
    """The document of a door with the usual settings; objects in it have no fields but those that it names."""
    made = build_document(routes_of(build_table().endpoints), HttpConfig(), "test", anonymous=True)
    return _closed(orjson.loads(orjson.dumps(made)))


@cache
def _table() -> Any:
    return build_table()


def check_answer(method: str, target: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """AssertionError where the document does not know such an answer."""
    found = _table().find(split_target(target)[0])
    if found is None or method not in found[0].handlers:
        return
    endpoint: Endpoint[Any] = found[0]
    responses = document()["paths"][endpoint.pattern.replace("...", "")][method.lower()]["responses"]
    what = f"{method} {endpoint.pattern}"
    content_type = headers.get("Content-Type", "").partition(";")[0]
    shown = orjson.loads(body) if body and content_type.endswith("json") else None
    if content_type == CONTENT_TYPE and shown["code"] in NEVER_DECLARED:
        return
    assert str(status) in responses, f"{what} does not declare {status} {shown}"
    content = responses[str(status)].get("content")
    if not body:
        return
    assert content is not None and content_type in content, f"{what} does not declare {content_type} for {status}"
    if shown is not None:
        schema = {**content[content_type]["schema"], "components": document()["components"]}
        errors = [error.message for error in Draft202012Validator(schema).iter_errors(shown)]
        assert not errors, f"{what} answers what it does not declare: {errors} {shown}"


def _closed(piece: Any) -> Any:
    """The same with `additionalProperties: false` wherever an object's fields are listed, but for problems."""
    if isinstance(piece, list):
        return [_closed(one) for one in piece]
    if not isinstance(piece, dict):
        return piece
    closed = {name: _closed(one) for name, one in piece.items()}
    fields = piece.get("properties")
    if piece.get("type") == "object" and isinstance(fields, dict) and "code" not in fields and "paths" not in fields:
        closed.setdefault("additionalProperties", False)
    return closed
