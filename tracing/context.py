"""W3C Trace Context, as it stands in the header `traceparent` of a message. Pure.

    00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
    version, trace id of 16 bytes, id of the span before of 8 bytes, flags (1: sampled)

A header that says anything else says nothing: whoever reads it begins a new trace (Trace Context, 4.3).
"""
from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

HEADER: Final = b"traceparent"
STATE: Final = b"tracestate"
OF_CONTEXT: Final = frozenset((HEADER, STATE))
MAX_BYTES: Final = 512
"""A longer header is not looked at: later versions may have more fields, and none has this much."""

TRACEPARENT: Final = re.compile(               # version 00 has nothing more, and ff is none
    rb"(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?", re.DOTALL)
SAMPLED: Final = 1
OWN_BYTES: Final = 55                  # of a context that a hub gives

WITHIN: Final = re.compile(HEADER + rb"[\x00-\xff]{1,8}?([0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})")
"""Headers as any door encodes them: between name and value stand a length, and perhaps a type."""


class Context(NamedTuple):
    """Which trace, and what came before."""

    trace_id: bytes
    span_id: bytes
    sampled: bool

    def header(self) -> bytes:
        """The value of a `traceparent`."""
        return b"00-%s-%s-%02x" % (self.trace_id.hex().encode(), self.span_id.hex().encode(),
                                   SAMPLED if self.sampled else 0)


def read(value: bytes | None) -> Context | None:
    """The context that a header's value says; None where it says none."""
    parts = None if value is None or len(value) > MAX_BYTES else TRACEPARENT.fullmatch(value)
    if parts is None:
        return None
    trace_id, span_id, flags = parts.groups()
    return Context(bytes.fromhex(trace_id.decode()), bytes.fromhex(span_id.decode()), bool(int(flags, 16) & SAMPLED))


def is_of_a_hub(header: bytes | None) -> bool:
    """Whether a hub gave this context to a message that had none: its span id is the second half of its trace id,
    see `events.trace_at`."""
    return header is not None and len(header) == OWN_BYTES and header[19:35] == header[36:52]


def only_context(headers: Iterable[tuple[bytes, bytes | None]]) -> Context | None:  # decision 327
    """The context that headers say; None where several say one, as then nobody knows which of them it is."""
    said = [value for name, value in headers if name == HEADER]
    return read(said[0]) if len(said) == 1 else None


def hex_of(header: bytes) -> str:
    """The trace id that a `traceparent` says, in hex; "" where it says none."""
    context = read(header)
    return context.trace_id.hex() if context is not None else ""


def traceparent_in(said: bytes) -> bytes:
    """The first `traceparent` of a message, in its encoded headers or a whole packet; b"" where there is none. For what
    was refused before it was read, and for lines of the log."""
    # not `HEADER in said`: Python first takes the left side for a number, and formats an error that it drops
    match = WITHIN.search(said) if said.find(HEADER) >= 0 else None
    return match[1] if match is not None and read(match[1]) is not None else b""


def trace_id_in(said: bytes) -> str:
    """The trace id in that, in hex; "" where there is none."""
    return hex_of(traceparent_in(said))


def in_a_line(trace_id: str) -> tuple[str, dict[str, str]]:
    """A trace id as a line of the log ends with it, and its field; nothing where there is none."""
    return (f" (trace {trace_id})", {"trace_id": trace_id}) if trace_id else ("", {})
