"""RocksDB's list of its files, the manifest: whether every record of it can be read.

RocksDB takes a record that does not end within the manifest for one that a crash cut off. What is behind it was never
written then, and the tables that it lists are deleted. One flipped bit in a length is enough for that, and the store
opens without half of what it had: newer entries would be there and older ones not. So the manifest is looked at first.

    manifest := blocks of 32 KiB; record := crc u32, length u16, type u8, payload, within one block
    crc         CRC-32C of type and payload, masked
"""
from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from crc32c import crc32c

BLOCK_BYTES: Final = 32_768
_HEADER = struct.Struct("<IHB")
_UNUSED: Final = 0                        # room at the end that was made beforehand
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_BEGINS: Final = frozenset((_FULL, _FIRST))
_ENDS: Final = frozenset((_FULL, _LAST))
_TYPES: Final = _BEGINS | _ENDS | {_MIDDLE}


def fault_in_manifest(folder: Path) -> str:  # decision 214
    """What is wrong with the manifest of a store in a folder; "" where nothing is, or where none is. Raises OSError."""
    current = folder / "CURRENT"
    if not current.exists():
        return ""
    manifest = folder / current.read_bytes().decode("ascii", "replace").strip()
    if not manifest.is_file():
        return ""                         # the store says so itself
    return _fault_in(manifest.read_bytes())


def _fault_in(content: bytes) -> str:
    at, inside = 0, False
    while at < len(content):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < _HEADER.size:
            at += left
            continue
        if at + _HEADER.size > len(content):
            return f"the record at {at} of the manifest is cut off"
        crc, length, kind = _HEADER.unpack_from(content, at)
        if kind == _UNUSED and not any(content[at:]):
            break
        start = at + _HEADER.size
        stop = start + length
        if kind not in _TYPES or stop > len(content) or length > left - _HEADER.size:
            return f"the record at {at} of the manifest is no record"
        if _masked(crc32c(content[start - 1:stop])) != crc:
            return f"the record at {at} of the manifest has another checksum"
        if inside is (kind in _BEGINS):
            return f"the record at {at} of the manifest does not follow on the one before"
        inside = kind not in _ENDS
        at = stop
    return "the last record of the manifest has no end" if inside else ""


def _masked(crc: int) -> int:
    """As RocksDB stores checksums, so that one of what holds one is another."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
