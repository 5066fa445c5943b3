"""Every way in which clients compress the records of a batch."""
from __future__ import annotations

import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import zstandard

from gatehouse.kernel.records.compression import GZIP, LZ4, SNAPPY, ZSTD


def gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


def stored(data: bytes) -> bytes:
    """gzip that is as large as what is in it."""
    packer = zlib.compressobj(0, wbits=31)
    return packer.compress(data) + packer.flush()


def snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def java_snappy(data: bytes) -> bytes:
    """Framed as Java's clients do: blocks behind their lengths."""
    blocks = [snappy(data[at:at + 1_000]) for at in range(0, len(data), 1_000)]
    return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


def zstd_streamed(data: bytes) -> bytes:
    """Without the size of the contents in front, as streaming producers write it."""
    packer = zstandard.ZstdCompressor().compressobj()
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, gzip), "snappy": (SNAPPY, snappy), "java snappy": (SNAPPY, java_snappy),
    "lz4": (LZ4, lz4.frame.compress), "zstd": (ZSTD, zstandard.ZstdCompressor().compress),
    "zstd streamed": (ZSTD, zstd_streamed)}
