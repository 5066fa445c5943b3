"""Points in time as people and programs write them: RFC 3339 text, or milliseconds since 1970. Pure."""
from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
MAX_TIME_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, where RFC 3339 ends."""


def parse_time_ms(text: str) -> int:
    """Milliseconds since 1970 of an RFC 3339 time or of a decimal number of milliseconds. Raises ValueError."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_TIME_MS)):
        time_ms = int(text)
    elif _RFC_3339.fullmatch(text):
        # More than six decimals of a second are cut: the log keeps milliseconds.
        plain = re.sub(r"(\.\d{1,6})\d*", r"\1", text.upper())
        time_ms = (datetime.fromisoformat(plain) - _EPOCH) // _MILLISECOND
    else:
        raise ValueError(f"{text!r} is neither an RFC 3339 time nor milliseconds since 1970")
    if not 0 <= time_ms <= MAX_TIME_MS:
        raise ValueError(f"{text!r} is not between 1970 and 9999")
    return time_ms


def parse_seconds(text: str, highest: float) -> float:
    """A decimal number of seconds from 0 to `highest`. Raises ValueError."""
    if not re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text, re.ASCII) or float(text) > highest:
        raise ValueError(f"{text!r} is not a number of seconds from 0 to {highest:g}")
    return float(text)
