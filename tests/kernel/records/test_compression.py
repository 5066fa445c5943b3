"""Opening compressed records: every codec, garbage, and what opens to more than is allowed."""
from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.errors import CorruptBatch
from gatehouse.kernel.records.batch import varint
from gatehouse.kernel.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, OpenedTooLarge, decompress
from tests.kernel.packers import PACKERS, java_snappy, snappy, zstd_streamed

LIMIT_BYTES = 1 << 20


every_codec = pytest.mark.parametrize(("codec", "pack"), PACKERS.values(), ids=PACKERS)


@every_codec
@given(data=st.binary(max_size=5_000))
def test_what_was_packed_is_opened(codec: int, pack: Callable[[bytes], bytes], data: bytes) -> None:
    assert decompress(codec, pack(data), LIMIT_BYTES) == data


@every_codec
def test_a_bomb_is_refused_before_it_has_filled_memory(codec: int, pack: Callable[[bytes], bytes]) -> None:
    bomb = pack(bytes(30 * LIMIT_BYTES))
    tracemalloc.start()
    with pytest.raises(OpenedTooLarge):
        decompress(codec, bomb, LIMIT_BYTES)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 8 * LIMIT_BYTES


@every_codec
def test_exactly_the_limit_is_opened(codec: int, pack: Callable[[bytes], bytes]) -> None:
    assert len(decompress(codec, pack(bytes(LIMIT_BYTES)), LIMIT_BYTES)) == LIMIT_BYTES


@every_codec
def test_a_frame_is_whole_and_alone(codec: int, pack: Callable[[bytes], bytes]) -> None:
    """Readers do not agree on what the others say."""
    packed = pack(b"some text " * 500)
    for other in (packed[:-1], packed[:len(packed) // 2], packed + b"\0", packed + packed):
        with pytest.raises(CorruptBatch):
            decompress(codec, other, LIMIT_BYTES)


@pytest.mark.parametrize("blocks", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\5ab", b"\0\0", b"\0\0\0\1"],
                         ids=["zero", "negative", "beyond the end", "half a size", "a size alone"])
def test_blocks_of_java_snappy_with_sizes_that_lie(blocks: bytes) -> None:
    for framed in (b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + blocks, java_snappy(b"good") + blocks):
        with pytest.raises(CorruptBatch):
            decompress(SNAPPY, framed, LIMIT_BYTES)


def test_snappy_allocates_nothing_that_so_few_bytes_cannot_hold() -> None:
    claimed = varint(LIMIT_BYTES // 2)                        # a zigzag number: read without its sign, LIMIT_BYTES
    tracemalloc.start()
    with pytest.raises(CorruptBatch, match="claim to hold"):
        decompress(SNAPPY, claimed + bytes(100), LIMIT_BYTES)
    assert tracemalloc.get_traced_memory()[1] < LIMIT_BYTES // 4
    tracemalloc.stop()
    assert decompress(SNAPPY, snappy(bytes(LIMIT_BYTES)), LIMIT_BYTES) == bytes(LIMIT_BYTES), "the densest there is"


def test_a_zstd_frame_of_empty_blocks_is_not_followed_for_ever() -> None:
    packed = zstd_streamed(b"")
    head = packed[:packed.index(b"\1\0\0")]
    assert decompress(ZSTD, head + b"\0\0\0" * 1_000 + b"\1\0\0", LIMIT_BYTES) == b""
    with pytest.raises(CorruptBatch):
        decompress(ZSTD, head + b"\0\0\0" * 20_000 + b"\1\0\0", LIMIT_BYTES)


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
