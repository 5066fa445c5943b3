"""The request target as the client wrote it: path levels and query, decoded once and strictly.

The server library decodes `%2F` to `/` before it splits, which turns one level into two. Here the raw path is split
first and every level is decoded for itself, so that a `/` inside a level stays inside the level, and `//` holds an
empty one. Pure: text in, text out.
"""
from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes

from gatehouse.gateways.http.problems import Refusal

MAX_PARAMETERS: Final = 32
"""More query parameters than any call has; a bound on what one request makes us parse."""

_SECONDS: Final = re.compile(r"\d{1,9}(\.\d{1,20})?(e[+-]?\d{1,3})?", re.ASCII)
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def split_target(target: str) -> tuple[str, str]:
    """Raw path and raw query of a request target, in origin form (`/a?b`) or absolute form (`http://host/a?b`)."""
    path, _, query = target.partition("?")
    if not path.startswith("/"):
        start = path.find("/", path.find("://") + 3) if "://" in path else -1
        path = path[start:] if start >= 0 else "/" if "://" in path else path
    return path, query


def decode_level(raw: str) -> str:
    """One level of a path, percent-decoded. Refuses what is not UTF-8, a broken escape and NUL (`invalid_address`)."""
    if "%" not in raw:
        if raw.isascii() and "\0" not in raw:
            return raw
    elif _BROKEN_ESCAPE.search(raw):
        raise Refusal("invalid_address", "a '%' in the path is not followed by two hexadecimal digits")
    try:
        level = unquote_to_bytes(raw.encode("utf-8", "surrogateescape")).decode()
    except UnicodeDecodeError:
        raise Refusal("invalid_address", "the path is not UTF-8") from None
    if "\0" in level:
        raise Refusal("invalid_address", "an address cannot hold NUL")
    return level


def decode_levels(raw: str) -> list[str]:
    """The levels of a raw path without its leading slash; `a//b` has an empty level in the middle."""
    return [decode_level(level) for level in raw.split("/")]


def decode_query(raw: str, parameters: frozenset[str]) -> dict[str, str]:
    """Query parameters by name. Refuses unknown and repeated names, broken text and more than `MAX_PARAMETERS`."""
    if not raw:
        return {}
    if _BROKEN_ESCAPE.search(raw):
        raise Refusal("invalid_parameter", "a '%' in the query is not followed by two hexadecimal digits")
    try:
        pairs = parse_qsl(raw, keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise Refusal("invalid_parameter", f"the query is not UTF-8 or has over {MAX_PARAMETERS} parameters") from None
    query: dict[str, str] = {}
    for name, value in pairs:
        if name not in parameters:
            names = ", ".join(sorted(parameters)) or "none"
            raise Refusal("unknown_parameter", f"no parameter {name!r} here; there are: {names}", parameter=name)
        if name in query:
            raise Refusal("invalid_parameter", f"{name!r} is given twice", parameter=name)
        query[name] = value
    return query


def decode_number(query: dict[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    """A whole number of the query, or `default` where it is not given. Refuses what is out of range."""
    text = query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 19 or not lowest <= int(text) <= highest:
        raise Refusal("invalid_parameter", f"{name!r} is a whole number from {lowest} to {highest}", parameter=name)
    return int(text)


def decode_seconds(query: dict[str, str], name: str, highest: float) -> float:
    """A decimal number of seconds of the query, 0 where it is not given. Refuses what is above `highest`."""
    text = query.get(name, "0")
    if not _SECONDS.fullmatch(text) or float(text) > highest:
        raise Refusal("invalid_parameter", f"{name!r} is a number of seconds from 0 to {highest:g}", parameter=name)
    return float(text)
