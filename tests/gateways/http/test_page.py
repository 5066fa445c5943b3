"""Pages: order across partitions, limits, and what cannot be given. The cursor has one written form, and garbage is
told apart.
"""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.http.page import (
    MAX_CURSOR_CHARS,
    MAX_PARTITIONS,
    Cursor,
    PageSource,
    build_page,
    decode_cursor,
    encode_cursor,
    note_unreadable,
)
from gatehouse.kernel.message import Fetched, Piece
from gatehouse.kernel.records.batch import CONTROL, varint
from tests.kernel import poison
from tests.kernel.batches import encode_record, wrap
from tests.kernel.rig import Rig

# --- the page -----------------------------------------------------------------------------------------------------

def piece(first_offset: int, values: list[bytes], first_id: int) -> Piece:
    records = b""
    for number, value in enumerate(values):
        body = b"\x02" + varint(0) + varint(number) + b"\x01" + varint(len(value)) + value + b"\0"
        records += varint(len(body)) + body
    return Piece(first_offset, len(values), False, records, 1000, 1000, first_id)


def source(partition: int, position: int, *pieces: Piece, start: int = 0) -> PageSource:
    return PageSource(partition, position, Fetched(partition, None, start, 1000, list(pieces)))


def test_pages_follow_the_message_ids() -> None:
    page = build_page([source(0, 0, piece(0, [b"a", b"d"], 1), piece(2, [b"e"], 7)),
                       source(1, 0, piece(0, [b"c"], 4), piece(1, [b"f"], 9))], 4, 1000)
    assert [(partition, record[3]) for partition, record in page.records] == [(0, b"a"), (0, b"d"), (1, b"c"),
                                                                              (0, b"e")]
    assert page.positions == {0: 3, 1: 1}


def test_a_piece_may_begin_before_the_reader() -> None:
    page = build_page([source(0, 2, piece(0, [b"a"], 1), piece(1, [b"b", b"c", b"d"], 2))], 10, 1000)
    assert [record[3] for _, record in page.records] == [b"c", b"d"]
    assert page.positions == {0: 4}


def test_a_page_ends_at_its_bytes_but_gives_one_message() -> None:
    sources = [source(0, 0, piece(0, [b"x" * 100, b"y" * 100], 1))]
    assert len(build_page(sources, 10, 50).records) == 1
    assert build_page(sources, 10, 50).positions == {0: 1}
    assert len(build_page(sources, 10, 101).records) == 2


def test_an_unreadable_batch_is_named_and_stepped_over() -> None:
    broken = Piece(1, 3, False, b"\xff" * 20, 1000, 1000, 5)
    page = build_page([source(0, 0, piece(0, [b"a"], 1), broken, piece(4, [b"b"], 9))], 10, 1000)
    assert [record[3] for _, record in page.records] == [b"a", b"b"]
    assert page.unreadable[0]["offset"] == 1
    assert page.unreadable[0]["count"] == 3
    assert page.unreadable[0]["code"] == "corrupt_batch"
    assert page.positions == {0: 5}
    assert not build_page([source(0, 1, broken)], 10, 1000).empty


def test_a_damaged_range_is_named_and_stepped_over() -> None:
    page = build_page([source(0, 0, piece(0, [b"a"], 1), piece(4, [b"b"], 9), piece(5, [b"c"], 10))], 10, 1000)
    assert [record[0] for _, record in page.records] == [0, 4, 5]
    assert page.unreadable == [{"partition": 0, "offset": 1, "count": 3, "code": "storage_failed",
                                "detail": "the log is damaged there"}]
    assert build_page([source(0, 2, piece(4, [b"b"], 9))], 10, 1000).unreadable[0]["offset"] == 2


def test_a_damaged_end_is_named_and_stepped_over() -> None:
    """A reader whose place stayed before it would ask for ever."""
    damaged = source(0, 5)
    damaged.fetched.next_offset = 9
    page = build_page([damaged], 10, 1000)
    assert page.positions == {0: 9} and not page.empty
    assert page.unreadable == [{"partition": 0, "offset": 5, "count": 4, "code": "storage_failed",
                                "detail": "the log is damaged there"}]


def test_what_retention_took_is_named() -> None:
    page = build_page([source(0, 3, piece(10, [b"a"], 1), start=10)], 10, 1000)
    assert page.lost == [{"partition": 0, "offset": 3, "count": 7}]
    assert [record[0] for _, record in page.records] == [10]
    gone = build_page([source(0, 3, start=10)], 10, 1000)
    assert gone.positions == {0: 10}
    assert not gone.empty


