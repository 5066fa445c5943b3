"""Record batches: checked, placed, opened, made; against another implementation's."""
from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.errors import CorruptBatch, UnsupportedBatch
from gatehouse.kernel.message import Piece
from gatehouse.kernel.records.batch import HEADER_BYTES, as_batch, check_batch, cut, read_header, records_of
from tests.kernel.batches import batch_of, encode_record, wrap
from tests.kernel.records.placing import placed

GOOD = batch_of([(b"k", b"first", ()), (None, b"second", ((b"h", None),))], 7, 3)
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def built(codec: int, count: int = 20) -> bytes:
    """A batch made by aiokafka."""
    builder = DefaultRecordBatchBuilder(magic=2, compression_type=codec, is_transactional=False, producer_id=9,
                                        producer_epoch=1, base_sequence=5, batch_size=1 << 20)
    for i in range(count):
        assert builder.append(i, 1_000 + i, b"key-%d" % i, b"value " * 50, [("header", b"%d" % i), ("none", None)])
    return bytes(builder.build())


def whole(batch: bytes, count: int, first_offset: int = 0) -> Piece:
    return Piece(first_offset, count, True, batch, 0, 0, 50)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_batch_of_another_implementation_is_accepted_and_opened(codec: int) -> None:
    batch = built(codec)
    header = check_batch(batch)
    assert (header.record_count, header.producer_id, header.producer_epoch, header.base_sequence) == (20, 9, 1, 5)
    records = records_of(whole(placed(batch, 300, 4), 20, 300))
    assert records == [(300 + i, 1_000 + i, b"key-%d" % i, b"value " * 50, ((b"header", b"%d" % i), (b"none", None)), 0,
                        50 + i) for i in range(20)]


def test_a_place_lies_outside_the_crc() -> None:
    moved = placed(GOOD, 1_234, 56)
    header = check_batch(moved)
    assert (header.base_offset, header.leader_epoch) == (1_234, 56) and moved[17:] == GOOD[17:]


keys_and_values = st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=50))


@given(st.lists(keys_and_values, min_size=1, max_size=9), st.integers(0, 1 << 40), st.integers(0, 1 << 41))
def test_bare_records_become_a_batch_that_another_implementation_reads(
        messages: list[tuple[bytes | None, bytes | None]], first_offset: int, append_ms: int) -> None:
    records = b"".join(encode_record(i, key, value) for i, (key, value) in enumerate(messages))
    batch = as_batch(Piece(first_offset, len(messages), False, records, append_ms, append_ms + 5, 1), 3)
    check_batch(batch)
    theirs = DefaultRecordBatch(batch)
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value) for r in theirs] == [
        (first_offset + i, append_ms, key, value) for i, (key, value) in enumerate(messages)]


@pytest.mark.parametrize("at", range(len(GOOD)))
def test_a_flipped_bit_is_refused_or_lies_outside_the_crc(at: int) -> None:
    damaged = bytearray(GOOD)
    damaged[at] ^= 1
    if at < 8 or 12 <= at < 16:          # base offset and leader epoch
        check_batch(bytes(damaged))
    else:
        with pytest.raises((CorruptBatch, UnsupportedBatch)):
            check_batch(bytes(damaged))


@given(st.binary(max_size=200))
def test_garbage_is_refused_as_garbage(data: bytes) -> None:
    with pytest.raises((CorruptBatch, UnsupportedBatch)):
        check_batch(data)


@given(st.binary(max_size=100), st.integers(0, 7), st.integers(1, 5))
def test_what_is_behind_a_good_crc_may_be_garbage_all_the_same(records: bytes, codec: int, count: int) -> None:
    batch = wrap(records, count, codec=codec)
    check_batch(batch)
    try:
        records_of(whole(batch, count))
    except CorruptBatch:
        pass


def test_formats_and_counts_that_are_not_stored() -> None:
    with pytest.raises(UnsupportedBatch):
        check_batch(GOOD[:16] + b"\1" + GOOD[17:])
    with pytest.raises(UnsupportedBatch):
        check_batch(wrap(b"", 1, codec=0x20))
    with pytest.raises(CorruptBatch):
        check_batch(wrap(b"", 0))
    with pytest.raises(CorruptBatch):
        read_header(GOOD[:HEADER_BYTES - 1])


def test_control_batches_have_no_messages_and_log_append_time_counts_for_all() -> None:
    assert records_of(whole(wrap(b"\0", 1, codec=0x20), 1)) == []
    stamped = wrap(encode_record(0, None, b"v", delta_ms=5), 1, codec=0x08, base_ms=10, max_ms=99)
    assert records_of(whole(stamped, 1))[0][1] == 99


@pytest.mark.parametrize("is_whole", (True, False), ids=("a batch", "bare records"))
@pytest.mark.parametrize("max_bytes", (1, 500, 1_000))
def test_the_parts_of_a_piece_hold_its_records(is_whole: bool, max_bytes: int) -> None:
    batch = placed(built(0), 300, 4)
    piece = whole(batch, 20, 300) if is_whole else Piece(300, 20, False, batch[HEADER_BYTES:], 7, 9, 50)
    parts = cut(piece, max_bytes)
    assert [record for part in parts for record in records_of(part)] == records_of(piece)
    sizes = [len(part.data) - HEADER_BYTES * is_whole for part in parts]
    assert len(parts) > 5 and all(size <= max_bytes or part.count == 1 for size, part in zip(sizes, parts, strict=True))
    assert {(part.append_ms, part.max_timestamp_ms, part.whole) for part in parts} == {
        (piece.append_ms, piece.max_timestamp_ms, is_whole)}
    if is_whole:
        headers = [check_batch(part.data) for part in parts]
        assert [header.base_offset for header in headers] == [part.first_offset for part in parts]
        assert {(header.producer_id, header.leader_epoch, header.attributes) for header in headers} == {(9, 4, 0)}


def test_what_is_compressed_or_makes_no_sense_is_not_cut() -> None:
    records = built(0)[HEADER_BYTES:]
    for piece in (whole(built(4, 2_000), 2_000), whole(GOOD, 2), Piece(0, 20, False, records[:-1], 0, 0, 1),
                  Piece(0, 21, False, records, 0, 0, 1), Piece(0, 2, False, b"\xff" * 2_000, 0, 0, 1)):
        assert cut(piece, 200) == [piece]
