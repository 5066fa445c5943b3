"""Request bodies that are a JSON object: definitions, receipt handles."""
from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from gateways.http.door import Door
from gateways.http.problems import Refusal


async def read_object(door: Door, request: web.Request, what: str) -> dict[str, Any]:
    """The object in the body; an empty body is an empty one. Refuses `invalid_body`, `unsupported_media_type`."""
    body = await door.bodies.read(request)
    if body and request.content_type != "application/json":
        raise Refusal("unsupported_media_type", f"{what} is application/json", headers={"Accept": "application/json"})
    try:
        document = orjson.loads(body) if body else {}
    except orjson.JSONDecodeError as error:
        raise Refusal("invalid_body", f"the body is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise Refusal("invalid_body", f"{what} is an object")
    return document
