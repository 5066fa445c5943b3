"""Many messages in one request, and single ones into a topic with the key given.

    POST /v1/topics/{topic}/messages
        application/json     {"messages": [{"key", "value", "headers", ...}, ...]}, see `mapping.py`
        anything else        one message; the body is its value, `?key=` its key, the headers are those of a publish
    POST /v1/publish
        application/json     the same list, where each message says where it goes: by its `address`, or by `topic` and
                             `key`

Many messages are stored together or not at all, except those that are refused one by one: then the answer is 207 and
says for each what became of it. Their order is kept.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
from aiohttp import web

from gateways.admission.admission import Denied
from gateways.http.answers import json_answer
from gateways.http.door import DOOR, NAME, Call, Door, Routes
from gateways.http.mapping import Publication, not_built_property, read_headers, read_message
from gateways.http.problems import Refusal, document_of
from gateways.http.routes.publish import describe, store
from kernel.errors import KernelError, MessageTooLarge
from kernel.message import TRANSIENT, When
from kernel.record import encode_headers
from kernel.scheduling.accepting import NOW, first_due_ms

if TYPE_CHECKING:
    from gateways.admission.principal import Principal
    from kernel.message import Message, Placement, Stored

JSON: Final = "application/json"
CLOUD_EVENTS: Final = ("application/cloudevents+json", "application/cloudevents-batch+json")

ADDRESSES: Final = f"{NAME} addresses"
"""The look-up of addresses as JSON says them: not as a path does, where each level is percent-encoded."""

REQUEST_HEADERS: Final = frozenset((b"content-type", b"utf8", b"content-encoding", b"traceparent"))
"""What a JSON body's own headers may say; every other property stands in its message."""


async def post_messages(door: Door, call: Call) -> web.StreamResponse:
    """Store one or many messages in a topic."""
    request = call.request
    principal = door.principal(request)
    query = call.query("key")
    topic = call.topic_name()
    publication = read_headers(request.raw_headers, door.services.now_ms())
    kind = request.content_type if "Content-Type" in request.headers else ""
    if kind in CLOUD_EVENTS:
        raise not_built_property(kind, "CloudEvents")
    if kind == JSON:
        return await _post_json(door, call, principal, topic, query, publication)
    key = query["key"].encode() if "key" in query else publication.key
    if publication.key is not None and publication.key != key:
        raise Refusal("invalid_parameter", "'key' and X-Message-Key differ", parameter="key")
    placement = door.admission.place_in(principal, topic, key)
    await door.ready_to_append(principal)
    return await store(door, call, principal, placement, publication, await door.bodies.read(request))


async def post_publications(door: Door, call: Call) -> web.StreamResponse:
    """Store messages in whatever topics they name."""
    request = call.request
    call.query()
    principal = door.principal(request)
    if request.content_type != JSON:
        raise Refusal("unsupported_media_type", "many messages are application/json; one with any other type goes to "
                                                "/v1/publish/ADDRESS", headers={"Accept": JSON})
    return await _post_json(door, call, principal, None, {}, read_headers(request.raw_headers, door.services.now_ms()))


async def _post_json(door: Door, call: Call, principal: Principal, topic: str | None, query: dict[str, str],
                     publication: Publication) -> web.StreamResponse:
    """`topic` None: each message names its own."""
    if "key" in query:
        raise Refusal("invalid_parameter", "in application/json every message has its own 'key'; for one JSON value "
                                           "use /v1/publish/ADDRESS", parameter="key")
    _check_request_headers(publication)
    await door.ready_to_append(principal)
    items = read_items(await door.bodies.read(call.request), door.config.max_request_messages)
    batch = _prepare(door, principal, topic, items, publication)
    stored = await _append(door, principal, batch, publication)
    return _answer(batch, stored, publication.respond_async)


