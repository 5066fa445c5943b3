"""State records of schedules: bytes and back, keys in order of time."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.scheduling.schedule_records import (
    FIRST_FORGET,
    FIRST_WALL,
    WALL,
    Fate,
    Pending,
    ScheduleCounts,
    Settled,
    bound,
    counts_record,
    decode,
    decode_counts,
    due_of,
    encode_pending,
    encode_settled,
    forget_bound,
    forget_record,
    id_key,
    id_of,
    is_by_wall,
    number_of,
    split_ids,
    timer_key,
)

I63 = st.integers(0, (1 << 63) - 2)
TIMES = st.integers(0, WALL - 2)
U32 = st.integers(0, (1 << 32) - 1)
pending = st.builds(Pending, I63, st.booleans(), I63, I63, I63, U32, st.integers(0, 255),
                    st.text(max_size=9), st.text(max_size=20), st.text(max_size=9), st.booleans(), st.booleans(),
                    st.booleans(), st.just(-1) | U32,
                    st.none() | st.lists(U32, max_size=3).map(tuple), st.none() | st.binary(max_size=20),
                    st.text(max_size=20), st.binary(max_size=20), st.none() | st.binary(max_size=50))
settled = st.builds(Settled, st.sampled_from([Fate.DELIVERED, Fate.RECALLED]), U32, I63, I63, st.text(max_size=9))


@given(pending)
def test_what_waits_is_read_as_it_was_written(one: Pending) -> None:
    assert decode(encode_pending(one)) == one


@given(settled)
def test_what_became_of_it_is_read_as_it_was_written(one: Settled) -> None:
    assert decode(encode_settled(one)) == one


@given(TIMES, I63, TIMES, I63, st.booleans())
def test_timers_sort_by_time_and_id(due: int, number: int, other_due: int, other: int, by_wall: bool) -> None:
    first, second = timer_key(due, by_wall, number), timer_key(other_due, by_wall, other)
    assert (first < second) == ((due, number) < (other_due, other))
    assert (due_of(first), number_of(id_of(first)), is_by_wall(first)) == (due, number, by_wall)
    assert first < bound(due, by_wall) and (first < bound(other_due, by_wall)) == (due <= other_due)
    assert (first < FIRST_WALL) != by_wall and first < FIRST_FORGET


@given(I63, st.lists(I63, min_size=1, max_size=9))
def test_what_is_forgotten_at_a_time(when_ms: int, numbers: list[int]) -> None:
    record = forget_record(when_ms, [id_key(number) for number in numbers])
    assert record.value is not None and [number_of(key) for key in split_ids(record.value)] == numbers
    assert FIRST_FORGET <= record.key < forget_bound(when_ms)
    assert not record.key < forget_bound(when_ms - 1)


@given(I63, I63)
def test_counts(waiting: int, done: int) -> None:
    assert decode_counts(counts_record(ScheduleCounts(waiting, done)).value) == ScheduleCounts(waiting, done)
    assert decode_counts(None) == ScheduleCounts(0, 0)
