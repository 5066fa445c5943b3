"""Properties of MQTT 5 (2.2.2): which packet may have which, in what form, the bytes of them; and those of a PUBLISH as
the headers of a stored message, and back. Pure.

    properties := length (variable byte integer) | property*
    property   := identifier (variable byte integer, one byte for all there are) | value

    shapes: a byte, two bytes, four bytes, a variable byte integer, UTF-8 text, binary data, a pair of texts

A decoder gets the bytes behind the length. Every property but the user property, and in a PUBLISH to a client the
subscription identifier, stands once at most.

In a stored message what MQTT has as properties (content type, correlation data, ...) stands first under the names of
the property table (`gateways.properties.envelope`), then the user properties as they came: in order, with duplicates.
So they leave by this door unchanged, and other doors read in them what their columns say (`column.MQTT5`).
"""
# decision 168: user properties keep their order; a field that MQTT has a property for stands before them
from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from gatehouse.gateways.mqtt import reasons
from gatehouse.gateways.mqtt.codec import DOOR, Meaning, encode_variable
from gatehouse.gateways.mqtt.column import MAX_MQTT_BYTES, is_mqtt_text, show_user_property
from gatehouse.gateways.mqtt.errors import MalformedPacket, ProtocolError
from gatehouse.gateways.mqtt.reading import decode_text, variable
from gatehouse.gateways.properties.envelope import Kind, Shape
from gatehouse.gateways.properties.values import normalize, show
from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.message import DOOR_MASK
from gatehouse.kernel.records.batch import NO_HEADERS, encode_headers, public_headers
from gatehouse.kernel.records.headers import TRACE_MARK
from gatehouse.tracing.context import HEADER as TRACEPARENT
from gatehouse.tracing.context import is_of_a_hub

MAX_VARIABLE: Final = 268_435_455      # 1.5.5
USER_PROPERTIES_MAX: Final = 1_000     # of one packet


class Form(IntEnum):
    """How a value is written (1.5)."""

    BYTE = 0
    SHORT = 1
    INTEGER = 2
    VARIABLE = 3
    TEXT = 4
    BINARY = 5
    PAIR = 6


