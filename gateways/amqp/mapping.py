"""Messages between AMQP's words and the record that is stored. Pure.

What came by this door keeps its names and properties as bytes in a private record header, which comes first (see
`codec`). Where a message leads to a topic, the fields that other doors read stand behind it
(`gateways.properties.envelope`). What came by another door is dressed in AMQP's words when it is delivered.
"""
from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

from gatehouse.gateways.amqp import codec, properties
from gatehouse.gateways.amqp.addresses import AmqpName
from gatehouse.gateways.amqp.column import AMQP
from gatehouse.gateways.amqp.errors import SyntaxFault, precondition
from gatehouse.gateways.amqp.properties import Traits
from gatehouse.gateways.amqp.tables import TYPE_NAMES, Field, Table, decode_field, encode_field, plain, text, typed
from gatehouse.gateways.checks import InvalidHalfName, read_half_name
from gatehouse.gateways.properties.from_door import from_door
from gatehouse.gateways.properties.to_door import DoorProperties, Envelope, to_door
from gatehouse.kernel.message import RETAIN, TRANSIENT
from gatehouse.kernel.records.batch import encode_headers, named_headers, public_headers, read_headers, read_varint
from gatehouse.kernel.records.headers import CORRELATION, TRACE
from gatehouse.tracing.context import HEADER as TRACEPARENT
from gatehouse.tracing.context import STATE as TRACESTATE
from gatehouse.tracing.context import traceparent_in

EXPIRES_AT: Final = b"expires-at"      # `gateways.properties.envelope`
ADDRESS: Final = "x-address"           # `gateways.addresses`
HALF: Final = "x-half"
HALF_ID: Final = "x-half-id"
HALF_CHECK: Final = "x-half-check"
CC: Final = "CC"
BCC: Final = "BCC"
CARBON_COPIES: Final = (CC, BCC)

Pairs = list[tuple[bytes, "bytes | None"]]


# ---- in -------------------------------------------------------------------------------------------------------------

def keys_of(routing_key: str, headers: Table) -> list[str]:
    """The routing key and, RabbitMQ's extension, those in the headers CC and BCC."""
    return [routing_key, *copies_in(headers, CC), *copies_in(headers, BCC)]


def copies_in(headers: Table, name: str) -> list[str]:
    """The routing keys in CC or BCC."""
    field = headers.get(name)
    if field is None or field.type != "A":
        return []
    return [entry.value.decode(errors="replace") for entry in field.value if entry.type == "S"]


def check_copies(headers: Table) -> None:
    """CC and BCC are arrays. Raises ChannelFault 406."""
    for name in CARBON_COPIES:
        field = headers.get(name)
        if field is not None and field.type != "A":
            raise precondition(f'invalid message: {{unacceptable_type_in_header,"{name}",{TYPE_NAMES[field.type]}}}')


def without_own_headers(raw: bytes, headers: Table) -> bytes:
    """BCC is taken out before anybody sees it, and what says that this is a half message: it is one no longer then."""
    taken_out = (BCC, HALF, HALF_ID, HALF_CHECK) if HALF in headers else (BCC,)
    if headers.keys().isdisjoint(taken_out):
        return raw
    return properties.replaced(raw, {name: field for name, field in headers.items() if name not in taken_out})


class HalfHeaders(NamedTuple):
    """What the headers of a half message say."""

    group: str                   # that is asked what became of it
    name: str | None             # that makes it repeatable
    check: bytes | None          # when it is asked about, as JSON


def half_headers(headers: Table) -> HalfHeaders | None:
    """None: it is an ordinary message. Raises ChannelFault 406 for what cannot be taken."""
    if HALF not in headers:
        return None
    try:
        group = _text(headers, HALF).decode()
    except UnicodeDecodeError:
        raise precondition(f"the header {HALF} is UTF-8 text, the name of a group") from None
    check = _text(headers, HALF_CHECK) if HALF_CHECK in headers else None
    if HALF_ID not in headers:
        return HalfHeaders(group, None, check)
    try:
        return HalfHeaders(group, read_half_name(_text(headers, HALF_ID)), check)
    except InvalidHalfName as error:
        raise precondition(str(error)) from None


def _text(headers: Table, name: str) -> bytes:
    field = headers[name]
    if field.type != "S":
        raise precondition(f"the header {name} of a half message is a text")
    value: bytes = field.value
    return value


def attributes_of(traits: Traits) -> int:
    return codec.DOOR if traits.persistent else codec.DOOR | TRANSIENT


def headers_for_queues(names: bytes, raw: bytes, expires_at_ms: int) -> bytes:
    """The headers of a record that this door reads, and the kernel what it looks for."""
    if not expires_at_ms:
        return codec.stored_headers(names, raw)
    pairs: Pairs = [(codec.AMQP_HEADER, names + raw), (EXPIRES_AT, b"%d" % expires_at_ms)]
    correlation = codec.correlation_of(raw)
    return encode_headers([*pairs, (CORRELATION, correlation)] if correlation else pairs)


