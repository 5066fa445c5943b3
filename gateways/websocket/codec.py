"""WebSocket frames of the server's side (RFC 6455 section 5), for streams of bytes: where messages begin and end means
nothing, so a payload is handed on as it comes and a frame of any length is never held.

     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-------+-+-------------+-------------------------------+
    |F|R|R|R| opcode|M| length (7)  | length (16 or 64), if 126/127 |
    |I|S|S|S|  (4)  |A|             |                               |
    |N|V|V|V|       |S|             | masking key (32), if MASK     |
    +-+-+-+-+-------+-+-------------+-------------------------------+

Every frame of a client is masked (5.1), none of ours is. Control frames have at most 125 bytes and are whole (5.5).
"""
from __future__ import annotations

from typing import Final, NamedTuple

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

FIN: Final = 0x80
RESERVED: Final = 0x70
MASK: Final = 0x80
CONTROL_BYTES_MAX: Final = 125
HEAD_BYTES_MAX: Final = 14

# Close codes (7.4.1).
NORMAL: Final = 1000
GOING_AWAY: Final = 1001
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED: Final = 1003
INVALID_PAYLOAD: Final = 1007
POLICY: Final = 1008
SENDABLE: Final = frozenset((*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)))
"""Codes that may stand in a close frame."""


class Broken(Exception):
    """The peer breaks the protocol; `code` is what it is told."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Control(NamedTuple):
    """A whole control frame."""

    opcode: int
    payload: bytes


class WebSocketReader:
    """Cuts what a client sends into payload and control frames. Holds less than one head and one control frame."""

    def __init__(self) -> None:
        self._held = b""                 # of a head, or of a control frame, that is not all there
        self._left = 0                   # bytes of the data frame's payload that are still to come
        self._mask = b""                 # its key, turned to where the payload goes on
        self._within = False             # a message of several frames is under way

    def feed(self, data: bytes) -> list[bytes | Control]:  # decision 98
        """Payload and control frames in their order. Raises Broken; what came before it is lost with the connection."""
        out: list[bytes | Control] = []
        if self._held:
            data, self._held = self._held + data, b""
        at, end = 0, len(data)
        while at < end:
            if self._left:
                size = min(self._left, end - at)
                out.append(unmask(data[at:at + size], self._mask))
                at += size
                self._left -= size
                turn = size % 4
                self._mask = self._mask[turn:] + self._mask[:turn]
                continue
            head = _read_head(data, at)
            if head is None:
                break
            opcode, is_last, length, body = head
            mask = data[body - 4:body]
            if opcode & 0x8:
                if body + length > end:
                    break
                out.append(Control(opcode, unmask(data[body:body + length], mask)))
                at = body + length
                continue
            self._check_order(opcode)
            self._within = not is_last
            self._left, self._mask, at = length, mask, body
        self._held = data[at:]
        return out

    def _check_order(self, opcode: int) -> None:
        """5.4: a message's frames follow each other, with control frames between them at most."""
        if (opcode == CONTINUATION) != self._within:
            raise Broken(PROTOCOL_ERROR, "a frame that continues nothing, or one that should have continued")


def _read_head(data: bytes, at: int) -> tuple[int, bool, int, int] | None:
    """(opcode, whether it ends its message, length, where its payload begins); None where it is not all there."""
    if len(data) - at < 2:
        return None
    first, second = data[at], data[at + 1]
    opcode, length = first & 0x0F, second & 0x7F
    _check_first(first, second, opcode, length)
    body = at + 2
    wide = {126: 2, 127: 8}.get(length, 0)
    if wide:
        if len(data) < body + wide:
            return None
        length = int.from_bytes(data[body:body + wide], "big")
        body += wide
        if length < (126 if wide == 2 else 1 << 16) or length >= 1 << 63:
            raise Broken(PROTOCOL_ERROR, "a length that is not written in its shortest way (5.2)")
    if len(data) < body + 4:
        return None
    return opcode, bool(first & FIN), length, body + 4


def _check_first(first: int, second: int, opcode: int, length: int) -> None:
    """What two bytes show."""
    if first & RESERVED:
        raise Broken(PROTOCOL_ERROR, "a reserved bit, and no extension was agreed on (5.2)")
    if not second & MASK:
        raise Broken(PROTOCOL_ERROR, "a frame of a client that is not masked (5.1)")
    if opcode == TEXT:
        raise Broken(UNSUPPORTED, "a text frame; packets come in binary frames [MQTT-6.0.0-1]")
    if opcode not in (CONTINUATION, BINARY, CLOSE, PING, PONG):
        raise Broken(PROTOCOL_ERROR, f"opcode {opcode} (5.2)")
    if opcode & 0x8 and (length > CONTROL_BYTES_MAX or not first & FIN):
        raise Broken(PROTOCOL_ERROR, "a control frame that is too long or in pieces (5.5)")


def unmask(payload: bytes, mask: bytes) -> bytes:
    """The payload without (or with) its mask of four bytes (5.3); as one large number, which is fast."""
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(key, "little")).to_bytes(size, "little")


def encode_head(opcode: int, size: int) -> bytes:
    """The head of a whole message of ours."""
    if size < 126:
        return bytes((FIN | opcode, size))
    if size < 1 << 16:
        return bytes((FIN | opcode, 126)) + size.to_bytes(2, "big")
    return bytes((FIN | opcode, 127)) + size.to_bytes(8, "big")


def encode_close(code: int, text: str = "") -> bytes:
    """A close frame (5.5.1)."""
    payload = code.to_bytes(2, "big") + text.encode()[:CONTROL_BYTES_MAX - 2]
    return encode_head(CLOSE, len(payload)) + payload


def read_close(payload: bytes) -> int:
    """The code in a client's close frame, `NORMAL` where it says none. Raises Broken."""
    if not payload:
        return NORMAL
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or code not in SENDABLE:
        raise Broken(PROTOCOL_ERROR, "a close frame with a code that cannot be sent (7.4)")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise Broken(INVALID_PAYLOAD, "a close frame whose reason is not UTF-8 (5.5.1)") from None
    return code
