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

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.addresses import queue_address
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.declaring import Answer, Body, Need, declare
from gatehouse.gateways.http.documents import read_object
from gatehouse.gateways.http.door import NAME, Door, Routes
from gatehouse.gateways.http.leases import (
    DELAY,
    HANDLES,
    INVISIBLE,
    RESULTS,
    partition_number,
    read_delay_ms,
    read_handles,
    read_invisible_ms,
    result_of,
)
from gatehouse.gateways.http.message_schemas import MESSAGE_FIELDS, MESSAGE_OPTIONS
from gatehouse.gateways.http.parameters import VALUES, WAIT, Parameter, Seconds, Whole, wants_json
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.replies import Reply
from gatehouse.gateways.http.request import Call
from gatehouse.gateways.http.response import Answered, json_answer
from gatehouse.gateways.http.routes.queues import readable_queue
from gatehouse.gateways.http.schemas import FLAG, TEXT, WHOLE, Named, Setting, list_of, object_of
from gatehouse.gateways.http.waiting import registered
from gatehouse.gateways.json_messages import door_of, record_to_json
from gatehouse.kernel.addresses.placing import QUEUE_PREFIX
from gatehouse.kernel.errors import ExpiredReceipt, KernelError, Stopping
from gatehouse.kernel.groups.settings import MAX_INVISIBLE_MS, check_name
from gatehouse.kernel.message import Origin
from gatehouse.kernel.records.private import public_headers

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.kernel.groups.group import LeasedGroup
    from gatehouse.kernel.message import Handle, Leased
    from gatehouse.kernel.state.topics import Topic

Action = Callable[..., "list[KernelError | None]"]
"""(group, handles, owner, token) -> what is wrong with each handle"""

OF_QUEUES: Final = "/v1/queues/"
DISK_S: Final = 0.25
"""What a pop that does not want to wait is given for messages that must be read from the disk first."""


TOPIC: Final = Parameter("topic", "What the group reads.", required=True, example="plant")
MAX: Final = Whole("max", "Most messages.", default=32, lowest=1, highest=Setting("max_page_messages"))
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
    await door.ready_to_hand_out(guard)
    return _popped(door, guard, call.topic_name(), await pop_topic(door, guard.principal, call.topic_name(), query))


async def pop_topic(door: Door, principal: Principal, name: str, query: dict[str, str]) -> list[dict[str, Any]]:
    """Messages of the topic that the query names, leased to a member of the group of this name."""
    def require() -> Topic:
        door.admission.require_group(principal, Operation.CONSUME, name)
        return door.guard_of(principal).topic(query["topic"], Operation.CONSUME)

    topic = require()
    group_of = partial(door.kernel.groups.group, name, topic.name, tenant=principal.tenant)
    leases = await _pop(door, principal, query, group_of, require)
    topic = door.kernel.topic_by_uuid(topic.uuid) or topic        # it may have got partitions while this waited
    return _shown(door, principal, name, leases,
                  [(topic.name, partition_number(topic, leased[0][0])) for leased in leases],
                  wants_json(query))


@declare("queues", query=POP_PARAMETERS, needs=(Need(Operation.CONSUME, "address"),), writes=True, answers=POP_ANSWERS,
         problems=("unknown_queue", "unknown_group", "storage_failed", "over_quota"))
async def pop_queue(door: Door, call: Call) -> Answered:
    """Lease messages of a queue, as from a group."""
    guard = await door.guard(call)
    query = call.query()
    await door.ready_to_hand_out(guard)
    return _popped(door, guard, call.topic_name(),
                   await pop_from_queue(door, guard.principal, call.topic_name(), query))


async def pop_from_queue(door: Door, principal: Principal, name: str, query: dict[str, str]) -> list[dict[str, Any]]:
    """Messages leased from the queue of this name."""
    require = partial(readable_queue, door, principal, name)
    queue = require()
    leases = await _pop(door, principal, query, partial(door.kernel.groups.queue_group, queue), require)
    return _shown(door, principal, name, leases,
                  [(QUEUE_PREFIX + name, leased[0][0] - queue.first_partition_id) for leased in leases],
                  wants_json(query))


