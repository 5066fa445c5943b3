"""Requests to messages and records to JSON: what of HTTP is which property of a message. Pure.

Which request header is which field of the common envelope is the column `http` of `gateways.properties.envelope`; in a
JSON message a field has the same name with underscores (and `id` is `message_id`). Nothing is dropped in silence: what
does not read as it should is refused, and what HTTP does not carry is listed in the README.

`gateways.json_messages` says how messages look in JSON.
"""
from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from gatehouse.gateways.http.column import HTTP, USER_PREFIX
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.json_messages import OF_THE_RECORD, json_name
from gatehouse.gateways.properties.envelope import FIELDS, Cell, EnvelopeField, Kind, Shape, Where
from gatehouse.gateways.properties.values import CHARSET, normalize, read
from gatehouse.kernel.message import NOW, RETAIN, Place, When
from gatehouse.kernel.records.batch import SENT_HEADERS
from gatehouse.tracing.context import HEADER, MAX_BYTES, OF_CONTEXT, STATE

"""This door's column in the property table."""

MAX_IDEMPOTENCY_KEY_BYTES: Final = 255
DELIVER_AT: Final = "deliver-at"
"""Carried out by the hub, and then no property of the message any more."""

JSON_TYPE: Final = b"application/json"
PLAIN_KINDS: Final = (Kind.TEXT, Kind.BYTES)


class Carried(NamedTuple):
    """A request header that is a field of the envelope."""

    field: EnvelopeField
    cell: Cell
    record_header: bytes
    plain: bool
    """Any ASCII text is a value, and unless it has parameters behind a `;` nothing else is said by it."""


_CARRIED: Final = {cell.name.lower().encode():
                   Carried(field, cell, field.name.encode(), field.kind in PLAIN_KINDS and field.name != "key")
                   for field in FIELDS for cell in HTTP.cells.get(field.name, ())
                   if cell.where is Where.HEADER and cell.shape is not Shape.CHARSET}
SAID_FROM_NOW: Final = frozenset(name for name, carried in _CARRIED.items()
                                 if carried.cell.shape is Shape.SECONDS_FROM_NOW)
"""Request headers whose meaning depends on when they are read."""

_OF_THE_REQUEST: Final = frozenset((b"idempotency-key", b"prefer", b"x-repeat"))
_BY_JSON_NAME: Final = {json_name(field.name): field for field in FIELDS
                        if field.name not in OF_THE_RECORD and field.name != DELIVER_AT}
_OTHER_NAMES: Final = frozenset(("key", "key_base64", "value", "value_base64", "headers", "timestamp", "expires_in",
                                 "correlation_id_base64", "delay", "deliver_at", "repeat"))
_WAIT: Final = re.compile(rb"(?:^|,)\s*wait\s*=\s*\"?(\d{1,9})\"?\s*(?:[;,]|$)", re.I)
_USER_PREFIX: Final = USER_PREFIX.lower().encode()
_EVENT_PREFIX: Final = b"ce-"
NO_EVENT: Final[list[tuple[bytes, bytes]]] = []
"""Shared and never changed: most messages are none."""


class Publication:
    """What the headers of a publishing request say, or one message of a JSON body: everything but where it goes."""

    __slots__ = ("headers", "timestamp_ms", "key", "value", "idempotency_key", "respond_async", "attributes", "due_ms",
                 "delay_ms", "repeat", "event", "wait_s")

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes | None]] = []
        self.timestamp_ms = 0                      # 0: the time of the append
        self.key: bytes | None = None
        self.value: bytes | None = None            # of a JSON message only
        self.idempotency_key: str | None = None
        self.respond_async = False
        self.wait_s: int | None = None             # answered within so many seconds, one way or the other
        self.attributes = 0                        # bits that its properties set in the record's attribute byte
        self.due_ms = 0                            # by the wall clock; 0: at once, or
        self.delay_ms = 0                          # so long from now
        self.repeat = ""                           # see `kernel.scheduling.schedule`; "": once
        self.event: list[tuple[bytes, bytes]] = NO_EVENT      # attributes of a CloudEvent in binary mode

    @property
    def later(self) -> bool:
        """Whether it is for another time, or for several."""
        return self.due_ms > 0 or self.delay_ms > 0 or self.repeat != ""

    @property
    def trace(self) -> bytes:
        """Its trace context as a header, for lines of the log; b"" where it has none."""
        return next((name + b":" + value for name, value in self.headers if name == HEADER and value is not None), b"")

    @property
    def when(self) -> When:
        return When(self.due_ms, self.repeat, self.delay_ms) if self.later else NOW


