"""Schedules: intervals, cron expressions, their ends, and what is none."""
from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gatehouse.kernel.errors import InvalidSchedule
from gatehouse.kernel.scheduling.schedule import MAX_TIME_MS, parse_cron, parse_schedule

START_MS = 1_700_000_000_500


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(("text", "seconds"), [
    ("every 10s", 10), ("every 90m", 5400), ("EVERY  1h30m", 5400), ("every 1d2h3m4s", 93_784), ("every 7d", 604_800),
    ("R/PT10S", 10), ("R/PT1H30M", 5400), ("R/P1D", 86_400), ("R/P1DT12H", 129_600), ("R/P2W", 1_209_600),
    ("R/PT90M", 5400), (" every 10s ", 10),
])
def test_intervals_count_from_the_start(text: str, seconds: int) -> None:
    schedule = parse_schedule(text, START_MS)
    step_ms = seconds * 1000
    assert schedule.next_after(0) == START_MS
    assert schedule.next_after(START_MS - 1) == START_MS
    assert schedule.next_after(START_MS) == START_MS + step_ms
    assert schedule.next_after(START_MS + step_ms - 1) == START_MS + step_ms
    assert schedule.next_after(START_MS + 1000 * step_ms + 1) == START_MS + 1001 * step_ms


def test_a_count_ends_a_schedule() -> None:
    for text in ("R3/PT10S", "every 10s; count=3", "* * * * * ; COUNT = 3".lower()):
        schedule = parse_schedule(text)
        assert [schedule.next_after(0, times) is None for times in range(5)] == [False, False, False, True, True]


def test_a_time_ends_a_schedule_and_belongs_to_it() -> None:
    for until in ("2023-11-14T22:13:30.500Z", "2023-11-15T00:13:30.500+02:00", str(START_MS + 10_000)):
        schedule = parse_schedule(f"every 10s; until={until}", START_MS)
        assert schedule.next_after(START_MS) == START_MS + 10_000
        assert schedule.next_after(START_MS + 10_000) is None
    assert parse_schedule("@daily; until=2023-11-14T23:59:59Z", START_MS).next_after(0) is None
    assert parse_schedule("every 10s; until=0; count=2", START_MS).next_after(0) is None


def test_nothing_lies_beyond_the_last_year() -> None:
    assert parse_schedule("every 10s").next_after(MAX_TIME_MS) is None
    assert parse_schedule("@yearly").next_after(ms("9999-01-01T00:00:00")) is None
    assert parse_schedule("@yearly").next_after(1 << 62) is None
    assert parse_schedule("@daily").next_after(ms("9999-12-31T00:00:00")) is None


@pytest.mark.parametrize(("expression", "after", "following"), [
    ("* * * * *", "2024-02-28T23:59:00", "2024-02-29T00:00:00"),
    ("* * * * *", "2024-02-28T23:58:59.999", "2024-02-28T23:59:00"),
    ("30 9 * * *", "2024-02-29T09:29:59", "2024-02-29T09:30:00"),
    ("30 9 * * *", "2024-02-29T09:30:00", "2024-03-01T09:30:00"),
    ("*/15 8-18 * * MON-FRI", "2024-03-01T18:45:00", "2024-03-04T08:00:00"),
    ("5/20 * * * *", "2024-03-01T00:05:00", "2024-03-01T00:25:00"),
    ("5/20 * * * *", "2024-03-01T00:45:00", "2024-03-01T01:05:00"),
    ("0,30 1,3 * * *", "2024-03-01T01:30:00", "2024-03-01T03:00:00"),
    ("10-20/5 * * * *", "2024-03-01T00:15:00", "2024-03-01T00:20:00"),
    ("0 0 29 2 *", "2024-02-29T00:00:00", "2028-02-29T00:00:00"),
    ("0 0 29 2 *", "2096-02-29T00:00:00", "2104-02-29T00:00:00"),
    ("0 0 31 * *", "2024-03-31T00:00:00", "2024-05-31T00:00:00"),
    ("0 0 * * 7", "2024-03-01T00:00:00", "2024-03-03T00:00:00"),
    ("0 0 * * 5-7", "2024-03-01T00:00:00", "2024-03-02T00:00:00"),
    ("0 0 * jan,Dec sun", "2024-03-01T00:00:00", "2024-12-01T00:00:00"),
    ("0 0 13 * 5", "2024-03-01T00:00:00", "2024-03-08T00:00:00"),          # neither is *: one is enough
    ("0 0 13 * 5", "2024-03-08T00:00:00", "2024-03-13T00:00:00"),
    ("0 0 */10 * 5", "2024-03-01T00:00:00", "2024-05-31T00:00:00"),        # begins with *: both are needed
    ("0 0 29 2 */7", "2024-03-01T00:00:00", "2032-02-29T00:00:00"),
    ("0 0 29 2 */7", "2088-02-29T00:00:00", "2128-02-29T00:00:00"),        # 40 years: 2100 is no leap year
    ("@hourly", "2024-03-01T00:00:00", "2024-03-01T01:00:00"), ("@daily", "2024-03-01T00:00:00", "2024-03-02T00:00:00"),
    ("@weekly", "2024-03-01T00:00:00", "2024-03-03T00:00:00"),
    ("@monthly", "2024-03-01T00:00:00", "2024-04-01T00:00:00"),
    ("@Yearly", "2024-03-01T00:00:00", "2025-01-01T00:00:00"),
    ("0 0 1 1 *", "1969-01-01T00:00:00", "1970-01-01T00:00:00"),
])
def test_cron(expression: str, after: str, following: str) -> None:
    assert parse_cron(expression).next_after(ms(after)) == ms(following)
    assert parse_schedule(expression).next_after(ms(after)) == ms(following)


