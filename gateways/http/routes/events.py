"""Server-Sent Events: messages as they come; and the tickets by which pages open streams.

    GET /v1/topics/{topic}/events?from=&filter=&last_event_id=
    GET /v1/events?filter=&selector=&from=&last_event_id=
    POST /v1/tickets        a word for the `?ticket=` of a stream, since a page's streams can send no `Authorization`

`from` is latest unless given; a resumed stream goes on behind `Last-Event-ID` whatever else is said. An event's id is
the place after it in every partition of the stream (`live/positions.py`): with it nothing is lost and nothing comes
twice. A topic that does not exist is waited for. What retention deleted before it was read is told by an event `lost`.
"""
from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.cloud_events import STRUCTURED, asks_for
from gatehouse.gateways.http.declaring import (
    NUMBER,
    TEXT,
    TICKET,
    VALUES,
    Answer,
    Named,
    Need,
    Parameter,
    declare,
    object_of,
    wants_json,
)
from gatehouse.gateways.http.declaring import SELECTOR as SELECTOR_TEXT
from gatehouse.gateways.http.door import NAME, Door, Routes, registered
from gatehouse.gateways.http.exchange import Answered, Call, Response, json_answer
from gatehouse.gateways.http.live.event_reader import EVENT_STREAM, HEADERS, EventReader
from gatehouse.gateways.http.live.positions import MAX_PARTITIONS, Positions, decode_word
from gatehouse.gateways.http.live.scope import Wanted
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.routes.messages import offset_at, read_selector, time_of
from gatehouse.kernel.addresses.address import is_topic_name
from gatehouse.kernel.errors import InvalidTopic

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.http.live.feed import Feed
    from gatehouse.kernel.selectors.selector import Selector

FROM: Final = Parameter("from", "`latest` unless given, `earliest`, or an RFC 3339 time.", example="earliest")
LAST_EVENT_ID: Final = Parameter("last_event_id", "As the header `Last-Event-ID`, which wins.")
TOPIC_FILTER: Final = Parameter("filter", "Only messages that this selector wants.", text=SELECTOR_TEXT,
                                example="priority > 3")
FILTER: Final = Parameter("filter", "Addresses, level by level; `+` is any one level, `#` (`%23`) any number.",
                          required=True, example="plant/+/temp")
SELECTOR: Final = Parameter("selector", "Only messages that this selector wants.", text=SELECTOR_TEXT,
                            example="priority > 3")
RESUME: Final = Parameter("Last-Event-ID", "The id of the last event that was received.")
EVENTS: Final = Answer(200, "Events without end: `message`, whose data is a message, and `lost`.", TEXT, EVENT_STREAM)
LEVEL_OF_PLUS: Final = "+"


@declare("read", query=(FROM, TOPIC_FILTER, VALUES, LAST_EVENT_ID, TICKET), headers=(RESUME,), answers=(EVENTS,),
         problems=("invalid_cursor", "invalid_selector", "invalid_topic", "too_many_partitions"),
         needs=(Need(Operation.CONSUME, "topic"),))
async def topic_events(door: Door, call: Call) -> Answered:
    """Follow a topic.

    As Server-Sent Events, for `curl -N` and a browser's EventSource. A topic that does not exist yet is waited for.
    """
    query = call.query()
    principal = await door.stream_principal(call, query)
    name = checked_topic(call.topic_name())
    text = query.get("filter", "")
    selector = selector_of(text, "filter")
    wanted = Wanted(principal.tenant, name, None, text, _wants_cloud_events(call), wants_json(query))
    require_follow(door, principal, wanted)
    return await _follow(door, call, query, principal, wanted, selector)


@declare("read", query=(FILTER, SELECTOR, FROM, VALUES, LAST_EVENT_ID, TICKET), headers=(RESUME,), answers=(EVENTS,),
         problems=("invalid_cursor", "invalid_selector", "invalid_filter", "too_many_partitions"),
         needs=(Need(Operation.CONSUME, "address"),))
async def filter_events(door: Door, call: Call) -> Answered:
    """Follow addresses.

    As Server-Sent Events, over all topics that can hold what matches, present and future ones.
    """
    query = call.query()
    principal = await door.stream_principal(call, query)
    if not query["filter"]:
        raise Refusal("invalid_filter", "a filter has at least one character; '#' is %23 in a URL", parameter="filter")
    text = query.get("selector", "")
    selector = selector_of(text, "selector")
    wanted = Wanted(principal.tenant, None, filter_of(call.raw_query, query["filter"]), text,
                    _wants_cloud_events(call), wants_json(query))
    require_follow(door, principal, wanted)
    return await _follow(door, call, query, principal, wanted, selector)


def _wants_cloud_events(call: Call) -> bool:
    """`Accept: text/event-stream, application/cloudevents+json`: the first is the stream, the second what is in it."""
    return asks_for(call.headers.get("accept", ""), STRUCTURED)


def checked_topic(name: str) -> str:
    """The name again. Raises InvalidTopic where no topic can ever have it."""
    if not is_topic_name(name):
        raise InvalidTopic(f"{name[:249]!r} is no topic name")
    return name


