"""Field tables (AMQP 0-9-1, 4.2.5.5, with the types that RabbitMQ and its clients use), typed both ways. Pure.

    table   size (4) | (name size (1) | name | value)*
    value   type (1) | ...         t bool  b byte  B unsigned byte  s short  u unsigned short  I int  i unsigned int
                                   l, L long  f float  d double  D decimal: scale (1), value (4)  S string: size (4)
                                   x bytes: size (4)  A array: size (4), values  T time (8)  F table  V void

A value keeps its type: headers exchanges compare it, refusals of unequal arguments name it, and what is written again
is written as it came. (RabbitMQ's errata: `s` is a signed short, `l` and `L` are both a signed long.)
"""
from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from gatehouse.gateways.amqp.errors import SyntaxFault

DEPTH_MAX: Final = 32                  # tables and arrays within each other

TYPE_NAMES: Final = {
    "t": "bool", "b": "byte", "B": "unsignedbyte", "s": "short", "u": "unsignedshort", "I": "signedint",
    "i": "unsignedint", "l": "long", "L": "long", "f": "float", "d": "double", "D": "decimal", "S": "longstr",
    "x": "binary", "A": "array", "T": "timestamp", "F": "table", "V": "void",
}
"""The name of each field type, as RabbitMQ writes it in its refusals."""

INTEGERS: Final = frozenset("bBsuIilL")
_FIXED: Final = {
    "b": struct.Struct(">b"), "B": struct.Struct(">B"), "s": struct.Struct(">h"), "u": struct.Struct(">H"),
    "I": struct.Struct(">i"), "i": struct.Struct(">I"), "l": struct.Struct(">q"), "L": struct.Struct(">q"),
    "f": struct.Struct(">f"), "d": struct.Struct(">d"), "T": struct.Struct(">Q"), "D": struct.Struct(">BI"),
    "t": struct.Struct(">?"),
}
_SIZE: Final = struct.Struct(">I")


class Field(NamedTuple):
    """A typed value. Python's form by type: bool, int, float, (scale, value), bytes, list[Field], Table, None."""

    type: str
    value: Any


Table = dict[str, Field]


# decision 63: every value keeps its type
def decode_table(data: bytes, at: int) -> tuple[Table, int]:
    """The table at `at` and where it ends. Of a name that comes twice the last value counts. Raises SyntaxFault."""
    return _table(data, at, 0)


def encode_table(table: Table) -> bytes:
    parts = []
    for name, field in table.items():
        raw = name.encode()
        parts.append(bytes((len(raw),)) + raw + encode_field(field))
    body = b"".join(parts)
    return _SIZE.pack(len(body)) + body


def encode_field(field: Field) -> bytes:
    """Type and value."""
    kind, value = field
    head = kind.encode()
    if kind == "V":
        return head
    if kind == "D":
        return head + _FIXED[kind].pack(*value)
    if kind in _FIXED:
        return head + _FIXED[kind].pack(value)
    if kind == "F":
        return head + encode_table(value)
    body = b"".join([encode_field(entry) for entry in value]) if kind == "A" else value
    return head + _SIZE.pack(len(body)) + body


def decode_field(data: bytes) -> Field:
    """What `encode_field` made. Raises SyntaxFault."""
    return _field(data, 0, len(data), 0)[0]


def text(value: str) -> Field:
    return Field("S", value.encode())


def typed(value: Any) -> Field:
    """A plain Python value in the type that clients expect for it."""
    if isinstance(value, bool):
        return Field("t", value)
    if isinstance(value, int):
        return Field("l", value)
    if isinstance(value, float):
        return Field("d", value)
    if isinstance(value, list):
        return Field("A", [typed(entry) for entry in value])
    if isinstance(value, dict):
        return Field("F", {name: typed(entry) for name, entry in value.items()})
    if value is None:
        return Field("V", None)
    return Field("S", value.encode() if isinstance(value, str) else value)


def plain(field: Field) -> Any:
    """A value without its type: text where bytes are UTF-8."""
    kind, value = field
    if kind == "F":
        return {name: plain(entry) for name, entry in value.items()}
    if kind == "A":
        return [plain(entry) for entry in value]
    if kind == "D":
        return value[1] / 10 ** value[0]
    if kind == "S":
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


def type_class(field: Field) -> str:
    """The class of a field's type, by which arguments are compared: integers of any width are one type."""
    return "l" if field.type in INTEGERS else field.type


def described(field: Field | None) -> str:
    """A field in RabbitMQ's words, for refusals."""
    if field is None:
        return "none"
    value = plain(field)
    shown = str(value).lower() if isinstance(value, bool) else value
    return f"the value '{shown}' of type '{TYPE_NAMES[field.type]}'"


# ---- inside ---------------------------------------------------------------------------------------------------------

def _table(data: bytes, at: int, depth: int) -> tuple[Table, int]:
    size, at = _size(data, at)
    end = at + size
    if end > len(data) or depth > DEPTH_MAX:
        raise SyntaxFault("a table longer than its frame, or too deep")
    table: Table = {}
    while at < end:
        name_end = at + 1 + data[at]
        if name_end >= end:
            raise SyntaxFault("a table whose name has no value")
        try:
            name = data[at + 1:name_end].decode()
        except UnicodeDecodeError:
            raise SyntaxFault("a name in a table that is no UTF-8") from None
        table[name], at = _field(data, name_end, end, depth)
    return table, end


def _field(data: bytes, at: int, end: int, depth: int) -> tuple[Field, int]:
    kind = chr(data[at])
    at += 1
    fixed = _FIXED.get(kind)
    if fixed is not None:
        if at + fixed.size > end:
            raise SyntaxFault("a value cut off by the end of its table")
        values = fixed.unpack_from(data, at)
        return Field(kind, values if kind == "D" else values[0]), at + fixed.size
    if kind == "V":
        return Field(kind, None), at
    if kind not in "SxAF":
        raise SyntaxFault(f"a table with a value of the unknown type {kind!r}")
    size, body = _size(data, at)
    if body + size > end:
        raise SyntaxFault("a value longer than its table")
    if kind == "F":
        table, at = _table(data, at, depth + 1)
        return Field(kind, table), at
    if kind == "A":
        return Field(kind, _array(data, body, body + size, depth + 1)), body + size
    return Field(kind, data[body:body + size]), body + size


def _array(data: bytes, at: int, end: int, depth: int) -> list[Field]:
    if depth > DEPTH_MAX:
        raise SyntaxFault("arrays within each other too deep")
    fields = []
    while at < end:
        field, at = _field(data, at, end, depth)
        fields.append(field)
    return fields


def _size(data: bytes, at: int) -> tuple[int, int]:
    if at + 4 > len(data):
        raise SyntaxFault("a length that is cut off")
    return int(_SIZE.unpack_from(data, at)[0]), at + 4
