"""The body of a frame: what was laid down as it came is what a reader finds, natively as in plain Python."""
from __future__ import annotations

from array import array
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.message import NOBODY_NUMBER, U32, Origin, Piece
from gatehouse.kernel.records.batch import encode_headers, encode_key, encode_record, records_of
from gatehouse.kernel.write import pending_frame

NOW_MS = 1_700_000_000_000
KEY = encode_key(b"k")

values = st.none() | st.binary(max_size=300)
times = st.sampled_from([0, NOW_MS, NOW_MS - 1, NOW_MS + 70_000_000]) | st.integers(-1 << 60, 1 << 60)
messages = st.tuples(st.integers(0, 9), values, st.sampled_from([b"\0", encode_headers([(b"a", b"b")])]),
                     st.integers(0, 255), times)
stretches = st.tuples(st.integers(0, 3), st.binary(max_size=200).map(encode_key), st.lists(messages, max_size=5))
encoded = st.tuples(st.integers(0, 3), st.integers(-1 << 60, 1 << 60), st.lists(
    st.builds(encode_record, st.integers(0, 255), st.integers(-1 << 60, 1 << 60), st.just(KEY), values,
              st.just(b"\0")), max_size=5))
whole = st.tuples(st.binary(max_size=20), st.binary(max_size=100))


def laid_of(run_stretches: list[Any], batches: list[tuple[bytes, bytes]]) -> pending_frame.Laid:
    laid: pending_frame.Laid = []
    for number, second, third in run_stretches:
        encoded = type(second) is int
        laid += [number, b"", (b"".join(third), second, len(third))] if encoded else [number, second, *third]
    for number, (place, rest) in enumerate(batches, 4):
        laid += [number, None, place, memoryview(rest)]
    return laid


@given(st.lists(stretches | encoded, max_size=8), st.lists(whole, max_size=3), st.binary(max_size=9), st.booleans())
def test_both_ways_make_the_same(run_stretches: list[Any], batches: list[tuple[bytes, bytes]], front: bytes,
                                 with_ends: bool) -> None:
    laid = laid_of(run_stretches, batches)
    count = 4 + len(batches)
    made = pending_frame.encode_body(laid, count, NOW_MS, front, with_ends)
    assert made == pending_frame.encode_plain(laid, count, NOW_MS, front, with_ends)
    assert made[0].startswith(front) and len(made[0]) == len(front) + sum(array("I", made[1]))


AUTHORS = [Origin("mqtt", client=str(number)) for number in range(5)]
authors = st.sampled_from([None, *AUTHORS])


@st.composite
def turns_of(draw: Any, count: int) -> list[pending_frame.Turn]:
    """Who published so many messages: some of them by calls of one author, some by calls of several."""
    turns: list[pending_frame.Turn] = []
    at = draw(st.just(0) | st.integers(0, count))
    if draw(st.booleans()):
        return [(at, None, draw(authors))]
    while at < count:
        if draw(st.booleans()):
            turns.append((at, None, draw(authors)))
            at += draw(st.integers(1, 5))
        else:
            stops = sorted(draw(st.sets(st.integers(1, 9), min_size=1)))
            turns.append((at, stops, [draw(authors) for _ in stops]))
            at += stops[-1]
    return turns


@given(st.lists(stretches | encoded, max_size=8), st.lists(whole, max_size=3), st.data(),
       st.lists(st.integers(-1, 100), min_size=7, max_size=7), st.integers(0, 5))
def test_both_ways_know_whose_messages_are(run_stretches: list[Any], batches: list[tuple[bytes, bytes]], data: Any,
                                           begins: list[int], most: int) -> None:
    laid = laid_of(run_stretches, batches)
    turns = data.draw(turns_of(sum(1 if type(key) is int else len(of_run) for _, key, of_run in run_stretches)
                               + len(batches)))
    made = pending_frame.authors_of(laid, turns, array("q", begins), most)
    assert made == pending_frame.authors_plain(laid, turns, array("q", begins), most)
    assert len(made[0]) <= most and len(made[1]) == 2 * len(made[2])


def test_whose_messages_are_run_by_run() -> None:
    message = (0, b"v", b"\0", 0, 0)
    laid = [0, KEY, message, 1, KEY, message, 0, KEY, message, message, 2, None, b"place", memoryview(b"rest"), 1, KEY,
            message]
    one, other, third = AUTHORS[:3]
    turns: list[pending_frame.Turn] = [(1, [1, 3], [one, other]), (4, None, third), (5, None, None)]
    found, firsts, numbers = pending_frame.authors_of(laid, turns, array("q", [0, 10, 20]), 100)
    nobody = NOBODY_NUMBER
    assert found == [one, other, third]
    assert list(zip(array(U32, firsts), array("H", numbers), strict=True)) == [
        (0, nobody), (1, 1), (10, 0), (11, nobody), (20, 2)]
    found, firsts, numbers = pending_frame.authors_of(laid, [(0, None, other)], array("q", [-1, 10, 20]), 100)
    assert (found, *array(U32, firsts), *array("H", numbers)) == ([other], 10, 0)


