"""A door's properties and headers as a message is stored: the way back of `gateways.properties.to_door`. Pure."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gatehouse.gateways.properties.envelope import FIELDS, HTTP_USER_PREFIX, Cell, Shape, Where
from gatehouse.gateways.properties.to_door import DUPLICATES, Dressed, Envelope
from gatehouse.gateways.properties.values import normalize, plain, read


def from_door(door: str, dressed: Dressed, now_ms: int) -> tuple[Envelope, list[str]]:
    """(the envelope of a door's message, what of it does not read as what it should be).

    A property that does not read so is left out and named. A header that does not is the user's, except at HTTP, where
    the user's have a prefix.
    """
    envelope = Envelope()
    problems: list[str] = []
    headers = _unfold(dressed.headers) if door == "amqp" else dressed.headers
    used: set[str] = set()
    for row in FIELDS:
        for cell in reversed(row.cells.get(door, ())):        # the later cell is the more exact
            shown = _find(door, cell, dressed.properties, headers)
            if shown is None:
                continue
            value = read(cell.shape, shown, now_ms)
            normal = None if value is None else normalize(row.kind, value)
            if normal is not None:
                _keep(envelope, row.name, normal)
                if cell.where is Where.HEADER:
                    used.add(_folded_name(door, cell.name))
                break
            if cell.shape is not Shape.CHARSET and (cell.where is Where.PROPERTY or door == "http"):
                problems.append(f"{cell.name} is not {row.kind.value}")
    _keep_user_headers(door, envelope, headers, used)
    return envelope, problems


def _find(door: str, cell: Cell, properties: dict[str, Any], headers: list[tuple[str, Any]]) -> Any:
    if cell.where is Where.PROPERTY:
        return properties.get(cell.name)
    wanted = _folded_name(door, cell.name)
    return next((value for name, value in headers if _folded_name(door, name) == wanted), None)


def _folded_name(door: str, name: str) -> str:
    return name.lower() if door == "http" else name


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


def _keep_user_headers(door: str, envelope: Envelope, headers: Iterable[tuple[str, Any]], used: set[str]) -> None:
    prefix = HTTP_USER_PREFIX.lower()
    left = set(used)                                           # only the first of a name is the field
    for name, value in headers:
        folded = _folded_name(door, name)
        if folded in left:
            left.discard(folded)
        elif door != "http":
            envelope.headers.append((name.encode(), plain(value)))
        elif folded.startswith(prefix) and folded != prefix:
            envelope.headers.append((folded[len(prefix):].encode(), plain(value)))


def _unfold(headers: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The inverse of `to_door._fold`."""
    arrays = {name[len(DUPLICATES):]: value for name, value in headers
              if name.startswith(DUPLICATES) and isinstance(value, list)}
    pairs: list[tuple[str, Any]] = []
    for name, value in headers:
        if name in arrays:
            pairs.extend((name, entry) for entry in arrays[name])
        elif not (name.startswith(DUPLICATES) and name[len(DUPLICATES):] in arrays
                  and any(other == name[len(DUPLICATES):] for other, _ in headers)):
            pairs.append((name, value))
    return pairs
