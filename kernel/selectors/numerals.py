"""Header values as numbers and truth values. Headers are bytes without a type: what they are compared with decides.

A number is written in decimal digits, with a sign, a point and an exponent where wanted: `21`, `-3.5`, `+.5`, `7.`,
`1e3`. Nothing else is one: no spaces, no `0x10`, no `1_000`, no `nan`. Without point and exponent it is exact, else a
64-bit float.
"""
from __future__ import annotations

from typing import Final

MAX_NUMERAL_CHARS: Final = 40
"""Longer digits are text. Room for every 64-bit integer and every float as any language prints it."""

LARGEST: Final = 1.7976931348623157e308        # of a 64-bit float; beyond it lie only infinities

_CHARACTERS: Final = b"0123456789+-.eE"
"""What a number is made of: without them, `float` would read blanks, underscores, `nan` and `inf` too."""

Number = int | float


def number_of(value: bytes | None) -> Number | None:
    """The number that a value is written as, or None."""
    if value is None or len(value) > MAX_NUMERAL_CHARS:
        return None
    if value.isdigit():
        return int(value)
    if value.translate(None, _CHARACTERS):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    if b"." in value or b"e" in value or b"E" in value:
        return number if -LARGEST <= number <= LARGEST else None
    return int(value)


def boolean_of(value: bytes | None) -> bool | None:
    """True for `true`, False for `false`, else None."""
    if value == b"true":
        return True
    return False if value == b"false" else None
