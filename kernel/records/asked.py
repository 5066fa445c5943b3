"""The headers `receipt` and `receipt-group`: a sender asks to be told what became of a message, at an address. Pure.

    receipt          the address that is told
    receipt-group    the group (or `$queue/NAME`) that it is about; without it, whoever acknowledges

The first header of each name counts.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gatehouse.kernel.message import Headers
from gatehouse.kernel.records.record import named_headers, varint

ADDRESS: Final = b"receipt"
GROUP: Final = b"receipt-group"
CORRELATION: Final = b"correlation-id"
TRACEPARENT: Final = b"traceparent"

ASKED: Final = varint(len(ADDRESS)) + ADDRESS
"""What encoded headers hold if one is called so, and perhaps if none is."""

MAX_BYTES: Final = 1_024
"""Of one of these headers. A longer one is left out of a receipt, and a longer address asks for none."""

_WANTED: Final = frozenset((ADDRESS, GROUP, CORRELATION, TRACEPARENT))


class Asked(NamedTuple):
    """What a sender wants to be told, and what his receipt carries so that he knows which message it is about."""

    address: str
    group: str
    correlation: bytes
    traceparent: bytes


def asked_in(headers: bytes) -> Asked | None:
    """What encoded headers ask for."""
    return asked_of(named_headers(headers, _WANTED)) if headers.find(ASKED) >= 0 else None


def asked_of(headers: Headers) -> Asked | None:
    """What a record's headers ask for."""
    said: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _WANTED and value and len(value) <= MAX_BYTES:
            said.setdefault(name, value)
    if ADDRESS not in said:
        return None
    return Asked(said[ADDRESS].decode(errors="replace"), said.get(GROUP, b"").decode(errors="replace"),
                 said.get(CORRELATION, b""), said.get(TRACEPARENT, b""))


def asking_among(messages: Sequence[Any]) -> list[int]:
    """Which of these messages perhaps ask for a receipt; their headers are the third of each."""
    return [at for at, message in enumerate(messages) if message[2].find(ASKED) >= 0]
