"""Which properties of a message AMQP carries, and where: basic properties, and the table `headers`. Pure."""
from __future__ import annotations

from typing import Any, Final

from gatehouse.gateways.amqp.addresses import MAX_SHORTSTR_BYTES
from gatehouse.gateways.properties.envelope import Column, Shape, header_cell, property_cell

DUPLICATES: Final = "x-dup-"
"""The beginning of the name of a header with all values, as an array, of a header that a message has several times."""


def show_entry(name: str, value: bytes | None) -> tuple[str, Any] | None:
    """An entry of the table; its name is a short string."""
    return (name, value) if len(name.encode()) <= MAX_SHORTSTR_BYTES else None


def fold(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """A table has each name once: the first value keeps it, and all of them stand in `x-dup-NAME`."""
    values: dict[str, list[Any]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    folded: list[tuple[str, Any]] = []
    for name, several in values.items():
        folded.append((name, several[0]))
        if len(several) > 1:
            folded.append((DUPLICATES + name, several))
    return folded


def unfold(headers: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The inverse of `fold`."""
    arrays = {name[len(DUPLICATES):]: value for name, value in headers
              if name.startswith(DUPLICATES) and isinstance(value, list)}
    pairs: list[tuple[str, Any]] = []
    for name, value in headers:
        if name in arrays:
            pairs.extend((name, repeated) for repeated in arrays[name])
        elif not (name.startswith(DUPLICATES) and name[len(DUPLICATES):] in arrays
                  and any(other == name[len(DUPLICATES):] for other, _ in headers)):
            pairs.append((name, value))
    return pairs


AMQP: Final = Column("amqp", "AMQP", {
    "id": (property_cell("message_id", max_bytes=MAX_SHORTSTR_BYTES),),
    "key": (header_cell("x-key", Shape.BYTES),),
    "content-type": (property_cell("content_type", max_bytes=MAX_SHORTSTR_BYTES),),
    "content-encoding": (property_cell("content_encoding", max_bytes=MAX_SHORTSTR_BYTES),),
    "utf8": (property_cell("content_type", Shape.CHARSET, MAX_SHORTSTR_BYTES),),
    "correlation-id": (
        property_cell("correlation_id", max_bytes=MAX_SHORTSTR_BYTES),
        header_cell("x-correlation-id", Shape.BYTES),
    ),
    "reply-to": (property_cell("reply_to", Shape.REPLY, MAX_SHORTSTR_BYTES), header_cell("x-reply-to-topic")),
    "expires-at": (property_cell("expiration", Shape.MS_LEFT),),
    "timestamp": (property_cell("timestamp", Shape.TIME_S), header_cell("timestamp_in_ms", Shape.TIME_MS)),
    "priority": (property_cell("priority", Shape.NUMBER),),
    "durability": (property_cell("delivery_mode", Shape.MODE),),
    "deliver-at": (
        header_cell("x-opt-delivery-time", Shape.TIME_MS),
        header_cell("x-delay", Shape.MS_FROM_NOW, read_only=True),
    ),
    "retain": (header_cell("x-retain", Shape.FLAG),),
    "traceparent": (header_cell("traceparent"),),
    "x-trace": (header_cell("x-trace"),),
    "receipt": (header_cell("receipt"),),
    "receipt-group": (header_cell("receipt-group"),),
}, header_limits="names have up to 255 bytes; of several of one name the first keeps it and all stand in x-dup-NAME",
    show_header=show_entry, fold=fold, unfold=unfold)
