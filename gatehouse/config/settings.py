"""Reads a table of `gateways.toml` into a dataclass, and says what is wrong with it.

A section is a dataclass whose fields have defaults and metadata:

    help      what the setting does, in a sentence (every setting has it; a test says so)
    min, max  bounds of a number, or of the length of a list
    choices   the values that are allowed
    secret    True where the value may also be {file = "..."} or {env = "..."}

Types are bool, int, float, str, `T | None` (left out means None), and list[T] or tuple[T, ...] of those.
From the environment a value comes as text: lists as JSON or separated by commas, everything else as it is written.
Problems are collected, never raised: whoever runs `gatehouse check` wants them all at once.
"""
from __future__ import annotations

import dataclasses
import difflib
import json
import types
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

# A secret is a password or a token; anything larger is the wrong file.
MAX_SECRET_BYTES: Final = 65536

_TYPE_NAMES: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_BAD: Final = object()


class Problems:
    """The lines that `gatehouse check` prints: where, which key, what is wrong, and the nearest valid name."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, source: str, key: str, problem: str) -> None:
        self.lines.append(f"{source}: {key}: {problem}")

    def unknown(self, source: str, key: str, name: str, valid: Collection[str], what: str = "setting") -> None:
        """`name` is not one of `valid`; names the nearest that is, or all where none is near."""
        near = difflib.get_close_matches(name.lower(), sorted(valid), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(valid)) or 'none'}"
        self.add(source, key, f"unknown {what}; {hint}")


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """A value from outside the file, to be read as the setting's type; `source` says from where."""

    source: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigPlace:
    """Where values stand, for messages and for secrets: the file, and its folder that relative names start from."""

    source: str
    folder: Path
    environ: Mapping[str, str]


def field_types(section: type) -> dict[str, Any]:
    """The settings of a section and their types."""
    hints = typing.get_type_hints(section)
    return {field.name: hints[field.name] for field in dataclasses.fields(section) if field.init}


def read_section(section: type, table: Mapping[str, Any], path: str, place: ConfigPlace, problems: Problems,
                 also: Collection[str] = ()) -> Any:
    """An instance of `section`; where the table is wrong, `problems` has grown and the defaults stand in.

    None where a required setting is missing or wrong. `also` names settings of the same table that were read elsewhere.
    """
    hints = field_types(section)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(section):
        if field.name not in hints:
            continue
        if field.name in table:
            value = _read_value(table[field.name], hints[field.name], field.metadata, f"{path}.{field.name}", place,
                                problems)
            if value is not _BAD:
                values[field.name] = value
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            problems.add(place.source, f"{path}.{field.name}", "is missing and has no default")
            return None
    for name in table:
        if name not in hints:
            _unknown(table[name], path, name, [*hints, *also], place, problems)
    try:
        return section(**values)
    except ValueError as error:    # a section's own check, in its __post_init__
        problems.add(place.source, path, str(error))
        return None
    except TypeError:              # a required setting was given and refused above
        return None


def _unknown(value: Any, path: str, name: str, valid: Collection[str], place: ConfigPlace, problems: Problems) -> None:
    source = place.source if not isinstance(value, Text) else value.source
    problems.unknown(source, f"{path}.{name}", name, valid)


def _read_value(value: Any, hint: Any, metadata: Mapping[str, Any], key: str, place: ConfigPlace,
                problems: Problems) -> Any:
    source = place.source
    if isinstance(value, Text):
        source = value.source
        value = _from_text(value.text, hint)
    if metadata.get("secret") and isinstance(value, Mapping):
        value = _read_secret(value, key, source, place, problems)
        if value is _BAD:
            return _BAD
    value = _converted(value, hint)
    if value is _BAD:
        problems.add(source, key, f"must be {describe_type(hint)}")
        return _BAD
    fault = _out_of_bounds(value, metadata)
    if fault:
        problems.add(source, key, fault)
        return _BAD
    return value


