"""Records found in columns are those that the kernel's own reader finds, whatever the pieces are."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.message import Piece
from gatehouse.kernel.records.batch import CONTROL, LOG_APPEND_TIME, encode_headers, records_of
from gatehouse.kernel.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from gatehouse.spark import records
from gatehouse.spark.records import Located, locate
from tests.kernel import poison
from tests.kernel.groups.test_claims import little_memory
from tests.spark.pieces import NOW_MS, Row, batch_of, heads_of, run_of

KEYS = st.one_of(st.none(), st.binary(max_size=200))
HEADERS = st.lists(st.tuples(st.binary(max_size=9), KEYS), max_size=3).map(tuple)
ROWS = st.lists(st.tuples(KEYS, KEYS, HEADERS, st.integers(0, 127), st.integers(-9000, 1 << 40)), min_size=1,
                max_size=90)
CODECS = st.sampled_from((None, NONE, GZIP, SNAPPY, LZ4, ZSTD))
PIECES = st.lists(st.tuples(ROWS, CODECS, st.sampled_from((0, LOG_APPEND_TIME))), max_size=5)


def shown(found: Located) -> list[tuple[object, ...]]:
    """As the kernel shows records: offset, time, key, value, header block, attributes, id; and the append time."""
    buffer = found.buffer

    def cut(at: int, length: int) -> bytes | None:
        return None if length < 0 else buffer[at:at + length]

    return [(int(found.offset[i]), int(found.timestamp_ms[i]), cut(found.key_at[i], found.key_length[i]),
             cut(found.value_at[i], found.value_length[i]), buffer[found.headers_at[i]:found.end[i]],
             int(found.attributes[i]), int(found.message_id[i]), int(found.append_ms[i])) for i in range(len(found))]


def expected(pieces: list[Piece]) -> list[tuple[object, ...]]:
    return [(offset, time_ms, key, value, encode_headers(headers), attributes, message_id, piece.append_ms)
            for piece in pieces for offset, time_ms, key, value, headers, attributes, message_id in records_of(piece)]


@given(PIECES)
def test_records_are_those_of_the_kernel(parts: list[tuple[list[Row], int | None, int]]) -> None:
    pieces: list[Piece] = []
    for rows, codec, attributes in parts:
        at = sum(piece.count for piece in pieces)
        pieces.append(run_of(rows, at, 1000 + at) if codec is None else
                      batch_of(rows, at, 1000 + at, codec, attributes))
    parts = list(locate(heads_of(*pieces)))
    assert not any(unreadable for _, unreadable in parts)
    assert [row for found, _ in parts for row in shown(found)] == expected(pieces)


@given(ROWS, st.data())
def test_damaged_records_are_told_and_the_others_are_read(rows: list[Row], draw: st.DataObject) -> None:
    good, bad = batch_of(rows, 0, 0), run_of(rows, len(rows), len(rows))
    at = draw.draw(st.integers(0, len(bad.data) - 1))
    bad.data = bad.data[:at] + bytes((draw.draw(st.integers(0, 255)),)) + bad.data[at + 1:]
    after = run_of(rows, 2 * len(rows), 2 * len(rows))
    found, unreadable = next(locate(heads_of(good, bad, after)))
    told = [offset for one in unreadable for offset in range(one.first_offset, one.first_offset + one.count)]
    assert set(told) <= set(range(len(rows), 2 * len(rows)))
    assert sorted([*found.offset.tolist(), *told]) == list(range(3 * len(rows)))
    assert shown(found)[:len(rows)] == expected([good])
    assert shown(found)[-len(rows):] == expected([after])


def test_a_batch_that_claims_too_much_is_not_walked() -> None:
    piece = batch_of([(None, b"v", (), 0, 0)])
    count = (1 << 31) - 1
    piece.data = piece.data[:57] + count.to_bytes(4, "big") + piece.data[61:]
    piece.count = count
    found, unreadable = next(locate(heads_of(piece)))
    assert len(found) == 1
    assert [(one.first_offset, one.count) for one in unreadable] == [(1, count - 1)]


def test_a_batch_that_does_not_decompress_is_told() -> None:
    piece = batch_of([(None, b"v" * 500, (), 0, 0)], codec=ZSTD)
    piece.data = piece.data[:70] + b"garbage" + piece.data[77:]
    found, unreadable = next(locate(heads_of(piece, run_of([(b"k", b"v", (), 2, 0)], 1, 1))))
    assert [one.first_offset for one in unreadable] == [0]
    assert len(found) == 1


def test_what_is_opened_at_one_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_PART_BYTES", 5_000)
    rows: list[Row] = [(b"k", b"v" * 2_000, (), 0, 0)] * 2
    pieces = [batch_of(rows, 2 * i, 2 * i, ZSTD) for i in range(7)]
    pieces.insert(3, run_of(rows, 100, 100))
    parts = [found for found, _ in locate(heads_of(*pieces))]
    assert len(parts) == 4
    assert max(len(found.buffer) for found in parts) < 20_000
    assert [row for found in parts for row in shown(found)] == expected(pieces)


def test_control_batches_have_no_rows() -> None:
    found, unreadable = next(locate(heads_of(batch_of([(b"k", b"v", (), 0, 0)], attributes=CONTROL))))
    assert (len(found), unreadable) == (0, [])


@pytest.mark.parametrize("count", [1, 3, 64, 65, 9000])
def test_runs_of_any_length(count: int) -> None:
    rows: list[Row] = [(b"k%d" % i, b"v" * (i % 300), (), 2, 0) for i in range(count)]
    piece = run_of(rows, 7, 70)
    assert shown(next(locate(heads_of(piece)))[0]) == expected([piece])
    assert NOW_MS == next(locate(heads_of(piece)))[0].timestamp_ms[0]


@pytest.mark.parametrize(("batch", "count", "sound", "gaps"), [
    (poison.lying(), poison.CLAIMED, list(range(10)), [(10, poison.CLAIMED - 10)]),
    (poison.broken_in_the_middle(poison.SENSELESS), 7, [0, 1, 2, 4, 5, 6], [(3, 1)]),
    (poison.broken_in_the_middle(poison.ENDLESS), 7, [0, 1, 2], [(3, 4)]),
    (poison.garbage(), 5, [], [(0, 5)]), (poison.lying_deltas(), 3, [0, 1, 2], [])])
def test_a_batch_that_lies_gives_what_is_sound_in_it(batch: bytes, count: int, sound: list[int],
                                                     gaps: list[tuple[int, int]]) -> None:
    piece = Piece(0, count, True, batch, NOW_MS, NOW_MS, 100)
    after = run_of([(b"k", b"v", (), 2, 0)], count, 100 + count)
    with little_memory():
        found, unreadable = next(locate(heads_of(piece, after)))
    assert found.offset.tolist() == [*sound, count]
    assert found.message_id.tolist() == [100 + offset for offset in (*sound, count)]
    assert [(one.first_offset, one.count) for one in unreadable] == gaps


@given(PIECES)
def test_records_lie_in_the_buffer_in_the_order_of_their_offsets(parts: list[tuple[list[Row], int | None, int]]
                                                                 ) -> None:
    """Whichever of them were compressed: columns are gathered in one pass."""
    pieces: list[Piece] = []
    for rows, codec, attributes in parts:
        at = sum(piece.count for piece in pieces)
        pieces.append(run_of(rows, at, at) if codec is None else batch_of(rows, at, at, codec, attributes))
    for found, _ in locate(heads_of(*pieces)):
        assert (found.end[:-1] <= found.value_at[1:]).all()
