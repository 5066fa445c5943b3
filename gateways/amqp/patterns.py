"""Patterns that users give for names, as regular expressions that are matched in bounded time. Pure.

Python's `re` goes back and tries again, and a pattern such as `(a+)+$` does that without end. So none is taken that
repeats within a repetition, refers back, or repeats without bound more than a few times: against a name of 255 bytes
the rest is done in milliseconds.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

PATTERN_CHARS_MAX: Final = 1024
REPEATS_MAX: Final = 3                 # without bound; a name has at most 255 bytes
BOUNDED_MAX: Final = 32                # a repetition up to so many times counts as one with a bound

REPEATS: Final = frozenset(("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"))
REFERENCES: Final = frozenset(("GROUPREF", "GROUPREF_EXISTS"))


class NoPattern(ValueError):
    """No regular expression, or one that could take for ever."""


def compile_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Raises NoPattern."""
    if len(text) > PATTERN_CHARS_MAX:
        raise NoPattern(f"a pattern has at most {PATTERN_CHARS_MAX} characters")
    try:
        parsed = parser.parse(text, flags)
        if _unbounded(parsed, False) > REPEATS_MAX:
            raise NoPattern(f"a pattern repeats without bound at most {REPEATS_MAX} times")
        return re.compile(text, flags)
    except (re.error, RecursionError, OverflowError) as error:
        raise NoPattern(str(error)) from None


def _unbounded(items: Any, inside: bool) -> int:
    """Repetitions without bound among the parts of a pattern. Raises NoPattern."""
    count = 0
    for operation, argument in items:
        name = str(operation)
        if name in REFERENCES:
            raise NoPattern("a pattern does not refer back")
        if name in REPEATS:
            _, highest, repeated = argument
            if inside and highest != 1:
                raise NoPattern("a pattern does not repeat within a repetition")
            is_unbounded = highest is constants.MAXREPEAT or highest > BOUNDED_MAX
            count += is_unbounded + _unbounded(repeated, inside or highest != 1)
        else:
            for part in _parts(argument):
                count += _unbounded(part, inside)
    return count


def _parts(argument: Any) -> Iterator[Any]:
    """Patterns within what an operation is said with."""
    if isinstance(argument, parser.SubPattern):
        yield argument
    elif isinstance(argument, list | tuple):
        for entry in argument:
            yield from _parts(entry)