def _unwrapped(hint: Any) -> tuple[Any, bool]:
    """The type without `| None`, and whether that was there."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        rest = [part for part in typing.get_args(hint) if part is not type(None)]
        return rest[0], len(rest) < len(typing.get_args(hint))
    return hint, False


def _converted(value: Any, hint: Any) -> Any:
    """`value` as `hint` asks, or _BAD. Nothing is guessed: "4" is no number in a TOML file."""
    hint, optional = _unwrapped(hint)
    if value is None:
        return None if optional else _BAD
    origin = typing.get_origin(hint)
    if origin in (list, tuple):
        if not isinstance(value, (list, tuple)):
            return _BAD
        items = [_converted(item, typing.get_args(hint)[0]) for item in value]
        return _BAD if any(item is _BAD for item in items) else origin(items)
    if hint is float and type(value) is int:
        return float(value)
    return value if type(value) is hint else _BAD


def _from_text(text: str, hint: Any) -> Any:
    """What a text from the environment means for this type; left as it is where it means nothing."""
    hint, optional = _unwrapped(hint)
    if optional and text == "":
        return None
    if typing.get_origin(hint) in (list, tuple):
        item = typing.get_args(hint)[0]
        if text.lstrip().startswith("["):
            try:
                return json.loads(text)
            except ValueError:
                return text
        return [_from_text(part.strip(), item) for part in text.split(",") if part.strip()]
    if hint is bool:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text.lower(), text)
    if hint in (int, float):
        try:
            return hint(text)
        except ValueError:
            return text
    return text


def _read_secret(table: Mapping[str, Any], key: str, source: str, place: ConfigPlace, problems: Problems) -> Any:
    """The secret that {file = ...} or {env = ...} points at."""
    match dict(table):
        case {"file": str() as name, **rest} if not rest:
            try:
                with (place.folder / name).open("rb") as file:
                    content = file.read(MAX_SECRET_BYTES + 1)
                if len(content) <= MAX_SECRET_BYTES:
                    return content.decode().strip("\r\n")
                problems.add(source, key, f"the secret file {name} is larger than {MAX_SECRET_BYTES} bytes")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
                problems.add(source, key, f"cannot read the secret file {name}: {reason}")
        case {"env": str() as name, **rest} if not rest:
            if name in place.environ:
                return place.environ[name]
            problems.add(source, key, f"the environment variable {name} is not set")
        case _:
            problems.add(source, key, 'a secret is a text, { file = "NAME" } or { env = "NAME" }')
    return _BAD


def _out_of_bounds(value: Any, metadata: Mapping[str, Any]) -> str:
    """What is wrong with a value of the right type; empty where nothing is."""
    if value is None:
        return ""
    choices = metadata.get("choices")
    is_list = isinstance(value, (list, tuple))
    for entry in value if is_list else (value,):
        if choices is not None and entry not in choices:
            near = difflib.get_close_matches(str(entry), [str(choice) for choice in choices], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            return f"{entry!r} is none of {', '.join(str(choice) for choice in choices)}{hint}"
    size = len(value) if is_list else value
    unit = " entries" if is_list else ""
    if "min" in metadata and size < metadata["min"]:
        return f"must be at least {metadata['min']}{unit}"
    if "max" in metadata and size > metadata["max"]:
        return f"must be at most {metadata['max']}{unit}"
    return ""


def describe_type(hint: Any) -> str:
    """The type of a setting in words."""
    hint, optional = _unwrapped(hint)
    if typing.get_origin(hint) in (list, tuple):
        plural = {str: "texts", int: "whole numbers", float: "numbers"}
        words = f"a list of {plural.get(typing.get_args(hint)[0], 'values')}"
    else:
        words = _TYPE_NAMES.get(hint, getattr(hint, "__name__", str(hint)))
    return f"{words}, or left out" if optional else words
