"""The property table: which properties of a message cross doors, where each door keeps them, what cannot be carried.

One row per field. A field's name is its record header: what a Kafka client reads and writes. A cell says where a door
keeps the field and in which shape; a door without a cell for a field cannot carry it, and `losses` lists that.
Several cells of one door are tried in order: a later one is for what an earlier one cannot hold exactly.
`to_door` and `from_door` do what this table says; `explain` shows it; every cell has a test.

A message keeps its own protocol's properties as they came and gives them back unchanged there; this table is for the
crossing.
"""
from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from gatehouse.gateways.addresses import MAX_SHORTSTR_BYTES

DOORS: Final = ("mqtt3", "mqtt5", "amqp", "kafka", "http")
"""The columns. MQTT 3.1.1 and 5 are one door and two columns: 3.1.1 has no properties."""

DOOR_TITLES: Final = {"mqtt3": "MQTT 3.1.1", "mqtt5": "MQTT 5", "amqp": "AMQP", "kafka": "Kafka", "http": "HTTP"}

MAX_MQTT_BYTES: Final = 65535         # MQTT 5, 1.5.4 and 1.5.6: strings and binary data


class Kind(Enum):
    """What values a field has, and how they stand in the record header."""

    TEXT = "UTF-8 text"
    BYTES = "bytes"
    PRIORITY = "a number from 0 to 255 as decimal digits"
    TIME = "milliseconds since 1970 as decimal digits"
    FLAG = "true or false"
    TRACEPARENT = "a W3C traceparent"


class Where(Enum):
    """Which part of a door's message holds a cell."""

    PROPERTY = "property"             # a field that the protocol itself has
    HEADER = "header"                 # among the named values: user properties, header table, record or request headers


class Shape(Enum):
    """What a cell makes of the value."""

    TEXT = "as text"
    BYTES = "as bytes"
    NUMBER = "as a number"
    TIME_MS = "as a number of milliseconds since 1970"
    TIME_S = "as a number of seconds since 1970"
    SECONDS_LEFT = "as the seconds left, rounded up"
    MS_LEFT = "as the milliseconds left, in digits"
    SECONDS_FROM_NOW = "as seconds from now, in digits"
    MS_FROM_NOW = "as a number of milliseconds from now"
    FLAG = "as a flag"
    CHARSET = "as charset=utf-8 in the content type"
    QUEUE = "as a queue's name, where it is $queue/NAME"
    LEVEL = "as QoS 1 and above"
    MODE = "as 2, and 1 if not"
    OUTCOME = "as 201, and 202 if not"


class Cell(NamedTuple):
    """Where one door keeps one field."""

    where: Where
    name: str
    shape: Shape
    max_bytes: int = 0
    """Longer values cannot be carried here; 0: no bound of its own."""

    read_only: bool = False
    """Understood when it comes in, never written."""


class Field(NamedTuple):
    """One row."""

    name: str
    """The name of the field's record header, where it has one."""

    kind: Kind
    cells: dict[str, tuple[Cell, ...]]
    help: str


def _property(name: str, shape: Shape = Shape.TEXT, max_bytes: int = 0, *, read_only: bool = False) -> Cell:
    return Cell(Where.PROPERTY, name, shape, max_bytes, read_only)


def _header(name: str, shape: Shape = Shape.TEXT, max_bytes: int = 0, *, read_only: bool = False) -> Cell:
    return Cell(Where.HEADER, name, shape, max_bytes, read_only)


_MQTT: Final = MAX_MQTT_BYTES
_SHORT: Final = MAX_SHORTSTR_BYTES