class Packet(IntEnum):
    """Packets that have properties, and the will, which has its own."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    DISCONNECT = 14
    AUTH = 15
    WILL = 16


class Property(NamedTuple):
    """One row of table 2-4."""

    number: int
    name: str
    form: Form
    packets: frozenset[Packet]
    lowest: int = 0
    highest: int = MAX_VARIABLE


def _row(number: int, name: str, form: Form, *packets: Packet, lowest: int = 0, highest: int | None = None
         ) -> Property:
    bounds = {Form.BYTE: 255, Form.SHORT: 65_535, Form.INTEGER: 0xFFFF_FFFF}
    return Property(number, name, form, frozenset(packets), lowest,
                    bounds.get(form, MAX_VARIABLE) if highest is None else highest)


_P = Packet
_ACKS: Final = (_P.CONNACK, _P.PUBACK, _P.PUBREC, _P.PUBREL, _P.PUBCOMP, _P.SUBACK, _P.UNSUBACK, _P.DISCONNECT, _P.AUTH)

FORMAT: Final = 0x01
EXPIRY: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION: Final = 0x09
SUBSCRIPTION_ID: Final = 0x0B
SESSION_EXPIRY: Final = 0x11
ASSIGNED_ID: Final = 0x12
SERVER_KEEP_ALIVE: Final = 0x13
AUTH_METHOD: Final = 0x15
AUTH_DATA: Final = 0x16
PROBLEM_INFORMATION: Final = 0x17
WILL_DELAY: Final = 0x18
ASK_RESPONSE: Final = 0x19
RESPONSE_INFORMATION: Final = 0x1A
SERVER_REFERENCE: Final = 0x1C
REASON_STRING: Final = 0x1F
RECEIVE_MAXIMUM: Final = 0x21
ALIAS_MAXIMUM: Final = 0x22
ALIAS: Final = 0x23
MAXIMUM_QOS: Final = 0x24
RETAIN_AVAILABLE: Final = 0x25
USER: Final = 0x26
MAXIMUM_PACKET: Final = 0x27
WILDCARDS_AVAILABLE: Final = 0x28
IDS_AVAILABLE: Final = 0x29
SHARED_AVAILABLE: Final = 0x2A

TABLE: Final[dict[int, Property]] = {row.number: row for row in (
    _row(FORMAT, "payload format indicator", Form.BYTE, _P.PUBLISH, _P.WILL, highest=1),
    _row(EXPIRY, "message expiry interval", Form.INTEGER, _P.PUBLISH, _P.WILL),
    _row(CONTENT_TYPE, "content type", Form.TEXT, _P.PUBLISH, _P.WILL),
    _row(RESPONSE_TOPIC, "response topic", Form.TEXT, _P.PUBLISH, _P.WILL),
    _row(CORRELATION, "correlation data", Form.BINARY, _P.PUBLISH, _P.WILL),
    _row(SUBSCRIPTION_ID, "subscription identifier", Form.VARIABLE, _P.PUBLISH, _P.SUBSCRIBE, lowest=1),
    _row(SESSION_EXPIRY, "session expiry interval", Form.INTEGER, _P.CONNECT, _P.CONNACK, _P.DISCONNECT),
    _row(ASSIGNED_ID, "assigned client identifier", Form.TEXT, _P.CONNACK),
    _row(SERVER_KEEP_ALIVE, "server keep alive", Form.SHORT, _P.CONNACK),
    _row(AUTH_METHOD, "authentication method", Form.TEXT, _P.CONNECT, _P.CONNACK, _P.AUTH),
    _row(AUTH_DATA, "authentication data", Form.BINARY, _P.CONNECT, _P.CONNACK, _P.AUTH),
    _row(PROBLEM_INFORMATION, "request problem information", Form.BYTE, _P.CONNECT, highest=1),
    _row(WILL_DELAY, "will delay interval", Form.INTEGER, _P.WILL),
    _row(ASK_RESPONSE, "request response information", Form.BYTE, _P.CONNECT, highest=1),
    _row(RESPONSE_INFORMATION, "response information", Form.TEXT, _P.CONNACK),
    _row(SERVER_REFERENCE, "server reference", Form.TEXT, _P.CONNACK, _P.DISCONNECT),
    _row(REASON_STRING, "reason string", Form.TEXT, *_ACKS),
    _row(RECEIVE_MAXIMUM, "receive maximum", Form.SHORT, _P.CONNECT, _P.CONNACK, lowest=1),
    _row(ALIAS_MAXIMUM, "topic alias maximum", Form.SHORT, _P.CONNECT, _P.CONNACK),
    _row(ALIAS, "topic alias", Form.SHORT, _P.PUBLISH),       # 0 has a reason code of its own
    _row(MAXIMUM_QOS, "maximum QoS", Form.BYTE, _P.CONNACK, highest=1),
    _row(RETAIN_AVAILABLE, "retain available", Form.BYTE, _P.CONNACK, highest=1),
    _row(USER, "user property", Form.PAIR, *_P),
    _row(MAXIMUM_PACKET, "maximum packet size", Form.INTEGER, _P.CONNECT, _P.CONNACK, lowest=1),
    _row(WILDCARDS_AVAILABLE, "wildcard subscription available", Form.BYTE, _P.CONNACK, highest=1),
    _row(IDS_AVAILABLE, "subscription identifier available", Form.BYTE, _P.CONNACK, highest=1),
    _row(SHARED_AVAILABLE, "shared subscription available", Form.BYTE, _P.CONNACK, highest=1),
)}


@dataclass(slots=True, eq=False)
class Properties:
    """What stood in one packet."""

    values: dict[int, Any] = field(default_factory=dict)
    """By identifier: a number, a text or bytes."""

    user: list[tuple[str, str]] = field(default_factory=list)
    """In order, with duplicates."""

    subscription_ids: list[int] = field(default_factory=list)

    def number(self, identifier: int, default: int = 0) -> int:
        """A number, or the default where the property is not there."""
        value: int = self.values.get(identifier, default)
        return value

    def user_value(self, name: str) -> str | None:
        """The first user property of this name."""
        return next((value for given, value in self.user if given == name), None)


NONE: Final = Properties()
"""Of packets of older versions. Nobody writes to it."""


def decode_properties(data: bytes, at: int, end: int, packet: Packet) -> Properties:
    """The properties of `packet` that stand in `data[at:end]`. Raises MalformedPacket, ProtocolError."""
    given = Properties()
    while at < end:
        number = data[at]
        row = TABLE.get(number)
        if row is None or packet not in row.packets:
            raise MalformedPacket(f"[MQTT5-2.2.2.2] a {packet.name} with property {number:#04x}")
        value, at = _read(row, data, at + 1, end)
        if number == USER:
            if len(given.user) >= USER_PROPERTIES_MAX:
                raise ProtocolError(f"more than {USER_PROPERTIES_MAX} user properties", reasons.QUOTA)
            given.user.append(value)
            continue
        if number in given.values and not (number == SUBSCRIPTION_ID and packet is Packet.PUBLISH):
            raise ProtocolError(f"[MQTT5-2.2.2.2] the {row.name} stands twice")
        if isinstance(value, int) and not row.lowest <= value <= row.highest:
            raise ProtocolError(f"a {row.name} of {value} (3.1.2.11, 3.3.2.3, 3.8.2.1)")
        given.values[number] = value
        if number == SUBSCRIPTION_ID:
            given.subscription_ids.append(value)
    if AUTH_DATA in given.values and AUTH_METHOD not in given.values:
        raise ProtocolError("[MQTT5-3.1.2.11.10] authentication data without a method")
    return given


def _read(row: Property, data: bytes, at: int, end: int) -> tuple[Any, int]:
    form = row.form
    if form is Form.VARIABLE:
        return variable(data, at, end)
    if form is Form.PAIR:
        name, at = _field(data, at, end)
        value, at = _field(data, at, end)
        return (decode_text(name), decode_text(value)), at
    if form in (Form.TEXT, Form.BINARY):
        raw, at = _field(data, at, end)
        return (decode_text(raw) if form is Form.TEXT else raw), at
    size = 1 if form is Form.BYTE else 2 if form is Form.SHORT else 4
    if at + size > end:
        raise MalformedPacket(f"a {row.name} that is cut off (2.2.2)")
    return int.from_bytes(data[at:at + size], "big"), at + size


def _field(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Two bytes of size and as many bytes."""
    if at + 2 > end:
        raise MalformedPacket("a property that is cut off (2.2.2)")
    stop = at + 2 + (data[at] << 8 | data[at + 1])
    if stop > end:
        raise MalformedPacket("a property that is longer than its packet (2.2.2)")
    return data[at + 2:stop], stop


