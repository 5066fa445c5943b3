"""A stored message's properties in one door's words, as `envelope` says. Pure; what does not fit is named.

A header of a field's name whose value reads as that field is the field; of several, the first. Every other header is
the user's and passes as it is, in order, with duplicates.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gatehouse.gateways.properties.envelope import (
    FIELD_BY_NAME,
    FIELDS,
    RECORD_FIELDS,
    Cell,
    Column,
    Shape,
    Where,
)
from gatehouse.gateways.properties.values import CHARSET, flag, normalize, show
from gatehouse.kernel.addresses.address import ADDRESS_HEADER


@dataclass(slots=True)
class Envelope:
    """A message's properties as it is stored."""

    headers: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    """Fields under their record header's name, and the user's own, in order."""

    key: bytes | None = None
    """For `to_door`: None where the address says the key already."""

    timestamp_ms: int = 0
    """0: not known, or the time of the append."""

    durable: bool = True
    retain: bool = False


@dataclass(slots=True)
class DoorProperties:
    """A message's properties as one door has them."""

    properties: dict[str, Any] = field(default_factory=dict)
    """By the protocol's own names (`gateways.properties.envelope`)."""

    headers: list[tuple[str, Any]] = field(default_factory=list)
    """User properties, header table, request headers or record headers, in order, with duplicates."""

    lost: list[str] = field(default_factory=list)
    """What could not be carried: names of fields, and `header NAME` for the user's."""


def to_door(column: Column, envelope: Envelope, now_ms: int) -> DoorProperties:
    """The envelope in a door's words; `lost` names what did not fit. Expired times show as 0 left."""
    dressed = DoorProperties()
    fields, own = _split(envelope)
    for row in FIELDS:
        value = fields.get(row.name)
        if value is None or _put(dressed, column, column.cells.get(row.name, ()), value, now_ms):
            continue
        if row.name != "durability" or not envelope.durable:  # that it was stored is no news to who reads it
            dressed.lost.append(row.name)
    for name, value in own:
        shown = _shown_header(column, name, value)
        if shown is None:
            dressed.lost.append("header " + name.decode(errors="replace"))
        else:
            dressed.headers.append(shown)
    dressed.headers = column.fold(dressed.headers)
    return dressed


def _split(envelope: Envelope) -> tuple[dict[str, bytes], list[tuple[bytes, bytes | None]]]:
    """(value by field, the user's headers)."""
    fields: dict[str, bytes] = {"durability": flag(envelope.durable)}
    own: list[tuple[bytes, bytes | None]] = []
    for name, value in envelope.headers:
        field_name = name.decode(errors="replace")
        row = None if field_name in RECORD_FIELDS or field_name in fields else FIELD_BY_NAME.get(field_name)
        normal = None if row is None or value is None else normalize(row.kind, value)
        if normal is None:
            if name != ADDRESS_HEADER:
                own.append((name, value))
        else:
            fields[field_name] = normal
    if envelope.key is not None:
        fields["key"] = envelope.key
    if envelope.timestamp_ms > 0:
        fields["timestamp"] = b"%d" % envelope.timestamp_ms
    if envelope.retain:
        fields["retain"] = b"true"
    return fields, own


def _put(dressed: DoorProperties, column: Column, cells: tuple[Cell, ...], value: bytes, now_ms: int) -> bool:
    """Writes the value into the first cell that holds it exactly, and into lossy ones before. False if none did."""
    for cell in cells:
        if cell.read_only:
            continue
        if cell.shape is Shape.CHARSET:
            return _put_charset(dressed, cell, value)
        shown, exact = show(cell.shape, value, now_ms)
        if shown is None or not _fits(column, cell, shown):
            continue
        if cell.where is Where.PROPERTY:
            dressed.properties[cell.name] = shown
        else:
            as_bytes = column.text_is_bytes and isinstance(shown, str)
            dressed.headers.append((cell.name, shown.encode() if as_bytes else shown))
        if exact:
            return True
    return False


def _fits(column: Column, cell: Cell, shown: Any) -> bool:
    size_bytes = len(shown.encode() if isinstance(shown, str) else shown) if isinstance(shown, (str, bytes)) else 0
    if cell.max_bytes and size_bytes > cell.max_bytes:
        return False
    return not isinstance(shown, str) or column.is_text(shown)


def _put_charset(dressed: DoorProperties, cell: Cell, value: bytes) -> bool:
    """Adds the charset to the content type that is there already; without one there is nowhere to say it."""
    if value != b"true":
        return True
    there = dressed.properties.get(cell.name) if cell.where is Where.PROPERTY else dict(dressed.headers).get(cell.name)
    if not there:
        return False
    stated = CHARSET.search(there)
    if stated is not None:
        return stated.group(2).lower() == "utf-8"
    full = there + "; charset=utf-8"
    if cell.max_bytes and len(full.encode()) > cell.max_bytes:
        return False
    if cell.where is Where.PROPERTY:
        dressed.properties[cell.name] = full
    else:
        dressed.headers = [(name, full if name == cell.name else old) for name, old in dressed.headers]
    return True


def _shown_header(column: Column, name: bytes, value: bytes | None) -> tuple[str, Any] | None:
    """A user's header at this door; None where it cannot be carried (`Column.header_limits`)."""
    try:
        return None if column.show_header is None else column.show_header(name.decode(), value)
    except UnicodeDecodeError:
        return None
