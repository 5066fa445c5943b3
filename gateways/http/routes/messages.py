"""Messages: publishing them, and reading a page of a topic.

Publishing
----------
One message whose value is the body, many messages in one request, and CloudEvents.

    POST /v1/publish/{address}
        CloudEvents          one, or a batch: what they are stands in `cloud_events.py`
        anything else        one message, whose value is the body; the hot call of this door
    POST /v1/topics/{topic}/messages
        application/json     {"messages": [{"key", "value", "headers", ...}, ...]}, see `mapping.py`
        CloudEvents          the same
        anything else        one message; the body is its value, `?key=` its key, the headers are those of a publish
    POST /v1/publish?address=plant/line1/temp
        any                  one message, as at /v1/publish/plant/line1/temp
    POST /v1/publish
        application/json     the same list, where each message says where it goes: by its `address`, or by `topic` and
                             `key`

201 once it is durable; `Prefer: respond-async` answers 202 as soon as it is taken, and the message is then marked as
one whose sender asked for no durability.

Many messages are stored together or not at all, except those that are refused one by one: then the answer is 207 and
says for each what became of it; where none is left it is a problem, with the same in `messages`. Their order is kept. A
single event is answered as any message, a batch of events as a list of messages is.

Reading
-------
`GET /v1/topics/{topic}/messages`: a page of messages and the cursor for the next; nothing is kept in the server.

    from      earliest (unless told otherwise), latest, an RFC 3339 time, or with `partition` an offset
    partition only this partition
    cursor    go on where the page that gave it ended, instead of `from`
    max       messages in the page, 100 unless told otherwise
    wait      seconds to wait while there is nothing; the answer comes with the first flush that touches the topic
    filter    only messages that this selector wants (`kernel.selectors`); give it again with every cursor
    values    `json`: values that are JSON are shown as such

What a page could not give is named in it: `lost` (deleted by retention before this reader came) and `unreadable`. How
many messages the filter passed over is `skipped`: a page that has no messages but skipped some is not the end. What the
filter names and none of them has is in `unknown_names`: a name that is written wrong passes over everything.
"""
from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.addresses import check_http_path
from gatehouse.gateways.http.cloud_events import (
    BATCH,
    CONTENT_TYPE,
    STRUCTURED,
    asks_for,
    read_binary,
    read_structured,
    to_structured,
)
from gatehouse.gateways.http.declaring import ADDRESS as ADDRESS_TEXT
from gatehouse.gateways.http.declaring import (
    CURSOR_IN,
    JSON,
    MAX_MESSAGES,
    MOMENT,
    SELECTOR,
    TEXT,
    VALUE_BODIES,
    VALUES,
    WAIT,
    WHOLE,
    Answer,
    Body,
    Named,
    Need,
    Parameter,
    Setting,
    Whole,
    declare,
    list_of,
    object_of,
    one_of,
    wants_json,
)
from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.door import DOOR, Door, Routes
from gatehouse.gateways.http.exchange import Answered, Call, Response, decode_levels, json_answer
from gatehouse.gateways.http.mapping import OF_ALL_MESSAGES, Publication, add_of_all, describe_place, read_message
from gatehouse.gateways.http.message_schemas import (
    ADDRESSED_MESSAGE,
    EVENT,
    EVENT_BODIES,
    MESSAGE,
    MESSAGE_EXAMPLE,
    NEW_MESSAGE,
    PUBLISH_HEADERS,
    PUBLISHED,
    PUBLISHED_FIELDS,
)
from gatehouse.gateways.http.openapi import PROBLEM
from gatehouse.gateways.http.page import (
    Cursor,
    Page,
    Selection,
    cursor_at_hand,
    next_cursor,
    offsets_at_hand,
    page_to_json,
    partitions_of,
    read_page,
)
from gatehouse.gateways.http.problems import Refusal, document_of
from gatehouse.gateways.properties.envelope import SELECTOR_NAMES, Kind
from gatehouse.gateways.properties.values import normalize
from gatehouse.kernel.addresses.address import LEVEL_ESCAPES, escape
from gatehouse.kernel.errors import InvalidSelector, KernelError, MessageTooLarge, UnknownTopic
from gatehouse.kernel.message import NOW, TRANSIENT, When
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.scheduling.scheduling import first_due
from gatehouse.kernel.selectors.selector import Selector, parse_selector
from gatehouse.kernel.state.topics import Topic

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.http.page import PartitionReader
    from gatehouse.kernel.api import Message
    from gatehouse.kernel.message import Fetched, Place, Stored

