"""Events that tell of one message, and of a run of them."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.tracing.events import (
    MAX_ID,
    CorruptEvent,
    Event,
    Kind,
    decode,
    encode,
    may_tell,
    number_of,
    scattered,
    scattered_texts,
    trace_at,
    trace_of,
)

OWN = b"hub's 8 "


@given(st.integers(0, 1 << 40), st.integers(2, 1_000), st.integers(1, 1_000), st.integers(1, 1 << 30))
def test_a_run_says_of_each_message_what_an_event_of_it_alone_would(first: int, rows: int, step: int,
                                                                    number: int) -> None:
    run = Event(Kind.STORED, first, offset=7, group="g", address="a/b", trace_id=trace_of(OWN, number), rows=rows,
                step=step if step > 1 else 0)
    assert decode(encode(run), 0) == run
    for at in (0, rows // 2, rows - 1):
        one = Event(Kind.STORED, first + at * step, offset=7 + at * step, group="g", address="a/b",
                    trace_id=trace_of(OWN, number + at))
        assert run.nth(at) == run.of(first + at * step) == run.of_trace(one.trace_id) == one
    assert run.last_id == first + (rows - 1) * step
    assert run.of(first - 1) is None and run.of(run.last_id + step) is None
    assert run.of_trace(trace_of(OWN, number + rows)) is None and run.of_trace(trace_of(bytes(8), number)) is None
    if step > 1:
        assert run.of(first + 1) is None


@pytest.mark.parametrize(("first", "rows", "step"), [(2, MAX_ID, 0), (MAX_ID, 2, 1), (1, 3, MAX_ID)])
def test_one_that_claims_more_messages_than_there_are_ids_is_no_event(first: int, rows: int, step: int) -> None:
    assert decode(encode(Event(Kind.HELD, MAX_ID - 1, rows=2)), 0).last_id == MAX_ID
    with pytest.raises(CorruptEvent, match="more messages than there are ids"):
        decode(encode(Event(Kind.HELD, first, rows=rows, step=step)), 0)


def test_an_event_of_one_message_is_its_own_row() -> None:
    alone = Event(Kind.ACKED, 7, offset=3)
    assert alone.nth(0) is alone and alone.of(7) is alone and alone.of(8) is None and alone.last_id == 7


def test_what_tells_of_others_is_passed_over_and_nothing_else() -> None:
    alone, run = encode(Event(Kind.ACKED, 300, offset=3)), encode(Event(Kind.ACKED, 300, rows=5))
    assert may_tell(alone, 300) and not may_tell(alone, 301) and may_tell(run, 304)
    assert not may_tell(b"", 1) and not may_tell(b"\x03\xff", 1) and not may_tell(alone[:3], 300)


def test_what_enters_a_queue_by_reference_has_no_offset_of_its_own() -> None:
    assert Event(Kind.ROUTED, 5, rows=3).nth(2) == Event(Kind.ROUTED, 7)


@given(st.integers(1, 1 << 62), st.integers(0, 1 << 20))
def test_a_trace_id_says_its_number(number: int, behind: int) -> None:
    first = trace_of(OWN, number)
    assert len(first) == 16 and number_of(first) == number
    assert trace_at(first, behind) == trace_of(OWN, number + behind)


def test_trace_ids_are_spread_evenly_over_their_low_bytes() -> None:
    """Collectors that keep a tenth of the traces choose them so."""
    kept = sum(int.from_bytes(trace_of(OWN, number)[8:], "big") < (1 << 64) // 10 for number in range(1, 1_001))
    assert 95 <= kept <= 105


@given(st.integers(0, 1 << 63), st.integers(1, 200))
def test_numbers_are_scattered_together_as_they_are_one_by_one(first: int, count: int) -> None:
    assert scattered_texts(first, count) == b"".join([b"%016x" % scattered(first + at) for at in range(count)])
