"""WebSocket frames of the server's side (RFC 6455 section 5, RFC 7692), read in one of two ways.

`WebSocketReader` is for streams of bytes: where messages begin and end means nothing, so a payload is handed on as it
comes and a frame of any length is never held. `MessageReader` is for messages of text: whole, bounded, decompressed.

     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-------+-+-------------+-------------------------------+
    |F|R|R|R| opcode|M| length (7)  | length (16 or 64), if 126/127 |
    |I|S|S|S|  (4)  |A|             |                               |
    |N|V|V|V|       |S|             | masking key (32), if MASK     |
    +-+-+-+-+-------+-+-------------+-------------------------------+

Every frame of a client is masked (5.1), none of ours is. Control frames have at most 125 bytes and are whole (5.5).

Every message of ours is compressed for itself: a compressor may begin anew at any message (RFC 7692, 7.2.3.1), so a
connection keeps no window for them, which would be a quarter of a megabyte each. Pure.
"""
from __future__ import annotations

import zlib
from typing import Final, NamedTuple

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

FIN: Final = 0x80
RESERVED: Final = 0x70
COMPRESSED: Final = 0x40             # RSV1 (RFC 7692, 6)
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
TOO_BIG: Final = 1009
SENDABLE: Final = frozenset((*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)))
"""Codes that may stand in a close frame."""


TAIL: Final = b"\x00\x00\xff\xff"    # ends each compressed message, and is not sent (RFC 7692, 7.2.1)
MIN_COMPRESSED_BYTES: Final = 256    # smaller messages gain nothing
LEVEL: Final = 1                     # the fastest
WINDOW_BITS: Final = 15              # of what a client compresses


class Broken(Exception):
    """The peer breaks the protocol; `code` is what it is told."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Control(NamedTuple):
    """A whole control frame."""

    opcode: int
    payload: bytes


class Deflated(NamedTuple):
    """A whole message that is still compressed."""

    payload: bytes


class MessageEnd(NamedTuple):
    """The payload before it was the last of a message."""

    compressed: bool


class WebSocketReader:
    """Cuts what a client sends into payload and control frames. Holds less than one head and one control frame.

    `opcode` is that of the messages that are taken, and `marks_ends` says whether their ends are told; `compressed`
    whether they may be.
    """

    def __init__(self, opcode: int = BINARY, marks_ends: bool = False, compressed: bool = False) -> None:
        self._opcode = opcode
        self._marks_ends = marks_ends
        self._allowed = COMPRESSED if compressed else 0
        self._compressed = False             # the message that is under way
        self._held = b""                 # of a head, or of a control frame, that is not all there
        self._left = 0                   # bytes of the data frame's payload that are still to come
        self._mask = b""                 # its key, turned to where the payload goes on
        self._within = False             # a message of several frames is under way

    def feed(self, data: bytes) -> list[bytes | Control | MessageEnd]:  # decision 98
        """Payload and control frames in their order. Raises Broken; what came before it is lost with the connection."""
        out: list[bytes | Control | MessageEnd] = []
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
                self._end_frame(out)
                continue
            head = self._read_head(data, at)
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
            if opcode != CONTINUATION:
                self._compressed = bool(data[at] & COMPRESSED)
            self._within = not is_last
            self._left, self._mask, at = length, mask, body
            self._end_frame(out)
        self._held = data[at:]
        return out

    @property
    def held_bytes(self) -> int:
        """What has come and waits for the rest of its head or control frame."""
        return len(self._held)

    def _end_frame(self, out: list[bytes | Control | MessageEnd]) -> None:
        """Tell the end of a message, where a frame has ended that was its last."""
        if self._marks_ends and not self._left and not self._within:
            out.append(MessageEnd(self._compressed))

    def _check_order(self, opcode: int) -> None:
        """5.4: a message's frames follow each other, with control frames between them at most."""
        if (opcode == CONTINUATION) != self._within:
            raise Broken(PROTOCOL_ERROR, "a frame that continues nothing, or one that should have continued")

    def _read_head(self, data: bytes, at: int) -> tuple[int, bool, int, int] | None:
        """(opcode, whether it ends its message, length, where its payload begins); None where it is not all there."""
        if len(data) - at < 2:
            return None
        first, second = data[at], data[at + 1]
        opcode, length = first & 0x0F, second & 0x7F
        self._check_first(first, second, opcode, length)
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

    def _check_first(self, first: int, second: int, opcode: int, length: int) -> None:
        """What two bytes show."""
        reserved = first & RESERVED
        if reserved & ~self._allowed or reserved and opcode != self._opcode:
            raise Broken(PROTOCOL_ERROR, "a reserved bit, and no extension was agreed on that has it (5.2)")
        if not second & MASK:
            raise Broken(PROTOCOL_ERROR, "a frame of a client that is not masked (5.1)")
        if opcode in (TEXT, BINARY) and opcode != self._opcode:
            raise Broken(UNSUPPORTED, "a text frame; packets come in binary frames [MQTT-6.0.0-1]"
                         if opcode == TEXT else "frames are JSON text")
        if opcode not in (CONTINUATION, self._opcode, CLOSE, PING, PONG):
            raise Broken(PROTOCOL_ERROR, f"opcode {opcode} (5.2)")
        if opcode & 0x8 and (length > CONTROL_BYTES_MAX or not first & FIN):
            raise Broken(PROTOCOL_ERROR, "a control frame that is too long or in pieces (5.5)")


