"""`/v1/groups/{group}/pop`, `ack`, `extend`, `release`: messages leased to whoever asks, one by one. And the same of a
queue, `/v1/queues/{queue}/…`, without `topic`: its messages are at the topic `$queue/NAME`, priority by partition.

    POST …/pop?topic=&max=&invisible=&wait=     {"messages": [{..., "receipt_handle", "attempt"}]}
    POST …/ack      {"receipt_handles": [...]}
    POST …/extend   {"receipt_handles": [...], "invisible": seconds}
    POST …/release  {"receipt_handles": [...], "delay": seconds}       without: as the group's retry says
                    {"receipt_handles": [...], "dead_letter": true}    never again

A popped message belongs to its taker for `invisible` seconds (the group's `invisible_ms` unless given); unless it is
acked until then it comes again. A pop waits up to `wait` seconds for the first message; whoever hangs up takes nothing.

The others answer for every handle: 200, or 207 where some hold nothing any more. What is answered is durable.
"""
from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.declaring import (
    TEXT,
    VALUES,
    WAIT,
    WHOLE,
    Answer,
    Body,
    D,
    Named,
    Need,
    Parameter,
    Seconds,
    Setting,
    Whole,
    declare,
    list_of,
    object_of,
    wants_json,
)
from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.door import NAME, Door, Routes, read, registered
from gatehouse.gateways.http.exchange import Answered, Call, json_answer
from gatehouse.gateways.http.leases import (
    RESULTS,
    Extension,
    Handles,
    Release,
    handles_in,
    ms_of,
    result_of,
)
from gatehouse.gateways.http.message_schemas import MESSAGE_FIELDS, MESSAGE_OPTIONS
from gatehouse.gateways.json_messages import door_of, record_to_json
from gatehouse.kernel.addresses.placing import QUEUE_PREFIX
from gatehouse.kernel.api import ACK, EXTEND, REJECT, Settling, Source, Taken
from gatehouse.kernel.api import RELEASE as GIVE_BACK
from gatehouse.kernel.errors import KernelError, UnknownTopic
from gatehouse.kernel.groups.group_settings import MAX_INVISIBLE_MS
from gatehouse.kernel.records.batch import public_headers

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard

OF_QUEUES: Final = "/v1/queues/"
ACKING: Final = Settling(ACK)
DISK_S: Final = 0.25
"""What a pop that does not want to wait is given for messages that must be read from the disk first."""


TOPIC: Final = Parameter("topic", "What the group reads.", required=True, example="plant")
MAX: Final = Whole("max", "Most messages. Of large ones there are fewer: an answer has about a MiB of them, or one.",
                   default=32, lowest=1, highest=Setting("max_page_messages"))
FOR: Final = Seconds("invisible", "Seconds for which the messages are their taker's; 0: as the group says.",
                     highest=MAX_INVISIBLE_MS / 1000)
POP_PARAMETERS: Final = (MAX, FOR, WAIT, VALUES)
POPPED: Final = Named("Popped", object_of({"messages": list_of(object_of(
    {**MESSAGE_FIELDS, "receipt_handle": TEXT, "attempt": WHOLE}, MESSAGE_OPTIONS))}))
POP_ANSWERS: Final = (Answer(200, "Messages, each with its receipt handle; none where none came in time.", POPPED),)
SETTLE_ANSWERS: Final = (Answer(200, "Durable for every handle.", RESULTS),
                         Answer(207, "Some hold nothing any more; there is a result for each.", RESULTS))
GROUPS: Final = (Need(Operation.CONSUME, "group"),)


@declare("groups", query=(TOPIC, *POP_PARAMETERS), needs=(Need(Operation.CONSUME, "topic"), *GROUPS), writes=True,
         answers=POP_ANSWERS,
         problems=("unknown_topic", "invalid_group", "assigned_group", "unknown_group", "storage_failed",
                   "over_quota"))
