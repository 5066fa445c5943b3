"""`GET /v1/retained/{address}`: the last value that an address was told to keep, or those of many addresses.

An address gives the message itself, as JSON. With a level that is `+` (any one) or `#` (any number, written `%23`) it
is a filter, and the answer a page of messages and the `cursor` for the next one, null at the end:

    max       values in the page, 100 unless told otherwise
    cursor    go on where the page that gave it ended

A message with `X-Retain: true` sets the value of its address, one with an empty body ends it.
"""
from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from gateways.admission.decision import Operation
from gateways.http.answers import json_answer
from gateways.http.door import Call, Door, Routes
from gateways.http.mapping import door_of, record_to_json
from gateways.http.problems import Refusal
from gateways.http.target import decode_levels, decode_number
from kernel.address import LEVEL_ESCAPES, escape
from kernel.filters import MANY, ONE

if TYPE_CHECKING:
    from kernel.message import Retained

DEFAULT_MAX: Final = 100

Page = tuple[list["Retained"], "str | None"]


async def get_retained(door: Door, call: Call) -> web.StreamResponse:
    """Answer the value of an address, or a page of those that match."""
    principal = door.principal(call.request)
    query = call.query("max", "cursor")
    levels = decode_levels(call.captures[0])
    pattern = "/".join(level if level in (ONE, MANY) else escape(level, LEVEL_ESCAPES) for level in levels)
    door.admission.require(principal, Operation.CONSUME, pattern)
    count = decode_number(query, "max", min(DEFAULT_MAX, door.config.max_page_messages), 1,
                          door.config.max_page_messages)
    values, after = await _read(door, pattern, principal.tenant, count, _decode_cursor(query.get("cursor", "")))
    if ONE in levels or MANY in levels:
        cursor = None if after is None else urlsafe_b64encode(after.encode()).rstrip(b"=").decode()
        return json_answer({"messages": [_to_json(door, value) for value in values], "cursor": cursor})
    if not values:
        raise Refusal("nothing_retained", f"{pattern!r} retains no value")
    return json_answer(_to_json(door, values[0]))


async def _read(door: Door, pattern: str, tenant: str, count: int, start: str) -> Page:
    future: asyncio.Future[Page] = door.loop.create_future()

    def on_done(values: list[Retained], after: str | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result((values, after))

    door.kernel.retained(pattern, tenant, on_done, max_values=count, start=start)
    return await future


def _to_json(door: Door, value: Retained) -> dict[str, Any]:
    number = door_of(value.record[5])
    return record_to_json(value.record, value.topic, value.queue, value.address,
                          door.door_names.get(number, str(number)))


def _decode_cursor(cursor: str) -> str:
    try:
        return urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode()
    except ValueError:
        raise Refusal("invalid_cursor", "this cursor was not made here") from None


ROUTES: Routes = (("GET", "/v1/retained/{address...}", get_retained),)
