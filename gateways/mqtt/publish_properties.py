"""The properties of an MQTT 5 PUBLISH as the headers of a stored message, and back: what `column.MQTT5` says. Pure.

What MQTT has as properties (content type, correlation data, ...) stands first under the names of the property table
(`gateways.properties.envelope`), then the user properties as they came: in order, with duplicates. So they leave by
this door unchanged, and other doors read in them what their columns say.
"""
# decision 168: user properties keep their order; a field that MQTT has a property for stands before them
from __future__ import annotations

from typing import Final

from gatehouse.gateways.mqtt import properties
from gatehouse.gateways.mqtt.codec import DOOR, Meaning
from gatehouse.gateways.mqtt.column import MAX_MQTT_BYTES, is_mqtt_text, show_user_property
from gatehouse.gateways.mqtt.errors import ProtocolError
from gatehouse.gateways.mqtt.properties import Properties, encode_property
from gatehouse.gateways.properties.envelope import Kind, Shape
from gatehouse.gateways.properties.values import normalize, show
from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.message import DOOR_MASK
from gatehouse.kernel.records.headers import TRACE_MARK
from gatehouse.kernel.records.record import NO_HEADERS, encode_headers, public_headers
from gatehouse.tracing.context import HEADER as TRACEPARENT
from gatehouse.tracing.context import is_of_a_hub

EXPIRES_AT: Final = b"expires-at"
UTF8: Final = b"utf8"
CONTENT_TYPE: Final = b"content-type"
CORRELATION: Final = b"correlation-id"
REPLY_TO: Final = b"reply-to"
TIMESTAMP: Final = "ts"

_KINDS: Final = {EXPIRES_AT: Kind.TIME, UTF8: Kind.FLAG, CONTENT_TYPE: Kind.TEXT, CORRELATION: Kind.BYTES,
                 REPLY_TO: Kind.TEXT}
"""Headers that MQTT has a property for."""


def stored_headers(given: Properties, now_ms: int) -> Meaning:
    """What the properties of a PUBLISH mean. `now_ms`: wall time, for what expires. Raises ProtocolError."""
    values = given.values
    pairs: list[tuple[bytes, bytes | None]] = []
    if properties.FORMAT in values:
        pairs.append((UTF8, b"true" if values[properties.FORMAT] else b"false"))
    if properties.EXPIRY in values:
        pairs.append((EXPIRES_AT, b"%d" % (now_ms + values[properties.EXPIRY] * 1000)))
    if properties.CONTENT_TYPE in values:
        pairs.append((CONTENT_TYPE, values[properties.CONTENT_TYPE].encode()))
    if properties.RESPONSE_TOPIC in values:
        topic = values[properties.RESPONSE_TOPIC]
        if not topic or "+" in topic or "#" in topic:
            raise ProtocolError("[MQTT5-3.3.2-14] a response topic that is empty or has a wildcard")
        pairs.append((REPLY_TO, topic.encode()))
    if properties.CORRELATION in values:
        pairs.append((CORRELATION, values[properties.CORRELATION]))
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
                if name == EXPIRES_AT and int(normal) <= now_ms:
                    if not was_sent:
                        return None
                    now_ms = int(normal)                       # no second is left
                shown += _property(name, normal, now_ms)
                continue
        if at == hubs or unaltered and name == TRACEPARENT and is_of_a_hub(value):
            continue                                           # decisions 64, 324
        pair = show_user_property(name.decode(errors="replace"), value)
        if pair is not None:
            shown += encode_property(properties.USER, pair)
            has_timestamp = has_timestamp or pair[0] == TIMESTAMP
    if not has_timestamp:
        shown += encode_property(properties.USER, (TIMESTAMP, str(timestamp_ms)))
    return bytes(shown)


def _property(name: bytes, normal: bytes, now_ms: int) -> bytes:
    """One field that MQTT has a property for; nothing where its value does not fit."""
    if name == EXPIRES_AT:
        seconds, _ = show(Shape.SECONDS_LEFT, normal, now_ms)
        return encode_property(properties.EXPIRY, seconds)
    if name == UTF8:
        return encode_property(properties.FORMAT, normal == b"true")
    if len(normal) > MAX_MQTT_BYTES:
        return b""
    if name == CORRELATION:
        return encode_property(properties.CORRELATION, normal)
    text, _ = show(Shape.ADDRESS if name == REPLY_TO else Shape.TEXT, normal, now_ms)
    if text is None or not is_mqtt_text(text):
        return b""
    return encode_property(properties.RESPONSE_TOPIC if name == REPLY_TO else properties.CONTENT_TYPE, text)


def is_timed(headers: bytes) -> bool:
    """Whether what these headers say changes as time passes."""
    return EXPIRES_AT in headers
