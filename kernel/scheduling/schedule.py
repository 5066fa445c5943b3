"""When a repeated message falls due: at an interval or by a cron expression, in UTC, until a time or a count. Pure.

    every 10s · every 1h30m          days, hours, minutes, seconds: d h m s
    R/PT10S · R5/P1DT12H             ISO 8601 repeating intervals; R5 is five times in all
    */5 8-18 * * MON-FRI · @daily    cron, see `kernel.scheduling.cron`

each with `; until=2030-01-01T00:00:00Z` (that moment included), `; count=5` or both behind it. An interval counts from
the schedule's start, so no delivery that came late moves the next.
"""
from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from gatehouse.kernel.errors import InvalidSchedule
from gatehouse.kernel.scheduling.cron import Cron, parse_cron

MIN_INTERVAL_MS: Final = 1_000
MAX_INTERVAL_MS: Final = 100 * 366 * 86_400_000        # about a century: a longer one is a mistake
MAX_COUNT: Final = 1_000_000_000
MAX_TIME_MS: Final = 253_402_300_799_999               # the last millisecond of the year 9999
MAX_TEXT_CHARS: Final = 512

_EVERY: Final = re.compile(r"every\s+(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?", re.I)
_ISO: Final = re.compile(r"R([0-9]{0,10})/P(?:([0-9]{1,9})W|(?:([0-9]{1,9})D)?"
                         r"(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})S)?)?)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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
