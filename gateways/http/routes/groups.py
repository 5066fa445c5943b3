"""`/v1/groups`: groups, their settings, how far they are, and moving them.

    {"name": "billing", "kind": "leased", "ordered": false, "invisible_ms": 30000, "max_attempts": 16, "retry": {...},
     "topics": [{"topic": "orders", "ready": 7, "leased": 2, "waiting": 1, "settled": 90, ..., "oldest": 17000...}]}

    {"name": "readers", "kind": "assigned", "state": "Stable", "protocol": "consumer", "assignor": "uniform",
     "generation": 3, "members": [{"member_id": "...", ..., "partitions": [{"topic": "orders", "partitions": [0]}]}]}

`oldest` is when the oldest message was stored that is not settled, in ms.

`PUT` makes a group (201) or makes one read as the document says (200); what it leaves out goes back to the default. A
group also exists from its first use on. `settled`, `dead`, `expired` and `lost` count since the hub's start.

`PUT /v1/groups/{group}/offsets` with {"topic", "to", "partition"} goes on from there, forward or back: `to` is
`earliest`, `latest`, an RFC 3339 time, or with `partition` an offset. Leases that run are void then.
"""
from __future__ import annotations

import asyncio
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.declaring import (
    AFTER,
    CONTAINS,
    CURSOR,
    MAX_LISTED,
    TEXT,
    TIME_MS,
    WHOLE,
    WITH_COUNTS,
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
    wants_counts,
)
from gatehouse.gateways.http.door import Door, Routes, read
from gatehouse.gateways.http.exchange import Answered, Call, Response, defined_answer, json_answer
from gatehouse.gateways.http.leases import COUNTS, GROUP, GroupInput, describe_settings, read_settings
from gatehouse.gateways.http.page import decode_name, matching, page_by_name
from gatehouse.gateways.http.representation import check_conditions
from gatehouse.gateways.http.routes.messages import EDGE_OR_TIME, OFFSET, fetch, named_offsets
from gatehouse.kernel.errors import AssignedGroup, GroupIsLeased, UnknownPartition
from gatehouse.kernel.groups.group_settings import ASSIGNED, LEASED

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.kernel.groups.group_settings import GroupSettings
    from gatehouse.kernel.state.topics import Topic

PARTITIONS_LOOKED_AT: Final = 256
"""For the oldest message of a group."""


_PROGRESS: Final = {"anyOf": [object_of({"topic": TEXT, "lag": WHOLE}),
                              object_of({"topic": TEXT, **COUNTS, "oldest": nullable(TIME_MS)})]}
_MEMBERSHIP: Final = {
    "state": TEXT, "protocol": TEXT, "assignor": TEXT, "generation": WHOLE, "members": list_of(object_of({
        "member_id": TEXT, "instance_id": nullable(TEXT), "client_id": TEXT, "client_host": TEXT, "generation": WHOLE,
        "partitions": list_of(object_of({"topic": TEXT, "partitions": list_of(WHOLE)}))}))}
OFFSETS: Final = Named("GroupOffsets", object_of({"offsets": list_of(object_of({
    "topic": TEXT, **dict.fromkeys(("partition", "offset", "log_start_offset", "high_watermark", "lag"), WHOLE)}))}))
TOPIC: Final = Parameter("topic", "Of this topic alone.", example="plant")
ALTERING: Final = (Need(Operation.ALTER, "group"),)
READING: Final = (Need(Operation.CONSUME, "group"),)


class Rewind(Document):
    """Where a group goes on in a topic; an offset is of one partition."""

    EXAMPLE = {"topic": "plant", "to": "earliest"}
    RULES = {"anyOf": [{"properties": {"to": EDGE_OR_TIME}},
                       {"properties": {"to": OFFSET, "partition": WHOLE}, "required": ["partition"]}]}
    topic: str
    to: str
    partition: Annotated[int, Meta(ge=0)] | None = None


@declare("groups", query=(MAX_LISTED, AFTER, CONTAINS, WITH_COUNTS), needs=READING, problems=("invalid_cursor",),
         answers=(Answer(200, "A page of groups.",
                         object_of({"groups": list_of(object_of(GROUP, {"topics": list_of(_PROGRESS)})),
                                    "cursor": CURSOR})),))
