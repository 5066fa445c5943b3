"""Request bodies that are a JSON object: definitions, receipt handles."""
from __future__ import annotations

from typing import Any, Final

import orjson

from gatehouse.gateways.http.door import Door
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.request import Call

NESTED_MAX: Final = 32
"""Lists and objects in each other: more than any document of this door has."""


def whole_numbers(value: Any, levels: int = NESTED_MAX) -> Any:
    """A JSON value with 3.0 as 3: to JSON they are one number (JSON Schema, 6.1.1), and many clients have only one kind
    of number. Refuses `invalid_body` where the value is nested deeper than `levels`."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if not isinstance(value, list | dict):
        return value
    if not levels:
        raise Refusal("invalid_body", f"nothing here is nested deeper than {NESTED_MAX} levels")
    if isinstance(value, list):
        return [whole_numbers(entry, levels - 1) for entry in value]
    return {name: whole_numbers(entry, levels - 1) for name, entry in value.items()}


async def read_object(door: Door, call: Call, what: str) -> dict[str, Any]:
    """The object in the body; an empty body is an empty one. Refuses `invalid_body`, `unsupported_media_type`."""
    body = await door.bodies.read_document(call)
    if body and call.media != "application/json":
        raise Refusal("unsupported_media_type", f"{what} is application/json", headers={"Accept": "application/json"})
    try:
        document = whole_numbers(orjson.loads(body)) if body else {}
    except orjson.JSONDecodeError as error:
        raise Refusal("invalid_body", f"the body is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise Refusal("invalid_body", f"{what} is an object")
    return document
