"""A page that decodes only what it gives is the page that decodes all, whatever producers' batches hold."""
from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.http.page import PageSource, build_page
from gatehouse.kernel.message import Fetched, Piece, Record
from gatehouse.kernel.records.batch import CONTROL, sound_records
from tests.kernel.batches import encode_record, wrap


@st.composite
def pieces(draw: st.DrawFn) -> list[Piece]:
    """Pieces behind each other, some with a gap before them, some broken, some a control batch."""
    drawn: list[Piece] = []
    offset = draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 4))):
        offset += draw(st.sampled_from([0, 0, 0, 2]))
        count = draw(st.integers(1, 6))
        records = b"".join([encode_record(number, b"k", b"v" * number) for number in range(count)])
        kind = draw(st.sampled_from(["bare", "bare", "whole", "control"]))
        data = records if kind == "bare" else wrap(records, count, codec=CONTROL if kind == "control" else 0)
        for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
            at = draw(st.integers(len(data) - len(records), len(data) - 1))
            data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1:]
        drawn.append(Piece(offset, count, kind != "bare", data, 1000, 1000, 100 + offset))
        offset += count
    return drawn


@given(of_each=st.lists(pieces(), min_size=1, max_size=3), position=st.integers(0, 12), start=st.integers(0, 5),
       max_messages=st.integers(1, 12), max_bytes=st.integers(1, 40), compacted=st.booleans(), some=st.booleans())
def test_it_makes_no_difference(of_each: list[list[Piece]], position: int, start: int, max_messages: int,
                                max_bytes: int, compacted: bool, some: bool) -> None:
    sources = [PageSource(partition, position, Fetched(partition, None, start, 1000, found), compacted)
               for partition, found in enumerate(of_each)]
    selects: Callable[[Record], bool] | None = (lambda record: record[0] % 2 == 0) if some else None
    page = build_page(sources, max_messages, max_bytes, selects)
    assert page == build_page(sources, max_messages, max_bytes, selects, sound_records)