# decision 62: fields for other doors beside them
def headers_for_topic(names: bytes, raw: bytes, now_ms: int, *marks: bytes) -> tuple[bytes, int]:
    """(headers that every door reads, and these private ones without a value; the sender's timestamp in ms or 0)."""
    message_properties = properties.read(raw)
    table: Table = message_properties.pop("headers", {})
    shown: list[tuple[str, Any]] = [(name, plain(field)) for name, field in table.items()]
    envelope, _ = from_door(AMQP, DoorProperties(properties=message_properties, headers=shown), now_ms)
    pairs: Pairs = [(codec.AMQP_HEADER, names + raw), *[(mark, b"") for mark in marks], *envelope.headers]
    return encode_headers(pairs), envelope.timestamp_ms


def headers_of_letter(names: bytes, raw: bytes, now_ms: int, *, public: bool) -> bytes:
    """The headers of a dead letter; `public`: every door reads them."""
    if public:
        return headers_for_topic(names, raw, now_ms, codec.DEAD_HEADER)[0]
    return encode_headers([(codec.AMQP_HEADER, names + raw), (codec.DEAD_HEADER, b"")])


def with_blind_keys(headers: bytes, keys: list[str]) -> bytes:
    """Encoded headers with the routing keys of BCC where nobody sees them: a dead letter goes by them, too."""
    if not keys:
        return headers
    value = encode_field(Field("A", [text(key) for key in keys]))
    return encode_headers([*read_headers(headers, 0)[0], (codec.BLIND_HEADER, value)])


def blind_keys(headers: bytes) -> list[str]:
    """What `with_blind_keys` wrote."""
    if headers.find(codec.BLIND_HEADER) < 0:
        return []
    return [entry.value.decode(errors="replace") for _, value in named_headers(headers, (codec.BLIND_HEADER,))
            for entry in decode_field(value or b"V").value or ()]


def is_letter(headers: bytes) -> bool:
    """Whether the hub made this a dead letter: by a header of the record, whatever its properties and headers say."""
    return headers.find(codec.DEAD_HEADER) >= 0 and bool(named_headers(headers, (codec.DEAD_HEADER,)))


# ---- out ------------------------------------------------------------------------------------------------------------

# decisions 299, 324
def own_side(headers: bytes, *, unaltered: bool = True) -> bytes:
    """The AMQP side of a record that came by this door, as `codec.own_side`. It says the trace context that the hub
    gave the message, if its sender asked to have it followed, or it is not to be `unaltered`."""
    side = codec.own_side(headers)
    if not side:
        return b""
    _, at = read_varint(headers, codec.own_side_at(headers))
    given = traceparent_in(headers[at + len(side):])
    if not given or given in side or unaltered and TRACE not in side:
        return side
    return with_header(side, TRACEPARENT.decode(), Field("S", given), without=TRACESTATE.decode())


def foreign_side(name: AmqpName, headers: bytes, attributes: int, timestamp_ms: int, now_ms: int) -> bytes:
    """The AMQP side of a record of another door, found at this exchange and routing key."""
    envelope = Envelope(list(public_headers(headers)), None, timestamp_ms, durable=not attributes & TRANSIENT,
                        retain=bool(attributes & RETAIN))
    dressed = to_door(AMQP, envelope, now_ms)
    table: Table = {key: typed(value) for key, value in dressed.headers}
    if name.x_address is not None:
        table[ADDRESS] = text(name.x_address)
    fields: dict[str, Any] = dict(dressed.properties)
    if table:
        fields["headers"] = table
    return names_of(name.exchange, name.routing_key) + properties.write(fields)


def read_names(side: bytes) -> tuple[str, str]:
    """Exchange and routing key of an AMQP side."""
    key_at = 1 + side[0]
    return (side[1:key_at].decode(errors="replace"),
            side[key_at + 1:key_at + 1 + side[key_at]].decode(errors="replace"))


def with_header(side: bytes, name: str, field: Field, *, without: str = "") -> bytes:
    """An AMQP side with this header set, and `without` another. One whose headers cannot be read stays as it came."""
    split = codec.names_end(side)
    raw = side[split:]
    try:
        headers: Table = dict(properties.read(raw).get("headers", {}))
        headers.pop(without, None)
        headers[name] = field
        return side[:split] + properties.replaced(raw, headers)
    except SyntaxFault:
        return side


@lru_cache(4096)
def names_of(exchange: str, routing_key: str) -> bytes:
    """Two short strings."""
    return codec.short_string(exchange) + codec.short_string(routing_key)
