"""What stands at a place in a value that is JSON, as the bytes that a header with the same content would have. Pure.

    {"temp": 21.5, "rooms": [{"name": "hall"}], "on": true}

    temp             21.5
    rooms.0.name     hall
    on               true
    rooms            the list, as JSON

What is not there, null, or looked for in a value that is no JSON, is None.
"""
from __future__ import annotations

from typing import Any, Final

import orjson

MAX_INDEX_DIGITS: Final = 5              # of a place in a list: no value that is looked into has more


def read_json(value: bytes) -> Any:
    """The document; None where it is none."""
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return None


def found_in(document: Any, path: list[str]) -> bytes | None:
    """What stands at the end of the path: names of members, and places in lists, from 0."""
    for step in path:
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and step.isascii() and step.isdigit() and len(step) <= MAX_INDEX_DIGITS:
            at = int(step)
            document = document[at] if at < len(document) else None
        else:
            return None
    return _written(document)


def _written(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    try:
        return bytes(orjson.dumps(value))
    except TypeError:                    # nested deeper than it writes
        return None
