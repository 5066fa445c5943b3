"""One file of the log as it lies on the disk: what is in it, and where the whole frames are.

A segment file is named by the position of its first byte:

     0  magic       8 bytes  b"GATESEG1"
     8  base        u64      the position of byte 0, as in the name
    16  crc         u32      CRC-32C of the 16 bytes before
    20  zero        12 bytes
    32  frames, one after another:

     0  magic       4 bytes  b"GHF1"
     4  head_len    u32
     8  body_len    u32
    12  body_crc    u32      CRC-32C of the body
    16  place       u64      the position of this envelope: a stale frame of another time never looks valid
    24  zero        u32
    28  crc         u32      CRC-32C of the 28 bytes before and the head
    32  head, then body

The last segment may end in zeros: room that was allocated ahead, or that a crash left unwritten. No frame begins with
a zero, so they are cut off like any half-written frame.

Numbers are little-endian. The envelope's CRC covers the body's, so a frame is whole or it is not there. The header adds
nothing to what the name and the frames say: one that is wrong is written anew.
"""
from __future__ import annotations

import re
import struct
from typing import Final

from crc32c import crc32c

from gatehouse.kernel.log.disk import ReadFile
from gatehouse.kernel.log.log import Frame

SEGMENT_MAGIC: Final = b"GATESEG1"
FRAME_MAGIC: Final = b"GHF1"
SEGMENT_HEADER_BYTES: Final = 32
ENVELOPE_BYTES: Final = 32
MAX_HEAD_BYTES: Final = 1 << 31            # state records carry values inline
MAX_BODY_BYTES: Final = 1 << 31
READ_WINDOW_BYTES: Final = 1 << 20

_SEGMENT_HEADER = struct.Struct("<8sQI12x")
_ENVELOPE = struct.Struct("<4sIIIQ4x")
_CRC = struct.Struct("<I")
_NAME: Final = re.compile(r"(\d{20})\.log", re.ASCII)


def file_name(base: int) -> str:
    return f"{base:020d}.log"


def base_of(name: str) -> int | None:
    """The base that a file's name says; None where it is no name of a segment."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


def encode_header(base: int) -> bytes:
    crc = crc32c(SEGMENT_MAGIC + struct.pack("<Q", base))
    return _SEGMENT_HEADER.pack(SEGMENT_MAGIC, base, crc)


def encode_envelope(head: bytes, body: bytes, place: int) -> bytes:  # decision 2
    front = _ENVELOPE.pack(FRAME_MAGIC, len(head), len(body), crc32c(body), place)
    return front + _CRC.pack(crc32c(head, crc32c(front)))


class Torn(Exception):
    """What lies here is no whole frame."""


class TornBody(Torn):
    """The head is as it was written, the body is not."""

    def __init__(self, frame: Frame) -> None:
        super().__init__("a frame's body does not match its CRC")
        self.frame = frame


class SegmentReader:
    """Reads a segment file forward through a window, so that a thousand small heads cost one system call."""

    def __init__(self, file: ReadFile, base: int) -> None:
        self.file = file
        self.base = base
        self.size = file.size()
        self._data = b""
        self._at = 0

    def take(self, offset: int, size: int) -> bytes:
        start = offset - self._at
        if start < 0 or start + size > len(self._data):
            self._at, start = offset, 0
            self._data = self.file.read(offset, max(size, READ_WINDOW_BYTES))
        return self._data[start:start + size]

    def has_header(self) -> bool:
        return self.file.read(0, SEGMENT_HEADER_BYTES) == encode_header(self.base)

    def frame(self, at: int, *, check_body: bool) -> Frame:
        """The frame at an offset of the file. Raises Torn, TornBody."""
        envelope = self.take(at, ENVELOPE_BYTES)
        if len(envelope) < ENVELOPE_BYTES:
            raise Torn("cut off within an envelope")
        magic, head_len, body_len, body_crc, place = _ENVELOPE.unpack_from(envelope)
        if magic != FRAME_MAGIC or place != self.base + at or head_len > MAX_HEAD_BYTES or body_len > MAX_BODY_BYTES:
            raise Torn("no frame begins here")
        body_at = at + ENVELOPE_BYTES + head_len
        if body_at + body_len > self.size:
            raise Torn("cut off within a frame")
        head = self.take(at + ENVELOPE_BYTES, head_len)
        if crc32c(head, crc32c(envelope[:28])) != _CRC.unpack_from(envelope, 28)[0]:
            raise Torn("a frame's head does not match its CRC")
        frame = Frame(self.base + body_at, head, self.base + body_at + body_len)
        if check_body and crc32c(self.take(body_at, body_len)) != body_crc:
            raise TornBody(frame)
        return frame

    def next_frame(self, at: int) -> int | None:
        """Where the next whole frame begins, looking byte by byte: lengths before it cannot be trusted."""
        while at < self.size:
            chunk = self.file.read(at, READ_WINDOW_BYTES)
            index = chunk.find(FRAME_MAGIC)
            while index >= 0:
                if self._is_frame(chunk, index, at + index):
                    return at + index
                index = chunk.find(FRAME_MAGIC, index + 1)
            at += max(1, len(chunk) - ENVELOPE_BYTES + 1)
        return None

    def _is_frame(self, chunk: bytes, index: int, at: int) -> bool:
        """Its place is looked at first: a message may hold any number of the four bytes."""
        if index + ENVELOPE_BYTES > len(chunk) or _ENVELOPE.unpack_from(chunk, index)[4] != self.base + at:
            return False
        try:
            self.frame(at, check_body=True)
        except Torn:
            return False
        return True

    def last_byte(self, start: int, stop: int) -> int:
        """Behind the last byte of a range that is not zero; `start` where all of them are."""
        while stop > start:
            at = max(start, stop - READ_WINDOW_BYTES)
            left = self.file.read(at, stop - at).rstrip(b"\0")
            if left:
                return at + len(left)
            stop = at
        return start
