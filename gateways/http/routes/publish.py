"""`POST /v1/publish/{address}`: one message, whose value is the body. The hot call of this door.

201 once it is durable; `Prefer: respond-async` answers 202 as soon as it is taken, and the message is then marked as
one whose sender asked for no durability.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from gateways.http.answers import created, json_answer
from gateways.http.door import DOOR, NAME, Call, Door, Routes
from gateways.http.mapping import Publication, not_built_property, read_headers
from gateways.http.target import decode_levels
from kernel.address import LEVEL_ESCAPES, escape
from kernel.message import TRANSIENT, When
from kernel.record import NO_HEADERS, encode_headers

if TYPE_CHECKING:
    from gateways.admission.principal import Principal
    from kernel.message import Message, Placement

PUBLISH_PREFIX: Final = "/v1/publish/"


async def publish(door: Door, call: Call) -> web.StreamResponse:
    """Store one message."""
    request = call.request
    call.query()
    principal = door.principal(request)
    publication = read_headers(request.raw_headers, door.services.now_ms())
    placement = place(door, principal, call.captures[0])
    if publication.key is not None and publication.key != placement.key:
        placement = place_with_key(door, principal, placement, publication.key)
    await door.ready_to_append(principal)
    value = await door.bodies.read(request)
    return await store(door, call, principal, placement, publication, value)


async def store(door: Door, call: Call, principal: Principal, placement: Placement, publication: Publication,
                value: bytes) -> web.StreamResponse:
    """Append one message whose place and properties are known, and answer."""
    headers = encode_headers(publication.headers) if publication.headers else NO_HEADERS
    whens = [When(publication.due_ms, publication.repeat)] if publication.later else None
    attributes = DOOR | publication.attributes
    if publication.respond_async:
        message: Message = (placement, value, headers, attributes | TRANSIENT, publication.timestamp_ms)
        door.append_unconfirmed(principal, [message], publication.idempotency_key, whens)
        return json_answer(describe(placement, None, publication.timestamp_ms, 0), 202,
                           {"Preference-Applied": "respond-async"})
    stored = await door.append(principal, [(placement, value, headers, attributes, publication.timestamp_ms)],
                               publication.idempotency_key, whens)
    document = describe(placement, stored.positions[0], publication.timestamp_ms, stored.append_ms)
    return created(call.request, document, door.date.at(door.services.now_ms()))


def describe(placement: Placement, position: tuple[int, int, int] | None, timestamp_ms: int, append_ms: int
             ) -> dict[str, Any]:
    """Where a message went, or will go. Without a position its id is not known; offset and time of append are not
    while it waits for its time. `timestamp_ms` is the sender's, or 0."""
    offset = None if position is None or position[1] < 0 else position[1]
    return {"id": None if position is None else str(position[2]), "topic": placement.topic, "queue": placement.queue,
            "offset": offset, "address": placement.address,
            "timestamp": timestamp_ms or (None if offset is None else append_ms)}


def place(door: Door, principal: Principal, raw_address: str) -> Placement:
    """Where an address is stored, by the look-up that remembers the verdict too."""
    cache = door.admission.cache(principal, NAME)
    raw = raw_address.encode("utf-8", "surrogateescape")
    placement = cache.places.get(raw)
    if placement is None:
        placement = door.admission.place(principal, address_of_path(raw_address))
        cache.remember(raw, placement)
    return placement


def address_of_path(raw_address: str) -> str:
    """The address of a raw path: every level decoded, and what a level cannot hold escaped in it again."""
    return "/".join(escape(level, LEVEL_ESCAPES) for level in decode_levels(raw_address))


def place_with_key(door: Door, principal: Principal, placement: Placement, key: bytes) -> Placement:
    """The place for `X-Message-Key`: the address names the topic, the header the key in it."""
    if placement.key is not None:
        raise not_built_property("X-Message-Key", "a key beside an address that has its own")
    return door.admission.place_in(principal, placement.topic, key)


ROUTES: Routes = (("POST", PUBLISH_PREFIX + "{address...}", publish),)
