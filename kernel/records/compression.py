"""Opening compressed record batches: one frame, whole, with nothing behind it, and never more than a limit comes out.

A kilobyte can claim a gigabyte, so a claim is only ever taken as a reason to refuse: what is allocated is bounded by
the limit, and for snappy, whose blocks state their size in front, by what so many bytes can hold at most. Frames that
end early, and bytes behind the last one, are refused: readers do not agree on what such data says.
"""
from __future__ import annotations

import zlib
from typing import Final

import cramjam
import lz4.frame
import zstandard

from gatehouse.kernel.errors import CorruptBatch

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)      # the low three bits of a batch's attributes

SNAPPY_RATIO: Final = 22                      # a block's densest element: 64 bytes in three
MAX_ZSTD_BLOCKS: Final = 1 << 14              # of a frame: packers fill blocks of 128 KiB; empty ones only cost time
RUN_BLOCK: Final = 1                          # a block of one byte, repeated
CHECKSUM_BYTES: Final = 4

_XERIAL = b"\x82SNAPPY\0"      # Java clients frame snappy: magic, two versions, then length-prefixed blocks
_XERIAL_HEADER_BYTES = 16
_XERIAL_VERSIONS = b"\0\0\0\x01\0\0\0\x01"
_XERIAL_BLOCK_BYTES = 32 << 10

GZIP_LEVEL: Final = 1                         # the hub's own packing is of a batch now and then, while others wait


class OpenedTooLarge(CorruptBatch):
    """More comes out than the limit of whoever opens it."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"compressed records are larger than {limit_bytes} bytes when opened")


def decompress(codec: int, data: bytes, limit_bytes: int) -> bytes:
    """The records behind a batch's header. Raises CorruptBatch for garbage, frames that are cut off or followed by
    something, and an unknown codec; OpenedTooLarge for more than the limit."""
    try:
        if codec == NONE:
            return data
        if codec == GZIP:
            gzip = zlib.decompressobj(31)
            return _whole(gzip.decompress(data, limit_bytes + 1), limit_bytes, gzip.eof, gzip.unused_data)
        if codec == SNAPPY:
            return _snappy(data, limit_bytes)
        if codec == LZ4:
            frame = lz4.frame.LZ4FrameDecompressor()
            return _whole(frame.decompress(data, limit_bytes + 1), limit_bytes, frame.eof, frame.unused_data)
        if codec == ZSTD:
            return _zstd(data, limit_bytes)
    except (zlib.error, RuntimeError, EOFError, zstandard.ZstdError, cramjam.DecompressionError, ValueError) as error:
        raise CorruptBatch(f"compressed records do not decompress: {error}") from None
    raise CorruptBatch(f"unknown compression codec {codec}")


def compress(codec: int, data: bytes, like: bytes) -> bytes:
    """Records packed as `like` is, which somebody packed with the same codec: what reads that reads this."""
    if codec == GZIP:
        gzip = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 31)
        return gzip.compress(data) + gzip.flush()
    if codec == SNAPPY:
        if not like.startswith(_XERIAL):
            return bytes(cramjam.snappy.compress_raw(data))
        blocks = [bytes(cramjam.snappy.compress_raw(data[at:at + _XERIAL_BLOCK_BYTES]))
                  for at in range(0, len(data), _XERIAL_BLOCK_BYTES)]
        return b"".join([_XERIAL, _XERIAL_VERSIONS, *[len(block).to_bytes(4, "big") + block for block in blocks]])
    if codec == LZ4:                          # Java reads frames of independent blocks alone
        return bytes(lz4.frame.compress(data, block_linked=False))
    assert codec == ZSTD, "it was opened before"
    return zstandard.ZstdCompressor().compress(data)


def _whole(out: bytes, limit_bytes: int, ended: bool, behind: bytes | None) -> bytes:
    """What came out of one frame, if that is all that there was."""
    if len(out) > limit_bytes:
        raise OpenedTooLarge(limit_bytes)
    if not ended or behind:
        raise CorruptBatch("compressed records are cut off" if not ended else "something follows compressed records")
    return out


def _zstd(data: bytes, limit_bytes: int) -> bytes:
    if not data.startswith(zstandard.FRAME_HEADER) or _zstd_end(data) != len(data):
        raise CorruptBatch("compressed records are not one frame of zstd, whole and alone")
    if zstandard.frame_content_size(data) > limit_bytes:     # -1: the frame does not say
        raise OpenedTooLarge(limit_bytes)
    try:
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=limit_bytes)
    except zstandard.ZstdError:
        # The library does not tell a frame that is too large from one that is damaged.
        with zstandard.ZstdDecompressor().stream_reader(data) as reader:
            if len(reader.read(limit_bytes + 1)) > limit_bytes:
                raise OpenedTooLarge(limit_bytes) from None
        raise


def _zstd_end(data: bytes) -> int:
    """Where the frame ends by the lengths of its blocks; -1 where that is not within the data.

    Source: https://datatracker.ietf.org/doc/html/rfc8878#section-3.1.1
    """
    at = zstandard.frame_header_size(data)
    for _ in range(MAX_ZSTD_BLOCKS):
        head = int.from_bytes(data[at:at + 3], "little")
        at += 4 if head >> 1 & 3 == RUN_BLOCK else 3 + (head >> 3)
        if at > len(data):
            return -1
        if head & 1:                                         # the last one
            return at + CHECKSUM_BYTES if zstandard.get_frame_parameters(data).has_checksum else at
    return -1


def _snappy(data: bytes, limit_bytes: int) -> bytes:
    if not data.startswith(_XERIAL):
        return _snappy_block(data, limit_bytes)
    out, at = [], _XERIAL_HEADER_BYTES
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], "big")
        start, at = at + 4, at + 4 + size
        if not size or at > len(data):
            raise CorruptBatch(f"a snappy block claims {size} bytes")
        block = _snappy_block(data[start:at], limit_bytes)
        limit_bytes -= len(block)
        out.append(block)
    if at > len(data):
        raise CorruptBatch("compressed records are cut off")
    return b"".join(out)


def _snappy_block(data: bytes, limit_bytes: int) -> bytes:
    claimed_bytes = cramjam.snappy.decompress_raw_len(data)
    if claimed_bytes > limit_bytes:
        raise OpenedTooLarge(limit_bytes)
    if claimed_bytes > SNAPPY_RATIO * len(data):
        raise CorruptBatch(f"{len(data)} bytes of snappy claim to hold {claimed_bytes}")
    return bytes(cramjam.snappy.decompress_raw(data))