async def pop(door: Door, call: Call) -> Answered:
    """Lease messages of a topic to a member of a group.

    They are its own for a time, and come again unless they are acked, extended or released before it is over. Whoever
    hangs up has taken nothing.
    """
    guard = await door.guard(call)
    query = call.query()
    name, topic = call.topic_name(), query["topic"]
    await door.ready_to_hand_out(guard, topic, name)
    return _popped(door, guard, topic, name, await pop_topic(door, guard, name, query))


async def pop_topic(door: Door, guard: Guard, name: str, query: dict[str, str]) -> list[dict[str, Any]]:
    """Messages of the topic that the query names, leased to a member of the group of this name."""
    guard.require_group(Operation.CONSUME, name)
    topic = guard.topic(query["topic"], Operation.CONSUME)
    taken = await _pop(door, guard, query, (name, topic.name))
    with suppress(UnknownTopic):                 # it may have got partitions while this waited
        topic = guard.topic_by_uuid(topic.uuid, Operation.CONSUME)
    return _shown(door, taken, [(topic.name, topic.partition_ids().number_of(each.leased[0][0])) for each in taken],
                  wants_json(query))


@declare("queues", query=POP_PARAMETERS, needs=(Need(Operation.CONSUME, "address"),), writes=True, answers=POP_ANSWERS,
         problems=("unknown_queue", "unknown_group", "storage_failed", "over_quota"))
async def pop_queue(door: Door, call: Call) -> Answered:
    """Lease messages of a queue, as from a group."""
    guard = await door.guard(call)
    query = call.query()
    name = call.topic_name()
    await door.ready_to_hand_out(guard, consumers=name)
    return _popped(door, guard, "", name, await pop_from_queue(door, guard, name, query))


async def pop_from_queue(door: Door, guard: Guard, name: str, query: dict[str, str]) -> list[dict[str, Any]]:
    """Messages leased from the queue of this name."""
    queue = guard.groups.queue(name, Operation.CONSUME)
    taken = await _pop(door, guard, query, (name, ""))
    return _shown(door, taken, [(QUEUE_PREFIX + name, each.leased[0][0] - queue.first_partition_id) for each in taken],
                  wants_json(query))


async def _pop(door: Door, guard: Guard, query: dict[str, str], source: Source) -> list[Taken]:
    """What the query asks for. The group is made once the query is known to be good."""
    count = MAX.read(query, door.config)
    wait_s = WAIT.read(query, door.config)
    wants_json(query)
    invisible_ms = round(FOR.read(query, door.config) * 1000)
    async with taking(door, guard, source, count, invisible_ms, wait_s) as (_, taken):
        return taken


def _popped(door: Door, guard: Guard, topic: str, name: str, messages: list[dict[str, Any]]) -> Answered:
    return door.handed_out(guard, len(messages), json_answer({"messages": messages}), topic, name)


def _shown(door: Door, taken: list[Taken], places: list[tuple[str, int]], parsed: bool) -> list[dict[str, Any]]:
    """Leased messages as JSON's types; `places` are their topics and partitions."""
    messages = []
    for (leased, address, receipt), (topic, partition) in zip(taken, places, strict=True):
        _, offset, attempt, message_id, timestamp_ms, key, value, headers, attributes = leased
        record = (offset, timestamp_ms, key, value, public_headers(headers), attributes, message_id)
        came_by = door_of(attributes)
        messages.append({
            **record_to_json(record, topic, partition, address or topic,
                             door.door_names.get(came_by, str(came_by)), parsed=parsed),
            "receipt_handle": receipt, "attempt": attempt})
    return messages


