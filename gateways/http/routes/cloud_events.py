"""Publishing CloudEvents, at the calls that publish anything; what they are stands in `gateways/http/cloud_events.py`.

A single event is answered as any message; a batch as a list of messages is, with 207 where some are refused.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from gatehouse.gateways.http.cloud_events import (
    BATCH,
    CONTENT_TYPE,
    MAX_ATTRIBUTES,
    MAX_INT,
    MEDIA_TYPE,
    STRUCTURED,
    read_binary,
    read_structured,
)
from gatehouse.gateways.http.declaring import ANYTHING, RFC_3339, Body, Named, Setting, list_of, object_of, one_of
from gatehouse.gateways.http.mapping import OF_ALL_MESSAGES, add_of_all
from gatehouse.gateways.http.message_schemas import BASE64
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.response import Answered

LINE: Final = {"type": "string", "pattern": "^[^\\x00-\\x1f\\x7f-\\x9f]+$"}
"""Text without control characters."""

EVENT: Final = Named("CloudEvent", {**object_of(
    {"specversion": one_of("1.0"), "id": LINE, "source": LINE, "type": LINE},
    {"time": RFC_3339, "datacontenttype": {"type": "string", "pattern": f"^{MEDIA_TYPE}$"}, "data": ANYTHING,
     "data_base64": BASE64, "traceparent": LINE, "partitionkey": LINE}),
    "additionalProperties": {"anyOf": [LINE, {"type": "boolean"}, {"type": "integer", "minimum": -MAX_INT - 1,
                                                                   "maximum": MAX_INT}]},
    "propertyNames": {"anyOf": [{"pattern": "^[a-z0-9]{1,64}$"}, one_of("data_base64")]},
    "maxProperties": MAX_ATTRIBUTES,
    "not": {"required": ["data", "data_base64"]}},
    {"specversion": "1.0", "id": "1", "source": "/machines/7", "type": "com.example.measured", "data": {"value": 21.5}})
EVENT_BODIES: Final = (Body(EVENT, STRUCTURED, "A CloudEvent.", required=False),
                       Body(list_of(EVENT, maxItems=Setting("max_request_messages")), BATCH, "CloudEvents.",
                            required=False))

if TYPE_CHECKING:
    from collections.abc import Callable

    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.mapping import Publication
    from gatehouse.gateways.http.request import Call

    Place = Callable[[Publication], int]


async def post_events(door: Door, call: Call, guard: Guard, publication: Publication, *, of_topic: bool, place: Place
                      ) -> Answered:
    """Store what the request holds; `place` says where one event goes."""
    from gatehouse.gateways.http.routes.messages import prepare_each, store_batch  # they build on this file
    from gatehouse.gateways.http.routes.publish import store
    kind = call.media
    if not kind.startswith("application/cloudevents"):
        read_binary(publication, of_topic)
        place(publication)                   # refused before the body is read
        await door.ready_to_append(guard)
        value = await door.bodies.read(call)
        return await store(door, call, guard, place(publication), publication, value)
    if kind not in (STRUCTURED, BATCH):
        raise Refusal("unsupported_media_type", f"events are {STRUCTURED} or {BATCH}")
    _check_headers(publication)
    await door.ready_to_append(guard)
    document = _read(await door.bodies.read_document(call))
    if kind == BATCH:
        items = _items(document, door.config.max_request_messages)

        def read(item: Any, wall_ms: int) -> tuple[int, Publication]:
            event = read_structured(item, of_topic)
            return place(event), event

        return await store_batch(door, guard, prepare_each(door, guard, items, publication, read), publication)
    event = read_structured(document, of_topic)
    add_of_all(event.headers, publication.headers)
    event.idempotency_key, event.wait_s = publication.idempotency_key, publication.wait_s
    event.respond_async = publication.respond_async
    return await store(door, call, guard, place(event), event, event.value)


def _check_headers(publication: Publication) -> None:
    """In these modes everything about an event stands in it."""
    for name, _ in publication.headers:
        if name not in (CONTENT_TYPE, b"content-encoding", b"utf8", *OF_ALL_MESSAGES):
            shown = name.decode("utf-8", "replace")
            raise Refusal("invalid_header", f"{shown!r} stands in the event, not in a request header")
    if publication.key is not None or publication.timestamp_ms or publication.later or publication.attributes:
        raise Refusal("invalid_header", "key, timestamp, delay and retain are of binary events only")


def _read(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal("invalid_body", f"the body is no JSON: {error}") from None


def _items(document: Any, max_messages: int) -> list[Any]:
    if not isinstance(document, list) or len(document) > max_messages:
        raise Refusal("invalid_body", f"a batch is a list of up to {max_messages} events")
    return document
