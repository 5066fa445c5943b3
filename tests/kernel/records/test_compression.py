"""Opening compressed records: every codec, garbage, and what opens to more than is allowed."""
from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kernel.errors import CorruptBatch
from kernel.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, decompress

LIMIT_BYTES = 1 << 20


def gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
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
every_codec = pytest.mark.parametrize(("codec", "pack"), PACKERS.values(), ids=PACKERS)


@every_codec
@given(data=st.binary(max_size=5_000))
def test_what_was_packed_is_opened(codec: int, pack: Callable[[bytes], bytes], data: bytes) -> None:
    assert decompress(codec, pack(data), LIMIT_BYTES) == data


@every_codec
def test_a_bomb_is_refused_before_it_has_filled_memory(codec: int, pack: Callable[[bytes], bytes]) -> None:
    bomb = pack(bytes(30 * LIMIT_BYTES))
    tracemalloc.start()
    with pytest.raises(CorruptBatch):
        decompress(codec, bomb, LIMIT_BYTES)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 8 * LIMIT_BYTES


@every_codec
def test_exactly_the_limit_is_opened(codec: int, pack: Callable[[bytes], bytes]) -> None:
    assert len(decompress(codec, pack(bytes(LIMIT_BYTES)), LIMIT_BYTES)) == LIMIT_BYTES


@every_codec
@given(data=st.data())
def test_cut_or_damaged_is_refused_or_opened_within_the_limit(codec: int, pack: Callable[[bytes], bytes],
                                                              data: st.DataObject) -> None:
    packed = bytearray(pack(b"some text " * 50))
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(packed[:data.draw(st.integers(0, len(packed)))])
    try:
        assert len(decompress(codec, damaged, LIMIT_BYTES)) <= LIMIT_BYTES
    except CorruptBatch:
        pass


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@given(data=st.binary(max_size=200))
def test_garbage_is_refused_or_opened_within_the_limit(codec: int, data: bytes) -> None:
    for garbage in (data, b"\x82SNAPPY\0" + data):
        try:
            assert len(decompress(codec, garbage, LIMIT_BYTES)) <= LIMIT_BYTES
        except CorruptBatch:
            pass


def test_nothing_and_unknown_codecs() -> None:
    assert decompress(NONE, b"as it is", LIMIT_BYTES) == b"as it is"
    for codec in (5, 6, 7):
        with pytest.raises(CorruptBatch):
            decompress(codec, b"", LIMIT_BYTES)
