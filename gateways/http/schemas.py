"""JSON Schema (2020-12, as OpenAPI 3.1 takes it) for what the calls take and answer: the pieces that the declarations
beside the handlers are made of. Pure.

A piece is a schema in which three things may stand that are looked up when the document is written: a `Named` schema
and the type of a `Document`, which become a reference and an entry under `components`, and a `Setting`, which becomes
its value.
"""
from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.shapes import REFERENCE, Document, Schema, schemas_of
from gatehouse.kernel.selectors.tokens import MAX_TEXT_CHARS


class Named(NamedTuple):
    """A schema with a name of its own in the document. `example` is shown there and must be valid."""

    name: str
    schema: Schema
    example: Any = None


class Setting(NamedTuple):
    """The value of a setting of `[gateways.http]`: a bound that is not the same on every hub."""

    name: str

    def of(self, config: HttpConfig) -> Any:
        """What it is here."""
        return getattr(config, self.name)


Bound = int | float | Setting


def value_of(bound: Bound, config: HttpConfig) -> Any:
    """The number that a bound is on this hub."""
    return bound.of(config) if isinstance(bound, Setting) else bound


TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean"}
WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
NUMBER: Final[Schema] = {"type": "number"}
SECONDS: Final[Schema] = {"type": "number", "minimum": 0, "description": "Seconds."}
TIME_MS: Final[Schema] = {"type": "integer", "minimum": 0, "description": "Milliseconds since 1970."}
TOPIC_NAME: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,249}$"}
ADDRESS: Final[Schema] = {
    "type": "string", "format": "address", "pattern": r"^[A-Za-z0-9._-]{1,249}(/[^+#\u0000]*)?$",
    "description": "Levels with `/` between them, no wildcard. The first is a topic's name, unless a route of this hub "
                   "says otherwise."}
PRINTABLE: Final[Schema] = {"type": "string", "format": "printable", "minLength": 1, "maxLength": 255,
                            "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$"}
"""The name of a user, a key or a user's group; in characters."""
GROUP_NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[^\u0000]+$"}
"""The name of a group or of a queue. Its length counts in bytes of UTF-8."""
RFC_3339: Final[Schema] = {"type": "string", "format": "date-time", "pattern": "^(19[7-9][0-9]|[2-9][0-9]{3})-"}
"""A time that can be told in milliseconds since 1970."""
_DATE: Final = ("(19[7-9][0-9]|[2-9][0-9]{3})-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
                "|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))")
