"""`POST /v1/publish/{address}`: one message, whose value is the body. The hot call of this door.

201 once it is durable; `Prefer: respond-async` answers 202 as soon as it is taken, and the message is then marked as
one whose sender asked for no durability.
"""
from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.addresses import check_http_path
from gatehouse.gateways.http.declaring import ADDRESS as ADDRESS_TEXT
from gatehouse.gateways.http.declaring import (
    VALUE_BODIES,
    Answer,
    Named,
    Need,
    Parameter,
    declare,
    list_of,
    object_of,
    one_of,
)
from gatehouse.gateways.http.door import DOOR, Door, Routes
from gatehouse.gateways.http.mapping import Publication, describe_place
from gatehouse.gateways.http.message_schemas import PUBLISH_HEADERS, PUBLISHED, PUBLISHED_FIELDS
from gatehouse.gateways.http.openapi import PROBLEM
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.replies import Reply
from gatehouse.gateways.http.request import Call, decode_levels
from gatehouse.gateways.http.response import Answered, Response, json_answer
from gatehouse.gateways.http.routes.cloud_events import EVENT_BODIES, post_events
from gatehouse.kernel.addresses.address import LEVEL_ESCAPES, escape
from gatehouse.kernel.message import TRANSIENT

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.kernel.api import Message
    from gatehouse.kernel.message import Place, Stored

Find = Callable[[], int]
"""Gives the place where a body goes, under the rights of now."""

PUBLISH_PREFIX: Final = "/v1/publish/"


PROBLEMS_OF_A_PLACE: Final = ("invalid_address", "unroutable", "unknown_topic", "create_denied", "too_many_topics")
PROBLEMS_OF_A_PUBLISH: Final = (
    *PROBLEMS_OF_A_PLACE, "unknown_partition", "unknown_queue", "invalid_topic", "invalid_cloud_event",
    "invalid_delay", "invalid_schedule",
    "message_too_large", "idempotency_conflict", "over_quota", "too_many_scheduled", "queue_full", "kept_full",
    "receipt_denied", "not_built", "invalid_body", "unsupported_media_type", "nothing_stored")


RESULT: Final = {"anyOf": [object_of({**PUBLISHED_FIELDS, "status": one_of(201, 202)}), PROBLEM]}
RESULTS: Final = Named("PublishResults", object_of({"messages": list_of(RESULT)}))
PUBLISHED_OR_RESULTS: Final = {"anyOf": [PUBLISHED, RESULTS]}


ADDRESS: Final = Parameter(
    "address", "Level by level, each percent-encoded for itself: `%2F` is a slash inside a level, and refused in the "
    "first one. What encodes the slashes between levels, too, as clients made from this document do, takes "
    "`POST /v1/publish?address=`.", text=ADDRESS_TEXT, example="plant/line1/temp")


@declare("publish", path=(ADDRESS,), headers=PUBLISH_HEADERS, needs=(Need(Operation.PUBLISH, "address"),), writes=True,
         pipelined=True, bodies=(*VALUE_BODIES, *EVENT_BODIES),
         answers=(Answer(201, "It is durable; for a batch there is a result for each.", PUBLISHED_OR_RESULTS),
                  Answer(202, "It is taken (`Prefer: respond-async`).", PUBLISHED_OR_RESULTS,
                         headers={"Preference-Applied": "`respond-async`"}),
                  Answer(207, "Some of a batch were refused; there is a result for each.", RESULTS)),
         problems=PROBLEMS_OF_A_PUBLISH)
def publish(door: Door, call: Call) -> Awaitable[Answered] | Response:
    """Publish one message.

    The body is its value. Its content type, and what else is known about it, stands in request headers. CloudEvents are
    taken in each of their modes; a batch goes to one address.
    """
    call.query()
    return door.with_guard(call, _publish)


def _publish(door: Door, call: Call, guard: Guard) -> Awaitable[Answered]:
    publication = call.head.publication(door.services.wall_ms)
    if publication.key is None and not (call.head.is_event or door.must_wait) and door.bodies.has_whole(call):
        return store(door, call, guard, place(guard, call.captures[0], publication), publication, call.take_body())
    return publish_at(door, call, guard, publication, partial(place, guard, call.captures[0], publication))


def publish_at(door: Door, call: Call, guard: Guard, publication: Publication, find: Find) -> Awaitable[Answered]:
    """Store the body where `find` says, as one message or as events, and answer."""
    number = find()
    if call.head.is_event:
        return post_events(door, call, guard, publication, of_topic=False, place=lambda _: find())
    if publication.key is not None:
        number = place_with_key(guard, number, publication)
    if door.must_wait or not door.bodies.has_whole(call):
        return _store_later(door, call, guard, publication, find)
    return store(door, call, guard, number, publication, call.take_body())


# decision 217: the place is asked for again after a wait
async def _store_later(door: Door, call: Call, guard: Guard, publication: Publication, find: Find) -> Answered:
    """Publish once the hub has room for the body, and all of it has come: the right may have gone meanwhile."""
    await door.ready_to_append(guard)
    value = await door.bodies.read(call)
    number = find()
    if publication.key is not None:
        number = place_with_key(guard, number, publication)
    return await store(door, call, guard, number, publication, value)


def store(door: Door, call: Call, guard: Guard, place: int, publication: Publication, value: bytes | None
          ) -> Reply[Response]:
    """Append one message whose place and properties are known; the answer, once it is durable."""
    headers = call.head.encoded_headers(publication)
    whens = [publication.when] if publication.later else None
    attributes = DOOR | publication.attributes
    if publication.respond_async:
        message: Message = (place, value, headers, attributes | TRANSIENT, publication.timestamp_ms)
        door.submit(guard, [message], None, None, publication.idempotency_key, whens)
        taken: Reply[Response] = Reply()
        taken.set_result(json_answer(describe_place(guard.look(place), None, publication.timestamp_ms, 0), 202,
                                     {"Preference-Applied": "respond-async"}))
        return taken
    receipt = door.append(guard, [(place, value, headers, attributes, publication.timestamp_ms)],
                          publication.idempotency_key, whens, publication.wait_s)
    return receipt.finished_by(partial(_created, door, guard.look(place), publication.timestamp_ms))


def _created(door: Door, place: Place, timestamp_ms: int, stored: Stored) -> Response:
    place = door.stored_in(place, stored.positions[0])
    return json_answer(describe_place(place, stored.positions[0], timestamp_ms, stored.append_ms), 201)


def place(guard: Guard, raw_address: str, publication: Publication) -> int:
    """Where an address is stored, by the look-up that remembers the verdict too."""
    raw = raw_address.encode("utf-8", "surrogateescape")
    number = guard.places.get(raw)
    return guard.place_raw(raw, address_of_path(raw_address), publication.trace) if number is None else number


def address_of_path(raw_address: str) -> str:
    """The address of a raw path: every level decoded, and what a level cannot hold escaped in it again."""
    check_http_path(raw_address)
    return "/".join(escape(level, LEVEL_ESCAPES) for level in decode_levels(raw_address))


def place_with_key(guard: Guard, number: int, publication: Publication) -> int:
    """The place for `X-Message-Key`: the address names the topic, the header the key in it."""
    of_address, key = guard.look(number), publication.key
    if of_address.key == key:
        return number
    if of_address.key is not None:
        raise Refusal("invalid_header", "X-Message-Key is the key of a bare topic; this address has its own")
    return guard.place_key(of_address.topic, key, publication.trace)


ROUTES: Routes = (("POST", PUBLISH_PREFIX + "{address...}", publish),)
