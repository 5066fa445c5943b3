"""Frame heads as clients must write them (RFC 6455, 5.2; RFC 7692, 6.1), read before the server library's reader does.

That one takes frames without a mask (5.1 wants the connection closed), compressed control frames and close codes that
cannot be sent. It is fed whole heads only, so that in the place of a wrong one it can be given `BROKEN`, upon which it
closes the connection as a protocol error.
"""
from __future__ import annotations

from typing import Final, Protocol

from gatehouse.gateways.websocket.codec import (
    CLOSE,
    CONTINUATION,
    CONTROL_BYTES_MAX,
    FIN,
    MASK,
    RESERVED,
    SENDABLE,
    TEXT,
    unmask,
)

CONTROL: Final = 0x8
WHOLE_TEXT: Final = FIN | TEXT
COMPRESSED: Final = 0x40             # RSV1
BROKEN: Final = bytes((FIN | RESERVED | 0xF, MASK, 0, 0, 0, 0))
INCOMPLETE: Final = -1
WRONG: Final = -2


class PayloadReader(Protocol):
    """What the server hands bytes to."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take bytes; returns whether the reader has ended, and what it left."""

    def feed_eof(self) -> None: ...


class FrameGuard:
    """A `PayloadReader` before another, which checks frame heads. Holds less than one head."""

    def __init__(self, reader: PayloadReader) -> None:
        self._reader = reader
        self._held = b""
        self._left = 0                   # bytes of a payload that are still to come

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """See `PayloadReader`."""
        if self._held:
            data, self._held = self._held + data, b""
        at, end = self._left, len(data)
        while at < end:
            if data[at] == WHOLE_TEXT and at + 1 < end and MASK <= data[at + 1] <= MASK + CONTROL_BYTES_MAX:
                at += 6 + data[at + 1] - MASK        # nearly every frame there is
                continue
            size = _frame_size(data, at)
            if size == INCOMPLETE:
                self._held, data = data[at:], data[:at]
                self._left = 0
                return self._reader.feed_data(data) if data else (False, b"")
            if size == WRONG:
                self._left = 0
                return self._reader.feed_data(data[:at] + BROKEN)
            at += size
        self._left = at - end
        return self._reader.feed_data(data)

    def feed_eof(self) -> None:
        """See `PayloadReader`."""
        self._reader.feed_eof()


def _frame_size(data: bytes, at: int) -> int:
    """Bytes of the frame whose head is here; or INCOMPLETE or WRONG."""
    seen = len(data) - at
    if seen < 2:
        return INCOMPLETE
    first, second = data[at], data[at + 1]
    opcode, length = first & 0xF, second & 0x7F
    if not second & MASK or first & COMPRESSED and (opcode & CONTROL or opcode == CONTINUATION):
        return WRONG
    head = 6
    if length > CONTROL_BYTES_MAX:
        wide = 2 if length == 126 else 8
        head += wide
        if seen < head:
            return INCOMPLETE
        length = int.from_bytes(data[at + 2:at + 2 + wide], "big")
    if opcode == CLOSE and 2 <= length:
        if seen < head + 2:
            return INCOMPLETE
        code = unmask(data[at + head:at + head + 2], data[at + head - 4:at + head])
        if int.from_bytes(code, "big") not in SENDABLE:
            return WRONG
    return INCOMPLETE if seen < head else head + length