_TIME_OF_DAY: Final = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?([+-](0[0-9]|1[0-4]):[0-5][0-9]|Z)"
MOMENT: Final = f"{_DATE}T{_TIME_OF_DAY}"
"""The pattern of an RFC 3339 time, for places where something else may stand as well: generators of clients make no
union of a text and a time."""
UUID: Final[Schema] = {"type": "string", "format": "uuid", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
ANYTHING: Final[Schema] = {}
BINARY: Final[Schema] = {"type": "string", "format": "binary"}
MESSAGE_ID: Final[Schema] = {"type": "string", "pattern": "^[0-9]{1,20}$", "description": "A 64-bit number as text."}
CURSOR_PATTERN: Final = "^[A-Za-z0-9_.:-]*$"
CURSOR: Final[Schema] = {"type": ["string", "null"], "pattern": CURSOR_PATTERN,
                         "description": "Where the next page begins; null at the end."}
CURSOR_IN: Final[Schema] = {"type": "string", "format": "cursor", "pattern": CURSOR_PATTERN}
SELECTOR: Final[Schema] = {"type": "string", "format": "selector", "minLength": 1, "maxLength": MAX_TEXT_CHARS,
                           "pattern": r"[^ \t\r\n\f]"}
"""What stands in it is a language of its own: `kernel.selectors`."""

_UNITS: Final = (("d", 3), ("h", 4), ("m", 6), ("s", 8))
"""And digits behind the first: none is more than a century."""
_EVERY: Final = "|".join(
    f"[1-9][0-9]{{0,{digits}}}{unit}" + "".join(f"([0-9]{{1,{more + 1}}}{later})?" for later, more in _UNITS[at + 1:])
    for at, (unit, digits) in enumerate(_UNITS))
_ISO: Final = ("R([1-9][0-9]{0,8})?/P([1-9][0-9]{0,2}W|[1-9][0-9]{0,3}D(T[0-9]{1,5}H)?"
               "|T([1-9][0-9]{0,4}H([0-9]{1,7}M)?([0-9]{1,9}S)?|[1-9][0-9]{0,6}M([0-9]{1,9}S)?|[1-9][0-9]{0,8}S))")
_CRON_VALUES: Final = (
    "[0-5]?[0-9]", "[01]?[0-9]|2[0-3]", "0?[1-9]|[12][0-9]|3[01]",
    "0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC", "[0-7]|SUN|MON|TUE|WED|THU|FRI|SAT")
_PARTS: Final = [rf"(\*|({values})(-({values}))?)(/[1-9][0-9]?)?" for values in _CRON_VALUES]
_CRON: Final = " +".join(f"{part}(,{part})*" for part in _PARTS) + "|@(hourly|daily|weekly|monthly|yearly)"
_UNTIL: Final = f" *; *until=({MOMENT}|[0-9]{{1,14}})"
_COUNT: Final = " *; *count=[1-9][0-9]{0,8}"
REPEAT_PATTERN: Final = f"^(every +({_EVERY})|{_ISO}|{_CRON})(({_UNTIL})?({_COUNT})?|{_COUNT}{_UNTIL})$"
REPEAT: Final[Schema] = {"type": "string", "format": "repeat", "pattern": REPEAT_PATTERN}
"""See `kernel.scheduling.schedule`: every schedule that it writes about is one of these."""


MAX_32_BITS: Final = (1 << 31) - 1

OF_TYPE: Final[dict[Any, Schema]] = {int: {"type": "integer"}, float: NUMBER, str: TEXT, bool: FLAG}


def explained(piece: Any, help: str) -> Schema:
    """A piece of a schema, with a sentence about this use of it."""
    return {"allOf": [piece], "description": help} if isinstance(piece, Named) else {**piece, "description": help}


def list_of(piece: Any, **bounds: Any) -> Schema:
    """A list; `minItems` and `maxItems` are its bounds."""
    return {"type": "array", "items": piece, **bounds}


def nullable(piece: Any) -> Schema:
    """The piece or null. `["array", "null"]` would be as good, but generators of clients cannot read it."""
    if not isinstance(piece, Named) and piece.get("type") in ("string", "integer", "number", "boolean"):
        return {**piece, "type": [piece["type"], "null"]}
    return {"anyOf": [piece, {"type": "null"}]}


def one_of(*values: Any) -> Schema:
    """One of these values."""
    return {"enum": list(values)}


def map_of(piece: Any) -> Schema:
    """An object with names of its own choosing."""
    return {"type": "object", "additionalProperties": piece}


def object_of(needed: dict[str, Any] | None = None, optional: dict[str, Any] | None = None, *, closed: bool = False
              ) -> Schema:
    """An object; `closed`, as every object that is taken: a field that is not named is refused."""
    schema: Schema = {"type": "object", "properties": {**(needed or {}), **(optional or {})}}
    if needed:
        schema["required"] = list(needed)
    if closed:
        schema["additionalProperties"] = False
    return schema


def properties_of(of: type, /, **instead: Any) -> dict[str, Any]:  # decision 74
    """The fields of a dataclass as properties; `instead` says what a field's type does not."""
    assert is_dataclass(of)
    hints = get_type_hints(of)
    return {field.name: instead.get(field.name) or _of_hint(hints[field.name]) for field in fields(of)}


def _of_hint(hint: Any) -> Schema:
    if hint in OF_TYPE:
        return OF_TYPE[hint]
    if is_dataclass(hint) and isinstance(hint, type):
        return object_of(properties_of(hint))
    arguments = get_args(hint)
    if get_origin(hint) in (tuple, list):
        return list_of(_of_hint(arguments[0]))
    (kind,) = (argument for argument in arguments if argument is not type(None))
    return nullable(_of_hint(kind))


def _is_wide(schema: Schema) -> bool:
    """Whether it is a whole number that 32 bits may not hold: generators of clients take 32 unless they are told."""
    kind = schema.get("type")
    return (kind == "integer" or isinstance(kind, list) and "integer" in kind) and schema.get(
        "maximum", MAX_32_BITS + 1) > MAX_32_BITS


class Components:
    """Resolves pieces for one document and collects the named schemas that they mention."""

    def __init__(self, config: HttpConfig) -> None:
        self._config = config
        self._named: dict[str, Named] = {}
        self.schemas: dict[str, Any] = {}

    def resolve(self, piece: Any) -> Any:
        """The piece as plain JSON types. ValueError where two schemas have one name."""
        if isinstance(piece, Named):
            return self._refer(piece)
        if isinstance(piece, type):
            return self._refer_shape(piece)
        if isinstance(piece, Setting):
            return piece.of(self._config)
        if isinstance(piece, dict):
            resolved = {name: self.resolve(value) for name, value in piece.items()}
            return {**resolved, "format": "int64"} if _is_wide(resolved) else resolved
        if isinstance(piece, (list, tuple)):
            return [self.resolve(value) for value in piece]
        return piece

    def _refer(self, named: Named) -> Schema:
        existing = self._named.setdefault(named.name, named)
        if existing != named:
            raise ValueError(f"two schemas are named {named.name}")
        if named.name not in self.schemas:
            self.schemas[named.name] = {}                # a schema may mention itself
            schema = self.resolve(named.schema)
            if named.example is not None:
                schema["examples"] = [named.example]
            self.schemas[named.name] = schema
        return {"$ref": REFERENCE.format(name=named.name)}

    def _refer_shape(self, shape: type[Document]) -> Schema:
        """What is declared as a type, with the types that it is made of."""
        for name, schema in schemas_of(shape).items():
            self._refer(Named(name, schema, shape.EXAMPLE if name == shape.__name__ else None))
        return {"$ref": REFERENCE.format(name=shape.__name__)}
