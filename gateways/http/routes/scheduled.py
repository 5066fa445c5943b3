"""`/v1/scheduled`: messages that wait for their time, and recalling them.

    GET /v1/scheduled?max=&cursor=    {"scheduled": [...], "cursor"}: what falls due next first; cursor null: the end
    GET /v1/scheduled/{id}            one, or what became of it within the last day
    DELETE /v1/scheduled/{id}         recall it: 200 once that is durable, again and again;
                                      409 `already_delivered`, 404 `unknown_scheduled`

One that waits is a message as `mapping.py` shows it, without an offset, and with

    "state": "waiting", "due": ms, "accepted": ms, "repeat": text or null, "times": how often it was delivered so far

and what became of one is {"id", "state": "delivered" or "recalled", "due", "at", "times"}.
"""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.declaring import (
    AFTER,
    CURSOR,
    MAX_MESSAGES,
    MESSAGE_ID,
    TEXT,
    TIME_MS,
    WHOLE,
    Answer,
    Named,
    Need,
    declare,
    list_of,
    nullable,
    object_of,
    one_of,
)
from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.door import Door, Routes
from gatehouse.gateways.http.exchange import Answered, Call, json_answer
from gatehouse.gateways.http.message_schemas import MESSAGE_FIELDS, MESSAGE_OPTIONS
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.json_messages import door_of, record_to_json
from gatehouse.kernel.errors import StorageFailed, UnknownScheduled
from gatehouse.kernel.records.batch import public_headers
from gatehouse.kernel.scheduling.queries import Page, Scheduled
from gatehouse.kernel.scheduling.schedule_records import Pending

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard

MAX_KEY_BYTES: Final = 17
"""The most bytes of the place that a cursor names."""


_WAITING: Final = {name: schema for name, schema in MESSAGE_FIELDS.items() if name != "offset"} | {
    "partition": {"type": ["integer", "null"]}, "timestamp": {"type": ["integer", "null"]}, "state": one_of("waiting"),
    "due": TIME_MS, "accepted": TIME_MS, "repeat": nullable(TEXT), "times": WHOLE}
WAITING: Final = Named("Waiting", object_of(_WAITING, MESSAGE_OPTIONS))
SETTLED: Final = Named("NoLongerWaiting", object_of({
    "id": MESSAGE_ID, "state": one_of("delivered", "recalled"), "due": TIME_MS, "at": TIME_MS, "times": WHOLE}))
SEEING: Final = (Need(Operation.CONSUME, "address"),)


@declare("scheduled", query=(MAX_MESSAGES, AFTER), needs=SEEING, problems=("invalid_cursor", "storage_failed"),
         answers=(Answer(200, "What falls due next first.", object_of(
             {"scheduled": list_of({"anyOf": [WAITING, SETTLED]}), "cursor": CURSOR})),))
async def list_scheduled(door: Door, call: Call) -> Answered:
    """List messages that wait for their time.

    A page may be shorter than `max`, even empty, before the end.
    """
    guard = await door.guard(call)
    query = call.query()
    limit = MAX_MESSAGES.read(query, door.config)
    start = _decode_cursor(query["cursor"]) if "cursor" in query else b""
    reply: Reply[Page | StorageFailed] = Reply()
    guard.schedule.page(start, limit, reply.set_result)
    page = await reply
    if isinstance(page, StorageFailed):
        raise page
    messages, end = page
    return json_answer({"scheduled": [_describe(door, message) for message in messages],
                        "cursor": None if end is None else end.hex()})


@declare("scheduled", needs=SEEING, problems=("unknown_scheduled", "storage_failed"),
         answers=(Answer(200, "The message, or what became of it.", {"anyOf": [WAITING, SETTLED]}),))
async def get_scheduled(door: Door, call: Call) -> Answered:
    """Show a message that waits for its time, or what became of it within the last day."""
    guard = await door.guard(call)
    call.query()
    return json_answer(_describe(door, await _find(guard, call)))


@declare("scheduled", needs=(Need(Operation.PUBLISH, "address"),), writes=True, audited="scheduled.recalled",
         problems=("unknown_scheduled", "already_delivered", "storage_failed"),
         answers=(Answer(200, "It will not be delivered; the same again when it is repeated.",
                         object_of({"id": MESSAGE_ID, "state": one_of("recalled")})),))
async def recall(door: Door, call: Call) -> Answered:
    """Recall a message that waits for its time.

    Who may publish at its address may recall it.
    """
    guard = await door.guard(call)
    call.query()
    message = await _find(guard, call)
    await door.stored(partial(guard.schedule.recall, message))
    return json_answer({"id": str(message.id), "state": "recalled"})


async def _find(guard: Guard, call: Call) -> Scheduled:
    """The one that the path names. Raises UnknownScheduled, also where the principal may not see it."""
    text = call.captures[0]
    message: Scheduled | None = None
    if text.isascii() and text.isdigit() and len(text) <= len(str(1 << 64)) and int(text) < 1 << 64:
        reply: Reply[Scheduled | None] = Reply()
        guard.schedule.show(int(text), reply.set_result)
        message = await reply
    if message is None:
        raise UnknownScheduled(f"nothing that waits, or waited within a day, has the id {text[:32]!r}")
    return message


def _describe(door: Door, scheduled: Scheduled) -> dict[str, Any]:
    what = scheduled.what
    if not isinstance(what, Pending):
        return {"id": str(scheduled.id), "state": what.fate.name.lower(), "due": what.due_ms, "at": what.settled_ms,
                "times": what.times}
    headers = public_headers(what.headers)
    number = door_of(what.attributes)
    topic, name = "" if what.to_queue else what.topic, door.door_names.get(number, str(number))
    record = (-1, what.timestamp_ms, what.key, what.value, headers, what.attributes, scheduled.id)
    message = record_to_json(record, topic, what.partition, what.address, name)
    del message["offset"]
    message["partition"] = what.partition if what.partition >= 0 else None
    message["timestamp"] = what.timestamp_ms or None
    return {**message, "state": "waiting", "due": what.due_ms, "accepted": what.accepted_ms,
            "repeat": what.repeat or None, "times": what.times}


def _decode_cursor(text: str) -> bytes:
    try:
        if len(text) <= 2 * MAX_KEY_BYTES:
            return bytes.fromhex(text)
    except ValueError:
        pass    # refused below, as one that is too long
    raise Refusal("invalid_cursor", "this cursor was not made by this hub")


ROUTES: Routes = (("GET", "/v1/scheduled", list_scheduled), ("GET", "/v1/scheduled/{id}", get_scheduled),
                  ("DELETE", "/v1/scheduled/{id}", recall))
