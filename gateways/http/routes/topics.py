"""`/v1/topics`: the topics and their settings.

    {"name": "plant", "uuid": "6f0c...", "partitions": 4, "retention_ms": null, "retention_bytes": null,
     "max_message_bytes": null, "message_ttl_ms": null, "compact": false, "delete_retention_ms": null,
     "log_append_time": false, "interpret_headers": false, "created": 1700000000000}

`message_ttl_ms`: older messages count as expired. `compact`: the newest message of every key outlives retention,
unless the topic has a `retention_ms` or `retention_bytes` of its own, and of a key that was ended by a null value
nothing after `delete_retention_ms` (null: a day). `retention_bytes` is of each partition. `log_append_time`: what Kafka
producers send has the time of its append. `interpret_headers`: what they send is opened for the header `retain`. A
setting that is null follows the hub's. `PUT` creates (201) or makes an existing topic read as the document says (200),
what it leaves out goes back to the hub's; `PATCH` changes what it names. Partitions can be added, never taken away:
adding some breaks the order of keys at that point. Answers come once the change is durable.
"""
from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias
from uuid import UUID

import numpy as np
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
    Named,
    Need,
    choice,
    declare,
    document_like,
    list_of,
    nullable,
    object_of,
    one_of,
    properties_of,
    shown,
    wants_counts,
)
from gatehouse.gateways.http.declaring import UUID as UUID_TEXT
from gatehouse.gateways.http.door import Door, Routes, read
from gatehouse.gateways.http.exchange import Answered, Call, Response, defined_answer, json_answer
from gatehouse.gateways.http.page import decode_name, matching, page_by_name
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.representation import check_conditions
from gatehouse.kernel.errors import UnknownTopic
from gatehouse.kernel.state.topics import AT_LIMIT, MAX_PARTITIONS, Topic, TopicSettings

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard

MAX_SETTING: Final = (1 << 63) - 1
_SETTING: Final = Annotated[int, Meta(ge=1, le=MAX_SETTING)] | None
_Partitions: TypeAlias = Annotated[Annotated[int, Meta(ge=1)] | None, shown(**nullable(
    {"type": "integer", "minimum": 1, "maximum": MAX_PARTITIONS}))]


class TopicInput(document_like(  # type: ignore[misc]
        "TopicInput", TopicSettings, {"at_limit": choice(AT_LIMIT), **{
            name: _SETTING for name, value in asdict(TopicSettings()).items() if value is None}})):
    """What a topic is to be."""

    EXAMPLE = {"partitions": 8, "retention_ms": 86_400_000}
    partitions: _Partitions = None


_TOPIC: Final = {"name": TEXT, "uuid": UUID_TEXT, "partitions": WHOLE,
                 **properties_of(TopicSettings, at_limit=one_of(*AT_LIMIT)), "created": TIME_MS}
TOPIC: Final = Named("Topic", object_of(_TOPIC))
LISTED: Final = object_of(_TOPIC, {"messages": WHOLE, "groups": WHOLE, "lag": WHOLE})
BOUNDS: Final = list_of(object_of({"partition": WHOLE, "log_start_offset": WHOLE, "high_watermark": WHOLE}))

SETTINGS_BODY: Final = Body(TopicInput, required=False)
READING: Final = (Need(Operation.CONSUME, "topic"),)
ALTERING: Final = (Need(Operation.ALTER, "topic"),)


@declare("topics", query=(MAX_LISTED, AFTER, CONTAINS, WITH_COUNTS), needs=READING,
         answers=(Answer(200, "A page of topics.", object_of({"topics": list_of(LISTED), "cursor": CURSOR})),),
         problems=("invalid_cursor",))
async def list_topics(door: Door, call: Call) -> Answered:
    """List topics.

    Those that the user may read, by name. With `counts`: how many messages each holds, how many groups read it, and
    how many messages the one of them that is furthest behind has not settled.
    """
    guard = await door.guard(call)
    query = call.query()
    count = MAX_LISTED.read(query, door.config)
    after = decode_name(query.get("cursor", ""))
    counted = wants_counts(query)
    topics, cursor = page_by_name([topic for topic in guard.topics.all_after(after, Operation.CONSUME)
                                   if matching(topic.name, query)], count, attrgetter("name"))
    listed = [describe_topic(topic) for topic in topics]
    if counted:
        for document, counts in zip(listed, await count_topics(guard, topics), strict=True):
            document.update(counts)
    return json_answer({"topics": listed, "cursor": cursor})


@declare("topics", needs=READING, answers=(Answer(200, "The topic.", object_of({**_TOPIC, "bounds": BOUNDS})),),
         problems=("unknown_topic",))
async def get_topic(door: Door, call: Call) -> Answered:
    """Show a topic with the bounds of its partitions."""
    guard = await door.guard(call)
    call.query()
    topic = guard.topic(call.topic_name(), Operation.CONSUME)
    bounds = []
    for partition, partition_id in enumerate(topic.partition_ids()):
        first, end = guard.bounds(partition_id)
        bounds.append({"partition": partition, "log_start_offset": first, "high_watermark": end})
    return defined_answer(describe_topic(topic), {"bounds": bounds})


@declare("topics", bodies=(SETTINGS_BODY,), needs=(Need(Operation.CREATE, "topic"), *ALTERING),
         writes=True, audited="topic.changed",
         answers=(Answer(200, "It reads as the document says.", TOPIC),
                  Answer(201, "It is made.", TOPIC, headers={"Location": "Its path."})),
         problems=("invalid_topic", "topic_exists", "too_many_topics", "partitions_remain", "precondition_failed"))
