"""The property table: which properties of a message cross doors, where each door keeps them, what cannot be carried.

One row per field, here; one column per protocol, in its door (`gateways/NAME/column.py`). A field's name is its record
header: what a Kafka client reads and writes. A cell says where a protocol keeps the field and in which shape.
`to_door` and `from_door` do what a column says, for the doors that call them (MQTT 5 has its own properties at hand and
converts them itself); `explain` shows it; every cell has a test.

A message keeps its own protocol's properties as they came and gives them back unchanged there; this table is for the
crossing.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple


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
    ADDRESS = "as an address"
    REPLY = "as the name of a queue where it is $queue/NAME, else as amq.reply-to.ADDRESS"
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


class EnvelopeField(NamedTuple):
    """One row of the property table."""

    name: str
    """The name of the field's record header, where it has one."""

    kind: Kind
    help: str


def property_cell(name: str, shape: Shape = Shape.TEXT, max_bytes: int = 0, *, read_only: bool = False) -> Cell:
    """A cell that is a field of the protocol itself."""
    return Cell(Where.PROPERTY, name, shape, max_bytes, read_only)


def header_cell(name: str, shape: Shape = Shape.TEXT, max_bytes: int = 0, *, read_only: bool = False) -> Cell:
    """A cell among a message's named values."""
    return Cell(Where.HEADER, name, shape, max_bytes, read_only)


Pairs = list[tuple[str, Any]]
"""A message's named values in one door's words, in order."""


def _as_they_are(pairs: Pairs) -> Pairs:
    return pairs


def _any_text(text: str) -> bool:
    return True


# decision 128: declared by each door, of ours and from outside
@dataclass(frozen=True, slots=True)
class Column:
    """How messages of one protocol carry the fields, and the user's own headers: see `GatewaySpec.columns`."""

    name: str
    title: str
    cells: Mapping[str, tuple[Cell, ...]]
    """By field. A field without a cell cannot be carried, and `losses` lists it. Of several cells a later one is for
    what an earlier one cannot hold exactly."""

    show_header: Callable[[str, bytes | None], tuple[str, Any] | None] | None
    """A user's header, of a name that is UTF-8, in the protocol's words, or None: it cannot be carried. None instead of
    a function: no header can."""

    header_limits: str = ""
    """What of user headers cannot be carried, in words; empty: everything can."""

    is_text: Callable[[str], bool] = _any_text
    """Whether the protocol can carry this text as a value."""

    user_prefix: str = ""
    """What the names of user headers begin with, without regard to case; other headers are the protocol's own then."""

    unprefixed: frozenset[str] = frozenset()
    """User headers that have no prefix all the same, in small letters."""

    text_is_bytes: bool = False
    """Whether named values are bytes."""

    fold: Callable[[Pairs], Pairs] = _as_they_are
    """What a protocol makes of several headers of one name, where it cannot have them."""

    unfold: Callable[[Pairs], Pairs] = _as_they_are
    """The inverse of `fold`."""

    def carries(self, name: str) -> bool:
        """Whether this column can show this field (or `headers`) to whoever reads the message there."""
        if name == USER_HEADERS:
            return self.show_header is not None
        return any(not cell.read_only for cell in self.cells.get(name, ()))

    def folded(self, name: str) -> str:
        """A header's name as it is compared."""
        return name.lower() if self.user_prefix else name


FIELDS: Final = (
    EnvelopeField("id", Kind.TEXT, "the sender's own identifier of the message"),
    EnvelopeField("key", Kind.BYTES, "the record's key, where the address does not say it"),
    EnvelopeField("content-type", Kind.TEXT, "the media type of the value"),
    EnvelopeField("content-encoding", Kind.TEXT, "how the value is compressed"),
    EnvelopeField("utf8", Kind.FLAG, "the value is UTF-8 text"),
    EnvelopeField("correlation-id", Kind.BYTES, "which request this answers"),
    EnvelopeField("reply-to", Kind.TEXT, "the address that wants the answer"),
    EnvelopeField("expires-at", Kind.TIME, "when the message is worth nothing any more"),
    EnvelopeField("timestamp", Kind.TIME, "when the sender made it, or else when it was stored"),
    EnvelopeField("priority", Kind.PRIORITY, "how urgent it is among its like"),
    EnvelopeField("durability", Kind.FLAG, "the sender waited until it was stored"),
    EnvelopeField("deliver-at", Kind.TIME, "not to be delivered earlier"),
    EnvelopeField("retain", Kind.FLAG, "the value is kept as the address's last"),
    EnvelopeField("traceparent", Kind.TRACEPARENT, "the trace that the message is part of"),
    EnvelopeField("x-trace", Kind.TEXT, "`always`: its journey is recorded, where its sender has the right `trace`"),
    EnvelopeField("receipt", Kind.TEXT, "the address that is told when it is acknowledged, dies or expires"),
    EnvelopeField("receipt-group", Kind.TEXT, "the group or queue that the receipt is about; without it, any"),
)

FIELD_BY_NAME: Final = {field.name: field for field in FIELDS}

RECORD_FIELDS: Final = frozenset(("key", "timestamp", "durability"))
"""Fields that are parts of the record itself and no record header."""

SELECTOR_NAMES: Final = {name.replace("-", "_") if name != "id" else "message_id": name
                         for name in FIELD_BY_NAME if name not in RECORD_FIELDS}
"""How selectors name the fields that are record headers without quotes: as a message in JSON does."""

USER_HEADERS: Final = "headers"
"""What `losses` calls the user's own headers."""


def sayable(column: Column) -> list[str]:
    """The fields that a message which came in by this column may have, and `headers`."""
    names = [field.name for field in FIELDS if column.cells.get(field.name)]
    return names if column.show_header is None else [*names, USER_HEADERS]


def losses(source: Column, target: Column) -> list[str]:
    """The fields that a message which came in by one column may have, and that its readers at the other never see.

    Limits of single values (255 bytes, UTF-8) are in the cells and `Column.header_limits`; `to_door.to_door` names
    those per message. Nothing is lost on the way back to the protocol that it came by.
    """
    return [] if source is target else [name for name in sayable(source) if not target.carries(name)]
