"""Request bodies that are a JSON object, read."""
from __future__ import annotations

from typing import Any

import orjson

from gatehouse.gateways.http.door import Door
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.request import Call
from gatehouse.gateways.http.shapes import D, shaped, whole_numbers


async def read(door: Door, call: Call, shape: type[D]) -> D:
    """The document in the body; an empty body is one without fields. Refuses `invalid_body`,
    `unsupported_media_type`."""
    return shaped(await read_object(door, call), shape)


async def read_object(door: Door, call: Call) -> dict[str, Any]:
    """The object in the body; an empty body is an empty one. Refuses `invalid_body`, `unsupported_media_type`."""
    body = await door.bodies.read_document(call)
    if body and call.media != "application/json":
        raise Refusal("unsupported_media_type", "this call takes application/json",
                      headers={"Accept": "application/json"})
    try:
        document = whole_numbers(orjson.loads(body)) if body else {}
    except orjson.JSONDecodeError as error:
        raise Refusal("invalid_body", f"the body is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise Refusal("invalid_body", "the body is an object")
    return document