# --- in, by request headers (hot: once per published message) -----------------------------------------------

def read_headers(raw_headers: Iterable[tuple[bytes, bytes]], now_ms: int) -> Publication:
    """The message properties among a request's headers. Refuses what is wrong or given twice."""
    publication = Publication()
    seen: set[bytes] = set()
    states: list[bytes] = []
    for raw_name, value in raw_headers:
        name = raw_name.lower()
        carried = _CARRIED.get(name)
        if carried is None and name not in _OF_THE_REQUEST:
            if name.startswith(_USER_PREFIX):
                publication.headers.append((_user_header(name[len(_USER_PREFIX):]), value))
            elif name.startswith(_EVENT_PREFIX):
                publication.event = [*publication.event, (name[len(_EVENT_PREFIX):], value)]
            elif name == STATE:
                states.append(value)
            continue
        if name in seen and name == HEADER:          # Trace Context has no word for two: a new trace begins
            publication.headers = [each for each in publication.headers if each[0] != HEADER]
            continue
        if name in seen and name != b"prefer":
            raise Refusal("invalid_header", f"{_shown(name)} is given twice")
        seen.add(name)
        if carried is not None:
            if carried.plain and value.isascii() and b";" not in value:
                publication.headers.append((carried.record_header, value))
            else:
                _carry(publication, carried, value, now_ms)
        elif name == b"prefer":
            publication.respond_async |= prefers_async(value)
            publication.wait_s = preferred_wait_s(value) if publication.wait_s is None else publication.wait_s
        elif name == b"x-repeat":
            publication.repeat = read_repeat(value)
        else:
            publication.idempotency_key = read_idempotency_key(value)
    if states:
        _add_state(publication, b",".join(states))
    return publication


def _add_state(publication: Publication, state: bytes) -> None:
    """Trace Context, 3.3: several headers are one list, and without a context it says nothing."""
    # decision 330
    if len(state) <= MAX_BYTES and state.isascii() and any(name == HEADER for name, _ in publication.headers):
        publication.headers.append((STATE, state))


def _carry(publication: Publication, carried: Carried, value: bytes, now_ms: int) -> None:
    """Put one field of the envelope where it belongs."""
    field = carried.field
    delays = field.name == DELIVER_AT and carried.cell.shape is Shape.SECONDS_FROM_NOW
    given = read(carried.cell.shape, value, 0 if delays else now_ms)
    normal = None if given is None else normalize(field.kind, given)
    if normal is None:
        if field.kind is Kind.TRACEPARENT:      # W3C Trace Context, 4.3: what cannot be parsed begins a new trace
            return
        raise Refusal("invalid_header", f"{carried.cell.name} is not {field.kind.value}"
                                        if given is not None else f"{carried.cell.name} is no number of seconds")
    if field.name == "key":
        publication.key = normal
    elif field.name == DELIVER_AT:
        if publication.due_ms or publication.delay_ms:
            raise Refusal("invalid_header", "a message has X-Delay or X-Deliver-At, not both")
        if delays:
            publication.delay_ms = int(normal)
        else:
            publication.due_ms = int(normal)
    elif field.name == "timestamp":
        publication.timestamp_ms = int(normal)
    elif field.name == "retain":
        publication.attributes = RETAIN if normal == b"true" else 0
    else:
        publication.headers.append((carried.record_header, normal))
        if field.name == "content-type":
            _note_charset(publication, value)


def _note_charset(publication: Publication, content_type: bytes) -> None:
    """The `utf8` field stands inside the content type."""
    if b";" in content_type:
        stated = CHARSET.search(content_type.decode())
        if stated is not None and stated.group(2).lower() == "utf-8":
            publication.headers.append((b"utf8", b"true"))


def _shown(name: bytes) -> str:
    return name.decode("ascii", "replace").title()


def read_idempotency_key(value: bytes) -> str:
    """The text of an `Idempotency-Key`. The quotes that the draft standard puts around it are not part of it."""
    key = value[1:-1] if len(value) >= 2 and value[:1] == value[-1:] == b'"' else value
    try:
        if 0 < len(key) <= MAX_IDEMPOTENCY_KEY_BYTES:
            return key.decode()
    except UnicodeDecodeError:
        pass    # refused below, as a key of the wrong size
    raise Refusal("invalid_header", f"Idempotency-Key is UTF-8 text of 1 to {MAX_IDEMPOTENCY_KEY_BYTES} bytes")


