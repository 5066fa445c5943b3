"""`GET /v1/retained/{address}`: the last value that an address was told to keep, or those of many addresses.

An address gives the message itself, as JSON. With a level that is `+` (any one) or `#` (any number, written `%23`) it
is a filter, and the answer a page of messages and the `cursor` for the next one, null at the end:

    max       values in the page, 100 unless told otherwise
    cursor    go on where the page that gave it ended

A message with `X-Retain: true` sets the value of its address, one with an empty body ends it.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.declaring import (
    AFTER,
    CURSOR,
    MAX_MESSAGES,
    VALUES,
    Answer,
    Need,
    Parameter,
    declare,
    list_of,
    object_of,
    wants_json,
)
from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.door import Door, Routes
from gatehouse.gateways.http.exchange import Answered, Call, decode_levels, json_answer
from gatehouse.gateways.http.message_schemas import MESSAGE, MESSAGE_EXAMPLE
from gatehouse.gateways.http.page import decode_name, encode_name
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.json_messages import door_of, record_to_json
from gatehouse.kernel.addresses.address import LEVEL_ESCAPES, escape
from gatehouse.kernel.addresses.filters import MANY, ONE

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.kernel.message import Retained

Page = tuple[list["Retained"], "str | None"]


FILTER: Final = Parameter("address", "An address, or a filter: `+` is any one level, `#` (written `%23`) any number.",
                          example="plant/+/temp", text={"type": "string", "minLength": 1, "maxLength": 500})


@declare("read", path=(FILTER,), query=(MAX_MESSAGES, AFTER, VALUES), needs=(Need(Operation.CONSUME, "address"),),
         answers=(Answer(200, "The message; with a filter a page of messages.", {"anyOf": [
             MESSAGE, object_of({"messages": list_of(MESSAGE), "cursor": CURSOR})]}, example=MESSAGE_EXAMPLE),),
         problems=("nothing_retained", "invalid_cursor", "invalid_filter", "storage_failed", "stopping", "over_quota"))
async def get_retained(door: Door, call: Call) -> Answered:
    """Read the value that an address retains, or those of many addresses.

    A message with `X-Retain: true` sets the value of its address, one with an empty body ends it.
    """
    guard = await door.guard(call)
    query = call.query()
    levels = decode_levels(call.captures[0])
    pattern = "/".join(level if level in (ONE, MANY) else escape(level, LEVEL_ESCAPES) for level in levels)
    guard.require(Operation.CONSUME, pattern)
    count, parsed = MAX_MESSAGES.read(query, door.config), wants_json(query)
    await door.ready_to_hand_out(guard)
    values, after = await _read(guard, pattern, count, decode_name(query.get("cursor", "")))
    if ONE in levels or MANY in levels:
        cursor = None if after is None else encode_name(after)
        messages = [_to_json(door, value, parsed) for value in values]
        return door.handed_out(guard, len(messages), json_answer({"messages": messages, "cursor": cursor}))
    if not values:
        raise Refusal("nothing_retained", f"{pattern!r} retains no value")
    return door.handed_out(guard, 1, json_answer(_to_json(door, values[0], parsed)))


async def _read(guard: Guard, pattern: str, count: int, start: str) -> Page:
    reply: Reply[Page] = Reply()

    def on_done(values: list[Retained], after: str | None, error: Exception | None) -> None:
        if error is not None:
            reply.set_exception(error)
        else:
            reply.set_result((values, after))

    guard.retained(pattern, on_done, max_values=count, start=start)
    return await reply


def _to_json(door: Door, value: Retained, parsed: bool) -> dict[str, Any]:
    number = door_of(value.record[5])
    return record_to_json(value.record, value.topic, value.partition, value.address,
                          door.door_names.get(number, str(number)), parsed=parsed)


ROUTES: Routes = (("GET", "/v1/retained/{address...}", get_retained),)