# --- publishing -------------------------------------------------------------------------------------------------------

Find = Callable[[], int]
"""Gives the place where a body goes, under the rights of now."""

PlaceOf = Callable[[Publication], int]
"""Gives the place where an event goes."""

PUBLISH_PREFIX: Final = "/v1/publish/"


PROBLEMS_OF_A_PLACE: Final = ("invalid_address", "unroutable", "unknown_topic", "create_denied", "too_many_topics")
PROBLEMS_OF_A_PUBLISH: Final = (
    *PROBLEMS_OF_A_PLACE, "unknown_partition", "unknown_queue", "invalid_topic", "invalid_cloud_event",
    "invalid_delay", "invalid_schedule",
    "message_too_large", "idempotency_conflict", "over_quota", "too_many_scheduled", "queue_full", "kept_full",
    "receipt_denied", "invalid_body", "unsupported_media_type", "nothing_stored")


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
        return _store_later(door, call, guard, number, publication, find)
    return store(door, call, guard, number, publication, call.take_body())


# decision 217: the place is asked for again after a wait
async def _store_later(door: Door, call: Call, guard: Guard, number: int, publication: Publication, find: Find
                       ) -> Answered:
    """Publish once the hub has room for the body, and all of it has come: the right to the place may have gone
    meanwhile."""
    await door.ready_to_append(guard, (number,))
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


REQUEST_HEADERS: Final = frozenset((b"content-type", b"utf8", b"content-encoding", *OF_ALL_MESSAGES))
"""What a JSON body's own headers may say; every other property stands in its message."""


KEY: Final = Parameter("key", "The key of a message that is the body; in JSON every message has its own.")
BATCH_ANSWERS: Final = (
    Answer(201, "Everything is durable; for many messages there is a result for each.", RESULTS),
    Answer(202, "It is taken (`Prefer: respond-async`).", RESULTS,
           headers={"Preference-Applied": "`respond-async`"}),
    Answer(207, "Some were refused; there is a result for each.", RESULTS))
ONE_OR_MANY: Final = tuple(answer._replace(schema=PUBLISHED_OR_RESULTS if answer.status < 207 else RESULTS)
                           for answer in BATCH_ANSWERS)
IN_QUERY: Final = Parameter("address", "Where the body goes, as one message; encoded slashes separate levels, too.",
                           text=ADDRESS_TEXT, example="plant/line1/temp")


RAW_WILDCARD: Final = re.compile(r"(=|/|%2F)\+(/|%2F|&|$)", re.I)
"""A `+` in a query is read as a blank; alone in a level it hardly is meant so."""


def batch_of(message: Named) -> Body:
    """The body that holds many messages of a kind."""
    most = Setting("max_request_messages")
    return Body(object_of({"messages": list_of(message, minItems=1, maxItems=most)}, closed=True))


@declare("publish", query=(KEY,), headers=PUBLISH_HEADERS, needs=(Need(Operation.PUBLISH, "topic"),), writes=True,
         bodies=(batch_of(NEW_MESSAGE), *VALUE_BODIES,
                 *EVENT_BODIES),
         answers=ONE_OR_MANY, problems=PROBLEMS_OF_A_PUBLISH)
async def post_messages(door: Door, call: Call) -> Answered:
    """Publish to a topic, one message or many.

    `application/json` is a list of messages, any other type is one message whose value is the body. Many messages are
    stored together, except those that are refused one by one; their order is kept.
    """
    guard = await door.guard(call)
    query = call.query()
    topic = call.topic_name()
    publication = call.head.publication(door.services.wall_ms)
    kind, trace = call.media, publication.trace
    if call.head.is_event:
        given = query["key"].encode() if "key" in query else None
        return await post_events(door, call, guard, publication, of_topic=True, place=lambda event: (
            guard.place_key(topic, event.key if given is None else given, trace)))
    if kind == JSON:
        return await _post_json(door, call, guard, topic, query, publication)
    key = query["key"].encode() if "key" in query else publication.key
    if publication.key is not None and publication.key != key:
        raise Refusal("invalid_parameter", "'key' and X-Message-Key differ", parameter="key")
    # refused before the body is read
    await door.ready_to_append(guard, (guard.place_key(topic, key, trace),))
    value = await door.bodies.read(call)
    return await store(door, call, guard, guard.place_key(topic, key, trace), publication, value)


