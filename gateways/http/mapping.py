"""Requests to messages and records to JSON: what of HTTP is which property of a message. Pure.

Every property of the common envelope travels as a record header; `PROPERTIES` says under which name it comes in by a
request header, by a field of a JSON message, and goes out. Nothing is dropped in silence: a property that this hub
does not carry out yet is refused (`not_built`), one that HTTP cannot carry is listed in the README.

A message as JSON, here read from the queue 3 of `plant`:

    {"id": "281474976710657", "topic": "plant", "queue": 3, "offset": 17, "key": "line1/temp", "value": "21.5",
     "headers": [["unit", "C"]], "address": "plant/line1/temp", "timestamp": 1700000000000, "door": "mqtt",
     "content_type": "text/plain"}

    id             text: a 64-bit number, more than JavaScript's numbers hold exactly
    key, value     null, or text; `key_base64`, `value_base64` in their place where the bytes are not UTF-8
    headers        [name, value] in order with duplicates; a value is text, null, or {"base64": ...} if not UTF-8
    timestamp      milliseconds since 1970, as `expires_at` and `deliver_at`
"""
from __future__ import annotations

from base64 import b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from gateways.http.problems import Refusal
from gateways.http.times import MAX_TIME_MS, parse_seconds, parse_time_ms
from kernel.address import ADDRESS_HEADER
from kernel.message import DOOR_MASK, RETAIN, TRANSIENT, Record

TEXT: Final = 0
"""UTF-8 text."""

PRIORITY: Final = 1
"""A whole number from 0 to 255, as AMQP's."""

TIME_MS: Final = 2
"""Milliseconds since 1970 as decimal digits; RFC 3339 is understood on the way in."""

TRACE: Final = 3
"""A W3C traceparent; one that cannot be read is left out, as the specification says."""

MAX_PRIORITY: Final = 255
MAX_IDEMPOTENCY_KEY_BYTES: Final = 255
MAX_EXPIRES_IN_S: Final = 3_153_600_000.0
"""A hundred years: beyond it a number of seconds is a mistake (milliseconds, most likely)."""


class Property(NamedTuple):
    """One envelope property: record header, field in JSON, request header (lower case; b"" none), kind."""

    header: bytes
    field: str
    request_header: bytes
    kind: int


PROPERTIES: Final[tuple[Property, ...]] = (
    Property(b"id", "message_id", b"x-message-id", TEXT),
    Property(b"content-type", "content_type", b"content-type", TEXT),
    Property(b"content-encoding", "content_encoding", b"content-encoding", TEXT),
    Property(b"correlation-id", "correlation_id", b"x-correlation-id", TEXT),
    Property(b"reply-to", "reply_to", b"x-reply-to", TEXT),
    Property(b"expires-at", "expires_at", b"", TIME_MS),
    Property(b"priority", "priority", b"x-priority", PRIORITY),
    Property(b"traceparent", "traceparent", b"traceparent", TRACE),
    Property(b"deliver-at", "deliver_at", b"", TIME_MS),
)

NOT_BUILT_HEADERS: Final[dict[bytes, str]] = {
    b"x-delay": "delayed delivery", b"x-deliver-at": "delayed delivery", b"x-repeat": "repeated delivery",
    b"x-retain": "retained values", b"ce-specversion": "CloudEvents",
}
NOT_BUILT_FIELDS: Final[dict[str, str]] = {
    "delay": "delayed delivery", "deliver_at": "delayed delivery", "repeat": "repeated delivery",
    "retain": "retained values", "specversion": "CloudEvents",
}

NOT_BUILT_RECORD_HEADERS: Final[dict[bytes, str]] = {b"deliver-at": "delayed delivery", b"retain": "retained values"}

