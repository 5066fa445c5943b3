"""Cron expressions of five fields, in UTC: parsed to sets, searched month by month. Pure.

    minute 0-59 · hour 0-23 · day of month 1-31 · month 1-12 or JAN-DEC · day of week 0-7 or SUN-SAT, 0 and 7 Sunday

    field   := part (, part)*
    part    := * | value | value - value, each with / step where wanted; `5/10` is 5-59/10

`@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` are short for what they say. A day counts if both day fields
have it; but where neither begins with `*`, if one has it (POSIX crontab: "matching either").
"""
from __future__ import annotations

import re
from bisect import bisect_left
from calendar import monthrange
from datetime import date
from typing import Final, NamedTuple

from gatehouse.kernel.errors import InvalidSchedule

MS_A_MINUTE: Final = 60_000
MINUTES_A_DAY: Final = 1_440
MS_A_DAY: Final = MINUTES_A_DAY * MS_A_MINUTE
MAX_EXPRESSION_CHARS: Final = 256
SEARCHED_MONTHS: Final = 41 * 12
"""The 29th of February falls on a given day of the week at least every 40 years."""

EPOCH: Final = date(1970, 1, 1).toordinal()
LAST_YEAR: Final = 9999                    # of `datetime.date`, and of RFC 3339

SHORT: Final = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
                "@yearly": "0 0 1 1 *"}
_MONTH_NAMES: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_MONTHS: Final = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_DAYS: Final = {name: number for number, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))}
_PART: Final = re.compile(r"(?:(\*)|([0-9]{1,2}|[A-Z]{3})(?:-([0-9]{1,2}|[A-Z]{3}))?)(?:/([0-9]{1,2}))?")


class _Field(NamedTuple):
    """What one field may hold."""

    title: str
    low: int
    high: int
    names: dict[str, int]


_FIELDS: Final = (_Field("minute", 0, 59, {}), _Field("hour", 0, 23, {}), _Field("day of month", 1, 31, {}),
                  _Field("month", 1, 12, _MONTHS), _Field("day of week", 0, 7, _DAYS))


class Cron(NamedTuple):
    """A parsed expression."""

    minutes_of_day: tuple[int, ...]        # ascending
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]               # 0 is Sunday
    either_day: bool

    def next_after(self, after_ms: int) -> int | None:
        """The first time later than `after_ms`, in ms since 1970; None where the years 1970 to 9999 have none."""
        minute = max(after_ms // MS_A_MINUTE + 1, 0)
        day, first = divmod(minute, MINUTES_A_DAY)
        if EPOCH + day > date.max.toordinal():
            return None
        today = date.fromordinal(EPOCH + day)
        at = bisect_left(self.minutes_of_day, first)
        if at < len(self.minutes_of_day) and self._has(today):
            return (day * MINUTES_A_DAY + self.minutes_of_day[at]) * MS_A_MINUTE
        matching_day = self._day_after(today)
        if matching_day is None:
            return None
        return (matching_day.toordinal() - EPOCH) * MS_A_DAY + self.minutes_of_day[0] * MS_A_MINUTE

    def _has(self, day: date) -> bool:
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (by_date or by_weekday if self.either_day else by_date and by_weekday)

    def _day_after(self, today: date) -> date | None:
        """The first matching day later than today, at most SEARCHED_MONTHS away."""
        month, first = today.year * 12 + today.month - 1, today.day + 1
        for number in range(month, min(month + SEARCHED_MONTHS, (LAST_YEAR + 1) * 12)):
            if number % 12 + 1 in self.months:
                year, in_year = divmod(number, 12)
                for day in range(first, monthrange(year, in_year + 1)[1] + 1):
                    candidate = date(year, in_year + 1, day)
                    if self._has(candidate):
                        return candidate
            first = 1
        return None


def parse_cron(text: str) -> Cron:
    """The expression in a text. Raises InvalidSchedule, also for one that never falls due, such as the 30th of
    February."""
    if len(text) > MAX_EXPRESSION_CHARS:
        raise InvalidSchedule(f"a cron expression has at most {MAX_EXPRESSION_CHARS} characters")
    fields = SHORT.get(text.strip().lower(), text.upper()).split()
    if len(fields) != len(_FIELDS):
        raise InvalidSchedule(f"a cron expression has the fields {', '.join(field.title for field in _FIELDS)}; this "
                              f"one has {len(fields)}")
    minutes, hours, days, months, weekdays = (_values(*pair) for pair in zip(_FIELDS, fields, strict=True))
    cron = Cron(tuple(hour * 60 + minute for hour in sorted(hours) for minute in sorted(minutes)), days, months,
                frozenset(day % 7 for day in weekdays), not fields[2].startswith("*") and not fields[4].startswith("*"))
    if cron.next_after(0) is None:
        raise InvalidSchedule("no month has such a day")
    return cron


def _values(field: _Field, text: str) -> frozenset[int]:
    values: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise InvalidSchedule(f"{field.title}: {part!r} is none of *, 5, 1-5, */5 and lists of them")
        star, first, last, step = match.groups()
        low = field.low if star else _value(field, first)
        high = field.high if star or (step and not last) else _value(field, last or first)
        if low > high or step and int(step) == 0:
            raise InvalidSchedule(f"{field.title}: {part!r} holds no value")
        values.update(range(low, high + 1, int(step or 1)))
    return frozenset(values)


def _value(field: _Field, text: str) -> int:
    number = field.names.get(text, int(text) if text.isdigit() else -1)
    if not field.low <= number <= field.high:
        named = f", {' '.join(field.names)}" if field.names else ""
        raise InvalidSchedule(f"{field.title}: {text!r} is not within {field.low} to {field.high}{named}")
    return number