@declare("publish", query=(IN_QUERY,), headers=PUBLISH_HEADERS, needs=(Need(Operation.PUBLISH, "address"),),
         writes=True, bodies=(batch_of(ADDRESSED_MESSAGE), *VALUE_BODIES, *EVENT_BODIES), answers=ONE_OR_MANY,
         problems=PROBLEMS_OF_A_PUBLISH)
async def post_publications(door: Door, call: Call) -> Answered:
    """Publish one message to an address in the query, or many messages to several.

    With `address` the body is one message's value, whatever its type, and the request's headers are the message's.
    Without, each message of a list in JSON says where it goes: by its `address`, or by `topic` and `key`.
    """
    query = call.query()
    guard = await door.guard(call)
    publication = call.head.publication(door.services.wall_ms)
    if IN_QUERY.name in query:
        if RAW_WILDCARD.search(call.raw_query):
            raise Refusal("invalid_address", "an address to publish to holds no wildcard; a blank in it is written %20")
        return await publish_at(door, call, guard, publication, partial(guard.place, query[IN_QUERY.name]))
    if call.media != JSON:
        raise Refusal("unsupported_media_type", "many messages are application/json; one with any other type goes to "
                                                "/v1/publish?address=ADDRESS", headers={"Accept": JSON})
    return await _post_json(door, call, guard, None, {}, publication)


async def _post_json(door: Door, call: Call, guard: Guard, topic: str | None, query: dict[str, str],
                     publication: Publication) -> Answered:
    """`topic` None: each message names its own."""
    if "key" in query:
        raise Refusal("invalid_parameter", "in application/json every message has its own 'key'; for one JSON value "
                                           "use /v1/publish/ADDRESS", parameter="key")
    check_request_headers(publication)
    await door.ready_to_append(guard)
    items = read_items(await door.bodies.read_document(call), door.config.max_request_messages)
    batch = prepare(door, guard, topic, items, publication)
    return await store_batch(door, guard, batch, publication)


async def store_batch(door: Door, guard: Guard, batch: Batch, request: Publication) -> Response:
    """Append what can be stored and answer for each. Refuses where that is nothing."""
    if batch.results and not batch.messages:
        raise _nothing_stored(batch)
    return _answer_publish(door, batch, await _append(door, guard, batch, request), request.respond_async)


def _nothing_stored(batch: Batch) -> Refusal:
    """By the code that every message is refused with, where that is one."""
    refused = [result for result in batch.results if isinstance(result, dict)]
    codes = {result["code"] for result in refused}
    first = refused[0]
    code, why = (first["code"], first["detail"]) if len(codes) == 1 else ("nothing_stored", "'messages' says why")
    return Refusal(code, f"none of {len(refused)} messages was stored: {why}", messages=refused)


