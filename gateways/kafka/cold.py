"""The messages that are not hot, by the schemas that kafka-python generates its classes from.

Requests are decoded here, not by kafka-python: its decoders are written for a broker's answers and believe them (a
string may end beyond its frame, a variable-length number may go on for megabytes, tagged fields are copied once per
struct), which a server cannot. So the same schema is walked with the bounds of `codec`. Answers are encoded by
kafka-python's own code, since what goes in there is ours; its encoders read attributes by name, so plain rows do.

The version of kafka-python is pinned: `_struct` and the fields below it are not its public interface.
"""
from __future__ import annotations

import struct
import uuid
from types import SimpleNamespace
from typing import Any, Final

from kafka.protocol.schemas.fields.codecs.types import UUID, Bytes, String

from gatehouse.gateways.kafka.codec import Malformed, frame_header, read_bytes, read_count, read_string, skip_tags

Row = SimpleNamespace
"""One struct of a request or of an answer: its fields by their schema names in snake_case."""

MAX_BYTES: Final = 512 << 10      # of such a request: the offsets of 32,000 partitions, or 2,000 of the longest names

LONG: Final = 1_000               # rows that take some milliseconds to write

FIXED: Final = 0
STRING: Final = 1
BYTES: Final = 2
ID: Final = 3
STRUCTS: Final = 4
SIMPLES: Final = 5
STRUCT: Final = 6

Step = tuple[int, tuple[str, ...], Any, bool]
"""(kind, field names, struct.Struct or the plan of what is inside, may be null)"""

Plan = tuple[list[Step], dict[str, Any], int]
"""(steps, defaults of fields that this version does not carry, the least bytes that one such struct takes)"""

_plans: dict[tuple[str, int], Plan] = {}


# decision 60: their schemas, our bounds
def decode(message: Any, version: int, data: bytes, at: int, end: int) -> Row:
    """The request body in data[at:end] as `message` (a class of kafka.protocol) defines it. Raises Malformed.

    What follows it is passed over, as Kafka does: librdkafka sends bytes too many in Metadata from version 9 on and in
    AlterUserScramCredentials, kafka-go in DescribeAcls.
    """
    if end - at > MAX_BYTES:
        raise Malformed(f"a {message.name} of {end - at} bytes; at most {MAX_BYTES} are taken")
    flexible: bool = message.flexible_version_q(version)
    key = (message.name, version)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = _plan(message._struct, version, flexible)
    return _read_struct(plan, data, at, end, flexible)[0]       # decision 244: what follows is passed over


# decision 60: what is encoded is ours, so their encoders do it
def encode(message: Any, version: int, correlation_id: int, **fields: Any) -> bytes:
    """The whole answer, framed. `fields` and the rows in them may hold more than this version carries."""
    body = bytes(message(version=version, **fields).encode(version=version))
    flexible = message.flexible_version_q(version) and message.name != "ApiVersionsResponse"   # KIP-511's exception
    return frame_header(len(body), correlation_id, flexible) + body


def is_long(fields: dict[str, Any]) -> bool:
    """Whether an answer of these takes long to write: so many rows are in it, and in the rows of it."""
    count = 0
    ahead = [fields]
    while ahead and count <= LONG:
        for value in ahead.pop().values():
            if type(value) is list:
                count += len(value)
                if value and type(value[0]) is Row and count <= LONG:
                    ahead += [row.__dict__ for row in value]
            elif type(value) is Row:
                ahead.append(value.__dict__)
    return count > LONG


def _plan(schema: Any, version: int, flexible: bool) -> Plan:
    """What to read for a struct of this version, neighbouring numbers as one."""
    fields = schema.untagged_fields(version)
    defaults = {field.name: field.default for field in schema.fields.values() if field not in fields}
    steps: list[Step] = []
    least = 0
    names: list[str] = []
    shape = ""
    for field in fields:
        if field.is_batchable():
            names.append(field.name)
            shape += field._type.fmt
            continue
        if names:
            steps.append(_fixed(names, shape))
            names, shape = [], ""
        step = _step(field, version, flexible)
        least += 16 if step[0] == ID else 1
        steps.append(step)
    if names:
        steps.append(_fixed(names, shape))
    least += sum(step[2].size for step in steps if step[0] == FIXED)
    return steps, defaults, least + 1 if flexible else max(least, 1)