@asynccontextmanager
async def taking(door: Door, guard: Guard, source: Source, count: int, invisible_ms: int, wait_s: float
                 ) -> AsyncIterator[tuple[int, list[Taken]]]:
    """Pop, and wait for the answer: the number of the request, and what was taken. Whoever asked and hangs up has taken
    nothing, nor has who may no longer take: Denied is raised then."""
    groups = guard.groups
    reply: Reply[list[Taken] | None] = Reply()
    errors: list[KernelError] = []

    def give_back(taken: list[Taken]) -> None:
        if taken:
            groups.give_back(request, [each.leased[:3] for each in taken])

    def on_taken(taken: list[Taken], error: KernelError | None) -> None:
        if error is not None:
            errors.append(error)
        if reply.done():
            give_back(taken)
        else:
            reply.set_result(taken)

    request, reads = groups.take(source, count, invisible_ms, on_taken)
    time_up = partial(groups.time_up, request)
    timer = door.loop.call_later(max(wait_s, DISK_S) if wait_s or reads else 0, time_up)
    try:
        try:
            with registered(door.admission, NAME, guard.logged_in, time_up,
                            partial(groups.require_taker, source)) as guest:
                taken = await door.unless_stopping(reply)
            guest.check()
        except BaseException:
            if reply.done() and not reply.cancelled():
                give_back(reply.result() or [])
            reply.cancel()
            raise
        finally:
            timer.cancel()
        if errors:
            raise errors[0]
        yield request, taken or []
    finally:
        groups.end_request(request)


@declare("groups", bodies=(Body(Handles),), needs=GROUPS, writes=True, answers=SETTLE_ANSWERS,
         problems=("invalid_group",))
async def ack(door: Door, call: Call) -> Answered:
    """Acknowledge leased messages: they are done and do not come again."""
    guard, document = await _read(door, call, Handles)
    return await settle(door, guard, call, document, ACKING)


@declare("groups", bodies=(Body(Extension),), needs=GROUPS, writes=True, answers=SETTLE_ANSWERS,
         problems=("invalid_group",))
async def extend(door: Door, call: Call) -> Answered:
    """Extend leases: keep the messages for `invisible` seconds from now on."""
    guard, document = await _read(door, call, Extension)
    return await settle(door, guard, call, document, extending(document))


def extending(document: Extension) -> Settling:
    """What an `extend` with this document does."""
    return Settling(EXTEND, ms_of(document.invisible))


@declare("groups", bodies=(Body(Release),), needs=GROUPS, writes=True, answers=SETTLE_ANSWERS,
         problems=("invalid_group",))
async def release(door: Door, call: Call) -> Answered:
    """Release leased messages, for others to take, or give them up.

    Without `delay` they come again as the group's retry says; with `dead_letter` never.
    """
    guard, document = await _read(door, call, Release)
    return await settle(door, guard, call, document, releasing(document))


def releasing(document: Release) -> Settling:
    """What a `release` with this document does."""
    return Settling(REJECT) if document.dead_letter else Settling(GIVE_BACK, ms_of(document.delay))


async def _read(door: Door, call: Call, shape: type[D]) -> tuple[Guard, D]:
    guard = await door.guard(call)
    call.query()
    guard.groups.require_settler(call.topic_name(), call.path.startswith(OF_QUEUES))
    return guard, await read(door, call, shape)


async def settle(door: Door, guard: Guard, call: Call, document: Handles, settling: Settling) -> Answered:
    """Do it and answer for each when it is durable."""
    texts = handles_in(document, door.config.max_request_messages)
    errors = await settled(door, guard, call.topic_name(), call.path.startswith(OF_QUEUES), texts, settling)
    results = [result_of(text, error) for text, error in zip(texts, errors, strict=True)]
    return json_answer({"results": results}, 207 if any(error is not None for error in errors) else 200)


async def settled(door: Door, guard: Guard, name: str, of_queue: bool, texts: list[str], settling: Settling
                  ) -> list[KernelError | None]:
    """What is wrong with each receipt, once the rest is durable."""
    return await door.durable(partial(guard.groups.settle, name, of_queue, texts, settling))


ROUTES: Routes = (
    ("POST", "/v1/groups/{group}/pop", pop),
    ("POST", "/v1/groups/{group}/ack", ack),
    ("POST", "/v1/groups/{group}/extend", extend),
    ("POST", "/v1/groups/{group}/release", release),
    ("POST", "/v1/queues/{queue}/pop", pop_queue),
    ("POST", "/v1/queues/{queue}/ack", ack),
    ("POST", "/v1/queues/{queue}/extend", extend),
    ("POST", "/v1/queues/{queue}/release", release),
)