def read_items(body: bytes, max_messages: int) -> list[Any]:
    """The list in `{"messages": [...]}`. Refuses `invalid_body`."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal("invalid_body", f"the body is no JSON: {error}") from None
    if not isinstance(document, dict) or document.keys() != {"messages"}:
        document = {}
    return items_of(document.get("messages"), max_messages)


def items_of(items: Any, max_messages: int) -> list[Any]:
    """The items of a list of messages. Refuses `invalid_body` where it is no list, empty, or longer than
    `max_messages`."""
    if not isinstance(items, list):
        raise Refusal("invalid_body", 'application/json here is {"messages": [...]}; for one JSON value use '
                                      "/v1/publish/ADDRESS")
    if not 0 < len(items) <= max_messages:
        raise Refusal("invalid_body", f"a body has 1 to {max_messages} messages, this one {len(items)}")
    return items


def check_request_headers(publication: Publication) -> None:
    """Refuses properties of a message in the headers of a request whose messages have their own."""
    for name, _ in publication.headers:
        if name not in REQUEST_HEADERS:
            shown = name.decode("utf-8", "replace")
            raise Refusal("invalid_header", f"{shown!r} of a message stands in its JSON, not in a request header")
    if publication.key is not None or publication.timestamp_ms or publication.later or publication.attributes:
        raise Refusal("invalid_header", "key, timestamp, delay and retain of a message stand in its JSON, not in a "
                                        "request header")


class Batch(NamedTuple):
    """The messages that can be stored, and for each of the request what it will be told."""

    messages: list[Message]
    places: list[Place]                      # of each, as it was when the request was read
    whens: list[When]                        # of each
    results: list[dict[str, Any] | int]      # a problem document, or the number of the message in `messages`


Read = Callable[[Any, int], "tuple[int, Publication]"]
"""(one of a list, wall time in ms) -> where it goes and what it says"""


def prepare(door: Door, guard: Guard, topic: str | None, items: list[Any], request: Publication) -> Batch:
    """Messages of a JSON body, ready to be stored, and what each that cannot be is told."""
    def read(item: Any, wall_ms: int) -> tuple[int, Publication]:
        address, named = ("", topic) if topic is not None else _take_destination(item)
        publication = read_message(item, wall_ms)
        place = guard.place(address, publication.trace) if named is None \
            else guard.place_key(named, publication.key, publication.trace)
        return place, publication

    return prepare_each(door, guard, items, request, read)


def prepare_each(door: Door, guard: Guard, items: list[Any], request: Publication, read: Read) -> Batch:
    """Messages of a list of any kind, ready to be stored, and what is told of each that cannot be. `read` reads one
    item."""
    wall_ms = door.services.wall_ms()
    batch = Batch([], [], [], [])
    attributes = DOOR | TRANSIENT if request.respond_async else DOOR
    for item in items:
        try:
            place, publication = read(item, wall_ms)
            if request.headers:
                add_of_all(publication.headers, request.headers)
            when = publication.when
            if when is not NOW:
                first_due(when, door.services.now_ms(), wall_ms)         # raises what is wrong with it
            batch.messages.append(_message(guard, place, publication, attributes))
            batch.places.append(guard.look(place))
            batch.whens.append(when)
            batch.results.append(len(batch.messages) - 1)
        except Refusal as error:
            batch.results.append(document_of(error.code, error.detail, error.members))
        except (KernelError, Denied) as error:
            batch.results.append(document_of(error.code, str(error)))
    return batch


def _take_destination(item: Any) -> tuple[str, str | None]:
    """Take (address, None) or ("", topic) out of a message that says where it goes."""
    if not isinstance(item, dict):
        raise Refusal("invalid_body", "a message is an object")
    if ("address" in item) == ("topic" in item):
        raise Refusal("invalid_body", "a message here has an 'address' or a 'topic'")
    name = "address" if "address" in item else "topic"
    named = item.pop(name)
    if not isinstance(named, str):
        raise Refusal("invalid_body", f"{name!r} is a text")
    if name == "topic":
        return "", named
    if "key" in item or "key_base64" in item:
        raise Refusal("invalid_body", "a message has an 'address', or a 'topic' and a 'key': an address says both")
    return named, None


def _message(guard: Guard, place: int, publication: Publication, attributes: int) -> Message:
    headers = encode_headers(publication.headers)
    size_bytes = len(publication.key or b"") + len(publication.value or b"") + len(headers)
    max_bytes = guard.max_bytes(place)
    if size_bytes > max_bytes:
        raise MessageTooLarge(f"{size_bytes} bytes; a message of {guard.look(place).topic} has at most {max_bytes}")
    return place, publication.value, headers, attributes | publication.attributes, publication.timestamp_ms


async def _append(door: Door, guard: Guard, batch: Batch, request: Publication) -> Stored | None:
    """None where nobody waits for it, or there is nothing."""
    if not batch.messages:
        return None
    whens = batch.whens if any(when is not NOW for when in batch.whens) else None
    if request.respond_async:
        door.submit(guard, batch.messages, None, None, request.idempotency_key, whens)
        return None
    return await door.append(guard, batch.messages, request.idempotency_key, whens, request.wait_s)


def _answer_publish(door: Door, batch: Batch, stored: Stored | None, respond_async: bool) -> Response:
    status = 202 if respond_async else 201
    mixed = len(batch.messages) < len(batch.results)
    headers = {"Preference-Applied": "respond-async"} if respond_async else None
    return json_answer({"messages": results_of(door, batch, stored, status)}, 207 if mixed else status, headers)


def results_of(door: Door, batch: Batch, stored: Stored | None, status: int) -> list[dict[str, Any]]:
    """What became of each message of the list."""
    results = []
    for result in batch.results:
        if isinstance(result, dict):
            results.append(result)
            continue
        position = stored.positions[result] if stored is not None else None
        append_ms = stored.append_ms if stored is not None else 0
        place, timestamp_ms = batch.places[result], batch.messages[result][4]
        if position is not None:
            place = door.stored_in(place, position)
        results.append({**describe_place(place, position, timestamp_ms, append_ms), "status": status})
    return results


async def post_events(door: Door, call: Call, guard: Guard, publication: Publication, *, of_topic: bool, place: PlaceOf
                      ) -> Answered:
    """Store what the request holds; `place` says where one event goes."""
    kind = call.media
    if not kind.startswith("application/cloudevents"):
        read_binary(publication, of_topic)
        await door.ready_to_append(guard, (place(publication),))       # refused before the body is read
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


# --- reading ----------------------------------------------------------------------------------------------------------

SEARCH_S: Final = 1.0
"""How long a call that does not wait looks for the first message that its filter wants, before it says how far it
got."""


A_TIME: Final = "2026-01-31T12:00:00Z"
EDGE_OR_TIME: Final = {"type": "string", "pattern": f"^(earliest|latest|{MOMENT})$"}
OFFSET: Final = {"type": "string", "pattern": "^[0-9]{1,19}$"}
FROM: Final = Parameter("from", "`earliest`, `latest`, an RFC 3339 time, or with `partition` an offset.",
                        example="earliest",
                        text={"type": "string", "pattern": f"^(earliest|latest|[0-9]{{1,18}}|{MOMENT})$"})
PARTITION: Final = Whole("partition", "Only this partition of the topic.")
CONTINUE: Final = Parameter("cursor", "Go on where the page that gave it ended, instead of `from`.",
                            text=CURSOR_IN)
FILTER: Final = Parameter("filter", "Only messages that this selector wants, see docs/selectors.md; it is given again "
                          "with every cursor.", text=SELECTOR)

GAP: Final = {"partition": WHOLE, "offset": WHOLE, "count": WHOLE}
PAGE: Final = Named("MessagePage", object_of(
    {"messages": list_of(MESSAGE), "cursor": {**TEXT, "description": "Where the next page begins."}},
    {"lost": {**list_of(object_of(GAP)), "description": "What retention deleted before this reader came."},
     "skipped": {**WHOLE, "description": "How many messages the filter passed over."},
     "unknown_names": {**list_of(TEXT), "description": "What the filter names and no message that was looked at has."},
     "unreadable": list_of(object_of({**GAP, "code": TEXT, "detail": TEXT}))}),
    {"messages": [MESSAGE_EXAMPLE], "cursor": "AW8MX3pQ"})


@declare("read", query=(FROM, PARTITION, CONTINUE, MAX_MESSAGES, WAIT, FILTER, VALUES),
         needs=(Need(Operation.CONSUME, "topic"),),
         answers=(Answer(200, "A page, in which every partition's messages keep their order.", PAGE),
                  Answer(200, "The same as CloudEvents.", list_of(EVENT), BATCH, headers={
                      "X-Cursor": "Of a page of CloudEvents, where the next page begins.",
                      "X-Skipped": "How many messages the filter passed over.",
                      "X-Lost": "How many messages could not be given."})),
         problems=("unknown_topic", "unknown_partition", "invalid_cursor", "invalid_selector", "topic_replaced",
                   "offset_out_of_range", "storage_failed", "over_quota"))
def get_messages(door: Door, call: Call) -> Awaitable[Answered] | Response:
    """Read a page of a topic's messages.

    With the cursor for the next page; the server keeps nothing. A page without messages that `skipped` some is not the
    end: its cursor goes on. Who accepts `application/cloudevents-batch+json` is given CloudEvents, and what else a
    page says in headers.
    """
    return door.with_guard(call, _get_messages)


class _Wanted(NamedTuple):
    """What a call asks for."""

    topic: Topic
    max_messages: int
    wait_s: float
    parsed: bool
    selection: Selection | None


# decision 353: without a coroutine where nothing is waited for
def _get_messages(door: Door, call: Call, guard: Guard) -> Awaitable[Answered] | Response:
    query = call.query()
    selector = read_selector(query["filter"], FILTER.name) if "filter" in query else None
    parsed = "values" in query and wants_json(query)
    topic = guard.topic(call.topic_name(), Operation.CONSUME)
    wanted = _Wanted(topic, MAX_MESSAGES.read(query, door.config),
                     WAIT.read(query, door.config) if "wait" in query else 0.0, parsed,
                     None if selector is None else Selection(guard, topic, selector))
    cursor = cursor_at_hand(guard, topic, query, PARTITION.find(query, door.config), A_TIME)
    if cursor is None or guard.limits_out:
        return _get_later(door, call, guard, wanted, cursor, query)
    reading = read_page(guard, topic, cursor, wanted.max_messages, door.config.max_page_bytes, wanted.selection)
    if reading.done():
        page = reading.result()
        if not page.empty or not wanted.wait_s and page.positions == cursor.positions:
            return _answer_page(door, call, guard, wanted, cursor, page)
        return _search_on(door, call, guard, wanted, cursor, page)
    return _await_page(door, call, guard, wanted, cursor, reading)


async def _get_later(door: Door, call: Call, guard: Guard, wanted: _Wanted, cursor: Cursor | None,
                     query: dict[str, str]) -> Answered:
    """Where it begins, or whether anything may be handed out yet, is waited for."""
    if cursor is None:
        cursor = await _cursor_by_time(door, guard, wanted.topic, query)
    await door.ready_to_hand_out(guard, wanted.topic.name)
    return await _await_page(door, call, guard, wanted, cursor,
                             read_page(guard, wanted.topic, cursor, wanted.max_messages, door.config.max_page_bytes,
                                       wanted.selection))


async def _await_page(door: Door, call: Call, guard: Guard, wanted: _Wanted, cursor: Cursor, reading: Reply[Page]
                      ) -> Answered:
    page = await reading
    return await _search_on(door, call, guard, wanted, cursor, page) if page.empty \
        else _answer_page(door, call, guard, wanted, cursor, page)


async def _search_on(door: Door, call: Call, guard: Guard, wanted: _Wanted, cursor: Cursor, page: Page) -> Answered:
    page = await _search(door, guard, wanted, cursor, page)
    return _answer_page(door, call, guard, wanted, cursor, page)


def _answer_page(door: Door, call: Call, guard: Guard, wanted: _Wanted, cursor: Cursor, page: Page) -> Response:
    topic = wanted.topic
    if call.head.takes_events and asks_for(call.headers["accept"], BATCH):
        answer = _events(guard, topic, cursor, page)
    else:
        answer = json_answer(page_to_json(door.door_names, guard, topic, cursor, page, wanted.parsed,
                                          wanted.selection))
    return door.handed_out(guard, len(page.records), answer, topic.name)


# decision 53: cut into answers
async def _search(door: Door, guard: Guard, wanted: _Wanted, cursor: Cursor, page: Page) -> Page:
    """The first page from the cursor on that has something to tell, or the last when time is up; `page` is the first of
    all."""
    topic = wanted.topic
    deadline, skipped = door.loop.time() + wanted.wait_s, page.skipped
    search_deadline = max(deadline, door.loop.time() + SEARCH_S)
    while page.empty and not door.stopping:
        moved = page.positions != cursor.positions            # skipped some, or what is read is nothing to show
        left_s = (search_deadline if moved else deadline) - door.loop.time()
        if left_s <= 0:
            break
        cursor = cursor._replace(positions=page.positions)
        if moved:
            await asyncio.sleep(0)                            # a search gives way to everybody else at every step
        else:
            ends = {topic.partition_id(partition): at for partition, at in page.positions.items()}
            await door.wait_for_append(guard, topic, ends, left_s)
        require_still(guard, topic)
        page = await read_page(guard, topic, cursor, wanted.max_messages, door.config.max_page_bytes, wanted.selection)
        skipped += page.skipped
    return page._replace(skipped=skipped)


# decision 217: the right is asked for again after a wait
def require_still(guard: Guard, topic: Topic) -> None:
    """Before a topic is read further. Raises UnknownTopic where it has been deleted, Denied."""
    try:
        guard.topic_by_uuid(topic.uuid, Operation.CONSUME)
    except UnknownTopic:
        raise UnknownTopic(f"the topic {topic.name!r} has been deleted") from None


def read_selector(text: str, parameter: str) -> Selector:
    """The selector that a parameter, or a field of a frame, holds. Refuses `invalid_selector`, with the position."""
    try:
        return parse_selector(text, SELECTOR_NAMES)
    except InvalidSelector as error:
        raise Refusal(error.code, str(error), parameter=parameter, position=error.position,
                      expected=error.expected) from None


# --- where to begin -----------------------------------------------------------------------------------------

async def _cursor_by_time(door: Door, guard: Guard, topic: Topic, query: dict[str, str]) -> Cursor:
    partition = PARTITION.find(query, door.config)
    partitions = partitions_of(topic, partition)
    offsets = await named_offsets(guard, topic, partitions, query)
    return Cursor(topic.uuid, partition, 0, dict(zip(partitions, offsets, strict=True)))


async def named_offsets(guard: Guard, topic: Topic, partitions: range | tuple[int, ...], query: dict[str, str]
                        ) -> list[int]:
    """The offset of each partition that `from` names."""
    at_hand = offsets_at_hand(guard, topic, partitions, query, A_TIME)
    if at_hand is not None:
        return at_hand
    time_ms = time_of(query["from"], ", or with 'partition' an offset")
    ends = [guard.bounds(topic.partition_id(number))[1] for number in partitions]
    asked = [offset_at(guard, topic.partition_id(number), time_ms) for number in partitions]
    offsets = [await reply for reply in asked]
    return [end if at is None else at for at, end in zip(offsets, ends, strict=True)]


def time_of(text: str, more: str = "") -> int:
    """The time that `from` names, in ms. Refuses `invalid_parameter`; `more` is what it could have been besides."""
    # An unescaped + in a query is a space; in a time it can only have been the zone's sign.
    time = normalize(Kind.TIME, (text[:19] + text[19:].replace(" ", "+")).encode())
    if time is None:
        raise Refusal("invalid_parameter", f"'from' is earliest, latest, a time like {A_TIME} (RFC 3339){more}",
                      parameter="from")
    return int(time)


def offset_at(reader: PartitionReader, partition_id: int, time_ms: int) -> Reply[int | None]:
    """The first offset at or after a time, None where there is none yet."""
    reply: Reply[int | None] = Reply()
    reader.offset_for_time(partition_id, time_ms, lambda offset, _: reply.set_result(offset))
    return reply


# --- one page -----------------------------------------------------------------------------------------------

async def fetch(reader: PartitionReader, wants: list[tuple[int, int, int]], max_bytes: int, *, stored: bool = False,
                max_records: int = 0) -> list[Fetched]:
    """`KernelPort.fetch` as something to wait for."""
    reply: Reply[list[Fetched]] = Reply()
    reader.fetch(wants, max_bytes, reply.set_result, stored, max_records)
    return await reply


async def fetch_in_bulk(door: Door, guard: Guard, wants: list[tuple[int, int, int]], max_bytes: int) -> list[Fetched]:
    """Stored batches as they are, when their turn has come: live messages go first."""
    turn: Reply[int] = Reply()
    door.services.kernel.bulk_turn(max_bytes, turn.set_result)
    return await fetch(guard, wants, await turn, stored=True)


def _events(guard: Guard, topic: Topic, cursor: Cursor, page: Page) -> Response:
    """The page as a batch of CloudEvents; what else a page says stands in headers."""
    events = [to_structured(record, topic.name, guard.address_of(topic.name, record[2], record[4]))
              for _, record in page.records]
    missing = sum(gap["count"] for gap in (*page.lost, *page.unreadable))
    headers = {"X-Cursor": next_cursor(topic, cursor, page), "X-Skipped": str(page.skipped), "X-Lost": str(missing),
               "Vary": "Accept"}
    return Response(orjson.dumps(events), headers=headers, content_type=BATCH)


ROUTES: Routes = (("POST", PUBLISH_PREFIX + "{address...}", publish),
                  ("POST", "/v1/topics/{topic}/messages", post_messages), ("POST", "/v1/publish", post_publications),
                  ("GET", "/v1/topics/{topic}/messages", get_messages))
