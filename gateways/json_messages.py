"""Stored messages as JSON: what the doors show wherever JSON is what they speak. Pure.

A message as JSON, here read from the partition 3 of `plant`:

    {"id": "281474976710657", "topic": "plant", "partition": 3, "offset": 17, "key": "line1/temp", "value": "21.5",
     "headers": [["unit", "C"]], "address": "plant/line1/temp", "timestamp": 1700000000000, "door": "mqtt",
     "content_type": "text/plain"}

    id             text: a 64-bit number, more than JavaScript's numbers hold exactly
    key, value     null, or text; `key_base64`, `value_base64` in their place where the bytes are not UTF-8
    value_json     in place of `value` for who asks for parsed values, where it is JSON: byte for byte, in one line
    headers        [name, value] in order with duplicates; a value is text, null, or {"base64": ...} if not UTF-8
    timestamp      milliseconds since 1970, as `expires_at` and `deliver_at`
"""
from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

import orjson
from orjson import Fragment

from gatehouse.gateways.properties.envelope import FIELDS, Kind
from gatehouse.gateways.properties.values import normalize
from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.message import DOOR_MASK, RETAIN, TRANSIENT, Record

OF_THE_RECORD: Final = frozenset(("key", "timestamp", "durability"))
"""Fields that are no record header: a JSON message has them in a form of its own, or cannot say them."""

ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")
"""JSON has line ends between its tokens only; events have none in their data."""

_BY_RECORD_HEADER: Final = {field.name.encode(): field for field in FIELDS if field.name not in OF_THE_RECORD}


def json_name(field: str) -> str:
    """The name of an envelope field in a JSON message; `id` is the hub's own number of the message."""
    return "message_id" if field == "id" else field.replace("-", "_")


def record_to_json(record: Record, topic: str, partition: int, address: str, door: str, *, parsed: bool = False
                   ) -> dict[str, Any]:
    """One stored record as what orjson writes, in the order in which the fields are written. `parsed`: a value that is
    JSON is shown as such."""
    offset, timestamp_ms, key, value, headers, attributes, message_id = record
    message: dict[str, Any] = {"id": str(message_id), "topic": topic, "partition": partition, "offset": offset}
    _put_bytes(message, "key", key)
    if parsed and value is not None and _is_json(value):
        message["value_json"] = Fragment(value.translate(ONE_LINE))
    else:
        _put_bytes(message, "value", value)
    user_headers: list[list[Any]] = []
    message["headers"] = user_headers
    message["address"] = address
    message["timestamp"] = timestamp_ms
    message["door"] = door
    if attributes & TRANSIENT:
        message["transient"] = True
    if attributes & RETAIN:
        message["retain"] = True
    for name, header_value in headers:
        if not _put_property(message, name, header_value) and not (
                name == ADDRESS_HEADER and header_value == address.encode()):
            user_headers.append([name.decode("utf-8", "replace"), _header_to_json(header_value)])
    return message


def door_of(attributes: int) -> int:
    """The number of the door that a record came in by."""
    return attributes & DOOR_MASK


def _put_property(message: dict[str, Any], name: bytes, value: bytes | None) -> bool:
    """Put an envelope field among the message's; False where it is none, is a duplicate, or does not read as one."""
    field = _BY_RECORD_HEADER.get(name)
    if field is None or value is None:
        return False
    shown = json_name(field.name)
    if shown in message or shown + "_base64" in message:
        return False
    normal = normalize(field.kind, value)
    if normal is None:
        return False
    if field.kind in (Kind.PRIORITY, Kind.TIME):
        message[shown] = int(normal)
    elif field.kind is Kind.FLAG:
        message[shown] = normal == b"true"
    else:
        _put_bytes(message, shown, normal)
    return True


def _is_json(value: bytes) -> bool:
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError:
        return False
    return True


def _put_bytes(message: dict[str, Any], name: str, data: bytes | None) -> None:
    if data is None:
        message[name] = None
        return
    try:
        message[name] = data.decode()
    except UnicodeDecodeError:
        message[name + "_base64"] = b64encode(data).decode()


def _header_to_json(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}
