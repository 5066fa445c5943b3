"""Unsigned LEB128: numbers in as many bytes as they need, for cursors and places in streams. Pure."""
from __future__ import annotations


def encode_number(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_number(data: bytes, at: int, bits: int) -> tuple[int, int]:
    """A number whose last byte begins below so many bits, and the place after it. Raises ValueError."""
    number = shift = 0
    while at < len(data) and shift < bits:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise ValueError("cut number")
