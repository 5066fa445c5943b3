"""`/v1/topics`: the topics and their settings.

    {"name": "plant", "uuid": "6f0c...", "queues": 4, "retention_ms": null, "max_message_bytes": null,
     "message_ttl_ms": null, "compact": false, "delete_retention_ms": null, "interpret_headers": false,
     "created": 1700000000000}

`message_ttl_ms`: older messages count as expired. `compact`: the newest message of every key outlives retention, and of
a key that was ended by a null value nothing after `delete_retention_ms` (null: a day). `interpret_headers`: what Kafka
producers send is opened for the header `retain`. A setting that is null follows the
hub's. `PUT` creates (201) or makes an existing topic read as the document says (200), what it leaves out goes back to
the hub's; `PATCH` changes what it names. Queues can be added, never taken away: adding some breaks the order of keys at
that point. Answers come once the change is durable.
"""
from __future__ import annotations

from dataclasses import asdict, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from aiohttp import web

from gateways.admission.decision import Operation
from gateways.http.answers import json_answer
from gateways.http.cursor import decode_name, encode_name
from gateways.http.documents import read_object
from gateways.http.door import Call, Door, Routes
from gateways.http.problems import Refusal
from gateways.http.target import decode_number
from kernel.errors import UnknownTopic
from kernel.topics import Topic, TopicSettings

if TYPE_CHECKING:
    from gateways.admission.principal import Principal

MAX_LISTED: Final = 1_000
"""Topics in one answer of the list."""

MAX_SETTING: Final = (1 << 63) - 1
SETTINGS: Final = tuple(field.name for field in fields(TopicSettings))
FLAGS: Final = tuple(name for name, value in asdict(TopicSettings()).items() if isinstance(value, bool))


async def list_topics(door: Door, call: Call) -> web.StreamResponse:
    """The topics that the principal may read, by name; `cursor` goes on behind the last name, null at the end."""
    principal = door.principal(call.request)
    query = call.query("max", "cursor")
    count = decode_number(query, "max", MAX_LISTED, 1, MAX_LISTED)
    after = decode_name(query["cursor"]) if "cursor" in query else ""
    topics = sorted((topic for topic in door.kernel.topics(tenant=principal.tenant) if topic.name > after
                     and door.admission.may(principal, Operation.CONSUME, f"{topic.name}/#")), key=_name_of)
    cursor = encode_name(topics[count - 1].name) if len(topics) > count else None
    return json_answer({"topics": [describe_topic(topic) for topic in topics[:count]], "cursor": cursor})


async def get_topic(door: Door, call: Call) -> web.StreamResponse:
    """One topic with the bounds of its queues."""
    principal = door.principal(call.request)
    call.query()
    topic = door.readable_topic(principal, call.topic_name())
    bounds = []
    for queue, queue_id in enumerate(topic.queue_ids()):
        first, end = door.kernel.bounds(queue_id)
        bounds.append({"queue": queue, "log_start_offset": first, "high_watermark": end})
    return json_answer({**describe_topic(topic), "bounds": bounds})


async def put_topic(door: Door, call: Call) -> web.StreamResponse:
    """Create a topic, or make an existing one read as the document says."""
    principal, name = _asking(door, call)
    queues, changes = await _read_document(door, call)
    settings = TopicSettings(**changes)
    existing = door.kernel.topic(name, tenant=principal.tenant)
    door.admission.require(principal, Operation.ALTER if existing is not None else Operation.CREATE, name)
    if existing is None:
        create = partial(door.kernel.create_topic, name, queues=queues, settings=settings, tenant=principal.tenant)
        topic = await door.durable(lambda owner, token: create(owner=owner, token=token))
        return json_answer(describe_topic(topic), 201, {"Location": f"/v1/topics/{name}"})
    return await _change(door, principal, existing, queues, settings)


async def patch_topic(door: Door, call: Call) -> web.StreamResponse:
    """Change the settings that the document names."""
    principal, name = _asking(door, call)
    queues, changes = await _read_document(door, call)
    door.admission.require(principal, Operation.ALTER, name)
    existing = _existing(door, principal, name)
    return await _change(door, principal, existing, queues, replace(existing.settings, **changes))


async def delete_topic(door: Door, call: Call) -> web.StreamResponse:
    """Delete a topic with its messages."""
    principal, name = _asking(door, call)
    door.admission.require(principal, Operation.ALTER, name)
    _existing(door, principal, name)
    delete = partial(door.kernel.delete_topic, name, tenant=principal.tenant)
    await door.durable(lambda owner, token: delete(owner=owner, token=token))
    return web.Response(status=204)


async def _change(door: Door, principal: Principal, existing: Topic, queues: int | None,
                  settings: TopicSettings) -> web.Response:
    if queues in (None, existing.queues) and settings == existing.settings:
        return json_answer(describe_topic(existing))
    change = partial(door.kernel.change_topic, existing.name, queues=queues, settings=settings, tenant=principal.tenant)
    topic = await door.durable(lambda owner, token: change(owner=owner, token=token))
    return json_answer(describe_topic(topic))


def describe_topic(topic: Topic) -> dict[str, Any]:
    """A topic as JSON's types."""
    return {"name": topic.name, "uuid": str(UUID(bytes=topic.uuid)), "queues": topic.queues, **asdict(topic.settings),
            "created": topic.created_ms}


def _asking(door: Door, call: Call) -> tuple[Principal, str]:
    principal = door.principal(call.request)
    call.query()
    return principal, call.topic_name()


def _existing(door: Door, principal: Principal, name: str) -> Topic:
    topic = door.kernel.topic(name, tenant=principal.tenant)
    if topic is None:
        raise UnknownTopic(f"there is no topic {name!r}")
    return topic


async def _read_document(door: Door, call: Call) -> tuple[int | None, dict[str, Any]]:
    """(queues, settings) of a topic's document; an empty body is an empty document."""
    document = await read_object(door, call.request, "a document of a topic's settings")
    for name, value in document.items():
        if name not in SETTINGS and name != "queues":
            known = ", ".join(("queues", *SETTINGS))
            raise Refusal("invalid_body", f"a topic has no setting {name!r}; there are: {known}")
        if name in FLAGS:
            if not isinstance(value, bool):
                raise Refusal("invalid_body", f"{name!r} is true or false")
        elif value is not None and (type(value) is not int or not 1 <= value <= MAX_SETTING):
            raise Refusal("invalid_body", f"{name!r} is a whole number from 1, or null")
    queues = document.pop("queues", None)
    return queues, document


def _name_of(topic: Topic) -> str:
    return topic.name


ROUTES: Routes = (
    ("GET", "/v1/topics", list_topics),
    ("GET", "/v1/topics/{topic}", get_topic),
    ("PUT", "/v1/topics/{topic}", put_topic),
    ("PATCH", "/v1/topics/{topic}", patch_topic),
    ("DELETE", "/v1/topics/{topic}", delete_topic),
)