def read_items(body: bytes, max_messages: int) -> list[Any]:
    """The list in `{"messages": [...]}`. Refuses `invalid_body`."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal("invalid_body", f"the body is no JSON: {error}") from None
    if not isinstance(document, dict) or document.keys() != {"messages"} or not isinstance(document["messages"], list):
        raise Refusal("invalid_body", 'application/json here is {"messages": [...]}; for one JSON value use '
                                      "/v1/publish/ADDRESS")
    items: list[Any] = document["messages"]
    if not 0 < len(items) <= max_messages:
        raise Refusal("invalid_body", f"a body has 1 to {max_messages} messages, this one {len(items)}")
    return items


def _check_request_headers(publication: Publication) -> None:
    for name, value in publication.headers:
        if name == b"content-encoding" and value != b"identity":
            raise Refusal("unsupported_media_type", "a JSON body is taken as it is, without a content coding",
                          headers={"Accept-Encoding": "identity"})
        if name not in REQUEST_HEADERS:
            shown = name.decode("utf-8", "replace")
            raise Refusal("invalid_header", f"{shown!r} of a message stands in its JSON, not in a request header")
    if publication.key is not None or publication.timestamp_ms or publication.later or publication.attributes:
        raise Refusal("invalid_header", "key, timestamp, delay and retain of a message stand in its JSON, not in a "
                                        "request header")


class _Batch(NamedTuple):
    """The messages that can be stored, and for each of the request what it will be told."""

    messages: list[Message]
    whens: list[When]                        # of each
    results: list[dict[str, Any] | int]      # a problem document, or the number of the message in `messages`


def _prepare(door: Door, principal: Principal, topic: str | None, items: list[Any], request: Publication) -> _Batch:
    batch = _Batch([], [], [])
    now_ms = door.services.now_ms()
    trace = [pair for pair in request.headers if pair[0] == b"traceparent"]
    attributes = DOOR | TRANSIENT if request.respond_async else DOOR
    for item in items:
        try:
            address, named = ("", topic) if topic is not None else _take_destination(item)
            one = read_message(item, now_ms)
            if trace and not any(name == b"traceparent" for name, _ in one.headers):
                one.headers += trace
            placement = (_place(door, principal, address) if named is None
                         else door.admission.place_in(principal, named, one.key))
            when = When(one.due_ms, one.repeat) if one.later else NOW
            first_due_ms(when, now_ms)                       # raises what is wrong with it
            batch.messages.append(_message(placement, one, attributes))
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
    address, topic = item.pop("address", None), item.pop("topic", None)
    if (address is None) == (topic is None) or not isinstance(topic if address is None else address, str):
        raise Refusal("invalid_body", "a message here has an 'address' or a 'topic', as text")
    if topic is None and (item.get("key") is not None or item.get("key_base64") is not None):
        raise Refusal("invalid_body", "a message has an 'address', or a 'topic' and a 'key': an address says both")
    return address or "", topic


def _place(door: Door, principal: Principal, address: str) -> Placement:
    cache = door.admission.cache(principal, ADDRESSES)
    raw = address.encode()
    placement = cache.places.get(raw)
    if placement is None:
        placement = door.admission.place(principal, address)
        cache.remember(raw, placement)
    return placement


def _message(placement: Placement, one: Publication, attributes: int) -> Message:
    headers = encode_headers(one.headers)
    size_bytes = len(one.key or b"") + len(one.value or b"") + len(headers)
    if size_bytes > placement.max_message_bytes:
        raise MessageTooLarge(f"{size_bytes} bytes; a message of {placement.topic} has at most "
                              f"{placement.max_message_bytes}")
    return placement, one.value, headers, attributes | one.attributes, one.timestamp_ms


async def _append(door: Door, principal: Principal, batch: _Batch, request: Publication) -> Stored | None:
    if not batch.messages:
        return None
    whens = batch.whens if any(when is not NOW for when in batch.whens) else None
    if request.respond_async:
        door.append_unconfirmed(principal, batch.messages, request.idempotency_key, whens)
        return None
    return await door.append(principal, batch.messages, request.idempotency_key, whens)


def _answer(batch: _Batch, stored: Stored | None, respond_async: bool) -> web.Response:
    status = 202 if respond_async else 201
    results = []
    for result in batch.results:
        if isinstance(result, dict):
            results.append(result)
            continue
        message = batch.messages[result]
        position = stored.positions[result] if stored is not None else None
        append_ms = stored.append_ms if stored is not None else 0
        results.append({**describe(message[0], position, message[4], append_ms), "status": status})
    mixed = len(batch.messages) < len(batch.results)
    headers = {"Preference-Applied": "respond-async"} if respond_async else None
    return json_answer({"messages": results}, 207 if mixed else status, headers)


ROUTES: Routes = (("POST", "/v1/topics/{topic}/messages", post_messages), ("POST", "/v1/publish", post_publications))