async def list_groups(door: Door, call: Call) -> Answered:
    """List groups with their settings.

    Those that the user may consume with, by name. With `counts`: and with what is ready, leased and waiting for each in
    its topics.
    """
    guard = await door.guard(call)
    query = call.query()
    count, counted = MAX_LISTED.read(query, door.config), wants_counts(query)
    after = decode_name(query.get("cursor", ""))
    entries, cursor = page_by_name([(name, settings) for name, settings in guard.groups.all_after(after)
                                    if matching(name, query)], count, itemgetter(0))
    groups = []
    for name, settings in entries:
        groups.append(_describe(name, settings))
        if counted:
            groups[-1]["topics"] = [_counts(guard, name, settings, topic) for topic in guard.groups.topics(name)]
            await asyncio.sleep(0)                   # others have a turn between two groups
    return json_answer({"groups": groups, "cursor": cursor})


@declare("groups", needs=READING, problems=("unknown_group", "storage_failed"),
         answers=(Answer(200, "The group.", object_of({**GROUP, "topics": list_of(_PROGRESS)}, _MEMBERSHIP)),))
async def get_group(door: Door, call: Call) -> Answered:
    """Show a group, and what is ready, leased and waiting for it in each topic.

    An assigned group with its members, and the partitions that each has.
    """
    guard = await door.guard(call)
    call.query()
    name = call.topic_name()
    settings = guard.groups.settings(name, Operation.CONSUME)
    rows = [_progress(guard, name, settings, topic) for topic in guard.groups.topics(name)]
    topics = [counts if settings.kind == ASSIGNED else {**counts, "oldest": await _oldest(door, guard, wants)}
              for counts, wants in rows]
    return defined_answer(_describe(name, settings), {"topics": topics, **_membership(guard, name, settings)})


@declare("groups", bodies=(Body(GroupInput, required=False),), needs=ALTERING, writes=True, audited="group.changed",
         answers=(Answer(200, "It reads as the document says.", object_of(GROUP)),
                  Answer(201, "It is made.", object_of(GROUP))),
         problems=("invalid_group", "invalid_selector", "assigned_group", "leased_group", "precondition_failed"))
async def put_group(door: Door, call: Call) -> Answered:
    """Make a group, or make an existing one read as the document says.

    What the document leaves out is as by default; the kind of a group does not change. A group also exists from its
    first use on. `If-Match` with the group's `ETag` changes only what was seen, `If-None-Match: *` only makes one.
    """
    guard, name = await _altering(door, call)
    document = await read(door, call, GroupInput)
    existing = _checked(guard, call, name)
    settings = read_settings(document, LEASED if existing is None else existing.kind)
    if existing is not None and settings.kind != existing.kind:
        refusal = AssignedGroup if existing.kind == ASSIGNED else GroupIsLeased
        raise refusal(f"{name!r} is a group of the kind {existing.kind!r}; that does not change")
    await door.durable(partial(guard.groups.define, name, settings))
    return json_answer(_describe(name, settings), 201 if existing is None else 200)


@declare("groups", needs=ALTERING, writes=True, audited="group.deleted",
         problems=("unknown_group", "invalid_group", "group_has_members", "precondition_failed"),
         answers=(Answer(204, "It is forgotten."),))
async def delete_group(door: Door, call: Call) -> Answered:
    """Forget a group: settings, progress, leases.

    Its dead letters stay. `If-Match` with the group's `ETag` forgets only what was seen.
    """
    guard, name = await _altering(door, call)
    _checked(guard, call, name)
    await door.durable(partial(guard.groups.delete, name))
    return Response(status=204)


@declare("groups", query=(TOPIC,), needs=READING, problems=("unknown_group", "unknown_topic"),
         answers=(Answer(200, "A row for every partition that holds or held something.", OFFSETS),))
async def get_offsets(door: Door, call: Call) -> Answered:
    """Show how far a group is in every partition, of one topic or of all."""
    guard = await door.guard(call)
    query = call.query()
    name = call.topic_name()
    guard.groups.settings(name, Operation.CONSUME)
    topics = [guard.topic(query["topic"], Operation.CONSUME)] if "topic" in query else guard.groups.topics(name)
    return json_answer({"offsets": [row for topic in topics for row in _offsets(guard, name, topic)]})


@declare("groups", bodies=(Body(Rewind),), needs=(*ALTERING, Need(Operation.CONSUME, "topic")),
         writes=True, audited="group.rewound",
         problems=("invalid_parameter", "invalid_group", "unknown_group", "group_has_members", "unknown_topic",
                   "unknown_partition", "offset_out_of_range", "storage_failed"),
         answers=(Answer(200, "Where the group is now.", OFFSETS),))