def filter_of(raw_query: str, decoded: str) -> str:
    """The filter as it is meant. A form writes a space as `+`, but a level that is `+` alone is the wildcard."""
    raw = next((part for part in raw_query.split("&") if part.startswith("filter=")), "filter=")
    raw_levels = raw.removeprefix("filter=").replace("%2F", "/").replace("%2f", "/").split("/")
    levels = decoded.split("/")
    if len(raw_levels) != len(levels):
        return decoded
    return "/".join(LEVEL_OF_PLUS if raw_level == LEVEL_OF_PLUS else level
                    for raw_level, level in zip(raw_levels, levels, strict=True))


def selector_of(text: str, parameter: str) -> Selector | None:
    """See `read_selector`; an empty text chooses everything."""
    return read_selector(text, parameter) if text else None


def may_follow(door: Door, principal: Principal, wanted: Wanted) -> bool:
    """Whether the principal may read all of a stream."""
    if wanted.filter is not None:
        return door.admission.may(principal, Operation.CONSUME, wanted.filter)
    return door.admission.may_topic(principal, Operation.CONSUME, wanted.topic or "")


def require_follow(door: Door, principal: Principal, wanted: Wanted) -> None:
    """`may_follow`, or Denied."""
    if wanted.filter is not None:
        door.admission.require(principal, Operation.CONSUME, wanted.filter)
        return
    door.admission.require_topic(principal, Operation.CONSUME, wanted.topic or "")


async def _follow(door: Door, call: Call, query: dict[str, str], principal: Principal, wanted: Wanted,
                  selector: Selector | None) -> Answered:
    feed = door.feeds.open(wanted, selector)
    try:
        with registered(door.admission, NAME, principal, _go_on,
                        partial(require_follow, door, principal, wanted)) as guest:
            positions = await begin(door, feed, query.get("from"), _last_event_id(call, query))
        guest.check()
        if call.method == "HEAD":
            return Response(headers=HEADERS)
        reader = EventReader(door, door.feeds, feed, positions, call, partial(may_follow, door, principal, wanted),
                             door.guard_of(principal))
        registration = door.admission.register(principal, NAME, reader)
        try:
            return await reader.run()
        finally:
            registration.leave()
    finally:
        door.feeds.close(feed)


def _go_on() -> None:
    """What is waited for comes at once or within a flush, and the right is looked at then."""


def _last_event_id(call: Call, query: dict[str, str]) -> str:
    return call.headers.get("last-event-id") or query.get("last_event_id", "")


async def begin(door: Door, feed: Feed, begin_at: str | None, last_event_id: str) -> Positions:
    """Where a reader of the feed begins. Refuses `invalid_cursor`, `invalid_parameter`, `too_many_partitions`."""
    if feed.ready is not None and not feed.ready.done():
        await asyncio.shield(feed.ready)                     # it is everybody's who opens this stream
    partitions, hub = feed.scope.partitions, door.port.hub
    if last_event_id:
        return _resumed(door, feed, last_event_id)
    bounds = {partition_id: door.port.bounds(partition_id) for partition_id in partitions}
    if begin_at in (None, "latest"):
        return Positions(hub, {partition_id: end for partition_id, (_, end) in bounds.items()})
    if len(partitions) > MAX_PARTITIONS:
        raise Refusal("too_many_partitions",
                      f"this stream has {len(partitions)} partitions; with more than {MAX_PARTITIONS} it begins "
                                         "now and cannot be resumed", parameter="from")
    if begin_at == "earliest":
        return Positions(hub, {partition_id: first for partition_id, (first, _) in bounds.items()})
    time_ms = time_of(begin_at or "")
    asked = {partition_id: offset_at(door.port, partition_id, time_ms) for partition_id in partitions}
    offsets = {partition_id: await reply for partition_id, reply in asked.items()}
    return Positions(hub, {partition_id: bounds[partition_id][1] if offset is None else offset
                           for partition_id, offset in offsets.items()})


def _resumed(door: Door, feed: Feed, last_event_id: str) -> Positions:
    """Behind the event of this id. Where a backup was restored since, at the end of what there is."""
    try:
        positions = decode_word(last_event_id, door.port.hub)
    except ValueError as error:
        raise Refusal("invalid_cursor", f"this event id was not made here: {error}") from None
    for partition_id in feed.scope.partitions:
        end = door.port.bounds(partition_id)[1]
        if positions.at(partition_id) > end:
            positions.move(partition_id, end)
    return positions


NEW_TICKET: Final = Named("Ticket", object_of({
    "ticket": {**TEXT, "description": "For `?ticket=` of a stream."},
    "expires_in": {**NUMBER, "description": "Seconds in which a stream can be opened with it."}}))


@declare("read", answers=(Answer(201, "A new ticket.", NEW_TICKET),))
async def issue(door: Door, call: Call) -> Answered:
    """Get a ticket.

    It lets a browser's EventSource or WebSocket log in as whoever asks here: give it as `?ticket=`.
    """
    principal = await door.principal(call)
    call.query()
    word = door.tickets.issue(principal)
    return json_answer({"ticket": word, "expires_in": door.config.ticket_s}, 201, {"Cache-Control": "no-store"})


ROUTES: Routes = (("GET", "/v1/topics/{topic}/events", topic_events), ("GET", "/v1/events", filter_events),
                  ("POST", "/v1/tickets", issue))
