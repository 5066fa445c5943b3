"""Numbers, texts and byte strings of the protocol: read with a look at every length, and written. Pure.

Numbers are big-endian; a text is UTF-8 behind its length (u16), bytes stand behind theirs (u32).
"""
from __future__ import annotations

import struct
from typing import Final

from gatehouse.relay.errors import BadFrame

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_I64: Final = struct.Struct(">q")

MAX_TEXT: Final = 65_535


class Fields:
    """Reads one frame from its start to its end. Raises BadFrame."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def take(self, length: int) -> bytes:
        """So many bytes."""
        end = self._at + length
        if end > len(self._data):
            raise BadFrame(f"a frame of {len(self._data)} bytes ends inside a field of {length}")
        taken = self._data[self._at:end]
        self._at = end
        return taken

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        value: int = _U16.unpack(self.take(2))[0]
        return value

    def u32(self) -> int:
        value: int = _U32.unpack(self.take(4))[0]
        return value

    def u64(self) -> int:
        value: int = _U64.unpack(self.take(8))[0]
        return value

    def i64(self) -> int:
        value: int = _I64.unpack(self.take(8))[0]
        return value

    def text(self) -> str:
        raw = self.take(self.u16())
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise BadFrame("a text is not UTF-8") from None

    def body(self) -> bytes:
        """Bytes behind their length."""
        return self.take(self.u32())

    def count(self, least_bytes: int) -> int:
        """How many entries of at least so many bytes follow: never more than there is room for."""
        count = self.u32()
        if count * least_bytes > self.left:
            raise BadFrame(f"a frame claims {count} entries and has no room for them")
        return count

    @property
    def left(self) -> int:
        """Bytes that are not read."""
        return len(self._data) - self._at

    def rest(self) -> bytes:
        return self.take(self.left)

    def end(self) -> None:
        """There is nothing left. Raises BadFrame."""
        if self.left:
            raise BadFrame(f"{self.left} bytes are left behind a frame")


def u8(value: int) -> bytes:
    return bytes((value,))


def u16(value: int) -> bytes:
    return _U16.pack(value)


def u32(value: int) -> bytes:
    return _U32.pack(value)


def u64(value: int) -> bytes:
    return _U64.pack(value)


def i64(value: int) -> bytes:
    return _I64.pack(value)


def text(value: str) -> bytes:
    """Raises BadFrame where it is longer than a frame can say."""
    raw = value.encode()
    if len(raw) > MAX_TEXT:
        raise BadFrame(f"a text of {len(raw)} bytes is longer than a frame can say")
    return _U16.pack(len(raw)) + raw


def body(value: bytes) -> bytes:
    return _U32.pack(len(value)) + value