def read_repeat(value: bytes) -> str:
    """The text of an `X-Repeat`; what it says is read when it is scheduled."""
    if value.strip() and value.isascii():
        return value.decode().strip()
    raise Refusal("invalid_header", "X-Repeat is an interval or a cron expression, as 'every 10s' or '0 8 * * MON'")


def preferred_wait_s(value: bytes) -> int | None:
    """For how many seconds a `Prefer` header wants to wait at most (RFC 7240, 4.3), None where it does not say."""
    match = _WAIT.search(value)
    return int(match.group(1)) if match else None


def prefers_async(value: bytes) -> bool:
    """Whether a `Prefer` header asks not to wait for the outcome (RFC 7240: unknown preferences are passed over)."""
    return any(part.split(b";")[0].strip().lower() == b"respond-async" for part in value.split(b","))


def _user_header(name: bytes) -> bytes:
    """A user header's name; refused where it is empty, the hub's own, or a field's that would not be carried out."""
    if not name:
        raise Refusal("invalid_header", "a header's name is empty")
    if name == b"retain":
        raise Refusal("invalid_header", "'retain' is X-Retain here, and retain in JSON")
    if name == b"dead-letter":
        raise Refusal("invalid_header", "'dead-letter' is what the hub itself says of a message's deaths")
    if name == DELIVER_AT.encode():
        raise Refusal("invalid_header", "'deliver-at' is X-Deliver-At here, and deliver_at in JSON")
    return name


# --- in, by JSON --------------------------------------------------------------------------------------------

def read_message(item: object, now_ms: int) -> Publication:
    """One entry of `{"messages": [...]}`. Refuses what is wrong or unknown."""
    if not isinstance(item, dict):
        raise Refusal("invalid_body", "a message is an object")
    publication = Publication()
    for name, value in item.items():
        field = _BY_JSON_NAME.get(name)
        if field is not None:
            normal = None if value is None else _field_value(name, field, value)
            if field.name == "retain":
                publication.attributes = RETAIN if normal == b"true" else 0
            elif normal is not None:
                publication.headers.append((field.name.encode(), normal))
        elif name not in _OTHER_NAMES:
            names = ", ".join(sorted(_OTHER_NAMES | set(_BY_JSON_NAME)))
            raise Refusal("invalid_body", f"a message has no field {name!r}; there are: {names}")
    publication.key = _read_bytes(item, "key")
    publication.value = _read_value(publication, item)
    if item.get("correlation_id_base64") is not None:
        publication.headers.append((b"correlation-id", _read_bytes(item, "correlation_id") or b""))
    _read_times(publication, item, now_ms)
    _read_schedule(publication, item)
    _read_user_headers(publication, item.get("headers"))
    return publication


def _field_value(name: str, field: EnvelopeField, value: object) -> bytes | None:
    """A JSON value as the record header's; None for a traceparent that cannot be read."""
    given: bytes | None = None
    if field.kind is Kind.FLAG:
        given = {True: b"true", False: b"false"}.get(value) if isinstance(value, bool) else None
    elif field.kind in (Kind.PRIORITY, Kind.TIME) and not isinstance(value, str):
        number = whole_number(value)
        given = None if number is None else b"%d" % number
    elif isinstance(value, str) and field.kind is not Kind.PRIORITY:
        given = value.encode()
    normal = None if given is None else normalize(field.kind, given)
    if normal is None and (given is None or field.kind is not Kind.TRACEPARENT):
        raise Refusal("invalid_body", f"{name!r} is not {field.kind.value}")
    return normal


