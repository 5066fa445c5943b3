"""What waits in a queue: looked at where it is, purged, moved elsewhere.

    GET  /v1/queues/{queue}/messages?max=&cursor=    {"messages": [{..., "leased"}], "cursor"}; nothing is taken
    POST /v1/queues/{queue}/purge                    {"purged": 7}
    POST /v1/queues/{queue}/move                     {"queue": "later", "max": 100}, or "address"

What is moved is settled here and stored there in one frame. The answer counts what went (`moved`), names up to 1,000
that did not (`left`; then it is 207), and says whether there is `more`: then ask again. What is leased stays.
"""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import UNSET, Meta, UnsetType

from gatehouse.gateways.addresses import queue_address
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.declaring import (
    ADDRESS,
    FLAG,
    MAX_MESSAGES,
    TEXT,
    WHOLE,
    Answer,
    Body,
    Document,
    Named,
    Need,
    Parameter,
    declare,
    list_of,
    nullable,
    object_of,
    shown,
)
from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.door import Door, Routes, read
from gatehouse.gateways.http.exchange import Answered, Call, json_answer
from gatehouse.gateways.http.message_schemas import MESSAGE_FIELDS, MESSAGE_OPTIONS
from gatehouse.gateways.http.openapi import PROBLEM
from gatehouse.gateways.http.problems import Refusal, document_of
from gatehouse.gateways.http.routes.leases import taking
from gatehouse.gateways.http.routes.queues import NEEDS
from gatehouse.gateways.json_messages import door_of, record_to_json
from gatehouse.kernel.addresses.placing import QUEUE_PREFIX
from gatehouse.kernel.addresses.routes import stated_in
from gatehouse.kernel.records.batch import sound_records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.kernel.groups.group_settings import Queue
    from gatehouse.kernel.message import Fetched, Record

MOVED_AT_ONCE: Final = 500
"""Messages that go in one frame: a hub with a million of them goes on doing other things."""

MOVED_AT_MOST: Final = 10_000
"""In one call: it is answered in time."""

HELD_MS: Final = 60_000
"""How long messages are held while they are moved; what a crash cuts short comes again after this."""

MAX_LEFT: Final = 1_000

PLACE: Final = Parameter("cursor", "Go on where the page that gave it ended.",
                         text={"type": "string", "pattern": "^[0-9]{1,3}-[0-9]{1,19}$"})
WAITING: Final = Named("WaitingMessage", object_of({**MESSAGE_FIELDS, "leased": FLAG}, MESSAGE_OPTIONS))
MOVED: Final = object_of({
    "moved": WHOLE, "left": {**list_of(PROBLEM), "description": "Those that did not go, each with its `id`."},
    "more": {**FLAG, "description": "There are more: ask again."}})



class Move(Document):
    """Where messages of a queue go: to another queue, or to an address."""

    EXAMPLE = {"queue": "later", "max": 100}
    RULES = {"oneOf": [{"required": ["queue"]}, {"required": ["address"]}]}
    queue: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    address: Annotated[str, Meta(min_length=1), shown(**ADDRESS)] | UnsetType = UNSET
    max: Annotated[int, Meta(ge=1, le=MOVED_AT_MOST)] = MOVED_AT_MOST

    def __post_init__(self) -> None:
        if (self.queue is UNSET) == (self.address is UNSET):
            raise ValueError("a move has a 'queue' or an 'address'")

    @property
    def to(self) -> str:
        """The address that they go to."""
        return queue_address(self.queue) if self.queue is not UNSET else str(self.address)


@declare("queues", query=(MAX_MESSAGES, PLACE), needs=NEEDS, problems=("unknown_queue", "storage_failed"),
         answers=(Answer(200, "A page: the highest priority first, oldest first.",
                         object_of({"messages": list_of(WAITING), "cursor": nullable(TEXT)})),))
async def peek(door: Door, call: Call) -> Answered:
    """Look at what is in a queue, without taking anything.

    A message that somebody holds is `leased`.
    """
    guard = await door.guard(call)
    query = call.query()
    queue = guard.groups.queue(call.topic_name(), Operation.CONSUME)
    count = MAX_MESSAGES.read(query, door.config)
    priority, start = _read_place(query, queue)
    messages: list[dict[str, Any]] = []
    left_bytes = door.config.max_page_bytes
    for at in range(priority, -1, -1):
        async for records in browse(door, guard, queue, queue.first_partition_id + at,
                                    start if at == priority else 0):
            for record, is_leased in records:
                if len(messages) == count or left_bytes < 0:
                    return json_answer({"messages": messages, "cursor": f"{at}-{record[0]}"})
                messages.append(_describe(door, queue, at, record, is_leased))
                left_bytes -= len(record[3] or b"")
    return json_answer({"messages": messages, "cursor": None})


@declare("queues", needs=NEEDS, writes=True, audited="queue.purged", problems=("unknown_queue",),
         answers=(Answer(200, "How many messages that was.", object_of({"purged": WHOLE})),))
