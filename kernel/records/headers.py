"""Headers of a message that the hub itself reads. The first header of each name counts. Pure.

    expires-at       when it is worth nothing any more: sessions, leased groups and whoever asks for retained values get
                     no expired messages; readers of offsets see them all
    receipt          an address that is told what became of it
    receipt-group    the group (or `$queue/NAME`) that this is about; without it, whoever acknowledges
    x-trace          `always` asks that it be followed, as the sampled flag of a `traceparent` does; whether its sender
                     may ask is another question: `message.Origin.traces`

`address` is read by `kernel.addresses.routes`, what a door keeps for itself by `kernel.records.batch`.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gatehouse.kernel.message import Headers
from gatehouse.kernel.records.batch import named_headers, varint
from gatehouse.kernel.state.topics import TopicSettings
from gatehouse.tracing.context import HEADER, read

# --- how long a message is good for -------------------------------------------------------------------------------

EXPIRES_HEADER: Final = b"expires-at"
"""Name of the header that holds milliseconds since 1970 as decimal digits."""

MAX_DIGITS: Final = 19                 # of a 64-bit number; longer texts are no times
NEVER: Final = (1 << 63) - 1


def expires_at(headers: Headers, timestamp_ms: int, settings: TopicSettings | None) -> int:
    """The time in ms from which on a record counts as expired; NEVER where nothing ends it.

    Of several headers the first counts; one that is no number is a header like any other. A topic's `message_ttl_ms`
    counts from the record's timestamp. The earlier of the two holds.
    """
    ttl_ms = None if settings is None else settings.message_ttl_ms
    end = NEVER if ttl_ms is None else timestamp_ms + ttl_ms
    for name, value in headers:
        if name == EXPIRES_HEADER:
            if value is not None and len(value) <= MAX_DIGITS and value.isdigit():
                return min(end, int(value))
            break
    return end


# --- receipts that are asked for ----------------------------------------------------------------------------------

ADDRESS: Final = b"receipt"
GROUP: Final = b"receipt-group"
CORRELATION: Final = b"correlation-id"
TRACEPARENT: Final = b"traceparent"

RECEIPT_MARK: Final = varint(len(ADDRESS)) + ADDRESS
"""What encoded headers hold if one is called so, and perhaps if none is."""

MAX_BYTES: Final = 1_024
"""Of one of these headers. A longer one is left out of a receipt, and a longer address asks for none."""

_OF_RECEIPTS: Final = frozenset((ADDRESS, GROUP, CORRELATION, TRACEPARENT))


class Asked(NamedTuple):
    """What a sender wants to be told, and what his receipt carries so that he knows which message it is about."""

    address: str
    group: str
    correlation: bytes
    traceparent: bytes


def asked_in(headers: bytes) -> Asked | None:
    """What encoded headers ask for."""
    return asked_of(named_headers(headers, _OF_RECEIPTS)) if headers.find(RECEIPT_MARK) >= 0 else None


def asked_of(headers: Headers) -> Asked | None:
    """What a record's headers ask for."""
    said: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _OF_RECEIPTS and value and len(value) <= MAX_BYTES:
            said.setdefault(name, value)
    if ADDRESS not in said:
        return None
    return Asked(said[ADDRESS].decode(errors="replace"), said.get(GROUP, b"").decode(errors="replace"),
                 said.get(CORRELATION, b""), said.get(TRACEPARENT, b""))


def asking_among(messages: Sequence[Any]) -> list[int]:
    """Which of these messages perhaps ask for a receipt; their headers are the third of each."""
    return [at for at, message in enumerate(messages) if message[2].find(RECEIPT_MARK) >= 0]


# --- journeys that are asked for ----------------------------------------------------------------------------------

TRACE: Final = b"x-trace"
ALWAYS: Final = b"always"

TRACE_MARK: Final = varint(len(TRACE)) + TRACE
CONTEXT_MARK: Final = varint(len(HEADER)) + HEADER
"""What encoded headers hold if one is called so, and perhaps if none is."""

_OF_TRACES: Final = frozenset((TRACE, HEADER))


def asks_for_trace(headers: bytes) -> bool:
    """Whether encoded headers ask for it."""
    if headers.find(TRACE_MARK) < 0 and headers.find(CONTEXT_MARK) < 0:
        return False
    return asks_for_trace_of(named_headers(headers, _OF_TRACES))


def asks_for_trace_of(headers: Headers) -> bool:
    """Whether a record's headers ask for it."""
    said: dict[bytes, bytes | None] = {}
    for name, value in headers:
        if name in _OF_TRACES:
            said.setdefault(name, value)
    if (said.get(TRACE) or b"").lower() == ALWAYS:
        return True
    context = read(said.get(HEADER))
    return context is not None and context.sampled
