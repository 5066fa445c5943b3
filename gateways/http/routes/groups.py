"""`/v1/groups`: groups, their settings, how far they are, and moving them.

    {"name": "billing", "kind": "leased", "ordered": false, "invisible_ms": 30000, "max_attempts": 16, "retry": {...},
     "topics": [{"topic": "orders", "ready": 7, "leased": 2, "waiting": 1, "settled": 90, ..., "oldest": 17000...}]}

`oldest` is when the oldest message was stored that is not settled, in ms.

`PUT` makes a group (201) or makes one read as the document says (200); what it leaves out goes back to the default. A
group also exists from its first use on. `settled`, `dead`, `expired` and `lost` count since the hub's start.

`PUT /v1/groups/{group}/offsets` with {"topic", "to", "queue"} goes on from there, forward or back: `to` is `earliest`,
`latest`, an RFC 3339 time, or with `queue` an offset. Leases that run are void then.
"""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from gateways.admission.decision import Operation
from gateways.http.answers import json_answer
from gateways.http.cursor import decode_name, encode_name
from gateways.http.documents import read_object
from gateways.http.door import Call, Door, Routes
from gateways.http.leases import describe_settings, read_settings
from gateways.http.problems import Refusal
from gateways.http.routes.reading import fetch, named_offsets
from kernel.errors import InvalidGroup, UnknownGroup, UnknownQueue
from kernel.leasing.settings import ASSIGNED, LEASED

if TYPE_CHECKING:
    from gateways.admission.principal import Principal
    from kernel.leasing.group import LeasedGroup
    from kernel.leasing.settings import GroupSettings
    from kernel.topics import Topic

MAX_LISTED: Final = 1_000
"""Groups in one answer."""

QUEUES_LOOKED_AT: Final = 256
"""For the oldest message of a group."""


async def list_groups(door: Door, call: Call) -> web.StreamResponse:
    """Groups with their settings, by name; `cursor` goes on behind the last name, null at the end."""
    principal = door.principal(call.request)
    query = call.query("cursor")
    after = decode_name(query["cursor"]) if "cursor" in query else ""
    found = [pair for pair in door.kernel.groups(tenant=principal.tenant) if pair[0] > after]
    listed = found[:MAX_LISTED]
    return json_answer({"groups": [{"name": name, **describe_settings(settings)} for name, settings in listed],
                        "cursor": encode_name(listed[-1][0]) if len(found) > MAX_LISTED else None})


async def get_group(door: Door, call: Call) -> web.StreamResponse:
    """One group, and what is ready, leased and waiting for it in each topic."""
    principal = door.principal(call.request)
    call.query()
    name, settings = _existing(door, principal, call)
    topics = [await _progress(door, name, settings, topic) for topic in _topics(door, principal, name)]
    return json_answer({"name": name, **describe_settings(settings), "topics": topics})


async def put_group(door: Door, call: Call) -> web.StreamResponse:
    """Make a group, or make an existing one read as the document says."""
    principal, name = _altering(door, call)
    document = await read_object(door, call.request, "a document of a group's settings")
    existing = door.kernel.group_settings(name, tenant=principal.tenant)
    settings = read_settings({"kind": LEASED if existing is None else existing.kind, **document})
    if existing is not None and settings.kind != existing.kind:
        raise InvalidGroup(f"{name!r} is a group of the kind {existing.kind!r}; that does not change")
    define = partial(door.kernel.define_group, name, settings, tenant=principal.tenant)
    await door.durable(lambda owner, token: define(owner=owner, token=token))
    return json_answer({"name": name, **describe_settings(settings)}, 201 if existing is None else 200)


async def delete_group(door: Door, call: Call) -> web.StreamResponse:
    """Forget a group: settings, progress, leases. Its dead letters stay."""
    principal, name = _altering(door, call)
    delete = partial(door.kernel.delete_group, name, tenant=principal.tenant)
    await door.durable(lambda owner, token: delete(owner=owner, token=token))
    return web.Response(status=204)


async def get_offsets(door: Door, call: Call) -> web.StreamResponse:
    """How far the group is in every queue, of one topic or of all."""
    principal = door.principal(call.request)
    query = call.query("topic")
    name, _ = _existing(door, principal, call)
    topics = [door.readable_topic(principal, query["topic"])] if "topic" in query else _topics(door, principal, name)
    return json_answer({"offsets": [row for topic in topics for row in _offsets(door, name, topic)]})


