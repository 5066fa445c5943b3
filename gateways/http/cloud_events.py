"""CloudEvents 1.0 in and out: binary, structured, batch (HTTP binding 1.0.2, JSON format 1.0.2). Pure.

A message that came as an event keeps every attribute in a record header `ce_NAME`, as the Kafka binding (3.2.3) names
them: a Kafka consumer reads the event in binary mode with its own CloudEvents library, and what its producers write in
that mode is an event here. Besides, what the common envelope knows is put there: `ce_id` in `id`, `ce_time` in the
timestamp, `datacontenttype` in `content-type`, `partitionkey` in the key of a topic's message, `traceparent` as itself.

A message that was no event is shown as one:

    id                the hub's id              source    /v1/topics/TOPIC
    type              gatehouse.message         subject   its address           time   its timestamp
    partitionkey      its key, where UTF-8      other fields of the envelope as extensions: correlationid, replyto, …

User headers whose names are no attribute names (`[a-z0-9]{1,64}`) are not shown. An attribute's type is not kept:
extensions come back as text. JSON values are given as the bytes that came.
"""
from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

import orjson

from gatehouse.gateways.http.mapping import Publication, decode_base64
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.properties.envelope import FIELDS, Kind
from gatehouse.gateways.properties.values import normalize
from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.message import Record

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
VERSION: Final = "1.0"
TYPE: Final = "gatehouse.message"

# decision 71
PREFIX: Final = b"ce_"                   # Kafka protocol binding, 3.2.3
HTTP_PREFIX: Final = "ce-"               # HTTP protocol binding, 3.1.3.1
REQUIRED: Final = ("id", "source", "specversion", "type")
NAME: Final = re.compile(r"[a-z0-9]{1,64}")
"""CloudEvents, 2: lower case letters and digits. They SHOULD NOT be longer than 20; some are, and are carried."""
MAX_ATTRIBUTES: Final = 64
MAX_INT: Final = (1 << 31) - 1           # Integer is 32 bits wide (CloudEvents, 3.1)

MEDIA_TYPE: Final = "[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+( *;[ -~]*)?"     # RFC 2045, 5.1

QUOTED: Final = re.compile(rb'"([^"\\]|\\.)*"')              # quoted-string (RFC 9110, 5.6.4)

CONTENT_TYPE: Final = b"content-type"
JSON_TYPE: Final = re.compile(r"\s*[^/;]+/(json|[^/;]+\+json)\s*(;.*)?", re.IGNORECASE)
SHOWN_FIELDS: Final = {field.name.encode(): field.name.replace("-", "") for field in FIELDS
                       if field.name not in ("id", "key", "content-type", "timestamp", "durability", "utf8")}
NOT_SHOWN: Final = {field.name.encode() for field in FIELDS} - SHOWN_FIELDS.keys() - {CONTENT_TYPE}
"""`utf8` among them: nobody's attribute, the hub's note about a value."""

SAFE: Final = "!#$&'()*+,/:;=?@[]^`{|}~<>\\"      # HTTP binding, 3.1.3.2: printable ASCII but space, '"' and '%'


# --- in -----------------------------------------------------------------------------------------------------------

def read_binary(publication: Publication, of_topic: bool) -> None:
    """Take the `ce-` headers of a request into the message. Refuses `invalid_cloud_event`."""
    attributes = {name.decode("ascii", "replace"): _decoded(value) for name, value in publication.event}
    if len(attributes) < len(publication.event):
        raise _refusal("an attribute is given twice")
    _put(publication, attributes, of_topic)


def _decoded(value: bytes) -> str:
    """HTTP binding, 3.1.3.2: percent-encoded UTF-8, in quotes or not."""
    if QUOTED.fullmatch(value) is not None:
        value = re.sub(rb"\\(.)", rb"\1", value[1:-1])
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        raise _refusal("an attribute is no percent-encoded UTF-8") from None


def read_structured(item: object, of_topic: bool) -> Publication:
    """One event in the JSON format. Refuses `invalid_cloud_event`."""
    if not isinstance(item, dict):
        raise _refusal("an event is a JSON object")
    publication = Publication()
    attributes = {name: _text_of(name, value) for name, value in item.items()
                  if name not in ("data", "data_base64", "datacontenttype") and value is not None}
    content_type = item.get("datacontenttype")
    if content_type is not None:
        if not isinstance(content_type, str) or re.fullmatch(MEDIA_TYPE, content_type) is None:
            raise _refusal("'datacontenttype' is a media type")
        publication.headers.append((CONTENT_TYPE, content_type.encode()))
    publication.value = _value_of(item, content_type)
    _put(publication, attributes, of_topic)
    return publication


