"""Opening compressed record batches, always with a bound on what comes out: a kilobyte can claim a gigabyte."""
from __future__ import annotations

import zlib

import cramjam
import lz4.frame
import zstandard

from kernel.errors import CorruptBatch

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)      # the low three bits of a batch's attributes

_XERIAL = b"\x82SNAPPY\0"      # Java clients frame snappy: magic, two versions, then length-prefixed blocks
_XERIAL_HEADER_BYTES = 16


def decompress(codec: int, data: bytes, limit_bytes: int) -> bytes:
    """The records behind a batch's header. Raises CorruptBatch for garbage, an unknown codec or more than the limit."""
    try:
        if codec == NONE:
            return data
        if codec == GZIP:
            return _bounded(zlib.decompressobj(31).decompress(data, limit_bytes + 1), limit_bytes)
        if codec == SNAPPY:
            return _snappy(data, limit_bytes)
        if codec == LZ4:
            return _bounded(lz4.frame.LZ4FrameDecompressor().decompress(data, limit_bytes + 1), limit_bytes)
        if codec == ZSTD:
            with zstandard.ZstdDecompressor().stream_reader(data) as reader:
                return _bounded(reader.read(limit_bytes + 1), limit_bytes)
    except (zlib.error, RuntimeError, EOFError, zstandard.ZstdError, cramjam.DecompressionError, ValueError) as error:
        raise CorruptBatch(f"compressed records do not decompress: {error}") from None
    raise CorruptBatch(f"unknown compression codec {codec}")


def _bounded(out: bytes, limit_bytes: int) -> bytes:
    if len(out) > limit_bytes:
        raise CorruptBatch(f"compressed records are larger than {limit_bytes} bytes when opened")
    return out


def _snappy(data: bytes, limit_bytes: int) -> bytes:
    if not data.startswith(_XERIAL):
        return _snappy_block(data, limit_bytes)
    out, at = [], _XERIAL_HEADER_BYTES
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], "big")
        block = _snappy_block(data[at + 4:at + 4 + size], limit_bytes)
        limit_bytes -= len(block)
        out.append(block)
        at += 4 + size
    return b"".join(out)


def _snappy_block(data: bytes, limit_bytes: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > limit_bytes:
        raise CorruptBatch(f"compressed records are larger than {limit_bytes} bytes when opened")
    return bytes(cramjam.snappy.decompress_raw(data))
