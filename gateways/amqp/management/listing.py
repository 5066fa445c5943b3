"""Lists as tools ask for them: filtered by name, sorted, some of the columns, page by page. Pure.

    ?name=&use_regex=true   those with this in their name
    ?sort=messages&sort_reverse=true
    ?columns=name,messages_details.rate
    ?page=1&page_size=100   an object with `items` and counts; without `page` a plain list
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gatehouse.gateways.amqp.management.asking import bad_request
from gatehouse.gateways.amqp.policies import NoPattern, compile_pattern

PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 500

Row = dict[str, Any]


def listed(rows: list[Row], query: Mapping[str, str]) -> Any:
    """The rows as the query wants them. Raises ManagementError 400."""
    total = len(rows)
    rows = _named(rows, query)
    if "sort" in query:
        rows.sort(key=lambda row: _order(_value(row, query["sort"])), reverse=query.get("sort_reverse") == "true")
    if "page" not in query:
        return [_columns(row, query) for row in rows]
    page, size = _number(query, "page", 1), _number(query, "page_size", PAGE_SIZE)
    if size > PAGE_SIZE_MAX:
        raise bad_request(f"page_size is at most {PAGE_SIZE_MAX}")
    pages = max(1, -(-len(rows) // size))
    if page > pages:
        raise bad_request(f"page_out_of_range: page {page} of {pages}")
    items = rows[(page - 1) * size:page * size]
    return {"filtered_count": len(rows), "item_count": len(items), "items": [_columns(row, query) for row in items],
            "page": page, "page_count": pages, "page_size": size, "total_count": total}


def one(row: Row, query: Mapping[str, str]) -> Row:
    """One thing, with the columns that the query wants."""
    return _columns(row, query)


def _named(rows: list[Row], query: Mapping[str, str]) -> list[Row]:
    wanted = query.get("name", "")
    if not wanted:
        return list(rows)
    if query.get("use_regex") == "true":
        try:
            pattern = compile_pattern(wanted, re.IGNORECASE)
        except NoPattern as error:
            raise bad_request(f"name is no pattern: {error}") from None
        return [row for row in rows if pattern.search(str(row.get("name", "")))]
    return [row for row in rows if wanted.casefold() in str(row.get("name", "")).casefold()]


def _columns(row: Row, query: Mapping[str, str]) -> Row:
    if not query.get("columns"):
        return row
    chosen: Row = {}
    for column in query["columns"].split(","):
        _take(chosen, row, column.split("."))
    return chosen


def _take(chosen: Row, row: Any, path: list[str]) -> None:
    name, *rest = path
    if not isinstance(row, dict) or name not in row:
        return
    if not rest:
        chosen[name] = row[name]
    elif isinstance(row[name], dict):
        _take(chosen.setdefault(name, {}), row[name], rest)


def _value(row: Row, path: str) -> Any:
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _order(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool | int | float):
        return 1, value
    return (0, "") if value is None else (2, str(value))


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) or len(text) > 9:
        raise bad_request(f"{name} is a whole number from 1")
    return int(text)