def test_a_start_that_no_cron_time_is() -> None:
    assert parse_schedule("@hourly", ms("2024-03-01T00:00:00")).next_after(0) == ms("2024-03-01T00:00:00")
    assert parse_schedule("@hourly", ms("2024-03-01T00:00:01")).next_after(0) == ms("2024-03-01T01:00:00")


@pytest.mark.parametrize(("text", "told"), [
    ("", "fields"), ("* * * *", "fields"), ("* * * * * *", "fields"), ("@reboot", "fields"), ("60 * * * *", "minute"),
    ("* 24 * * *", "hour"), ("* * 0 * *", "day of month"), ("* * * 13 *", "month"), ("* * * * 8", "day of week"),
    ("* * * FOO *", "month: 'FOO' is not within 1 to 12, JAN"), ("* * * * JAN", "day of week"),
    ("MON * * * *", "minute"),
    ("*/0 * * * *", "holds no value"), ("5-1 * * * *", "holds no value"), ("* * * * FRI-MON", "holds no value"),
    ("1,,2 * * * *", "minute"), ("- * * * *", "minute"), ("1- * * * *", "minute"), ("*/ * * * *", "minute"),
    ("** * * * *", "minute"), ("1/2/3 * * * *", "minute"), ("999999999 * * * *", "minute"),
    ("\u0661 * * * *", "minute"),
    ("* * * * 5#2", "day of week"), ("* * L * *", "day of month"), ("0 0 30 2 *", "no month has such a day"),
    ("0 0 31 4,6,9,11 *", "no month has such a day"), ("0 0 1 1 " + "1," * 125 + "1", "at most 256"),
    ("*" * 600, "at most 512"),
    ("every", "every 10s"), ("every 10", "every 10s"), ("every 10 s", "every 10s"), ("every s", "every 10s"),
    ("every 1s1h", "every 10s"), ("every 0s", "at least a second"), ("every 99999d", "at most a century"),
    ("every 1000000000s", "every 10s"), ("every 1.5s", "every 10s"),
    ("R/10S", "R/PT10S"), ("R/P", "at least a second"), ("R/PT", "R/PT10S"), ("R/P1M", "use cron"),
    ("R0/PT10S", "a count"),
    ("R/P1Y", "use cron"), ("R/2030-01-01T00:00:00Z/P1D", "R/PT10S"), ("R99999999999/PT1S", "R/PT10S"),
    ("R9999999999/PT1S", "a count"), ("R3/PT10S; count=3", "not in both"),
    ("every 10s; count=0", "a count"), ("every 10s; count=x", "a count"), ("every 10s; count=\u0661", "a count"),
    ("every 10s; count=1; count=2", "'count' is given twice"), ("every 10s; until=tomorrow", "'until' is a time"),
    ("every 10s; until=2030-01-01T00:00:00", "with its zone"), ("every 10s; end=1", "neither until"),
    ("every 10s;", "neither until"), ("every 10s; until=", "'until' is a time"),
])
def test_what_is_no_schedule(text: str, told: str) -> None:
    with pytest.raises(InvalidSchedule, match=".") as caught:
        parse_schedule(text)
    assert told in str(caught.value)