def encode_property(number: int, value: Any) -> bytes:
    """Identifier and value. A text or bytes of more than 65,535 bytes cannot be said: ValueError."""
    form = TABLE[number].form
    if form is Form.BYTE:
        return bytes((number, value))
    if form is Form.SHORT:
        return bytes((number,)) + int(value).to_bytes(2, "big")
    if form is Form.INTEGER:
        return bytes((number,)) + int(value).to_bytes(4, "big")
    if form is Form.VARIABLE:
        return bytes((number,)) + encode_variable(value)
    if form is Form.PAIR:
        return bytes((number,)) + _sized(value[0].encode()) + _sized(value[1].encode())
    return bytes((number,)) + _sized(value.encode() if form is Form.TEXT else value)


def encode_properties(pairs: list[tuple[int, Any]]) -> bytes:
    """Properties with their length in front."""
    return with_length(b"".join([encode_property(number, value) for number, value in pairs]))


def with_length(encoded: bytes) -> bytes:
    """Encoded properties with their length in front."""
    return encode_variable(len(encoded)) + encoded


def _sized(raw: bytes) -> bytes:
    if len(raw) > 65_535:
        raise ValueError("MQTT says no text or bytes of more than 65535 bytes")
    return len(raw).to_bytes(2, "big") + raw


EXPIRES_AT_HEADER: Final = b"expires-at"
UTF8_HEADER: Final = b"utf8"
CONTENT_TYPE_HEADER: Final = b"content-type"
CORRELATION_HEADER: Final = b"correlation-id"
REPLY_TO_HEADER: Final = b"reply-to"
TIMESTAMP: Final = "ts"

_KINDS: Final = {EXPIRES_AT_HEADER: Kind.TIME, UTF8_HEADER: Kind.FLAG, CONTENT_TYPE_HEADER: Kind.TEXT,
                 CORRELATION_HEADER: Kind.BYTES, REPLY_TO_HEADER: Kind.TEXT}
"""Headers that MQTT has a property for."""


