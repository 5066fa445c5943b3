"""Messages for the document: as they are answered, as JSON and CloudEvents take them, and the request headers of a
publish. Which properties there are is read from the property table that `mapping.py` works by. Pure."""
from __future__ import annotations

from typing import Any, Final

from gatehouse.gateways.http.cloud_events import BATCH, MAX_ATTRIBUTES, MAX_INT, MEDIA_TYPE, STRUCTURED
from gatehouse.gateways.http.column import HTTP, USER_PREFIX
from gatehouse.gateways.http.declaring import (
    ADDRESS,
    ANYTHING,
    FLAG,
    MESSAGE_ID,
    MOMENT,
    RFC_3339,
    TEXT,
    TIME_MS,
    TOPIC_NAME,
    WHOLE,
    Body,
    Named,
    Parameter,
    Schema,
    Setting,
    list_of,
    nullable,
    object_of,
    one_of,
)
from gatehouse.gateways.http.declaring import REPEAT as REPEAT_TEXT
from gatehouse.gateways.http.mapping import DELIVER_AT, MAX_IDEMPOTENCY_KEY_BYTES
from gatehouse.gateways.json_messages import OF_THE_RECORD, json_name
from gatehouse.gateways.properties.envelope import FIELDS, EnvelopeField, Kind, Shape, Where
from gatehouse.gateways.properties.values import MAX_PRIORITY, MAX_TIME_MS

BASE64: Final[Schema] = {"type": "string", "contentEncoding": "base64", "format": "byte"}
TIME_IN: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": MAX_TIME_MS}
SECONDS_AHEAD: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 86_400 * 365 * 10}

BASE64_IN: Final[Schema] = {
    **BASE64, "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"}


def _headers(base64: Schema) -> Schema:
    """A list of [name, value]; a value is a text, null, or bytes that are no text."""
    pair = {"anyOf": [TEXT, {"type": "null"}, object_of({"base64": base64}, closed=True)]}
    return {**list_of(list_of(pair, minItems=2, maxItems=2)), "description": "`[name, value]`, in order."}


OUT: Final[dict[Kind, Schema]] = {
    Kind.TEXT: TEXT, Kind.BYTES: TEXT, Kind.TRACEPARENT: TEXT, Kind.FLAG: FLAG, Kind.TIME: TIME_MS,
    Kind.PRIORITY: {"type": "integer", "minimum": 0, "maximum": MAX_PRIORITY},
}
IN: Final[dict[Kind, Schema]] = {**OUT, Kind.TIME: {"anyOf": [TIME_IN, {"type": "string", "pattern": f"^{MOMENT}$"}]}}

_PROPERTIES: Final = tuple(field for field in FIELDS if field.name not in OF_THE_RECORD and field.name != DELIVER_AT)


def _explained(field: EnvelopeField, schemas: dict[Kind, Schema]) -> Schema:
    return {**schemas[field.kind], "description": field.help[0].upper() + field.help[1:] + "."}


def _base64_of(kind: Kind) -> bool:
    return kind in (Kind.BYTES, Kind.TEXT)


_OUT: Final[dict[str, Any]] = {
    **{json_name(field.name): _explained(field, OUT) for field in _PROPERTIES},
    **{json_name(field.name) + "_base64": BASE64 for field in _PROPERTIES if _base64_of(field.kind)},
}

VALUE_OUT: Final[dict[str, Any]] = {
    "key": nullable(TEXT), "key_base64": {**BASE64, "description": "In place of `key` where that is not UTF-8."},
    "value": nullable(TEXT), "value_base64": {**BASE64, "description": "In place of `value` where that is not UTF-8."},
    "value_json": {"description": "In place of `value`, where `values=json` was asked for and it is JSON."},
}

PLACE: Final[dict[str, Any]] = {"topic": TEXT, "partition": WHOLE}

MESSAGE_FIELDS: Final[dict[str, Any]] = {
    "id": MESSAGE_ID, **PLACE, "offset": WHOLE, "headers": _headers(BASE64), "address": TEXT, "timestamp": TIME_MS,
    "door": {**TEXT, "description": "By which door it came."},
}
MESSAGE_OPTIONS: Final[dict[str, Any]] = {
    **VALUE_OUT, "transient": {**FLAG, "description": "Its sender did not wait until it was stored."}, **_OUT}

MESSAGE_EXAMPLE: Final[dict[str, Any]] = {
    "id": "281474976710657", "topic": "plant", "partition": 3, "offset": 17, "key": "line1/temp", "value": "21.5",
    "headers": [["unit", "C"]], "address": "plant/line1/temp", "timestamp": 1_700_000_000_000, "door": "mqtt",
    "content_type": "text/plain"}

MESSAGE: Final = Named("Message", object_of(MESSAGE_FIELDS, MESSAGE_OPTIONS), MESSAGE_EXAMPLE)

# --- what is taken ------------------------------------------------------------------------------------------------

VALUE_IN: Final[Schema] = {
    "description": "A text is the value as it is, null is none; any other JSON is stored as `application/json`, unless "
                   "`content_type` says another type."}