async def purge(door: Door, call: Call) -> Answered:
    """Take everything out of a queue that is ready.

    What somebody holds stays his until he settles it.
    """
    guard = await door.guard(call)
    call.query()
    queue = guard.groups.queue(call.topic_name(), Operation.CONSUME)
    return json_answer({"purged": await door.durable(partial(guard.groups.purge, queue))})


@declare("queues", bodies=(Body(Move),), needs=(*NEEDS, Need(Operation.PUBLISH, "address")), writes=True,
         audited="queue.moved", answers=(Answer(200, "All of them went.", MOVED), Answer(207, "Some are left.", MOVED)),
         problems=("unknown_queue", "invalid_queue", "unknown_topic", "create_denied", "too_many_topics", "unroutable",
                   "invalid_address", "invalid_topic", "storage_failed", "queue_full", "kept_full",
                   "message_too_large"))
async def move(door: Door, call: Call) -> Answered:
    """Move messages of a queue to another queue, or publish them to an address.

    They are behind what is there, under the same ids.
    """
    guard = await door.guard(call)
    call.query()
    queue = guard.groups.queue(call.topic_name(), Operation.CONSUME)
    document = await read(door, call, Move)
    to, count = document.to, document.max
    guard.require(Operation.PUBLISH, to)
    moved = 0
    left: list[dict[str, Any]] = []
    count = min(count, guard.groups.queue_counts(queue).ready)        # not what comes meanwhile, perhaps for ever
    while count > moved and not left:
        async with taking(door, guard, (queue.name, ""), min(count - moved, MOVED_AT_ONCE), HELD_MS, 0
                          ) as (request, taken):
            if not taken:
                break
            stays = leases = [each.leased for each in taken]
            try:
                results = await door.durable(partial(guard.groups.move, queue, leases, to))
                stays = [leased for leased, error in zip(leases, results, strict=True) if error is not None]
            finally:
                guard.groups.give_back(request, [leased[:3] for leased in stays])
        moved += results.count(None)
        left += [document_of(error.code, str(error), {"id": str(leased[3])})
                 for leased, error in zip(leases, results, strict=True) if error is not None]
    more = guard.groups.queue_counts(queue).ready > 0
    return json_answer({"moved": moved, "left": left[:MAX_LEFT], "more": more}, 207 if left else 200)


def _read_place(query: dict[str, str], queue: Queue) -> tuple[int, int]:
    """(priority, offset) where a page begins. Refuses `invalid_parameter`."""
    highest = queue.settings.priorities - 1
    if "cursor" not in query:
        return highest, 0
    priority, dash, offset = query["cursor"].partition("-")
    if not dash or not (priority.isascii() and priority.isdigit() and offset.isascii() and offset.isdigit()) \
            or len(query["cursor"]) > len("255-9223372036854775807") or int(offset) >= 1 << 63:
        raise Refusal("invalid_parameter", "'cursor' was not given by this call", parameter="cursor")
    return min(int(priority), highest), int(offset)


async def browse(door: Door, guard: Guard, queue: Queue, partition_id: int, start: int,
                 gaps: list[tuple[int, int]] | None = None) -> AsyncIterator[list[tuple[Record, bool]]]:
    """What lies in a partition of a queue from an offset on, a piece of the log at a time: each message, and whether
    somebody holds it. `gaps` is told where nothing is."""
    groups, max_bytes = guard.groups, door.config.max_page_bytes
    at = max(start, groups.committed(queue, partition_id))
    while at < groups.end_of(queue, partition_id) and groups.committed(queue, partition_id) >= 0:
        reply: Reply[list[Fetched]] = Reply()
        groups.fetch(queue, partition_id, at, max_bytes, reply.set_result)
        (fetched,) = await reply
        if fetched.error is not None:
            raise fetched.error
        if not fetched.pieces:
            return
        for piece in fetched.pieces:
            if gaps is not None and at < piece.first_offset:
                gaps.append((at, piece.first_offset))
            records = [record for record in sound_records(piece) if at <= record[0]]
            states = groups.states(queue, partition_id, [record[0] for record in records])
            yield [(record, is_leased) for record, (is_settled, is_leased) in zip(records, states, strict=True)
                   if not is_settled]
            at = max(at, piece.first_offset + piece.count)


def _describe(door: Door, queue: Queue, priority: int, record: Record, is_leased: bool) -> dict[str, Any]:
    address = (stated_in(record[4]) or b"").decode(errors="replace") or queue_address(queue.name)
    came_by = door_of(record[5])
    return {**record_to_json(record, QUEUE_PREFIX + queue.name, priority, address,
                             door.door_names.get(came_by, str(came_by))), "leased": is_leased}


ROUTES: Routes = (("GET", "/v1/queues/{queue}/messages", peek), ("POST", "/v1/queues/{queue}/purge", purge),
                  ("POST", "/v1/queues/{queue}/move", move))
