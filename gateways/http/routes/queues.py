"""`/v1/queues`: queues and what waits in them. AMQP, shared filters and dead letters make them, and so do these calls.

    GET    /v1/queues?cursor=                {"queues": [{"name", settings...}], "cursor"}
    GET    /v1/queues/{queue}                settings, and `ready`, `leased`, `waiting`, `settled`, ...
    PUT    /v1/queues/{queue}                makes it: 201; 200 where it is there just so
    DELETE /v1/queues/{queue}?if_empty=      with everything in it
    GET    /v1/queues/{queue}/bindings       {"bindings": [{"filter", "by": "amqp" or "filter"}]}
    PUT    /v1/queues/{queue}/bindings       {"filter"}: what is published to matching addresses enters it too
    DELETE /v1/queues/{queue}/bindings       {"filter"}

What is in them is looked at and moved in `waiting_messages.py`, and taken as from a group in `leases.py`.
"""
from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta

from gatehouse.gateways.addresses import queue_address
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.declaring import (
    AFTER,
    CONTAINS,
    CURSOR,
    MAX_LISTED,
    TEXT,
    TIME_MS,
    WITH_COUNTS,
    Answer,
    Body,
    Document,
    Named,
    Need,
    Parameter,
    choice,
    declare,
    document_like,
    list_of,
    object_of,
    one_of,
    properties_of,
    wants_counts,
)
from gatehouse.gateways.http.door import Door, Routes, read
from gatehouse.gateways.http.exchange import Answered, Call, Response, json_answer
from gatehouse.gateways.http.leases import COUNTS
from gatehouse.gateways.http.page import decode_name, matching, page_by_name
from gatehouse.gateways.http.problems import Refusal
from gatehouse.kernel.errors import QueueExists
from gatehouse.kernel.groups.group_settings import MAX_PRIORITIES, NOTHING, OVERFLOWS, QueueSettings

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.kernel.groups.group_settings import Queue


AMQP_OWN: Final = ("dead_letter", "door")
"""Settings in the words of the door that declared the queue; nobody states them here."""

MAX_LIMIT: Final = (1 << 63) - 1
MAX_ATTEMPTS: Final = 65_535
TIMES: Final = ("ttl_ms", "expires_ms")
MAX_TIME_MS: Final = 100 * 366 * 24 * 3_600_000

_QUEUE: Final = {"name": TEXT, **properties_of(QueueSettings, overflow=one_of(*OVERFLOWS)), "created": TIME_MS}
QUEUE: Final = Named("Queue", object_of(_QUEUE))
LISTED: Final = object_of(_QUEUE, COUNTS)
NEEDS: Final = (Need(Operation.CONSUME, "address"),)
_TIME: Final = Annotated[int, Meta(ge=0, le=MAX_TIME_MS)]
_LIFE: Final = Annotated[int, Meta(ge=NOTHING, le=MAX_TIME_MS)]
_LIMIT: Final = Annotated[int, Meta(ge=NOTHING, le=MAX_LIMIT)]
QueueInput: Final = document_like(
    "QueueInput", QueueSettings, {
        "priorities": Annotated[int, Meta(ge=1, le=MAX_PRIORITIES + 1)], "max_length": _LIMIT, "max_bytes": _LIMIT,
        "ttl_ms": _LIFE, "expires_ms": _TIME, "max_attempts": Annotated[int, Meta(ge=0, le=MAX_ATTEMPTS)],
        "overflow": choice(OVERFLOWS)},
    without=AMQP_OWN, example={"max_length": 10_000, "overflow": "reject"})
IF_EMPTY: Final = Parameter("if_empty", "`true`: only where nothing is in it.",
                            text={"type": "string", "enum": ["true", "false"]})
BINDINGS: Final = object_of({"bindings": list_of(object_of({"filter": TEXT, "by": one_of("amqp", "filter")}))})
BINDING_NEEDS: Final = (Need(Operation.PUBLISH, "address"), Need(Operation.CONSUME, "address"))



class QueueBinding(Document):
    """What leads to a queue."""

    EXAMPLE = {"filter": "plant/+/temp"}
    filter: Annotated[str, Meta(min_length=1, description="Addresses, with `+` and `#`.")]


@declare("queues", query=(MAX_LISTED, AFTER, CONTAINS, WITH_COUNTS), needs=NEEDS, problems=("invalid_cursor",),
         answers=(Answer(200, "A page of queues.", object_of({"queues": list_of(LISTED), "cursor": CURSOR})),))
async def list_queues(door: Door, call: Call) -> Answered:
    """List queues.

    Those that the user may take from, by name. With `counts`: and what is ready, leased and waiting in each.
    """
    guard = await door.guard(call)
    query = call.query()
    count, counted = MAX_LISTED.read(query, door.config), wants_counts(query)
    after = decode_name(query.get("cursor", ""))
    queues, cursor = page_by_name([queue for queue in guard.groups.queues_after(after) if matching(queue.name, query)],
                                  count, attrgetter("name"))
    counts = [guard.groups.queue_counts(queue)._asdict() if counted else {} for queue in queues]
    return json_answer({"queues": [{**_describe(queue), **more} for queue, more in zip(queues, counts, strict=True)],
                        "cursor": cursor})


@declare("queues", needs=NEEDS, problems=("unknown_queue",),
         answers=(Answer(200, "The queue.", object_of({**_QUEUE, **COUNTS})),))
