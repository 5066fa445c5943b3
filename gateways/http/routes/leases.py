"""`/v1/groups/{group}/pop`, `ack`, `extend`, `release`: messages leased to whoever asks, one by one. And the same of a
light queue, `/v1/queues/{queue}/…`, without `topic`: its messages are at the topic `$queue/NAME`, priority by queue.

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
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from gateways.http.answers import json_answer
from gateways.http.documents import read_object
from gateways.http.door import Call, Door, Routes
from gateways.http.leases import queue_number, read_delay_ms, read_handles, read_invisible_ms, result_of
from gateways.http.mapping import door_of, record_to_json
from gateways.http.problems import Refusal
from gateways.http.routes.queues import readable_queue
from gateways.http.target import decode_number, decode_seconds
from kernel.errors import ExpiredReceipt, KernelError, Stopping
from kernel.leasing.settings import MAX_INVISIBLE_MS
from kernel.placing import LIGHT
from kernel.record import read_headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateways.admission.principal import Principal
    from kernel.leasing.group import LeasedGroup
    from kernel.message import Handle, Leased

POP_PARAMETERS: Final = ("max", "invisible", "wait")
DEFAULT_POP: Final = 32
DISK_S: Final = 0.25
"""What a pop that does not want to wait is given for messages that must be read from the disk first."""


async def pop(door: Door, call: Call) -> web.StreamResponse:
    """Lease a topic's messages to a member of a group."""
    principal = door.principal(call.request)
    query = call.query("topic", *POP_PARAMETERS)
    name = call.topic_name()
    if "topic" not in query:
        raise Refusal("invalid_parameter", "a pop needs a 'topic'", parameter="topic")
    topic = door.readable_topic(principal, query["topic"])
    found = await _pop(door, query, partial(door.kernel.group, name, topic.name, tenant=principal.tenant))
    topic = door.kernel.topic_by_uuid(topic.uuid) or topic        # it may have got queues while this waited
    return _answer(door, principal, name, found,
                   [(topic.name, queue_number(topic, leased[0].queue_id)) for leased in found])


async def pop_queue(door: Door, call: Call) -> web.StreamResponse:
    """Lease a light queue's messages."""
    principal = door.principal(call.request)
    query = call.query(*POP_PARAMETERS)
    name = call.topic_name()
    queue = readable_queue(door, principal, name)
    found = await _pop(door, query, partial(door.kernel.queue_group, queue))
    return _answer(door, principal, name, found,
                   [(LIGHT + name, leased[0].queue_id - queue.first_queue_id) for leased in found])


async def _pop(door: Door, query: dict[str, str], group_of: Callable[[], LeasedGroup]) -> list[Leased]:
    """What the query asks for. The group is made once the query is known to be good."""
    most = door.config.max_page_messages
    count = decode_number(query, "max", min(DEFAULT_POP, most), 1, most)
    wait_s = decode_seconds(query, "wait", door.config.max_wait_s)
    invisible_ms = round(decode_seconds(query, "invisible", MAX_INVISIBLE_MS / 1000) * 1000)
    group = group_of()
    return await take(door, group, count, invisible_ms or group.settings.invisible_ms, wait_s)


def _answer(door: Door, principal: Principal, name: str, found: list[Leased], places: list[tuple[str, int]]
            ) -> web.Response:
    """The messages as JSON; `places` are their topics and queues."""
    handles = door.kernel.leasing.handles(principal.tenant, name)
    messages = []
    for leased, (topic, queue) in zip(found, places, strict=True):
        _, offset, attempt, message_id, timestamp_ms, key, value, headers, attributes = leased
        record = (offset, timestamp_ms, key, value, read_headers(headers, 0)[0], attributes, message_id)
        came_by = door_of(attributes)
        messages.append({
            **record_to_json(record, topic, queue, door.kernel.address_of_leased(leased) or topic,
                             door.door_names.get(came_by, str(came_by))),
            "receipt_handle": handles.encode(leased[:3]), "attempt": attempt})
    return json_answer({"messages": messages})