_BY_FIELD: Final = {item.field: item for item in PROPERTIES if item.field not in NOT_BUILT_FIELDS}
_BY_RECORD_HEADER: Final = {item.header: item for item in PROPERTIES}
_USER_PREFIX: Final = b"x-header-"
_OTHER_HEADERS: Final = (b"x-message-key", b"x-timestamp", b"x-expires-in", b"idempotency-key", b"prefer")
_KNOWN_HEADERS: Final[dict[bytes, Property | str]] = {
    **{item.request_header: item for item in PROPERTIES if item.request_header},
    **NOT_BUILT_HEADERS,                                # the name of what is not built
    **dict.fromkeys(_OTHER_HEADERS, ""),                # read by `_read_other_header`
}
_OTHER_FIELDS: Final = frozenset(("key", "key_base64", "value", "value_base64", "headers", "timestamp", "expires_in"))


class Publication:
    """What the headers of a publishing request say, or one message of a JSON body: everything but where it goes."""

    __slots__ = ("headers", "timestamp_ms", "key", "value", "idempotency_key", "respond_async")

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes | None]] = []
        self.timestamp_ms = 0                      # 0: the time of the append
        self.key: bytes | None = None
        self.value: bytes | None = None            # of a JSON message only
        self.idempotency_key: str | None = None
        self.respond_async = False


# --- in, by request headers (hot: once per published message) -----------------------------------------------

def read_headers(raw_headers: Iterable[tuple[bytes, bytes]], now_ms: int) -> Publication:
    """The message properties among a request's headers. Refuses what is wrong, given twice, or not built."""
    publication = Publication()
    seen: set[bytes] = set()
    for raw_name, value in raw_headers:
        name = raw_name.lower()
        known = _KNOWN_HEADERS.get(name)
        if known is None:
            if name.startswith(_USER_PREFIX):
                publication.headers.append((_user_header(name[len(_USER_PREFIX):]), value))
            continue
        if name in seen and name != b"prefer":
            raise Refusal("invalid_header", f"{_shown(name)} is given twice")
        seen.add(name)
        if isinstance(known, Property):
            carried = _header_value(known.kind, name, value)
            if carried is not None:
                publication.headers.append((known.header, carried))
        elif known:
            raise not_built_property(_shown(name), known)
        else:
            _read_other_header(publication, name, value, now_ms)
    return publication


def _read_other_header(publication: Publication, name: bytes, value: bytes, now_ms: int) -> None:
    if name == b"x-message-key":
        publication.key = value
    elif name == b"idempotency-key":
        publication.idempotency_key = read_idempotency_key(value)
    elif name == b"prefer":
        publication.respond_async |= prefers_async(value)
    else:
        text = _text(name, value)
        try:
            if name == b"x-timestamp":
                publication.timestamp_ms = parse_time_ms(text)
            else:
                publication.headers.append((b"expires-at", expiry(text, now_ms)))
        except ValueError as error:
            raise Refusal("invalid_header", f"{_shown(name)}: {error}") from None


def _header_value(kind: int, name: bytes, value: bytes) -> bytes | None:
    """The record header's value for a request header's; None where it is to be left out."""
    if kind == TRACE:
        return value if is_traceparent(value) else None
    if kind == PRIORITY and not is_priority(value):
        raise Refusal("invalid_header", f"{_shown(name)} is a whole number from 0 to {MAX_PRIORITY}")
    if not value.isascii():
        _text(name, value)
    return value