async def _pop(door: Door, principal: Principal, query: dict[str, str], group_of: Callable[[], LeasedGroup],
               require: Callable[[], object]) -> list[Leased]:
    """What the query asks for. The group is made once the query is known to be good."""
    count = MAX.read(query, door.config)
    wait_s = WAIT.read(query, door.config)
    wants_json(query)
    invisible_ms = round(FOR.read(query, door.config) * 1000)
    group = group_of()
    return await take(door, principal, group, count, invisible_ms or group.settings.invisible_ms, wait_s, require)


def _popped(door: Door, guard: Guard, name: str, messages: list[dict[str, Any]]) -> Answered:
    return door.handed_out(guard, len(messages), json_answer({"messages": messages}), consumers=name)


def _shown(door: Door, principal: Principal, name: str, leases: list[Leased], places: list[tuple[str, int]],
           parsed: bool) -> list[dict[str, Any]]:
    """Leased messages as JSON's types; `places` are their topics and partitions."""
    handles = door.kernel.groups.handles(principal.tenant, name)
    messages = []
    for leased, (topic, partition) in zip(leases, places, strict=True):
        _, offset, attempt, message_id, timestamp_ms, key, value, headers, attributes = leased
        record = (offset, timestamp_ms, key, value, public_headers(headers), attributes, message_id)
        came_by = door_of(attributes)
        messages.append({
            **record_to_json(record, topic, partition, door.kernel.groups.address_of_leased(leased) or topic,
                             door.door_names.get(came_by, str(came_by)), parsed=parsed),
            "receipt_handle": handles.encode(leased[:3]), "attempt": attempt})
    return messages


async def take(door: Door, principal: Principal, group: LeasedGroup, count: int, invisible_ms: int, wait_s: float,
               require: Callable[[], object]) -> list[Leased]:
    """Pop, and wait for the answer. Whoever asked and hangs up has taken nothing, nor has who may no longer take:
    `require` raises then."""
    reply: Reply[list[Leased] | None] = Reply()

    def give_back(leases: list[Leased]) -> None:
        if leases:
            with suppress(Stopping):        # their time runs out by itself
                group.release([leased[:3] for leased in leases], 0)

    def on_popped(leases: list[Leased]) -> None:
        if reply.done():
            give_back(leases)
        else:
            reply.set_result(leases)

    popping = group.pop(count, invisible_ms, on_popped, Origin(NAME, principal.name))
    timer = door.loop.call_later(max(wait_s, DISK_S) if wait_s or group.ready else 0, popping.on_time)
    try:
        with registered(door.admission, NAME, principal, popping.on_time, require) as guest:
            leases = await door.unless_stopping(reply)
        guest.check()
    except BaseException:
        if reply.done() and not reply.cancelled():
            give_back(reply.result() or [])
        reply.cancel()
        raise
    finally:
        timer.cancel()
        popping.cancel()
    if popping.error is not None:
        raise popping.error
    return leases or []


@declare("groups", bodies=(Body(object_of(HANDLES, closed=True)),), needs=GROUPS, writes=True, answers=SETTLE_ANSWERS,
         problems=("invalid_group",))
async def ack(door: Door, call: Call) -> Answered:
    """Acknowledge leased messages: they are done and do not come again."""
    principal, handles, _ = await _read(door, call)
    return await settle(door, principal, call, handles, acking)


def acking(group: LeasedGroup, *rest: Any) -> list[KernelError | None]:
    """What an `ack` does in one group."""
    return group.ack(*rest)


@declare("groups", bodies=(Body(object_of(HANDLES, {"invisible": INVISIBLE}, closed=True)),), needs=GROUPS, writes=True,
         answers=SETTLE_ANSWERS, problems=("invalid_group",))
async def extend(door: Door, call: Call) -> Answered:
    """Extend leases: keep the messages for `invisible` seconds from now on."""
    principal, handles, document = await _read(door, call, "invisible")
    return await settle(door, principal, call, handles, extending(document))