async def take(door: Door, group: LeasedGroup, count: int, invisible_ms: int, wait_s: float) -> list[Leased]:
    """Pop, and wait for the answer. Whoever asked and hangs up has taken nothing."""
    future: asyncio.Future[list[Leased]] = door.loop.create_future()

    def on_popped(found: list[Leased]) -> None:
        if not future.done():
            future.set_result(found)
        elif found:
            try:
                group.release([leased[:3] for leased in found], 0)
            except Stopping:
                pass            # their time runs out by itself

    popping = group.pop(count, invisible_ms, on_popped)
    timer = door.loop.call_later(max(wait_s, DISK_S) if wait_s or group.ready else 0, popping.on_time)
    try:
        found = await door.unless_stopping(future)
    finally:
        timer.cancel()
        popping.cancel()
    if popping.error is not None:
        raise popping.error
    return found or []


async def ack(door: Door, call: Call) -> web.StreamResponse:
    """These are done."""
    principal, handles, _ = await _read(door, call)
    return await settle(door, principal, call, handles, lambda group, *rest: group.ack(*rest))


async def extend(door: Door, call: Call) -> web.StreamResponse:
    """Keep these for longer."""
    principal, handles, document = await _read(door, call, "invisible")
    asked_ms = read_invisible_ms(document)

    def extend_in(group: LeasedGroup, held: list[Handle], owner: Any, token: Any) -> list[KernelError | None]:
        return group.extend(held, asked_ms or group.settings.invisible_ms, owner, token)

    return await settle(door, principal, call, handles, extend_in)


async def release(door: Door, call: Call) -> web.StreamResponse:
    """Give these back, or up."""
    principal, handles, document = await _read(door, call, "delay", "dead_letter")
    delay_ms = read_delay_ms(document)
    dead_letter = document.get("dead_letter", False)
    if not isinstance(dead_letter, bool) or (dead_letter and delay_ms is not None):
        raise Refusal("invalid_body", "'dead_letter' is true or false, and has no 'delay'")

    def release_in(group: LeasedGroup, held: list[Handle], owner: Any, token: Any) -> list[KernelError | None]:
        if dead_letter:
            return group.reject(held, owner, token)
        return group.release(held, delay_ms, owner, token)

    return await settle(door, principal, call, handles, release_in)


async def _read(door: Door, call: Call, *more: str) -> tuple[Principal, list[str], dict[str, Any]]:
    principal = door.principal(call.request)
    call.query()
    document = await read_object(door, call.request, "a list of receipt handles")
    return principal, read_handles(document, door.config.max_request_messages, *more), document


async def settle(door: Door, principal: Principal, call: Call, texts: list[str],
                 action: Callable[..., list[KernelError | None]]) -> web.StreamResponse:
    """Decode the handles, do it group by group (a name has one per topic), and answer for each when it is durable."""
    errors: list[KernelError | None] = [None] * len(texts)
    held: dict[LeasedGroup, list[tuple[int, Handle]]] = {}
    name = call.topic_name()
    leasing = door.kernel.leasing
    reader = leasing.handles(principal.tenant, name)
    for number, text in enumerate(texts):
        try:
            found = leasing.find(principal.tenant, name, *reader.decode(text))
        except KernelError as error:
            errors[number] = error
            continue
        if found is None:
            errors[number] = ExpiredReceipt("the lease has ended")
        else:
            held.setdefault(found[0], []).append((number, found[1]))
    await asyncio.gather(*(_settle_in(door, group, mine, action, errors) for group, mine in held.items()))
    results = [result_of(text, error) for text, error in zip(texts, errors, strict=True)]
    return json_answer({"results": results}, 207 if any(error is not None for error in errors) else 200)


async def _settle_in(door: Door, group: LeasedGroup, mine: list[tuple[int, Handle]],
                     action: Callable[..., list[KernelError | None]], errors: list[KernelError | None]) -> None:
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