async def get_queue(door: Door, call: Call) -> Answered:
    """Show a queue with what is ready, leased and waiting in it."""
    guard = await door.guard(call)
    call.query()
    queue = guard.groups.queue(call.topic_name(), Operation.CONSUME)
    return json_answer({**_describe(queue), **guard.groups.queue_counts(queue)._asdict()})


@declare("queues", bodies=(Body(QueueInput, required=False),), needs=(Need(Operation.CREATE, "address"),),
         writes=True, audited="queue.declared", problems=("invalid_queue", "invalid_group", "queue_exists"),
         answers=(Answer(200, "It was there just so.", QUEUE), Answer(201, "It is made.", QUEUE)))
async def put_queue(door: Door, call: Call) -> Answered:
    """Make a queue.

    What the document leaves out is as by default; the settings of a queue that is there do not change. Clients of AMQP
    find it under the same name.
    """
    guard = await door.guard(call)
    call.query()
    name = call.topic_name()
    guard.require(Operation.CREATE, queue_address(name))
    settings = QueueSettings(**(await read(door, call, QueueInput)).given())
    existing = guard.groups.queue_or_none(name, Operation.CREATE)
    if existing is not None:
        if replace(existing.settings, dead_letter="", door="") != settings:
            raise QueueExists(f"the queue {name!r} exists with other settings")
        await door.stored(door.flush)        # somebody else may be making it
        return json_answer(_describe(existing))
    return json_answer(_describe(await door.durable(partial(guard.groups.declare_queue, name, settings))), 201)


@declare("queues", query=(IF_EMPTY,), needs=(Need(Operation.ALTER, "address"),), writes=True, audited="queue.deleted",
         problems=("unknown_queue", "queue_not_empty"), answers=(Answer(204, "It is gone."),))
async def delete_queue(door: Door, call: Call) -> Answered:
    """Delete a queue with everything in it, and its bindings.

    Clients of AMQP that consume from it are told so.
    """
    guard = await door.guard(call)
    query = call.query()
    queue = guard.groups.queue(call.topic_name(), Operation.ALTER)
    if query.get("if_empty", "false") not in ("true", "false"):
        raise Refusal("invalid_parameter", "'if_empty' is true or false", parameter="if_empty")
    if query.get("if_empty") == "true":
        counts = guard.groups.queue_counts(queue)
        if counts.ready or counts.leased or counts.waiting:
            raise Refusal("queue_not_empty", f"{counts.ready} messages are ready in {queue.name!r}, {counts.leased} "
                                             f"leased, {counts.waiting} waiting; it stays")
    await door.durable(partial(guard.groups.delete_queue, queue))
    return Response(status=204)


@declare("queues", needs=NEEDS, problems=("unknown_queue",), answers=(Answer(200, "All of them.", BINDINGS),))
async def list_bindings(door: Door, call: Call) -> Answered:
    """List what leads to a queue: filters of addresses.

    Those `by` amqp are what other doors hear of AMQP's bindings; AMQP's clients see those of their own messages too.
    """
    guard = await door.guard(call)
    call.query()
    queue = guard.groups.queue(call.topic_name(), Operation.CONSUME)
    return json_answer({"bindings": [{"filter": filter_text, "by": "amqp" if chosen else "filter"}
                                     for chosen, filter_text in sorted(guard.groups.bindings(queue))]})


@declare("queues", bodies=(Body(QueueBinding),), needs=BINDING_NEEDS, writes=True, audited="queue.bound",
         problems=("unknown_queue", "invalid_filter"), answers=(Answer(204, "It is bound."),))
async def bind_queue(door: Door, call: Call) -> Answered:
    """Bind a queue to a filter: what is published to matching addresses enters it too, from now on.

    Whatever door it comes by; it is stored once.
    """
    guard = await door.guard(call)
    queue, filter_text = await _read_binding(door, call, guard)
    await door.durable(partial(guard.groups.bind, filter_text, queue))
    return Response(status=204)


@declare("queues", bodies=(Body(QueueBinding),), needs=(Need(Operation.PUBLISH, "address"),), writes=True,
         audited="queue.unbound", problems=("unknown_queue", "unknown_binding", "invalid_filter"),
         answers=(Answer(204, "It is not bound so any more."),))
async def unbind_queue(door: Door, call: Call) -> Answered:
    """Undo a binding that was made here; what is in the queue stays."""
    guard = await door.guard(call)
    queue, filter_text = await _read_binding(door, call, guard)
    if (False, filter_text) not in guard.groups.bindings(queue):
        raise Refusal("unknown_binding", f"{queue.name!r} is not bound to {filter_text!r} here")
    await door.durable(partial(guard.groups.unbind, filter_text, queue))
    return Response(status=204)


async def _read_binding(door: Door, call: Call, guard: Guard) -> tuple[Queue, str]:
    call.query()
    queue = guard.groups.queue(call.topic_name(), Operation.PUBLISH)
    return queue, (await read(door, call, QueueBinding)).filter


def _describe(queue: Queue) -> dict[str, Any]:
    return {"name": queue.name, **asdict(queue.settings), "created": queue.created_ms}


ROUTES: Routes = (
    ("GET", "/v1/queues", list_queues), ("GET", "/v1/queues/{queue}", get_queue),
    ("PUT", "/v1/queues/{queue}", put_queue), ("DELETE", "/v1/queues/{queue}", delete_queue),
    ("GET", "/v1/queues/{queue}/bindings", list_bindings), ("PUT", "/v1/queues/{queue}/bindings", bind_queue),
    ("DELETE", "/v1/queues/{queue}/bindings", unbind_queue))