def test_records_that_are_encoded_are_their_authors_each() -> None:
    message, (one, other, *_) = (0, b"v", b"\0", 0, 0), AUTHORS
    records = encode_record(0, 0, KEY, b"v", b"\0") * 3
    laid = [0, KEY, message, 0, b"", (records, NOW_MS, 3), 0, KEY, message, 1, KEY, message]
    turns: list[pending_frame.Turn] = [(0, None, one), (1, None, other), (2, None, one)]
    authorship = pending_frame.authors_of(laid, turns, array("q", [10, 20]), 9)
    assert list(zip(array(U32, authorship[1]), array("H", authorship[2]), strict=True)) == [(10, 0), (11, 1), (14, 0)]


@pytest.mark.parametrize(("laid", "turns"), [
    ([(0, b"v", b"\0", 0, 0)], []),                            # no run before it
    ([1, KEY], []), ([-1, KEY], []), ([0], []),
    ([0, KEY], [(0, None)]), ([0, KEY], [None]), ([0, KEY], [("0", None, None)]),
    ([0, KEY], [(0, [1], [])]), ([0, KEY], [(0, [1], None)]), ([0, KEY], [(0, ["1"], [None])]),
    ([0, KEY], [(1 << 70, None, None)])])
def test_native_code_believes_no_turns(laid: pending_frame.Laid, turns: list[Any]) -> None:
    if pending_frame.authors_of is not pending_frame.authors_plain:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            pending_frame.authors_of(laid, turns, array("q", [0]), 1)


@given(st.lists(messages, min_size=1, max_size=20))
def test_a_reader_finds_what_was_laid_and_where_each_ends(of_run: list[Any]) -> None:
    data, _, _, ends = pending_frame.encode_body([0, KEY, *of_run], 1, NOW_MS, b"", True)
    found = records_of(Piece(10, len(of_run), False, data, NOW_MS, NOW_MS, 70))
    assert [(record[0], record[2], record[3], record[1], record[5]) for record in found] == [
        (10 + at, b"k", value, time_ms or NOW_MS, attributes)
        for at, (_, value, _, attributes, time_ms) in enumerate(of_run)]
    bounds = [0, *array("I", ends)]
    assert bounds[-1] == len(data)
    alone = [pending_frame.encode_body([0, KEY, message], 1, NOW_MS, b"", False)[0] for message in of_run]
    assert [stop - start for start, stop in pairwise(bounds)] == [*map(len, alone)]


def test_records_that_are_encoded_get_the_place_and_the_times_of_their_run() -> None:
    records = b"".join([encode_record(7, delta_ms, KEY, b"v", b"\0") for delta_ms in (0, 5)])
    laid = [0, KEY, (0, b"first", b"\0", 1, 0), 0, b"", (records, NOW_MS - 9, 2), 0, KEY, (0, b"last", b"\0", 2, 0)]
    data, _, _, ends = pending_frame.encode_body(laid, 1, NOW_MS, b"", True)
    found = records_of(Piece(10, 4, False, data, NOW_MS, NOW_MS, 70))
    assert [(record[1], record[3], record[5]) for record in found] == [
        (NOW_MS, b"first", 1), (NOW_MS - 9, b"v", 7), (NOW_MS - 4, b"v", 7), (NOW_MS, b"last", 2)]
    assert len(array("I", ends)) == 4 and array("I", ends)[-1] == len(data)
    assert b"".join([data[start:stop] for start, stop in pairwise([0, *array("I", ends)])]) == data


@pytest.mark.parametrize(("laid", "count"), [
    ([0, b"", (b"\x0c\0\0", NOW_MS, 1)], 1),                   # shorter than it says
    ([0, b"", (b"\x06\0\0\1", NOW_MS, 1)], 1),                 # with an offset
    ([0, b"", (b"\x06\0\0\0", NOW_MS, 2)], 1),                 # one, and not two
    ([0, b"", (b"", "then", 0)], 1),
    ([0, b"", (b"", NOW_MS, -1)], 1),
    ([0, b"", ("", NOW_MS, 0)], 1),
    ([(b"", NOW_MS, 0)], 1),
    ([(0, b"v", b"\0", 0, 0)], 1),                             # no run before it
    ([1, KEY, (0, b"v", b"\0", 0, 0)], 1),                     # a run that there is not
    ([-1, KEY, (0, b"v", b"\0", 0, 0)], 1),
    ([0], 1),
    ([0, "k", (0, b"v", b"\0", 0, 0)], 1),
    ([0, None, b"place"], 1),
    ([0, None, b"place", 7], 1),
    ([0, KEY, (0, "v", b"\0", 0, 0)], 1),
    ([0, KEY, (0, b"v", None, 0, 0)], 1),
    ([0, KEY, (0, b"v", b"\0", 256, 0)], 1),
    ([0, KEY, (0, b"v", b"\0", 0, 1 << 70)], 1),
    ([0, KEY, (0, b"v", b"\0", 0)], 1),
    ([0, KEY, [0, b"v", b"\0", 0, 0]], 1)])
def test_native_code_believes_nothing(laid: pending_frame.Laid, count: int) -> None:
    if pending_frame.encode_body is not pending_frame.encode_plain:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            pending_frame.encode_body(laid, count, NOW_MS, b"", True)