def _text_of(name: str, value: object) -> str:
    """JSON format, 2.2: an attribute is a text, a number or a flag."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and -MAX_INT - 1 <= value <= MAX_INT and value == int(value):
        return str(int(value))                           # 5.0 is a whole number to JSON Schema, and to JavaScript
    raise _refusal(f"{name[:40]!r} is a text, a whole number of 32 bits, or true or false")


def _value_of(item: Mapping[str, Any], content_type: str | None) -> bytes | None:
    """JSON format, 3.1: the value is JSON unless the content type is another one; then a text stands for itself."""
    if "data_base64" in item:
        if "data" in item:
            raise _refusal("an event has 'data' or 'data_base64', not both")
        return decode_base64("data_base64", item["data_base64"])
    if item.get("data") is None:
        return None
    if isinstance(item["data"], str) and content_type is not None and JSON_TYPE.fullmatch(content_type) is None:
        return item["data"].encode()
    try:
        return orjson.dumps(item["data"])
    except orjson.JSONEncodeError:
        raise _refusal("'data' is nested too deeply") from None


def _put(publication: Publication, attributes: dict[str, str], of_topic: bool) -> None:  # decision 71
    """Attributes to record headers and the envelope."""
    _check(attributes)
    normal = normalize(Kind.TEXT, attributes["id"].encode())
    if normal is None or any(name == b"id" for name, _ in publication.headers):
        raise _refusal("the 'id' is given as X-Message-Id too" if normal else "the 'id' holds what no identifier can")
    publication.headers.append((b"id", normal))
    if "time" in attributes:
        time = normalize(Kind.TIME, attributes["time"].encode())
        if time is None:
            raise _refusal("'time' is an RFC 3339 time")
        publication.timestamp_ms = publication.timestamp_ms or int(time)
    if of_topic and publication.key is None and "partitionkey" in attributes:
        publication.key = attributes["partitionkey"].encode()
    trace = normalize(Kind.TRACEPARENT, attributes.get("traceparent", "").encode())
    if trace is not None and not any(name == b"traceparent" for name, _ in publication.headers):
        publication.headers.append((b"traceparent", trace))
    publication.headers += [(PREFIX + name.encode(), value.encode()) for name, value in attributes.items()]


def _check(attributes: Mapping[str, str]) -> None:
    if len(attributes) > MAX_ATTRIBUTES:
        raise _refusal(f"an event has at most {MAX_ATTRIBUTES} attributes")
    for name, value in attributes.items():
        if not NAME.fullmatch(name) or name in ("data", "datacontenttype"):
            raise _refusal(f"{name[:40]!r} is no attribute: lower case letters and digits, at most 64")
        if any(ord(sign) < 0x20 or 0x7F <= ord(sign) < 0xA0 or 0xD800 <= ord(sign) < 0xE000 for sign in value):
            raise _refusal(f"{name!r} holds a control character")        # CloudEvents, 3.1, String
    for name in REQUIRED:
        if not attributes.get(name):
            raise _refusal(f"an event has {', '.join(REQUIRED)}; there is no {name!r}")
    if attributes["specversion"] != VERSION:
        raise _refusal(f"CloudEvents {VERSION} is known here, not {attributes['specversion'][:20]!r}")


def _refusal(detail: str) -> Refusal:
    return Refusal("invalid_cloud_event", detail)


def asks_for(accept: str, media: str) -> bool:
    """Whether an `Accept` header names this type (and not with a weight of 0)."""
    for part in accept.lower().split(","):
        name, _, parameters = part.partition(";")
        if name.strip() == media:
            return re.search(r"(^|;)\s*q=0(\.0*)?\s*($|;)", parameters) is None
    return False


# --- out ----------------------------------------------------------------------------------------------------------

def attributes_of(record: Record, topic: str, address: str) -> dict[str, str]:
    """A message's attributes; its content type is among them as `datacontenttype`."""
    _, timestamp_ms, key, _, headers, _, message_id = record
    attributes = {"specversion": VERSION}
    attributes.update(_kept(headers))
    if "id" not in attributes:
        attributes.update(id=str(message_id), source=f"/v1/topics/{topic}", type=TYPE)
        _set_text(attributes, "subject", address.encode())
        attributes.update(_time_of(timestamp_ms))
        if key is not None:
            _set_text(attributes, "partitionkey", key)
    for name, value in headers:
        if value is None or name in NOT_SHOWN or name == ADDRESS_HEADER or name.startswith(PREFIX):
            continue
        shown = "datacontenttype" if name == CONTENT_TYPE else SHOWN_FIELDS.get(name) or name.decode("ascii", "replace")
        if shown not in attributes and NAME.fullmatch(shown):
            _set_text(attributes, shown, value)
    return attributes


def _kept(headers: Iterable[tuple[bytes, bytes | None]]) -> dict[str, str]:
    """The attributes of what came as an event; none where it is not whole."""
    kept = {name[len(PREFIX):].decode("ascii", "replace"): value.decode("utf-8", "replace")
            for name, value in headers if name.startswith(PREFIX) and value is not None}
    return kept if all(kept.get(name) for name in REQUIRED) and all(NAME.fullmatch(name) for name in kept) else {}


def _time_of(timestamp_ms: int) -> dict[str, str]:
    """The attribute `time`; none for what has no year of four digits: a Kafka producer's timestamp is any number."""
    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return {}
    return {"time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


def _set_text(attributes: dict[str, str], name: str, value: bytes) -> None:
    """Where it is UTF-8 text that an attribute can hold."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return
    if text and not any(ord(sign) < 0x20 or 0x7F <= ord(sign) < 0xA0 for sign in text):
        attributes[name] = text


def to_structured(record: Record, topic: str, address: str) -> dict[str, Any]:
    """A message as an event in the JSON format, on one line once it is written."""
    event: dict[str, Any] = dict(attributes_of(record, topic, address))
    value, content_type = record[3], event.get("datacontenttype")
    if not value:
        return event
    if content_type is None or JSON_TYPE.fullmatch(content_type):
        try:
            orjson.loads(value)
        except orjson.JSONDecodeError:
            pass                                   # shown as what it is, below
        else:
            event["data"] = orjson.Fragment(value.replace(b"\n", b" ").replace(b"\r", b" "))
            return event
    elif (text := _text(value)) is not None:
        event["data"] = text
        return event
    event["data_base64"] = b64encode(value).decode()
    return event


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def to_binary(record: Record, topic: str, address: str) -> dict[str, str]:
    """The HTTP headers of a message as an event in binary mode; its value is the body."""
    attributes = attributes_of(record, topic, address)
    content_type = attributes.pop("datacontenttype", None)
    headers = {HTTP_PREFIX + name: quote_from_bytes(value.encode(), SAFE) for name, value in attributes.items()}
    return headers if content_type is None else {**headers, "Content-Type": content_type}
