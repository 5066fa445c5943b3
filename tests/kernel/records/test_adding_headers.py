"""A header more in some records of a producer's batch: every codec, and nothing else is changed."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.message import Headers, Piece
from gatehouse.kernel.records.batch import HEADER_BYTES, check_batch, encode_header, records_of
from gatehouse.kernel.records.compression import SNAPPY
from gatehouse.kernel.records.validation import InBatch, validate, with_contexts, with_headers
from tests.kernel.batches import batch_of
from tests.kernel.hostile import BASE_MS, TEN, WAYS, Way
from tests.kernel.packers import java_snappy

every_way = pytest.mark.parametrize("way", [Way(*way) for way in WAYS.values()], ids=WAYS)
MAYBE = st.none() | st.binary(max_size=5)
HEADERS = st.lists(st.tuples(st.binary(max_size=5), MAYBE), max_size=3).map(tuple)
MESSAGES = st.lists(st.tuples(MAYBE, st.none() | st.binary(max_size=200), HEADERS), min_size=1, max_size=20)


def read(batch: bytes, count: int) -> list[tuple[int, int, bytes | None, bytes | None, Headers]]:
    return [record[:5] for record in records_of(Piece(0, count, True, batch, 0, BASE_MS, 0))]


@every_way
def test_only_the_records_that_are_wanted_have_it(way: Way) -> None:
    batch = way.batch(TEN, 10)
    looked: list[InBatch] = []

    def extra(record: InBatch) -> bytes:
        looked.append(record)
        return encode_header(b"n", b"%d" % record.at)

    opened = validate(batch, check_batch(batch), 1 << 20, False).opened_bytes
    made, header = with_headers(batch, check_batch(batch), [0, 4, 9], opened, extra)
    assert check_batch(made) == header and header.attributes == check_batch(batch).attributes
    validate(made, header, 1 << 20, False)
    assert read(made, 10) == [(*record[:4], ((b"n", b"%d" % record[0]),) if record[0] in (0, 4, 9) else ())
                              for record in read(batch, 10)]
    assert [(record.at, record.key, record.headers) for record in looked] == [(at, b"k", ()) for at in (0, 4, 9)]


@given(messages=MESSAGES, data=st.data())
def test_whatever_is_in_it_stays(messages: list[tuple[bytes | None, bytes | None, Headers]], data: st.DataObject
                                 ) -> None:
    batch = batch_of(messages, producer_id=7, sequence=3)
    indexes = data.draw(st.sets(st.integers(0, len(messages) - 1)).map(sorted))
    made, header = with_headers(batch, check_batch(batch), indexes, len(batch), lambda _: encode_header(b"new", b"1"))
    assert (header.producer_id, header.base_sequence, header.record_count) == (7, 3, len(messages))
    assert read(made, len(messages)) == [
        (*record[:4], (*record[4], (b"new", b"1")) if record[0] in indexes else record[4])
        for record in read(batch, len(messages))]


def test_nothing_to_add_leaves_the_batch_as_it_is() -> None:
    batch = batch_of([(b"k", b"v", ())])
    assert with_headers(batch, check_batch(batch), [0], len(batch), lambda _: None)[0] is batch


def test_snappy_keeps_the_framing_that_its_producer_used() -> None:
    for pack, framed in ((java_snappy, True), (Way(*WAYS["snappy"]).pack, False)):
        batch = Way(SNAPPY, pack).batch(TEN, 10)
        made, _ = with_headers(batch, check_batch(batch), [1], 1 << 20, lambda _: encode_header(b"n", b"1"))
        assert made[HEADER_BYTES:].startswith(b"\x82SNAPPY\0") is framed


def test_what_was_opened_has_it_too_and_a_receipt_its_trace() -> None:
    batch = batch_of([(None, b"a", ((b"receipt", b"me"),)), (None, b"b", ())])
    opened = validate(batch, check_batch(batch), 1 << 20, True)
    traced = with_contexts(opened, [0], lambda record: encode_header(b"traceparent", b"00-x"))
    assert traced.records is not None
    assert [record[4] for record in traced.records] == [((b"receipt", b"me"), (b"traceparent", b"00-x")), ()]
    assert traced.asks[0][1].traceparent == b"00-x" and traced.header.crc != opened.header.crc
    assert traced.records == records_of(Piece(0, 2, True, traced.batch, 0, BASE_MS, 0))
