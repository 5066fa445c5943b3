"""Cron expressions against a walk through the minutes; garbage."""
from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.errors import InvalidSchedule
from gatehouse.kernel.scheduling.schedule import parse_cron, parse_schedule

LOW = (0, 0, 1, 1, 0)
HIGH = (59, 23, 31, 12, 7)


@st.composite
def some_parts(draw: st.DrawFn, field: int) -> tuple[str, frozenset[int]]:
    """One field as text, and the values that it stands for."""
    low, high = LOW[field], HIGH[field]
    first, step = draw(st.integers(low, high)), draw(st.integers(1, 20))
    last = draw(st.integers(first, high))
    return draw(st.sampled_from([
        ("*", frozenset(range(low, high + 1))), (f"*/{step}", frozenset(range(low, high + 1, step))),
        (str(first), frozenset((first,))), (f"{first}-{last}", frozenset(range(first, last + 1))),
        (f"{first},{last}", frozenset((first, last))),
        (f"{first}-{last}/{step}", frozenset(range(first, last + 1, step))),
    ]))


some_fields = st.tuples(*(some_parts(field) for field in range(5)))
some_minutes = st.integers(0, 60 * 24 * 365 * 40)


def falls(moment: datetime, fields: tuple[tuple[str, frozenset[int]], ...]) -> bool:
    """The definition: whether this minute is one of the expression's."""
    minute, hour, day, month, weekday = (values for _, values in fields)
    by_date, by_weekday = moment.day in day, bool({moment.isoweekday(), moment.isoweekday() % 7} & weekday)
    either = not fields[2][0].startswith("*") and not fields[4][0].startswith("*")
    return (moment.minute in minute and moment.hour in hour and moment.month in month
            and (by_date or by_weekday if either else by_date and by_weekday))


@given(some_fields, some_minutes)
def test_what_follows_is_the_first_minute_that_falls(fields: tuple[tuple[str, frozenset[int]], ...], at: int) -> None:
    try:
        cron = parse_cron(" ".join(text for text, _ in fields))
    except InvalidSchedule:
        assert min(fields[2][1]) >= 30
        return
    found = cron.next_after(at * 60_000)
    assert found is not None and found > at * 60_000
    assert falls(datetime.fromtimestamp(found // 1000, UTC), fields)
    moment = datetime.fromtimestamp(at * 60, UTC)
    for _ in range(3000):
        moment += timedelta(minutes=1)
        if moment.timestamp() * 1000 >= found:
            break
        assert not falls(moment, fields)


@given(st.integers(1, 10**6), st.integers(0, 10**12), st.integers(0, 10**12))
def test_an_interval_is_the_first_multiple_behind(seconds: int, start_ms: int, after_ms: int) -> None:
    found = parse_schedule(f"every {seconds}s", start_ms).next_after(after_ms)
    assert found is not None and found > after_ms and found >= start_ms
    assert (found - start_ms) % (seconds * 1000) == 0
    assert found == start_ms or found - seconds * 1000 <= after_ms


some_pieces = st.sampled_from(["*", "/", "5", "-", ",", "MON", "every ", "R", "/PT", "1S", "; ", "until=", "count=",
                               " ", "@daily", "99"])


@given(st.text(max_size=40) | st.lists(some_pieces, max_size=12).map("".join))
def test_garbage_raises_only_invalid_schedule(text: str) -> None:
    try:
        schedule = parse_schedule(text, 1)
    except InvalidSchedule:
        return
    found = schedule.next_after(10**12)
    assert found is None or found > 10**12
