"""Headers by which a sender asks that a message be followed: `x-trace: always`, and the sampled flag of a
`traceparent`. Pure.

The first header of each name counts. Whether its sender may ask is another question: `message.Origin.traces`.
"""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.message import Headers
from gatehouse.kernel.records.record import named_headers, varint
from gatehouse.tracing.context import HEADER, read

TRACE: Final = b"x-trace"
ALWAYS: Final = b"always"

MARK: Final = varint(len(TRACE)) + TRACE
CONTEXT: Final = varint(len(HEADER)) + HEADER
"""What encoded headers hold if one is called so, and perhaps if none is."""

_WANTED: Final = frozenset((TRACE, HEADER))


def asks_in(headers: bytes) -> bool:
    """Whether encoded headers ask for it."""
    return (headers.find(MARK) >= 0 or headers.find(CONTEXT) >= 0) and asks_of(named_headers(headers, _WANTED))


def asks_of(headers: Headers) -> bool:
    """Whether a record's headers ask for it."""
    said: dict[bytes, bytes | None] = {}
    for name, value in headers:
        if name in _WANTED:
            said.setdefault(name, value)
    if (said.get(TRACE) or b"").lower() == ALWAYS:
        return True
    context = read(said.get(HEADER))
    return context is not None and context.sampled
