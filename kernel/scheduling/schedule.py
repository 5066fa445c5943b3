"""When a repeated message falls due: at an interval or by a cron expression, in UTC, until a time or a count. Pure.

    every 10s · every 1h30m          days, hours, minutes, seconds: d h m s
    R/PT10S · R5/P1DT12H             ISO 8601 repeating intervals; R5 is five times in all
    */5 8-18 * * MON-FRI · @daily    cron

each with `; until=2030-01-01T00:00:00Z` (that moment included), `; count=5` or both behind it. An interval counts from
the schedule's start, so no delivery that came late moves the next.

A cron expression has five fields, which are parsed to sets and searched month by month:

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
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from gatehouse.kernel.errors import InvalidSchedule

MIN_INTERVAL_MS: Final = 1_000
MAX_INTERVAL_MS: Final = 100 * 366 * 86_400_000        # about a century: a longer one is a mistake
MAX_COUNT: Final = 1_000_000_000
MAX_TIME_MS: Final = 253_402_300_799_999               # the last millisecond of the year 9999
MAX_TEXT_CHARS: Final = 512

_EVERY: Final = re.compile(r"every\s+(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?", re.I)
_ISO: Final = re.compile(r"R([0-9]{0,10})/P(?:([0-9]{1,9})W|(?:([0-9]{1,9})D)?"
                         r"(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})S)?)?)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

MS_A_MINUTE: Final = 60_000
MINUTES_A_DAY: Final = 1_440
MS_A_DAY: Final = MINUTES_A_DAY * MS_A_MINUTE
MAX_EXPRESSION_CHARS: Final = 256
SEARCHED_MONTHS: Final = 41 * 12
"""The 29th of February falls on a given day of the week at least every 40 years."""

EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
LAST_YEAR: Final = 9999                    # of `datetime.date`, and of RFC 3339

SHORT: Final = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
                "@yearly": "0 0 1 1 *"}
_MONTH_NAMES: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_MONTHS: Final = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_DAYS: Final = {name: number for number, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))}
_PART: Final = re.compile(r"(?:(\*)|([0-9]{1,2}|[A-Z]{3})(?:-([0-9]{1,2}|[A-Z]{3}))?)(?:/([0-9]{1,2}))?")


class Schedule(NamedTuple):
    """A parsed schedule. Times are ms since 1970."""

    text: str
    start_ms: int                      # nothing falls due earlier
    rule: Cron | int                   # an interval in ms
    until_ms: int
    max_times: int | None              # how often it falls due in all

    @property
    def names_times(self) -> bool:
        """Whether it says points in time, as cron does, and not an interval."""
        return not isinstance(self.rule, int)

    def next_after(self, after_ms: int, times: int = 0, apart_ms: int = 0) -> int | None:
        """The first time later than `after_ms`, None at the end. `times` is how often it has fallen due already. Where
        times are hub time, the wall clock, which `until` means, is ahead of them by `apart_ms`."""
        if self.max_times is not None and times >= self.max_times:
            return None
        after_ms = max(after_ms, self.start_ms - 1)
        if isinstance(self.rule, int):
            next_ms: int | None = self.start_ms + ((after_ms - self.start_ms) // self.rule + 1) * self.rule
        else:
            next_ms = self.rule.next_after(after_ms)
        return next_ms if next_ms is not None and next_ms + apart_ms <= self.until_ms else None


def parse_schedule(text: str, start_ms: int = 0) -> Schedule:
    """The schedule in a text, counted from `start_ms`. Raises InvalidSchedule."""
    if len(text) > MAX_TEXT_CHARS:
        raise InvalidSchedule(f"a schedule has at most {MAX_TEXT_CHARS} characters")
    rule_text, *options = (part.strip() for part in text.split(";"))
    until_ms, count = MAX_TIME_MS, None
    named: set[str] = set()
    for option in options:
        name, _, value = (part.strip() for part in option.partition("="))
        if name in named:
            raise InvalidSchedule(f"{name!r} is given twice")
        named.add(name)
        if name == "until":
            until_ms = _time_ms(value)
        elif name == "count":
            count = _count(value)
        else:
            raise InvalidSchedule(f"{option!r} is neither until=TIME nor count=NUMBER")
    rule, repeats = _rule(rule_text)
    if repeats is not None and count is not None:
        raise InvalidSchedule("the count stands behind R or after count=, not in both places")
    return Schedule(text, start_ms, rule, until_ms, repeats if count is None else count)


def _rule(text: str) -> tuple[Cron | int, int | None]:
    """The rule, and how often it falls due where it says that itself."""
    match = _ISO.fullmatch(text)
    if match is not None:
        repeats, weeks, *units = match.groups()
        return _interval_ms(weeks, *units), _count(repeats) if repeats else None
    if re.match(r"R[0-9]*/", text):
        raise InvalidSchedule(f"{text!r} is not as R/PT10S or R5/P1DT12H; months and years differ in length: use cron")
    match = _EVERY.fullmatch(text)
    if match is not None:
        return _interval_ms(None, *match.groups()), None
    if text[:5].lower() == "every":
        raise InvalidSchedule(f"{text!r} is not as 'every 10s' or 'every 1d12h30m'")
    return parse_cron(text), None


def _interval_ms(weeks: str | None, days: str | None, hours: str | None, minutes: str | None,
                 seconds: str | None) -> int:
    whole_hours = (int(weeks or 0) * 7 + int(days or 0)) * 24 + int(hours or 0)
    interval_ms = ((whole_hours * 60 + int(minutes or 0)) * 60 + int(seconds or 0)) * 1000
    if not MIN_INTERVAL_MS <= interval_ms <= MAX_INTERVAL_MS:
        raise InvalidSchedule("an interval is at least a second and at most a century")
    return interval_ms


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= MAX_COUNT):
        raise InvalidSchedule(f"a count is a number from 1 to {MAX_COUNT}, not {text!r}")
    return int(text)


def _time_ms(text: str) -> int:
    """An RFC 3339 time or milliseconds since 1970."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_TIME_MS)):
        return int(text)
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidSchedule(f"'until' is a time with its zone, as 2030-01-01T00:00:00Z, not {text!r}")
    return (moment - _EPOCH) // timedelta(milliseconds=1)


class _Field(NamedTuple):
    """What one field may hold."""

    title: str
    low: int
    high: int
    names: dict[str, int]


_FIELDS: Final = (_Field("minute", 0, 59, {}), _Field("hour", 0, 23, {}), _Field("day of month", 1, 31, {}),
                  _Field("month", 1, 12, _MONTHS), _Field("day of week", 0, 7, _DAYS))


class Cron(NamedTuple):
    """A parsed cron expression."""

    minutes_of_day: tuple[int, ...]        # ascending
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]               # 0 is Sunday
    either_day: bool

    def next_after(self, after_ms: int) -> int | None:
        """The first time later than `after_ms`, in ms since 1970; None where the years 1970 to 9999 have none."""
        minute = max(after_ms // MS_A_MINUTE + 1, 0)
        day, first = divmod(minute, MINUTES_A_DAY)
        if EPOCH_DAY + day > date.max.toordinal():
            return None
        today = date.fromordinal(EPOCH_DAY + day)
        at = bisect_left(self.minutes_of_day, first)
        if at < len(self.minutes_of_day) and self._has(today):
            return (day * MINUTES_A_DAY + self.minutes_of_day[at]) * MS_A_MINUTE
        matching_day = self._day_after(today)
        if matching_day is None:
            return None
        return (matching_day.toordinal() - EPOCH_DAY) * MS_A_DAY + self.minutes_of_day[0] * MS_A_MINUTE

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