FIELDS: Final[tuple[Field, ...]] = (
    Field("id", Kind.TEXT, {
        "mqtt5": (_header("id", max_bytes=_MQTT),),
        "amqp": (_property("message_id", max_bytes=_SHORT),),
        "kafka": (_header("id"),),
        "http": (_header("X-Message-Id"),),
    }, "the sender's own identifier of the message"),
    Field("key", Kind.BYTES, {
        "mqtt5": (_header("key", max_bytes=_MQTT),),
        "amqp": (_header("x-key", Shape.BYTES),),
        "kafka": (_property("key", Shape.BYTES),),
        "http": (_header("X-Message-Key"),),
    }, "the record's key, where the address does not say it"),
    Field("content-type", Kind.TEXT, {
        "mqtt5": (_property("content_type", max_bytes=_MQTT),),
        "amqp": (_property("content_type", max_bytes=_SHORT),),
        "kafka": (_header("content-type"),),
        "http": (_header("Content-Type"),),
    }, "the media type of the value"),
    Field("content-encoding", Kind.TEXT, {
        "mqtt5": (_header("content-encoding", max_bytes=_MQTT),),
        "amqp": (_property("content_encoding", max_bytes=_SHORT),),
        "kafka": (_header("content-encoding"),),
        "http": (_header("Content-Encoding"),),
    }, "how the value is compressed"),
    Field("utf8", Kind.FLAG, {
        "mqtt5": (_property("payload_format_indicator", Shape.FLAG),),
        "amqp": (_property("content_type", Shape.CHARSET, _SHORT),),
        "kafka": (_header("utf8"),),
        "http": (_header("Content-Type", Shape.CHARSET),),
    }, "the value is UTF-8 text"),
    Field("correlation-id", Kind.BYTES, {
        "mqtt5": (_property("correlation_data", Shape.BYTES, _MQTT),),
        "amqp": (_property("correlation_id", max_bytes=_SHORT), _header("x-correlation-id", Shape.BYTES)),
        "kafka": (_header("correlation-id", Shape.BYTES),),
        "http": (_header("X-Correlation-Id"),),
    }, "which request this answers"),
    Field("reply-to", Kind.TEXT, {
        "mqtt5": (_property("response_topic", max_bytes=_MQTT),),
        "amqp": (_property("reply_to", Shape.QUEUE, _SHORT), _header("x-reply-to-topic")),
        "kafka": (_header("reply-to"),),
        "http": (_header("X-Reply-To"),),
    }, "the address that wants the answer"),
    Field("expires-at", Kind.TIME, {
        "mqtt5": (_property("message_expiry_interval", Shape.SECONDS_LEFT),),
        "amqp": (_property("expiration", Shape.MS_LEFT),),
        "kafka": (_header("expires-at"),),
        "http": (_header("X-Expires-At"), _header("X-Expires-In", Shape.SECONDS_FROM_NOW, read_only=True)),
    }, "when the message is worth nothing any more"),
    Field("timestamp", Kind.TIME, {
        "mqtt5": (_header("ts"),),
        "amqp": (_property("timestamp", Shape.TIME_S), _header("timestamp_in_ms", Shape.TIME_MS)),
        "kafka": (_property("timestamp", Shape.TIME_MS),),
        "http": (_header("X-Timestamp"),),
    }, "when the sender made it, or else when it was stored"),
    Field("priority", Kind.PRIORITY, {
        "mqtt5": (_header("priority"),),
        "amqp": (_property("priority", Shape.NUMBER),),
        "kafka": (_header("priority"),),
        "http": (_header("X-Priority"),),
    }, "how urgent it is among its like"),
    Field("durability", Kind.FLAG, {
        "mqtt3": (_property("qos", Shape.LEVEL),),
        "mqtt5": (_property("qos", Shape.LEVEL),),
        "amqp": (_property("delivery_mode", Shape.MODE),),
        "kafka": (_property("acks", Shape.FLAG, read_only=True),),
        "http": (_property("status", Shape.OUTCOME),),
    }, "the sender waited until it was stored"),
    Field("deliver-at", Kind.TIME, {
        "mqtt5": (_header("deliver-at"), _header("delay", Shape.SECONDS_FROM_NOW, read_only=True)),
        "amqp": (_header("x-opt-delivery-time", Shape.TIME_MS), _header("x-delay", Shape.MS_FROM_NOW, read_only=True)),
        "kafka": (_header("deliver-at"),),
        "http": (_header("X-Deliver-At"), _header("X-Delay", Shape.SECONDS_FROM_NOW, read_only=True)),
    }, "not to be delivered earlier"),
    Field("retain", Kind.FLAG, {
        "mqtt3": (_property("retain", Shape.FLAG),),
        "mqtt5": (_property("retain", Shape.FLAG),),
        "amqp": (_header("x-retain", Shape.FLAG),),
        "kafka": (_header("retain"),),
        "http": (_header("X-Retain"),),
    }, "the value is kept as the address's last"),
    Field("traceparent", Kind.TRACEPARENT, {
        "mqtt5": (_header("traceparent"),),
        "amqp": (_header("traceparent"),),
        "kafka": (_header("traceparent"),),
        "http": (_header("traceparent"),),
    }, "the trace that the message is part of"),
)

FIELD_BY_NAME: Final = {field.name: field for field in FIELDS}

RECORD_FIELDS: Final = frozenset(("key", "timestamp", "durability"))
"""Fields that are parts of the record itself and no record header."""

OWN_HEADERS: Final = frozenset((b"amqp",))
"""Record headers in which a door keeps its own side of a message; other doors do not show them."""

SELECTOR_NAMES: Final = {name.replace("-", "_") if name != "id" else "message_id": name
                         for name in FIELD_BY_NAME if name not in RECORD_FIELDS}
"""How selectors name the fields that are record headers without quotes: as a message in JSON does."""

USER_HEADERS: Final = "headers"
"""What `losses` calls the user's own headers."""

HEADER_LIMITS: Final = {
    "mqtt3": "none are carried",
    "mqtt5": "names and values are UTF-8 text without NUL, up to 65535 bytes; no null values",
    "amqp": "names have up to 255 bytes; of several of one name the first keeps it and all stand in x-dup-NAME",
    "kafka": "",
    "http": "names are HTTP tokens whose case is lost; values are UTF-8 text without control characters and not null",
}
"""What of user headers each column cannot carry, in words."""

HTTP_USER_PREFIX: Final = "X-Header-"


def carries(door: str, name: str) -> bool:
    """Whether this column can show this field (or `headers`) to whoever reads the message there."""
    if name == USER_HEADERS:
        return door != "mqtt3"
    return any(not cell.read_only for cell in FIELD_BY_NAME[name].cells.get(door, ()))


def losses(door_from: str, door_to: str) -> list[str]:
    """The fields that a message which came in by one column may have, and that its readers at the other never see.

    Limits of single values (255 bytes, UTF-8) are in the cells and `HEADER_LIMITS`; `to_door.to_door` names those per
    message. Nothing is lost on the way back to the protocol that it came by.
    """
    if door_from == door_to:
        return []
    sayable = [field.name for field in FIELDS if field.cells.get(door_from)]
    if door_from != "mqtt3":
        sayable.append(USER_HEADERS)
    return [name for name in sayable if not carries(door_to, name)]