_IN: Final[dict[str, Any]] = {
    "key": nullable(TEXT), "key_base64": nullable(BASE64_IN), "value": VALUE_IN,
    "value_base64": nullable(BASE64_IN), "headers": nullable(_headers(BASE64_IN)),
    **{json_name(field.name): nullable(_explained(field, IN)) for field in _PROPERTIES},
    "correlation_id_base64": nullable(BASE64_IN), "timestamp": nullable(IN[Kind.TIME]),
    "expires_in": nullable(SECONDS_AHEAD), "delay": nullable(SECONDS_AHEAD), "deliver_at": nullable(IN[Kind.TIME]),
    "repeat": nullable({**REPEAT_TEXT, "description": "An interval or a cron expression."}),
}

_IN_EXAMPLE: Final = {"key": "line1/temp", "value": "21.5", "headers": [["unit", "C"]]}
NEW_MESSAGE: Final = Named("MessageInput", object_of({}, _IN, closed=True), _IN_EXAMPLE)
TO_ADDRESS: Final = Named("MessageToAddress", object_of(
    {"address": ADDRESS},
    {name: schema for name, schema in _IN.items() if name not in ("key", "key_base64")}, closed=True))
TO_TOPIC: Final = Named("MessageToTopic", object_of({"topic": TOPIC_NAME}, _IN, closed=True))
ADDRESSED_MESSAGE: Final = Named(
    "AddressedMessage", {"anyOf": [TO_ADDRESS, TO_TOPIC]}, {"address": "plant/line1/temp", "value": "21.5"})

# --- the headers of a publish -------------------------------------------------------------------------------------

PRINTABLE: Final = "^[!-~]([ -~]*[!-~])?$"
"""The pattern of headers that are UTF-8. Whether a client sends letters beyond ASCII as such is its own affair."""
IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key", "A repetition with the same key and the same message is answered as the first was and stores "
    "nothing; remembered for an hour, for each user.",
    text={"type": "string", "minLength": 1, "maxLength": MAX_IDEMPOTENCY_KEY_BYTES, "pattern": PRINTABLE},
    example="3f1c9a52")
PREFER: Final = Parameter("Prefer", "`respond-async`: 202 as soon as the message is taken, before it is durable. "
                          "`wait=SECONDS`: 504 after so long, where the hub's own deadline is later.",
                          text={"type": "string", "examples": ["respond-async"]})
REPEAT: Final = Parameter("X-Repeat", "An interval (`every 10s`, `R5/PT10S`) or a cron expression, with `; until=TIME` "
                          "and `; count=NUMBER`.", text=REPEAT_TEXT)
USER_HEADERS: Final = Parameter(USER_PREFIX + "NAME", "A header of the message's own, under any NAME; its case is "
                                "lost.")

_HEADER_TEXT: Final[dict[Kind, Schema]] = {
    Kind.TEXT: {"type": "string", "pattern": f"^$|{PRINTABLE}"}, Kind.BYTES: TEXT,
    Kind.TRACEPARENT: TEXT, Kind.FLAG: {"type": "string", "enum": ["true", "false", "1", "0"]},
    Kind.TIME: {"type": "string", "pattern": f"^([0-9]{{1,14}}|{MOMENT})$"},
    Kind.PRIORITY: OUT[Kind.PRIORITY],
}
"""A header is one type: generators of clients make nothing of a union there, and leave out the call."""
SECONDS_TEXT: Final[Schema] = {"type": "string", "pattern": "^[0-9]{1,15}(\\.[0-9]{1,9})?$"}
NOT_A_PARAMETER: Final = frozenset(("Content-Type",))
"""OpenAPI, 4.8.12.2.1: a parameter of this name would be ignored; the body says it."""


def _message_headers() -> tuple[Parameter, ...]:
    return tuple(
        Parameter(cell.name, field.help[0].upper() + field.help[1:]
                  + (", in seconds from now." if cell.shape is Shape.SECONDS_FROM_NOW else "."),
                  text=SECONDS_TEXT if cell.shape is Shape.SECONDS_FROM_NOW else _HEADER_TEXT[field.kind])
        for field in FIELDS for cell in HTTP.cells.get(field.name, ())
        if cell.where is Where.HEADER and cell.shape is not Shape.CHARSET and cell.name not in NOT_A_PARAMETER)


MESSAGE_HEADERS: Final = (*_message_headers(), REPEAT, USER_HEADERS)
PUBLISH_HEADERS: Final = (IDEMPOTENCY_KEY, PREFER, *MESSAGE_HEADERS)

# --- what a publish is answered -----------------------------------------------------------------------------------

PUBLISHED_FIELDS: Final[dict[str, Any]] = {
    "id": nullable(MESSAGE_ID), "topic": TEXT, "partition": WHOLE,
    "offset": {"type": ["integer", "null"], "minimum": 0, "description": "Null while the message waits for its time."},
    "address": TEXT, "timestamp": {"type": ["integer", "null"], "minimum": 0}}
PUBLISHED: Final = Named("Published", object_of(PUBLISHED_FIELDS), {
    "id": "281474976710657", "topic": "plant", "partition": 3, "offset": 17, "address": "plant/line1/temp",
    "timestamp": 1_700_000_000_000})

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
