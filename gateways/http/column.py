"""Which properties of a message HTTP carries, and under which request headers. Pure."""
from __future__ import annotations

import re
from typing import Any, Final

from gatehouse.gateways.properties.envelope import Column, Shape, header_cell, property_cell
from gatehouse.tracing.context import STATE as TRACESTATE

USER_PREFIX: Final = "X-Header-"
TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)                # RFC 9110, 5.6.2
UNPREFIXED: Final = frozenset((TRACESTATE.decode(),))
CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def is_field_value(text: str) -> bool:
    """Whether a header can have this value, and comes back as it was."""
    return CONTROL.search(text) is None and text == text.strip(" \t")


def show_user_header(name: str, value: bytes | None) -> tuple[str, Any] | None:
    """A header of the user's own, under its prefix; `tracestate` under its own name, which is a standard's."""
    try:
        shown = None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
    if shown is None or not is_field_value(shown) or not TOKEN.fullmatch(name):
        return None
    return (name if name in UNPREFIXED else USER_PREFIX + name), shown


HTTP: Final = Column("http", "HTTP", {
    "id": (header_cell("X-Message-Id"),),
    "key": (header_cell("X-Message-Key"),),
    "content-type": (header_cell("Content-Type"),),
    "content-encoding": (header_cell("Content-Encoding"),),
    "utf8": (header_cell("Content-Type", Shape.CHARSET),),
    "correlation-id": (header_cell("X-Correlation-Id"),),
    "reply-to": (header_cell("X-Reply-To"),),
    "expires-at": (header_cell("X-Expires-At"), header_cell("X-Expires-In", Shape.SECONDS_FROM_NOW, read_only=True)),
    "timestamp": (header_cell("X-Timestamp"),),
    "priority": (header_cell("X-Priority"),),
    "durability": (property_cell("status", Shape.OUTCOME),),
    "deliver-at": (header_cell("X-Deliver-At"), header_cell("X-Delay", Shape.SECONDS_FROM_NOW, read_only=True)),
    "retain": (header_cell("X-Retain"),),
    "traceparent": (header_cell("traceparent"),),
    "x-trace": (header_cell("X-Trace"),),
    "receipt": (header_cell("X-Receipt"),),
    "receipt-group": (header_cell("X-Receipt-Group"),),
}, header_limits="names are HTTP tokens whose case is lost; values are UTF-8 text without control characters "
                     "and not null",
    show_header=show_user_header, is_text=is_field_value, user_prefix=USER_PREFIX,
    unprefixed=UNPREFIXED)