class MessageReader:
    """Whole messages of text and control frames. A message has at most `max_bytes`, also once it is decompressed;
    `keeps_window`: whether a client's message may refer to those before it."""

    def __init__(self, max_bytes: int, compressed: bool, keeps_window: bool = True) -> None:
        self._reader = WebSocketReader(TEXT, True, compressed)
        self._max_bytes = max_bytes
        self._keeps_window = keeps_window
        self._inflater = zlib.decompressobj(-WINDOW_BITS) if compressed else None
        self._first = b""                # of a message that is not all there
        self._more = bytearray()         # and what came behind that: no object for each frame

    def feed(self, data: bytes) -> list[bytes | Deflated | Control]:
        """Messages and control frames in their order. Raises Broken, as `WebSocketReader` does."""
        out: list[bytes | Deflated | Control] = []
        for part in self._reader.feed(data):
            if isinstance(part, Control):
                out.append(part)
            elif isinstance(part, bytes):
                if len(self._first) + len(self._more) + len(part) > self._max_bytes:
                    raise self._too_big()
                if self._first:
                    self._more.extend(part)
                else:
                    self._first = part
            else:
                payload = self._first
                if self._more:
                    payload, self._more = b"".join((payload, self._more)), bytearray()
                self._first = b""
                out.append(Deflated(payload) if part.compressed else payload)
        return out

    @property
    def held_bytes(self) -> int:
        """What has come and waits for the rest of its message."""
        return len(self._first) + len(self._more) + self._reader.held_bytes

    def inflate(self, message: Deflated) -> bytes:
        """A message, decompressed. To be asked for each, in their order, and once there is use for it: a thousand times
        as much may come of what was sent. Raises Broken."""
        inflater = self._inflater
        assert inflater is not None, "the reader refuses what is compressed where that was not agreed"
        try:
            whole = inflater.decompress(message.payload + TAIL, self._max_bytes + 1)
        except zlib.error:
            raise Broken(INVALID_PAYLOAD, "what cannot be decompressed (RFC 7692, 7.2.2)") from None
        if len(whole) > self._max_bytes:
            raise self._too_big()
        if not self._keeps_window or inflater.eof:
            self._inflater = zlib.decompressobj(-WINDOW_BITS)
        return whole

    def _too_big(self) -> Broken:
        return Broken(TOO_BIG, f"a message of more than {self._max_bytes} bytes")


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


def encode_text(payload: bytes, window_bits: int = 0) -> bytes:
    """One message of text. `window_bits` as agreed for permessage-deflate, 0 where it was not."""
    if not window_bits or len(payload) < MIN_COMPRESSED_BYTES:
        return encode_head(TEXT, len(payload)) + payload
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, -max(9, window_bits))
    payload = (compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-len(TAIL)]
    return encode_head(TEXT | COMPRESSED, len(payload)) + payload


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