async def put_offsets(door: Door, call: Call) -> Answered:
    """Move a group forward or back in a topic.

    Leases that run are void then.
    """
    guard, name = await _altering(door, call)
    document = await read(door, call, Rewind)
    topic, partition = guard.topic(document.topic, Operation.CONSUME), document.partition
    if partition is not None and partition >= topic.partitions:
        raise UnknownPartition(f"{document.topic} has the partitions 0 to {topic.partitions - 1}")
    partitions = range(topic.partitions) if partition is None else (partition,)
    new_offsets = await named_offsets(guard, topic, partitions, {"from": document.to})
    offsets = dict(zip([topic.partition_id(number) for number in partitions], new_offsets, strict=True))
    await door.durable(partial(guard.groups.rewind, name, topic, offsets))
    return json_answer({"offsets": _offsets(guard, name, topic)})


def _describe(name: str, settings: GroupSettings) -> dict[str, Any]:
    return {"name": name, **describe_settings(settings)}


def _checked(guard: Guard, call: Call, name: str) -> GroupSettings | None:
    """The group as it is, if there is one. Refuses `precondition_failed`."""
    settings = guard.groups.find(name, Operation.ALTER)
    check_conditions(call.headers, None if settings is None else _describe(name, settings))
    return settings


async def _altering(door: Door, call: Call) -> tuple[Guard, str]:
    guard, name = await door.guard(call), call.topic_name()
    call.query()
    guard.require_group(Operation.ALTER, name)
    return guard, name


def _membership(guard: Guard, name: str, settings: GroupSettings) -> dict[str, Any]:
    """Who is in an assigned group; nothing of others, or where nobody has been for a while."""
    look = guard.groups.look(name) if settings.kind == ASSIGNED else None
    if look is None:
        return {}
    members = [{"member_id": member.member_id, "instance_id": member.instance_id, "client_id": member.client_id,
                "client_host": member.client_host.removeprefix("/"), "generation": member.generation,
                "partitions": [{"topic": topic.name, "partitions": numbers}
                               for topic, numbers in guard.groups.topics_of(list(member.partition_ids))]}
               for member in look.members]
    return {"state": look.state.value, "protocol": look.protocol, "assignor": look.assignor,
            "generation": look.generation, "members": members}


def _counts(guard: Guard, name: str, settings: GroupSettings, topic: Topic) -> dict[str, Any]:
    """What memory tells of its progress."""
    if settings.kind == ASSIGNED:
        return {"topic": topic.name, "lag": sum(row["lag"] for row in _offsets(guard, name, topic))}
    counts = guard.groups.counts(name, topic.name)
    return {"topic": topic.name, **counts._asdict(), "oldest": counts.oldest_ms or None}


def _progress(guard: Guard, name: str, settings: GroupSettings, topic: Topic
              ) -> tuple[dict[str, Any], list[tuple[int, int, int]]]:
    """What is told of a topic, and where its oldest message may be: the group may be gone after the first wait, and
    asking for it would make it again."""
    counts = _counts(guard, name, settings, topic)
    if settings.kind == ASSIGNED:
        return counts, []
    return counts, _unsettled(guard, name, topic)


def _unsettled(guard: Guard, name: str, topic: Topic) -> list[tuple[int, int, int]]:
    """To fetch the first message that is not settled, of the first `PARTITIONS_LOOKED_AT` partitions that have one."""
    return [(partition_id, max(committed, guard.bounds(partition_id)[0]), 1)
            for partition_id, committed in guard.groups.unsettled(name, topic.name)[:PARTITIONS_LOOKED_AT]]


async def _oldest(door: Door, guard: Guard, wants: list[tuple[int, int, int]]) -> int | None:
    """When the first of them was stored."""
    fetched = await fetch(guard, wants, door.config.max_page_bytes) if wants else []
    return min((answer.pieces[0].append_ms for answer in fetched if answer.pieces), default=None)


def _offsets(guard: Guard, name: str, topic: Topic) -> list[dict[str, Any]]:
    """One row per partition that holds or held something, or that the group has met."""
    offsets = guard.groups.offsets(name, topic)
    rows = []
    for partition, partition_id in enumerate(topic.partition_ids()):
        start, end = guard.bounds(partition_id)
        if end or partition_id in offsets:
            offset = max(offsets.get(partition_id, start), start)
            rows.append({"topic": topic.name, "partition": partition, "offset": offset, "log_start_offset": start,
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