def stored_headers(given: Properties, now_ms: int) -> Meaning:
    """What the properties of a PUBLISH mean. `now_ms`: wall time, for what expires. Raises ProtocolError."""
    values = given.values
    pairs: list[tuple[bytes, bytes | None]] = []
    if FORMAT in values:
        pairs.append((UTF8_HEADER, b"true" if values[FORMAT] else b"false"))
    if EXPIRY in values:
        pairs.append((EXPIRES_AT_HEADER, b"%d" % (now_ms + values[EXPIRY] * 1000)))
    if CONTENT_TYPE in values:
        pairs.append((CONTENT_TYPE_HEADER, values[CONTENT_TYPE].encode()))
    if RESPONSE_TOPIC in values:
        topic = values[RESPONSE_TOPIC]
        if not topic or "+" in topic or "#" in topic:
            raise ProtocolError("[MQTT5-3.3.2-14] a response topic that is empty or has a wildcard")
        pairs.append((REPLY_TO_HEADER, topic.encode()))
    if CORRELATION in values:
        pairs.append((CORRELATION_HEADER, values[CORRELATION]))
    timestamp_ms = 0
    for name, value in given.user:
        if name == TIMESTAMP and not timestamp_ms:
            sent_at = normalize(Kind.TIME, value.encode())
            timestamp_ms = 0 if sent_at is None else int(sent_at)
        pairs.append((name.encode(), value.encode()))
    return (encode_headers(pairs) if pairs else NO_HEADERS), timestamp_ms


def shown_properties(headers: bytes, attributes: int, timestamp_ms: int, now_ms: int, was_sent: bool = False, *,
                     unaltered: bool = True, address: str = "") -> bytes | None:
    """The properties of a PUBLISH to a client, without their length, for a message with these headers; None where it is
    worth nothing any more, which one that was sent before never is [MQTT5-4.3.3-7]. What MQTT cannot say is left out:
    values beyond 65,535 bytes, user properties that are no text. `unaltered`: what came by this door has no trace
    context that a hub gave, unless its sender asked to have it followed. `address`: the message's own, which the hub
    may have noted among the headers; one that its sender wrote there is shown."""
    shown = bytearray()
    seen: set[bytes] = set()
    is_own = attributes & DOOR_MASK == DOOR
    has_timestamp = not timestamp_ms or is_own
    unaltered = unaltered and is_own and headers.find(TRACE_MARK) < 0
    public = public_headers(headers)
    hubs = len(public)                                         # where the hub's `address` stands: it is the last
    if headers.find(ADDRESS_HEADER) >= 0:
        hubs = max([at for at, (name, _) in enumerate(public) if name == ADDRESS_HEADER], default=hubs)
        if hubs < len(public) and public[hubs][1] != address.encode():
            hubs = len(public)
    for at, (name, value) in enumerate(public):
        kind = _KINDS.get(name)
        if kind is not None and name not in seen:
            normal = None if value is None else normalize(kind, value)
            if normal is not None:
                seen.add(name)
                if name == EXPIRES_AT_HEADER and int(normal) <= now_ms:
                    if not was_sent:
                        return None
                    now_ms = int(normal)                       # no second is left
                shown += _property(name, normal, now_ms)
                continue
        if at == hubs or unaltered and name == TRACEPARENT and is_of_a_hub(value):
            continue                                           # decisions 64, 324
        pair = show_user_property(name.decode(errors="replace"), value)
        if pair is not None:
            shown += encode_property(USER, pair)
            has_timestamp = has_timestamp or pair[0] == TIMESTAMP
    if not has_timestamp:
        shown += encode_property(USER, (TIMESTAMP, str(timestamp_ms)))
    return bytes(shown)


def _property(name: bytes, normal: bytes, now_ms: int) -> bytes:
    """One field that MQTT has a property for; nothing where its value does not fit."""
    if name == EXPIRES_AT_HEADER:
        seconds, _ = show(Shape.SECONDS_LEFT, normal, now_ms)
        return encode_property(EXPIRY, seconds)
    if name == UTF8_HEADER:
        return encode_property(FORMAT, normal == b"true")
    if len(normal) > MAX_MQTT_BYTES:
        return b""
    if name == CORRELATION_HEADER:
        return encode_property(CORRELATION, normal)
    text, _ = show(Shape.ADDRESS if name == REPLY_TO_HEADER else Shape.TEXT, normal, now_ms)
    if text is None or not is_mqtt_text(text):
        return b""
    return encode_property(RESPONSE_TOPIC if name == REPLY_TO_HEADER else CONTENT_TYPE, text)


def is_timed(headers: bytes) -> bool:
    """Whether what these headers say changes as time passes."""
    return EXPIRES_AT_HEADER in headers