def _fixed(names: list[str], shape: str) -> Step:
    return FIXED, tuple(names), struct.Struct(">" + shape), False


def _step(field: Any, version: int, flexible: bool) -> Step:
    nullable = field.nullable_for_version_q(version)
    name = (field.name,)
    if field.is_struct_array():
        return STRUCTS, name, _plan(field, version, flexible), nullable
    if field.is_struct():
        return STRUCT, name, _plan(field, version, flexible), nullable
    if field.is_array():
        kind, names, inside, _ = _step(field.array_of, version, flexible)
        return SIMPLES, name, (kind, names, inside, False), nullable      # the array may be null, what is in it not
    if field.is_batchable():
        return _fixed([field.name], field._type.fmt)
    if isinstance(field._type, String):
        return STRING, name, None, nullable
    if field._type is Bytes:
        return BYTES, name, None, nullable
    if field._type is UUID:
        return ID, name, None, False
    raise TypeError(f"no way to read {field.name} of a request is written")


def _read_struct(plan: Plan, data: bytes, at: int, end: int, flexible: bool) -> tuple[Row, int]:
    row = Row(**plan[1])
    values = row.__dict__
    for step in plan[0]:
        if step[0] == FIXED:
            shape = step[2]
            if end - at < shape.size:
                raise Malformed("a request is cut off")
            values.update(zip(step[1], shape.unpack_from(data, at), strict=True))
            at += shape.size
        else:
            values[step[1][0]], at = _read_value(step, data, at, end, flexible)
    return row, skip_tags(data, at, end) if flexible else at


def _read_value(step: Step, data: bytes, at: int, end: int, flexible: bool) -> tuple[Any, int]:
    kind, names, inside, nullable = step
    if kind == STRUCT:
        return _read_optional(step, data, at, end, flexible)
    if kind == ID:
        if end - at < 16:
            raise Malformed("an id is cut off")
        return uuid.UUID(bytes=data[at:at + 16]), at + 16
    if kind == FIXED:
        if end - at < inside.size:
            raise Malformed("a request is cut off")
        return inside.unpack_from(data, at)[0], at + inside.size
    value: Any
    if kind == STRING:
        raw, at = read_string(data, at, end, flexible)
        value = None if raw is None else _text(raw)
    elif kind == BYTES:
        value, at = read_bytes(data, at, end, flexible)
    else:
        value, at = _read_array(kind, inside, data, at, end, flexible)
    if value is None and not nullable:
        raise Malformed(f"{names[0]} may not be null")
    return value, at


def _read_optional(step: Step, data: bytes, at: int, end: int, flexible: bool) -> tuple[Row | None, int]:
    """A struct that may be missing (KIP-893): a byte before it says so."""
    _, _, plan, nullable = step
    if nullable:
        if at >= end:
            raise Malformed("a request is cut off")
        at += 1
        if data[at - 1] >= 0x80:
            return None, at
    return _read_struct(plan, data, at, end, flexible)


def _read_array(kind: int, inside: Any, data: bytes, at: int, end: int, flexible: bool) -> tuple[list[Any] | None, int]:
    count, at = read_count(data, at, end, flexible, inside[2] if kind == STRUCTS else 1)
    if count < 0:
        return None, at
    values: list[Any] = []
    for _ in range(count):
        if kind == STRUCTS:
            value, at = _read_struct(inside, data, at, end, flexible)
        else:
            value, at = _read_value(inside, data, at, end, flexible)
        values.append(value)
    return values, at


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8") from None
