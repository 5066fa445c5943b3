"""SASLprep (RFC 4013): user names and passwords in one form, whatever a keyboard made of them. Pure."""
from __future__ import annotations

import stringprep
import unicodedata


class ForbiddenCharacter(ValueError):
    """The text holds a character that SASLprep prohibits. The message does not repeat it."""


_PROHIBITED = (stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3, stringprep.in_table_c4,
               stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7, stringprep.in_table_c8,
               stringprep.in_table_c9)


def saslprep(text: str) -> str:
    """The prepared text. Raises ForbiddenCharacter. Unassigned code points pass, as for queries (RFC 3454, 7)."""
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(" " if stringprep.in_table_c12(character) else character for character in text
                     if not stringprep.in_table_b1(character))
    prepared = unicodedata.normalize("NFKC", mapped)
    if any(prohibits(character) for character in set(prepared) for prohibits in _PROHIBITED):  # each character once
        raise ForbiddenCharacter("a prohibited character")
    _check_direction(prepared)
    return prepared


def _check_direction(text: str) -> None:
    """Raises ForbiddenCharacter for a text that mixes directions: text with right-to-left letters has no others, and
    begins and ends with them (RFC 3454, 6)."""
    if not any(stringprep.in_table_d1(character) for character in text):
        return
    if any(stringprep.in_table_d2(character) for character in text) or not (
            stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])):
        raise ForbiddenCharacter("left-to-right and right-to-left letters together")
