"""A door's properties and headers as a message is stored: the way back of `gateways.properties.to_door`. Pure."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gatehouse.gateways.properties.envelope import FIELDS, Cell, Column, Shape, Where
from gatehouse.gateways.properties.to_door import DoorProperties, Envelope
from gatehouse.gateways.properties.values import normalize, plain, read


def from_door(column: Column, dressed: DoorProperties, now_ms: int) -> tuple[Envelope, list[str]]:
    """(the envelope of a door's message, what of it does not read as what it should be).

    A property that does not read so is left out and named. A header that does not is the user's, except where those
    have a prefix.
    """
    envelope = Envelope()
    problems: list[str] = []
    headers = column.unfold(dressed.headers)
    used: set[str] = set()
    for row in FIELDS:
        for cell in reversed(column.cells.get(row.name, ())):        # the later cell is the more exact
            shown = _find(column, cell, dressed.properties, headers)
            if shown is None:
                continue
            value = read(cell.shape, shown, now_ms)
            normal = None if value is None else normalize(row.kind, value)
            if normal is not None:
                _keep(envelope, row.name, normal)
                if cell.where is Where.HEADER:
                    used.add(column.folded(cell.name))
                break
            if cell.shape is not Shape.CHARSET and (cell.where is Where.PROPERTY or column.user_prefix):
                problems.append(f"{cell.name} is not {row.kind.value}")
    _keep_user_headers(column, envelope, headers, used)
    return envelope, problems


def _find(column: Column, cell: Cell, properties: dict[str, Any], headers: list[tuple[str, Any]]) -> Any:
    if cell.where is Where.PROPERTY:
        return properties.get(cell.name)
    wanted = column.folded(cell.name)
    return next((value for name, value in headers if column.folded(name) == wanted), None)


def _keep(envelope: Envelope, name: str, value: bytes) -> None:
    if name == "key":
        envelope.key = value
    elif name == "timestamp":
        envelope.timestamp_ms = int(value)
    elif name == "durability":
        envelope.durable = value == b"true"
    elif name == "retain":
        envelope.retain = value == b"true"
    else:
        envelope.headers.append((name.encode(), value))


def _keep_user_headers(column: Column, envelope: Envelope, headers: Iterable[tuple[str, Any]], used: set[str]) -> None:
    prefix = column.user_prefix.lower()
    left = set(used)                                           # only the first of a name is the field
    for name, value in headers:
        folded = column.folded(name)
        if folded in left:
            left.discard(folded)
        elif not prefix or folded in column.unprefixed:
            envelope.headers.append((name.encode(), plain(value)))
        elif folded.startswith(prefix) and folded != prefix:
            envelope.headers.append((folded[len(prefix):].encode(), plain(value)))