def extending(document: dict[str, Any]) -> Action:
    """What an `extend` with this document does in one group."""
    asked_ms = read_invisible_ms(document)

    def extend_in(group: LeasedGroup, held: list[Handle], owner: Any, token: Any) -> list[KernelError | None]:
        return group.extend(held, asked_ms or group.settings.invisible_ms, owner, token)

    return extend_in


RELEASE: Final = {**object_of(HANDLES, {"delay": DELAY, "dead_letter": FLAG}, closed=True), "not": {
    "required": ["delay", "dead_letter"], "properties": {"delay": {"type": "number"}, "dead_letter": {"const": True}}}}


@declare("groups", bodies=(Body(RELEASE),), needs=GROUPS, writes=True, answers=SETTLE_ANSWERS,
         problems=("invalid_group",))
async def release(door: Door, call: Call) -> Answered:
    """Release leased messages, for others to take, or give them up.

    Without `delay` they come again as the group's retry says; with `dead_letter` never.
    """
    principal, handles, document = await _read(door, call, "delay", "dead_letter")
    return await settle(door, principal, call, handles, releasing(document))


def releasing(document: dict[str, Any]) -> Action:
    """What a `release` with this document does in one group."""
    delay_ms = read_delay_ms(document)
    dead_letter = document.get("dead_letter", False)
    if not isinstance(dead_letter, bool) or (dead_letter and delay_ms is not None):
        raise Refusal("invalid_body", "'dead_letter' is true or false, and has no 'delay'")

    def release_in(group: LeasedGroup, held: list[Handle], owner: Any, token: Any) -> list[KernelError | None]:
        if dead_letter:
            return group.reject(held, owner, token)
        return group.release(held, delay_ms, owner, token)

    return release_in


async def _read(door: Door, call: Call, *more: str) -> tuple[Principal, list[str], dict[str, Any]]:
    principal = await door.principal(call)
    call.query()
    require_taker(door, principal, call.topic_name(), call.path.startswith(OF_QUEUES))
    document = await read_object(door, call, "a list of receipt handles")
    return principal, read_handles(document, door.config.max_request_messages, *more), document


def require_taker(door: Door, principal: Principal, name: str, of_queue: bool) -> None:
    """Who may take messages of a group, or a queue, may settle them; the handle says which."""
    if of_queue:
        door.admission.require(principal, Operation.CONSUME, queue_address(name))
    else:
        door.admission.require_group(principal, Operation.CONSUME, name)


async def settle(door: Door, principal: Principal, call: Call, texts: list[str],
                 action: Action) -> Answered:
    """Do it and answer for each when it is durable."""
    errors = await settled(door, principal, call.topic_name(), texts, action)
    results = [result_of(text, error) for text, error in zip(texts, errors, strict=True)]
    return json_answer({"results": results}, 207 if any(error is not None for error in errors) else 200)


async def settled(door: Door, principal: Principal, name: str, texts: list[str], action: Action
                  ) -> list[KernelError | None]:
    """Decode the handles and do it group by group (a name has one per topic); what is wrong with each, once durable.
    """
    errors: list[KernelError | None] = [None] * len(texts)
    held: dict[LeasedGroup, list[tuple[int, Handle]]] = {}
    check_name(name, "group")
    groups = door.kernel.groups
    reader = groups.handles(principal.tenant, name)
    for number, text in enumerate(texts):
        try:
            lease = groups.find(principal.tenant, name, *reader.decode(text))
        except KernelError as error:
            errors[number] = error
            continue
        if lease is None:
            errors[number] = ExpiredReceipt("the lease has ended")
        else:
            held.setdefault(lease[0], []).append((number, lease[1]))
    if len(held) == 1:
        await _settle_in(door, *held.popitem(), action, errors)
    elif held:
        await asyncio.gather(*(_settle_in(door, group, mine, action, errors) for group, mine in held.items()))
    return errors


async def _settle_in(door: Door, group: LeasedGroup, mine: list[tuple[int, Handle]],
                     action: Action, errors: list[KernelError | None]) -> None:
    refused = await door.durable(partial(action, group, [handle for _, handle in mine]))
    for (number, _), error in zip(mine, refused, strict=True):
        errors[number] = error


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