async def put_topic(door: Door, call: Call) -> Answered:
    """Make a topic, or make an existing one read as the document says.

    What the document leaves out is as by default. Partitions can be added, never taken away. `If-Match` with the
    topic's `ETag` changes only what was seen, `If-None-Match: *` only makes one.
    """
    guard, name = await _asking(door, call)
    partitions, changes = await _read_document(door, call)
    settings = TopicSettings(**changes)
    existing = guard.topics.to_change(name)
    _check_conditions(call, existing)
    if existing is None:
        topic = await door.durable(partial(guard.topics.create, name, partitions, settings))
        return json_answer(describe_topic(topic), 201, {"Location": f"/v1/topics/{name}"})
    return await _change(door, guard, existing, partitions, settings)


@declare("topics", bodies=(SETTINGS_BODY,), needs=ALTERING, writes=True, audited="topic.changed",
         answers=(Answer(200, "The topic as it is now.", TOPIC),),
         problems=("invalid_topic", "unknown_topic", "partitions_remain", "precondition_failed"))
async def patch_topic(door: Door, call: Call) -> Answered:
    """Change the settings of a topic that the document names.

    `If-Match` with the topic's `ETag` changes only what was seen.
    """
    guard, name = await _asking(door, call)
    partitions, changes = await _read_document(door, call)
    existing = _existing(guard, call, name)
    return await _change(door, guard, existing, partitions, replace(existing.settings, **changes))


@declare("topics", needs=ALTERING,
         writes=True, audited="topic.deleted", answers=(Answer(204, "It is gone."),),
         problems=("unknown_topic", "precondition_failed"))
async def delete_topic(door: Door, call: Call) -> Answered:
    """Delete a topic with its messages.

    `If-Match` with the topic's `ETag` deletes only what was seen.
    """
    guard, name = await _asking(door, call)
    _existing(guard, call, name)
    await door.durable(partial(guard.topics.delete, name))
    return Response(status=204)


async def _change(door: Door, guard: Guard, existing: Topic, partitions: int | None,
                  settings: TopicSettings) -> Response:
    if partitions in (None, existing.partitions) and settings == existing.settings:
        await door.stored(door.flush)        # somebody else may be making it
        return json_answer(describe_topic(existing))
    if partitions is not None and partitions < existing.partitions:
        raise Refusal("partitions_remain",
                      f"{existing.name} has {existing.partitions} partitions; they can be added, not removed")
    topic = await door.durable(partial(guard.topics.change, existing.name, partitions, settings))
    return json_answer(describe_topic(topic))


def describe_topic(topic: Topic) -> dict[str, Any]:
    """A topic as JSON's types."""
    return {"name": topic.name, "uuid": str(UUID(bytes=topic.uuid)), "partitions": topic.partitions,
            **asdict(topic.settings),
            "created": topic.created_ms}


async def _asking(door: Door, call: Call) -> tuple[Guard, str]:
    guard = await door.guard(call)
    call.query()
    return guard, call.topic_name()


def _check_conditions(call: Call, existing: Topic | None) -> None:
    check_conditions(call.headers, None if existing is None else describe_topic(existing))


def _existing(guard: Guard, call: Call, name: str) -> Topic:
    """A topic that may be altered, as the request has seen it. Raises Denied, UnknownTopic; refuses
    `precondition_failed`, also where there is none."""
    try:
        topic = guard.topic(name, Operation.ALTER)
    except UnknownTopic:
        _check_conditions(call, None)
        raise
    _check_conditions(call, topic)
    return topic


async def _read_document(door: Door, call: Call) -> tuple[int | None, dict[str, Any]]:
    """(partitions, settings) of a topic's document; an empty body is an empty document."""
    settings = (await read(door, call, TopicInput)).given()
    return settings.pop("partitions"), settings


GROUPS_AT_ONCE: Final = 100
"""Groups looked at before others have a turn: a millisecond or two."""


async def count_topics(guard: Guard, topics: list[Topic]) -> list[dict[str, int]]:
    """Three counts for each topic: the `messages` it holds, the `groups` that read it, and the `lag` of the group that
    is furthest behind."""
    counts = [{"messages": _messages_in(guard, topic), "groups": 0, "lag": 0} for topic in topics]
    of_topic = {topic.id: number for number, topic in enumerate(topics)}
    start = 0
    while (rows := guard.groups.behind(topics, start, GROUPS_AT_ONCE)) is not None:
        for topic_id, lag in rows:
            topic_counts = counts[of_topic[topic_id]]
            topic_counts["groups"] += 1
            topic_counts["lag"] = max(topic_counts["lag"], lag)
        start += GROUPS_AT_ONCE
        await asyncio.sleep(0)
    return counts


def _messages_in(guard: Guard, topic: Topic) -> int:
    bounds = np.frombuffer(guard.bounds_of(topic), np.int64)
    return int(bounds[1::2].sum() - bounds[::2].sum())


ROUTES: Routes = (
    ("GET", "/v1/topics", list_topics),
    ("GET", "/v1/topics/{topic}", get_topic),
    ("PUT", "/v1/topics/{topic}", put_topic),
    ("PATCH", "/v1/topics/{topic}", patch_topic),
    ("DELETE", "/v1/topics/{topic}", delete_topic),
)
