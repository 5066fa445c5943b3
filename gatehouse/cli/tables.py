"""How the commands print: tables for people, JSON for programs."""
from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

MAX_CELL_CHARACTERS: Final = 120
FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999
"""The years 1 to 9999."""


def cell(value: Any) -> str:
    """One value in a table: short, on one line, and without anything that would move the terminal's cursor."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = value if isinstance(value, str) else json.dumps(value) if isinstance(value, (list, dict)) else str(value)
    text = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return text if len(text) <= MAX_CELL_CHARACTERS else text[:MAX_CELL_CHARACTERS - 1] + "\N{HORIZONTAL ELLIPSIS}"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Columns as wide as their widest cell, numbers to the right."""
    raw = [list(row) for row in rows]
    cells = [[cell(value) for value in row] for row in raw]
    widths = [max([len(head), *(len(row[column]) for row in cells)]) for column, head in enumerate(heads)]
    right = [bool(raw) and all(type(row[column]) in (int, float) for row in raw) for column in range(len(heads))]
    lines = []
    for row in [list(heads), *cells]:
        padded = [text.rjust(width) if to_right else text.ljust(width)
                  for text, width, to_right in zip(row, widths, right, strict=True)]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def pairs(values: dict[str, Any]) -> str:
    """Names and values, one per line, values in one column."""
    width = max((len(name) for name in values), default=0)
    return "\n".join(f"{name.ljust(width)}  {cell(value)}" for name, value in values.items())


def as_json(value: Any) -> str:
    """One line that a program can read."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def show(value: Any, text: str, json_wanted: bool) -> None:
    """Print the value for a program or the text for people."""
    click.echo(as_json(value) if json_wanted else text)


def time_text(time_ms: int, timespec: str = "seconds") -> str:
    """Milliseconds since 1970 as people write a time, in UTC; as they are where no calendar here has them."""
    if not FIRST_MS <= time_ms <= LAST_MS:
        return f"{time_ms} ms"
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec=timespec)