async def put_offsets(door: Door, call: Call) -> web.StreamResponse:
    """Rewind, or skip."""
    principal, name = _altering(door, call)
    document = await read_object(door, call.request, "what a group is rewound to")
    topic, queue = _read_rewind(door, principal, document)
    queues = range(topic.queues) if queue is None else (queue,)
    found = await named_offsets(door, topic, queues, queue, {"from": document["to"]})
    offsets = dict(zip([topic.queue_id(number) for number in queues], found, strict=True))
    await door.durable(lambda owner, token: _rewind(door, name, topic, offsets, owner, token))
    return json_answer({"offsets": _offsets(door, name, topic)})


def _rewind(door: Door, name: str, topic: Topic, offsets: dict[int, int], owner: Any, token: Any) -> None:
    settings = door.kernel.group_settings(name, tenant=topic.tenant)
    if settings is not None and settings.kind == ASSIGNED:
        door.kernel.commit_offsets(name, {queue_id: (at, b"") for queue_id, at in offsets.items()}, owner, token)
    else:
        door.kernel.rewind_group(name, topic, offsets, owner, token)


def _read_rewind(door: Door, principal: Principal, document: dict[str, Any]) -> tuple[Topic, int | None]:
    to, topic, queue = document.get("to"), document.get("topic"), document.get("queue")
    if not isinstance(to, str) or not isinstance(topic, str) or document.keys() - {"to", "topic", "queue"}:
        raise Refusal("invalid_body", "a rewind has a 'topic', a 'to' and perhaps a 'queue'")
    found = door.readable_topic(principal, topic)
    if queue is not None and (type(queue) is not int or not 0 <= queue < found.queues):
        raise UnknownQueue(f"{topic} has the queues 0 to {found.queues - 1}")
    return found, queue


def _existing(door: Door, principal: Principal, call: Call) -> tuple[str, GroupSettings]:
    name = call.topic_name()
    settings = door.kernel.group_settings(name, tenant=principal.tenant)
    if settings is None:
        raise UnknownGroup(f"there is no group {name!r}")
    return name, settings


def _altering(door: Door, call: Call) -> tuple[Principal, str]:
    principal, name = door.principal(call.request), call.topic_name()
    call.query()
    door.admission.require(principal, Operation.ALTER, name)
    return principal, name


def _topics(door: Door, principal: Principal, name: str) -> list[Topic]:
    """What the group reads and the principal may."""
    return [topic for topic in door.kernel.group_topics(name, tenant=principal.tenant)
            if door.admission.may(principal, Operation.CONSUME, f"{topic.name}/#")]


async def _progress(door: Door, name: str, settings: GroupSettings, topic: Topic) -> dict[str, Any]:
    if settings.kind == ASSIGNED:
        return {"topic": topic.name, "lag": sum(row["lag"] for row in _offsets(door, name, topic))}
    group = door.kernel.group(name, topic.name, tenant=topic.tenant)
    return {"topic": topic.name, **group.counts()._asdict(), "oldest": await _oldest(door, group)}


async def _oldest(door: Door, group: LeasedGroup) -> int | None:
    """When the first message was stored that is not settled, of the first `QUEUES_LOOKED_AT` queues that have one."""
    floors = [(queue_id, supply.line.floor) for queue_id, supply in group.supplies.items()
              if supply.line.floor < supply.end()]
    wants = [(queue_id, max(floor, door.kernel.bounds(queue_id)[0]), 1) for queue_id, floor in floors]
    fetched = await fetch(door, wants[:QUEUES_LOOKED_AT], door.config.max_page_bytes) if wants else []
    return min((one.pieces[0].append_ms for one in fetched if one.pieces), default=None)


def _offsets(door: Door, name: str, topic: Topic) -> list[dict[str, Any]]:
    """One row per queue that holds or held something, or that the group has met."""
    known = door.kernel.group_offsets(name, topic)
    rows = []
    for queue, queue_id in enumerate(topic.queue_ids()):
        start, end = door.kernel.bounds(queue_id)
        if end or queue_id in known:
            offset = max(known.get(queue_id, start), start)
            rows.append({"topic": topic.name, "queue": queue, "offset": offset, "log_start_offset": start,
                         "high_watermark": end, "lag": end - offset})
    return rows


ROUTES: Routes = (
    ("GET", "/v1/groups", list_groups),
    ("GET", "/v1/groups/{group}", get_group),
    ("PUT", "/v1/groups/{group}", put_group),
    ("DELETE", "/v1/groups/{group}", delete_group),
    ("GET", "/v1/groups/{group}/offsets", get_offsets),
    ("PUT", "/v1/groups/{group}/offsets", put_offsets),
)