def whole_number(value: object) -> int | None:
    """A JSON value that is a whole number, as 3.0 is (JSON Schema, 6.1.1); None for any other."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(value: object) -> bytes | None:
    if isinstance(value, str):
        return normalize(Kind.TIME, value.encode())
    number = whole_number(value)
    return None if number is None else normalize(Kind.TIME, b"%d" % number)


def _seconds_from_now(value: object, now_ms: int) -> bytes | None:
    if isinstance(value, float):
        return read(Shape.SECONDS_FROM_NOW, f"{value:.9f}", now_ms)
    return read(Shape.SECONDS_FROM_NOW, str(value), now_ms) if type(value) is int else None


def _read_times(publication: Publication, item: Mapping[str, Any], now_ms: int) -> None:
    if item.get("timestamp") is not None:
        given = item["timestamp"]
        time = _time(given)
        if time is None:
            raise Refusal("invalid_body", "'timestamp' is an RFC 3339 time or milliseconds since 1970")
        publication.timestamp_ms = int(time)
    seconds = item.get("expires_in")
    if seconds is None:
        return
    if item.get("expires_at") is not None:
        raise Refusal("invalid_body", "a message has 'expires_at' or 'expires_in', not both")
    at = _seconds_from_now(seconds, now_ms)
    if at is None:
        raise Refusal("invalid_body", "'expires_in' is a number of seconds")
    publication.headers.append((b"expires-at", at))


def _read_schedule(publication: Publication, item: Mapping[str, Any]) -> None:
    given, seconds, repeat = item.get("deliver_at"), item.get("delay"), item.get("repeat")
    if given is not None and seconds is not None:
        raise Refusal("invalid_body", "a message has 'deliver_at' or 'delay', not both")
    if given is not None:
        time = _time(given)
        if time is None:
            raise Refusal("invalid_body", "'deliver_at' is an RFC 3339 time or milliseconds since 1970")
        publication.due_ms = int(time)
    if seconds is not None:
        delay = _seconds_from_now(seconds, 0)
        if delay is None:
            raise Refusal("invalid_body", "'delay' is a number of seconds")
        publication.delay_ms = int(delay)
    if repeat is not None:
        if not isinstance(repeat, str) or not repeat.strip():
            raise Refusal("invalid_body", "'repeat' is an interval or a cron expression, as text")
        publication.repeat = repeat.strip()


def _read_value(publication: Publication, item: Mapping[str, Any]) -> bytes | None:
    """The value of a message in JSON: as `_read_bytes` reads it, or any other JSON, whose content type is then added
    unless the message says one."""
    value = item.get("value")
    if value is None or isinstance(value, str):
        return _read_bytes(item, "value")
    if item.get("value_base64") is not None:
        raise Refusal("invalid_body", "a message has 'value' or 'value_base64', not both")
    try:
        written = orjson.dumps(value)
    except TypeError:
        raise Refusal("invalid_body", "'value' is nested too deep: send it as text") from None
    if item.get("content_type") is None:
        publication.headers.append((b"content-type", JSON_TYPE))
    return written


def _read_bytes(item: Mapping[str, Any], name: str) -> bytes | None:
    """`name` as text or `name`_base64; None where there is neither or null."""
    text, encoded = item.get(name), item.get(name + "_base64")
    if encoded is None:
        if text is None:
            return None
        if isinstance(text, str):
            return text.encode()
        raise Refusal("invalid_body", f"{name!r} is a text or null")
    if text is not None:
        raise Refusal("invalid_body", f"a message has {name!r} or '{name}_base64', not both")
    return decode_base64(name + "_base64", encoded)


def decode_base64(name: str, value: object) -> bytes:
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
    if len(pairs) > SENT_HEADERS:
        raise Refusal("invalid_body", f"a message has at most {SENT_HEADERS} headers")
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
        return decode_base64("base64", value["base64"])
    raise Refusal("invalid_body", "a header's value is a text, null or {\"base64\": text}")


OF_ALL_MESSAGES: Final = (HEADER, STATE, b"x-trace")
"""Request headers that hold for every message of a body that says nothing else."""


def add_of_all(headers: list[tuple[bytes, bytes | None]], of_request: Iterable[tuple[bytes, bytes | None]]) -> None:
    """Add to a message's headers what its request says of all its messages. The state of one trace is not added to the
    context of another."""
    named = {name for name, _ in headers}
    if HEADER in named:
        named |= OF_CONTEXT
    headers += [pair for pair in of_request if pair[0] in OF_ALL_MESSAGES and pair[0] not in named]


# --- where messages are ------------------------------------------------------------------------------------------

def describe_place(place: Place, position: tuple[int, int, int] | None, timestamp_ms: int, append_ms: int
                   ) -> dict[str, Any]:
    """Where a message went, or will go. Without a position its id is not known; offset and time of append are not
    while it waits for its time. `timestamp_ms` is the sender's, or 0."""
    offset = None if position is None or position[1] < 0 else position[1]
    return {"id": None if position is None else str(position[2]), "topic": place.topic,
            "partition": place.partition,
            "offset": offset, "address": place.address,
            "timestamp": timestamp_ms or (None if offset is None else append_ms)}