def _text(name: bytes, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Refusal("invalid_header", f"{_shown(name)} is not UTF-8") from None


def _shown(name: bytes) -> str:
    return name.decode("ascii", "replace").title()


def read_idempotency_key(value: bytes) -> str:
    """The text of an `Idempotency-Key`. The quotes that the draft standard puts around it are not part of it."""
    text = _text(b"idempotency-key", value)
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if not 0 < len(text.encode()) <= MAX_IDEMPOTENCY_KEY_BYTES:
        raise Refusal("invalid_header", f"Idempotency-Key has 1 to {MAX_IDEMPOTENCY_KEY_BYTES} bytes")
    return text


def prefers_async(value: bytes) -> bool:
    """Whether a `Prefer` header asks not to wait for the outcome (RFC 7240: unknown preferences are passed over)."""
    return any(part.split(b";")[0].strip().lower() == b"respond-async" for part in value.split(b","))


def expiry(seconds: str, now_ms: int) -> bytes:
    """`expires-at` for a time to live in seconds. Raises ValueError."""
    return b"%d" % min(now_ms + round(parse_seconds(seconds, MAX_EXPIRES_IN_S) * 1000), MAX_TIME_MS)


def is_priority(value: bytes) -> bool:
    """Whether this is a priority as text."""
    return value.isdigit() and len(value) <= 3 and int(value) <= MAX_PRIORITY


def is_traceparent(value: bytes) -> bool:
    """Whether this reads `00-<32 hex>-<16 hex>-<2 hex>` with ids that are not zero (W3C Trace Context, 3.2.2)."""
    if len(value) < 55 or value[2:3] != b"-" or value[35:36] != b"-" or value[52:53] != b"-":
        return False
    version, trace_id, parent_id, flags = value[:2], value[3:35], value[36:52], value[53:55]
    digits = version + trace_id + parent_id + flags
    return (not digits.strip(b"0123456789abcdef") and version != b"ff" and trace_id.strip(b"0") != b""
            and parent_id.strip(b"0") != b"" and (len(value) == 55 or version != b"00" and value[55:56] == b"-"))


def _user_header(name: bytes) -> bytes:
    """A user header's name; refused where it is empty, or an envelope property's that would not be carried out."""
    if not name:
        raise Refusal("invalid_header", "a header's name is empty")
    if name in NOT_BUILT_RECORD_HEADERS:
        raise not_built_property(name.decode(), NOT_BUILT_RECORD_HEADERS[name])
    return name


def not_built_property(name: str, what: str) -> Refusal:
    """The refusal of a property whose capability the hub does not have yet."""
    return Refusal("not_built", f"{name}: {what} is not built yet; nothing was stored", property=name)


# --- in, by JSON --------------------------------------------------------------------------------------------

def read_message(item: object, now_ms: int) -> Publication:
    """One entry of `{"messages": [...]}`. Refuses what is wrong, unknown or not built."""
    if not isinstance(item, dict):
        raise Refusal("invalid_body", "a message is an object")
    publication = Publication()
    for name, value in item.items():
        found = _BY_FIELD.get(name)
        if found is not None:
            carried = None if value is None else _field_value(found, value)
            if carried is not None:
                publication.headers.append((found.header, carried))
        elif name in NOT_BUILT_FIELDS:
            raise not_built_property(name, NOT_BUILT_FIELDS[name])
        elif name not in _OTHER_FIELDS:
            known = ", ".join(sorted(_OTHER_FIELDS | set(_BY_FIELD)))
            raise Refusal("invalid_body", f"a message has no field {name!r}; there are: {known}")
    publication.key = _read_bytes(item, "key")
    publication.value = _read_bytes(item, "value")
    _read_times(publication, item, now_ms)
    _read_user_headers(publication, item.get("headers"))
    return publication


def _field_value(item: Property, value: object) -> bytes | None:
    if item.kind == PRIORITY:
        if type(value) is not int or not 0 <= value <= MAX_PRIORITY:
            raise Refusal("invalid_body", f"{item.field!r} is a whole number from 0 to {MAX_PRIORITY}")
        return b"%d" % value
    if item.kind == TIME_MS:
        return b"%d" % _time_ms(item.field, value)
    if not isinstance(value, str):
        raise Refusal("invalid_body", f"{item.field!r} is a text")
    encoded = value.encode()
    return encoded if item.kind != TRACE or is_traceparent(encoded) else None


def _time_ms(name: str, value: object) -> int:
    try:
        if type(value) is int or isinstance(value, str):
            return parse_time_ms(str(value))
    except ValueError as error:
        raise Refusal("invalid_body", f"{name!r}: {error}") from None
    raise Refusal("invalid_body", f"{name!r} is an RFC 3339 time or a number of milliseconds since 1970")


def _read_times(publication: Publication, item: Mapping[str, Any], now_ms: int) -> None:
    if item.get("timestamp") is not None:
        publication.timestamp_ms = _time_ms("timestamp", item["timestamp"])
    seconds = item.get("expires_in")
    if seconds is None:
        return
    if type(seconds) not in (int, float) or not 0 <= seconds <= MAX_EXPIRES_IN_S:
        raise Refusal("invalid_body", f"'expires_in' is a number of seconds from 0 to {MAX_EXPIRES_IN_S:.0f}")
    if item.get("expires_at") is not None:
        raise Refusal("invalid_body", "a message has 'expires_at' or 'expires_in', not both")
    publication.headers.append((b"expires-at", b"%d" % (now_ms + round(seconds * 1000))))


def _read_bytes(item: Mapping[str, Any], name: str) -> bytes | None:
    """`name` as text or `name`_base64; None where there is neither or null."""
    text, encoded = item.get(name), item.get(name + "_base64")
    if encoded is None:
        if text is None:
            return None
        if isinstance(text, str):
            return text.encode()
        raise Refusal("invalid_body", f"{name!r} is a text or null; put JSON into it as text")
    if text is not None:
        raise Refusal("invalid_body", f"a message has {name!r} or '{name}_base64', not both")
    return _decode_base64(name + "_base64", encoded)


def _decode_base64(name: str, value: object) -> bytes:
    try:
        if isinstance(value, str):
            return a2b_base64(value, strict_mode=True)
    except (Base64Error, ValueError):
        pass    # refused below, with the value that was no text
    raise Refusal("invalid_body", f"{name!r} is standard base64 with padding, as text")


def _read_user_headers(publication: Publication, pairs: object) -> None:
    if pairs is None:
        return
    if not isinstance(pairs, list):
        raise Refusal("invalid_body", "'headers' is a list of [name, value]")
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise Refusal("invalid_body", "a header is [name, value]")
        publication.headers.append((_user_header(pair[0].encode()), _user_value(pair[1])))


def _user_value(value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return _decode_base64("base64", value["base64"])
    raise Refusal("invalid_body", "a header's value is a text, null or {\"base64\": text}")


# --- out ----------------------------------------------------------------------------------------------------

def record_to_json(record: Record, topic: str, queue: int, address: str, door: str) -> dict[str, Any]:
    """One stored record as JSON's types, in the order in which the fields are written."""
    offset, timestamp_ms, key, value, headers, attributes, message_id = record
    message: dict[str, Any] = {"id": str(message_id), "topic": topic, "queue": queue, "offset": offset}
    _put_bytes(message, "key", key)
    _put_bytes(message, "value", value)
    user_headers: list[list[Any]] = []
    message["headers"] = user_headers
    message["address"] = address
    message["timestamp"] = timestamp_ms
    message["door"] = door
    if attributes & TRANSIENT:
        message["transient"] = True
    if attributes & RETAIN:
        message["retain"] = True
    for name, header_value in headers:
        if not _put_property(message, name, header_value) and not (
                name == ADDRESS_HEADER and header_value == address.encode()):
            user_headers.append([name.decode("utf-8", "replace"), _header_to_json(header_value)])
    return message


def door_of(attributes: int) -> int:
    """The number of the door that a record came in by."""
    return attributes & DOOR_MASK


def _put_property(message: dict[str, Any], name: bytes, value: bytes | None) -> bool:
    """Put an envelope property among the fields; False where it is none, is a duplicate, or does not read as one."""
    item = _BY_RECORD_HEADER.get(name)
    if item is None or value is None or item.field in message:
        return False
    if item.kind in (PRIORITY, TIME_MS):
        if not value.isdigit() or len(value) > len(str(MAX_TIME_MS)):
            return False
        message[item.field] = int(value)
        return True
    try:
        message[item.field] = value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _put_bytes(message: dict[str, Any], name: str, data: bytes | None) -> None:
    if data is None:
        message[name] = None
        return
    try:
        message[name] = data.decode()
    except UnicodeDecodeError:
        message[name + "_base64"] = b64encode(data).decode()


def _header_to_json(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}
