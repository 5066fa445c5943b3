"""Text to tokens: the words of a condition. And header values as numbers and truth values.

    name      letters, digits, `_`, `$` and `.`, beginning with no digit and no point
    quoted    "any text", with "" for a quote: a name that is none without quotes, such as "content-type"
    text      'any text', with '' for a quote
    number    21, 3.5, 7., .5, 1e3; a sign is an operator
    keyword   AND, OR, NOT, … in any case
    symbol    = <> < <= > >= + - * / ( ) ,

Blanks separate and mean nothing else. Every alternative of the pattern is possessive, so a text is read in linear time.
"""
from __future__ import annotations

import re
from typing import Final, NamedTuple

from gatehouse.kernel.errors import InvalidSelector

# --- tokens -------------------------------------------------------------------------------------------------------

MAX_TEXT_CHARS: Final = 8_192
"""The longest selector: a request line of the web takes no longer one."""

KEYWORDS: Final = frozenset(("AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"))

NAME: Final = "name"
QUOTED: Final = "quoted name"
TEXT: Final = "text"
NUMBER: Final = "number"
WORD: Final = "keyword or symbol"
END: Final = "end"

_PATTERN: Final = re.compile(r"""
    [ \t\r\n\f]++
  | (?P<name>   (?:[^\W\d]|\$)[\w$.]*+ )
  | (?P<number> (?:[0-9]++\.?[0-9]*+ | \.[0-9]++) (?:[eE][+-]?[0-9]++)? )
  | '(?P<text>  (?:[^']|'')*+ )'
  | "(?P<quoted>(?:[^"]|"")++ )"
  | (?P<symbol> <>|<=|>=|[=<>+\-*/(),] )
""", re.VERBOSE)


class Token(NamedTuple):
    """One word: its kind, its text without quotes (keywords in capitals), and where it begins."""

    kind: str
    text: str
    position: int


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, and an END behind them. Raises InvalidSelector."""
    check_text(text)
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _PATTERN.match(text, at)
        if match is None:
            raise _no_token(text, at)
        if match.lastgroup is not None:
            tokens.append(_token(match.lastgroup, match[match.lastgroup], at))
        at = match.end()
    tokens.append(Token(END, "", len(text)))
    return tokens


def check_text(text: str) -> None:
    """Raises InvalidSelector for what no selector can be, whatever its form."""
    if len(text) > MAX_TEXT_CHARS:
        raise InvalidSelector(MAX_TEXT_CHARS, f"the end: a selector has at most {MAX_TEXT_CHARS} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidSelector(error.start, "a character", "half of a surrogate pair") from None


def _token(group: str, text: str, at: int) -> Token:
    if group == "name":
        word = text.upper()
        return Token(WORD, word, at) if word in KEYWORDS else Token(NAME, text, at)
    if group == "text":
        return Token(TEXT, text.replace("''", "'"), at)
    if group == "quoted":
        return Token(QUOTED, text.replace('""', '"'), at)
    return Token(NUMBER if group == "number" else WORD, text, at)


def _no_token(text: str, at: int) -> InvalidSelector:
    character = text[at]
    if character == "'":
        return InvalidSelector(at, "a text that ends with a quote (write '' for a quote in it)")
    if character == '"':
        return InvalidSelector(at, 'a name in double quotes, not empty (write "" for a quote in it)')
    if text.startswith("||", at):
        return InvalidSelector(at, "AND, OR or the end; tags are written as in tags:a || b", "'||'")
    return InvalidSelector(at, "a name, a value or an operator", repr(character))


# --- header values ------------------------------------------------------------------------------------------------

# Headers are bytes without a type: what they are compared with decides whether they are numbers or truth values.
#
# A number is written in decimal digits, with a sign, a point and an exponent where wanted: `21`, `-3.5`, `+.5`, `7.`,
# `1e3`. Nothing else is one: no spaces, no `0x10`, no `1_000`, no `nan`. Without point and exponent it is exact, else a
# 64-bit float.

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
