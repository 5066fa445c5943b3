"""Values of properties in the shapes that doors give them, and back. Pure.

    normalize   what stands in a record header, checked and in its one form
    show, read  a normal value in a cell's shape (`envelope.Shape`), and a cell's value as it would be normal
    plain       any typed value of a user's header
"""
from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from gatehouse.gateways.addresses import QUEUE_LEVEL, REPLY_NAME, reply_address
from gatehouse.gateways.properties.envelope import Kind, Shape
from gatehouse.kernel.addresses.address import LEVEL_ESCAPES, check_address, escape, is_address, unescape
from gatehouse.kernel.errors import InvalidAddress
from gatehouse.tracing.context import read as read_context

MAX_TIME_MS: Final = 253_402_300_799_999      # the last millisecond of the year 9999, where RFC 3339 ends
MAX_SECONDS: Final = 0xFFFFFFFF               # MQTT 5, 3.3.2.3.3: a four-byte integer
MAX_PRIORITY: Final = 255                     # AMQP 0-9-1: an octet
RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
NUMBER: Final = re.compile(r"\d{1,15}(\.\d{1,9})?", re.ASCII)
CHARSET: Final = re.compile(r"""(?i);\s*charset\s*=\s*("?)([^";\s]*)\1""")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

FLAG_FORMS: Final[dict[Shape, tuple[Any, Any]]] = {
    Shape.FLAG: (False, True), Shape.LEVEL: (0, 1), Shape.MODE: (1, 2), Shape.OUTCOME: (202, 201),
}
"""(not set, set)."""

PLAIN_SHAPES: Final = (Shape.TEXT, Shape.ADDRESS, Shape.BYTES, Shape.NUMBER, Shape.TIME_MS, Shape.FLAG)


def normalize(kind: Kind, value: bytes) -> bytes | None:
    """The value in its one form (see Kind), or None if it is none of that kind. RFC 3339 times are read too."""
    if kind is Kind.BYTES:
        return value
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    if kind is Kind.TEXT:
        return value
    if kind is Kind.FLAG:
        return {"true": b"true", "1": b"true", "false": b"false", "0": b"false"}.get(text.lower())
    if kind is Kind.TRACEPARENT:
        return value if read_context(value) is not None else None
    number = _time_ms(text) if kind is Kind.TIME else int(text) if _is_number(text) else None
    highest = MAX_TIME_MS if kind is Kind.TIME else MAX_PRIORITY
    return b"%d" % number if number is not None and 0 <= number <= highest else None


def show(shape: Shape, value: bytes, now_ms: int) -> tuple[Any, bool]:
    """(a normal value in this shape or None, whether that says all of it). Not for CHARSET."""
    if shape in (Shape.TEXT, Shape.ADDRESS, Shape.REPLY):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return None, False
        if shape is Shape.REPLY:
            return _reply_name(text), True
        return (text if shape is Shape.TEXT or is_address(text) else None), True
    if shape is Shape.BYTES:
        return value, True
    if shape in (Shape.FLAG, Shape.LEVEL, Shape.MODE, Shape.OUTCOME):
        return FLAG_FORMS[shape][value == b"true"], True
    number = int(value)
    if shape is Shape.TIME_S:
        return number // 1000, number % 1000 == 0
    if shape is Shape.SECONDS_LEFT:
        return min(max(-((now_ms - number) // 1000), 0), MAX_SECONDS), True
    if shape is Shape.MS_LEFT:
        return str(max(number - now_ms, 0)), True
    return number, True


def _reply_name(address: str) -> str | None:
    """What AMQP answers to; None for what is no address."""
    if not is_address(address):
        return None
    first, _, name = address.partition("/")
    if first == QUEUE_LEVEL and name and "/" not in name:
        return unescape(name, LEVEL_ESCAPES)
    return REPLY_NAME + address


def read(shape: Shape, shown: Any, now_ms: int) -> bytes | None:
    """A cell's value as the record header's, not yet checked; None if it is no such value."""
    if shape is Shape.CHARSET:
        stated = CHARSET.search(text_of(shown))
        return b"true" if stated is not None and stated.group(2).lower() == "utf-8" else None
    if shape is Shape.REPLY:
        try:
            name = text_of(shown)
            address = reply_address(name) or f"{QUEUE_LEVEL}/{escape(name, LEVEL_ESCAPES)}"
            check_address(address)
            return address.encode()
        except InvalidAddress:
            return None
    if shape is Shape.LEVEL:
        return flag(shown > 0)
    if shape in (Shape.MODE, Shape.OUTCOME):
        return flag(shown == FLAG_FORMS[shape][1])
    if shape in PLAIN_SHAPES:
        return plain(shown)
    number = text_of(shown)
    if NUMBER.fullmatch(number) is None:
        return None
    value = float(number)
    if shape is Shape.TIME_S:
        return b"%d" % round(value * 1000)
    from_now_ms = value if shape in (Shape.MS_LEFT, Shape.MS_FROM_NOW) else value * 1000
    return b"%d" % min(now_ms + round(from_now_ms), MAX_TIME_MS)


def plain(value: Any) -> bytes | None:
    """A typed value as a record header's: text as UTF-8, numbers in digits, arrays and tables as JSON, void as null."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return flag(value)
    if isinstance(value, (list, dict)):
        return json.dumps(value, default=text_of, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    return str(value).encode(errors="replace")


def text_of(value: Any) -> str:
    """Bytes as UTF-8, anything else as Python writes it."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def flag(value: bool) -> bytes:
    """A truth value as a record header's."""
    return b"true" if value else b"false"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(MAX_TIME_MS))


def _time_ms(text: str) -> int | None:
    if _is_number(text):
        return int(text)
    if RFC_3339.fullmatch(text) is None:
        return None
    try:
        moment = datetime.fromisoformat(re.sub(r"(\.\d{1,6})\d*", r"\1", text.upper()))
    except ValueError:                                         # the 30th of February
        return None
    return (moment - EPOCH) // timedelta(milliseconds=1)