def test_nothing() -> None:
    page = build_page([source(0, 5)], 10, 1000)
    assert page.empty
    assert page.positions == {0: 5}
    assert build_page([], 10, 1000).empty


def stored(batch: bytes, count: int, first_offset: int = 0) -> Piece:
    return Piece(first_offset, count, True, batch, 1000, 1000, first_offset + 1)


def test_what_a_producers_batch_lacks_is_named_between_its_sound_records() -> None:
    pieces = [stored(poison.broken_in_the_middle(poison.SENSELESS), 7), piece(7, [b"b"], 8)]
    page = build_page([source(0, 0, *pieces)], 100, 1000)
    assert [record[0] for _, record in page.records] == [0, 1, 2, 4, 5, 6, 7]
    assert [(told["offset"], told["count"], told["code"]) for told in page.unreadable] == [(3, 1, "corrupt_batch")]
    page = build_page([source(0, 3, *pieces)], 2, 1000)
    assert ([record[0] for _, record in page.records], page.positions) == ([4, 5], {0: 6})
    assert build_page([source(0, 4, *pieces)], 100, 1000).unreadable == []


def test_offsets_that_are_only_claimed_cost_one_line() -> None:
    lying = stored(poison.lying(), poison.CLAIMED)
    page = build_page([source(0, 0, lying, piece(poison.CLAIMED, [b"b"], poison.CLAIMED + 1))], 100, 1000)
    assert [record[0] for _, record in page.records] == [*range(10), poison.CLAIMED]
    assert [(told["offset"], told["count"]) for told in page.unreadable] == [(10, poison.CLAIMED - 10)]
    assert page.positions == {0: poison.CLAIMED + 1}
    assert build_page([source(0, 500, lying)], 100, 1000).unreadable[0]["offset"] == 500


def test_deltas_that_lie_give_no_two_messages_one_offset() -> None:
    page = build_page([source(0, 0, stored(poison.lying_deltas(), 3), stored(poison.lying_deltas(), 3, 3))], 100, 1000)
    assert [record[0] for _, record in page.records] == [0, 1, 2, 3, 4, 5]


def test_a_page_names_no_more_than_it_may_give() -> None:
    records = (encode_record(0, None, b"v") + poison.SENSELESS) * 50
    page = build_page([source(0, 0, stored(wrap(records, 100), 100))], 10, 1000)
    assert (len(page.records), len(page.unreadable), page.positions) == (10, 9, {0: 19})


def test_control_records_are_stepped_over_without_a_word() -> None:
    page = build_page([source(0, 0, stored(wrap(b"\0", 1, codec=CONTROL), 1), piece(1, [b"b"], 2))], 10, 1000)
    assert ([record[0] for _, record in page.records], page.unreadable, page.positions) == ([1], [], {0: 2})


def test_the_kernel_is_told_of_what_batches_lack_and_not_of_a_damaged_log() -> None:
    rig = Rig()
    broken = [stored(poison.broken_in_the_middle(poison.SENSELESS), 7), piece(9, [b"b"], 20)]
    page = build_page([source(0, 0, *broken)], 100, 1000)
    assert len(page.unreadable) == 2
    door: Any = None
    port = rig.kernel.port(door)
    for _ in range(3):
        note_unreadable(port, page, lambda partition: 77)
    assert rig.kernel.statistics()["unreadable_stretches_total"] == 1


# --- the cursor ---------------------------------------------------------------------------------------------------

UUID = bytes(range(16))
CURSOR = Cursor(UUID, None, 1, {0: 17, 1: 0, 2: 1 << 40})
TEXT = encode_cursor(CURSOR)


def test_round_trip() -> None:
    for cursor in (CURSOR, Cursor(UUID, 3, 0, {3: 5}), Cursor(UUID, 0, 0, {0: 0}), Cursor(UUID, None, 0, {})):
        assert decode_cursor(encode_cursor(cursor)) == cursor


def test_is_url_safe() -> None:
    text = encode_cursor(CURSOR)
    assert text.replace("-", "").replace("_", "").isalnum()


def test_the_widest_topic_fits() -> None:
    wide = Cursor(UUID, None, 0, dict.fromkeys(range(MAX_PARTITIONS), (1 << 35) - 1))
    assert len(encode_cursor(wide)) <= MAX_CURSOR_CHARS
    assert decode_cursor(encode_cursor(wide)) == wide


@pytest.mark.parametrize("text", ["", "a", "AAAA", "earliest", "é", "A" * 7000, "=" * 40, "AQ==", " " + TEXT,
                                  TEXT + "=", TEXT[:-1], TEXT.lower()])
def test_garbage(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode_cursor(text)
