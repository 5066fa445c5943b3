"""The properties of a content header as they lie on the wire: found, read, replaced in place. Pure.

    content header's payload   class (2) | weight (2) | body size (8) | flags (2) | the properties whose flag is set

    flags, from the highest bit   content-type s · content-encoding s · headers F · delivery-mode o · priority o ·
    correlation-id s · reply-to s · expiration s · message-id s · timestamp q · type s · user-id s · app-id s ·
    cluster-id s · (unused) · more flags follow

`raw` is always flags and properties together: what is stored with a message and spliced into its deliveries, so that a
consumer gets what the publisher sent, to the bit.
"""
from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from gatehouse.gateways.amqp.errors import SyntaxFault
from gatehouse.gateways.amqp.tables import Table, decode_table, encode_table

NAMES: Final = ("content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id",
                "reply_to", "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id")
KINDS: Final = "ssFoossssqssss"
"""The type of each property in `NAMES`: s short string, F table, o octet, q time (8)."""

EXPIRATION_FLAG: Final = 0x8000 >> NAMES.index("expiration")

PERSISTENT: Final = 2
CACHED: Final = 4096
CACHED_BYTES_MAX: Final = 256

Spans = dict[str, tuple[int, int]]


def spans(raw: bytes) -> Spans:
    """Where each property that is there begins and ends in `raw`. Raises SyntaxFault."""
    if len(raw) < 2:
        raise SyntaxFault("a content header without property flags")
    flags = raw[0] << 8 | raw[1]
    if flags & 3:
        raise SyntaxFault("property flags that the class basic does not have")
    places: Spans = {}
    at = 2
    for bit, (name, kind) in enumerate(zip(NAMES, KINDS, strict=True)):
        if flags & 0x8000 >> bit:
            end = at + _size(kind, raw, at)
            if end > len(raw):
                raise SyntaxFault(f"{name} is longer than its content header")
            places[name] = (at, end)
            at = end
    if at != len(raw):
        raise SyntaxFault("a content header longer than its properties")
    return places


def _size(kind: str, raw: bytes, at: int) -> int:
    if kind == "o":
        return 1
    if kind == "q":
        return 8
    if kind == "s":
        return 1 + raw[at] if at < len(raw) else 1
    return 4 + int.from_bytes(raw[at:at + 4], "big")


def may_expire(raw: bytes) -> bool:
    """Whether the message has a time to live of its own."""
    return bool((raw[0] << 8 | raw[1]) & EXPIRATION_FLAG)


def read(raw: bytes) -> dict[str, Any]:
    """Every property by name: text, numbers, and the headers as a Table. Raises SyntaxFault."""
    properties: dict[str, Any] = {}
    for name, (at, end) in spans(raw).items():
        kind = KINDS[NAMES.index(name)]
        if kind == "F":
            properties[name], table_end = decode_table(raw[:end], at)
            if table_end != end:
                raise SyntaxFault("headers that end elsewhere than they say")
        elif kind == "s":
            properties[name] = raw[at + 1:end].decode(errors="replace")
        else:
            properties[name] = int.from_bytes(raw[at:end], "big")
    return properties


def write(properties: dict[str, Any]) -> bytes:
    """`raw` of properties by name, as `read` gives them; text that does not fit a short string is cut."""
    flags = 0
    parts = []
    for bit, (name, kind) in enumerate(zip(NAMES, KINDS, strict=True)):
        value = properties.get(name)
        if value is None:
            continue
        flags |= 0x8000 >> bit
        if kind == "s":
            text = value.encode()[:255]
            parts.append(bytes((len(text),)) + text)
        elif kind == "F":
            parts.append(encode_table(value))
        else:
            parts.append(int(value).to_bytes(1 if kind == "o" else 8, "big"))
    return flags.to_bytes(2, "big") + b"".join(parts)


# decision 62: spliced, not encoded anew
def replaced(raw: bytes, headers: Table | None, *, without: str = "") -> bytes:
    """`raw` with other headers (None: as they are) and without one property; every other byte stays as it came."""
    where = spans(raw)
    flags = 0
    parts = []
    for bit, name in enumerate(NAMES):
        if name == without:
            continue
        if name == "headers" and headers is not None:
            part = encode_table(headers)
        elif name in where:
            part = raw[slice(*where[name])]
        else:
            continue
        flags |= 0x8000 >> bit
        parts.append(part)
    return flags.to_bytes(2, "big") + b"".join(parts)


def with_text(raw: bytes, name: str, value: str) -> bytes:
    """`raw` with another value of a property that is there and is a short string."""
    start, end = spans(raw)[name]
    text = value.encode()
    return raw[:start] + bytes((len(text),)) + text + raw[end:]


class Traits:
    """What the hub needs to know of a message's properties to route and keep it."""

    __slots__ = ("persistent", "priority", "ttl_ms", "headers", "reply_to", "user_id", "said")

    def __init__(self, raw: bytes) -> None:
        properties = read(raw)
        self.persistent = properties.get("delivery_mode") == PERSISTENT
        self.priority: int = properties.get("priority", 0)
        self.ttl_ms: str | None = properties.get("expiration")  # as it was sent; the channel refuses what is no number
        self.headers: Table = properties.get("headers", {})
        self.reply_to: str | None = properties.get("reply_to")
        self.user_id: str | None = properties.get("user_id")
        self.said: dict[str, Any] = properties             # all of them, for exchanges that look at some


@lru_cache(CACHED)
def _cached_traits(raw: bytes) -> Traits:
    return Traits(raw)


def traits(raw: bytes) -> Traits:
    """Remembered for small properties: a publisher sends the same ones again and again. Raises SyntaxFault."""
    return _cached_traits(raw) if len(raw) <= CACHED_BYTES_MAX else Traits(raw)
