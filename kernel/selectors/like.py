"""LIKE patterns: `%` is any number of characters, `_` is any one; the escape character takes the meaning from both.

A pattern is cut at its `%` into pieces. The first and the last piece have their fixed places, each between them takes
the leftmost place that is left: nothing is ever tried again. A piece without `_` is looked for by `str.find`; one with
`_` by one step per character over a bit set of the beginnings that are still alive (Baeza-Yates and Gonnet,
"A new approach to text searching", 1992). Both are linear in the text.
"""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.errors import InvalidSelector

MAX_LIKE_BYTES: Final = 8_192
"""Longer values fit no pattern and miss none: the answer is unknown."""

_ANY: Final = ""
"""The `_` in a piece: no character is an empty string."""


# decision 52: no place is tried again
class LikePattern:
    """One pattern, ready to match."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: tuple[LikePart, ...]) -> None:
        self._pieces = pieces

    def fits(self, text: str) -> bool:
        """Whether the whole text fits the pattern."""
        first, last = self._pieces[0], self._pieces[-1]
        if len(self._pieces) == 1:
            return len(text) == first.size and first.stands_at(text, 0)
        end = len(text) - last.size
        if end < first.size or not first.stands_at(text, 0) or not last.stands_at(text, end):
            return False
        at = first.size
        for piece in self._pieces[1:-1]:
            index = piece.find(text, at, end)
            if index < 0:
                return False
            at = index + piece.size
        return True


class LikePart:
    """What stands between two `%`: characters, some of them any."""

    __slots__ = ("size", "_characters", "_plain", "_masks", "_any_mask")

    def __init__(self, characters: list[str]) -> None:
        self.size = len(characters)
        self._characters = characters
        self._plain = "".join(characters) if _ANY not in characters else None
        self._any_mask = sum(1 << i for i, character in enumerate(characters) if character == _ANY)
        self._masks = dict.fromkeys(characters, self._any_mask)
        for i, character in enumerate(characters):
            self._masks[character] |= 1 << i

    def stands_at(self, text: str, at: int) -> bool:
        """Whether the text has this piece at that index."""
        if self._plain is not None:
            return text.startswith(self._plain, at)
        return all(wanted in (_ANY, character) for wanted, character in
                   zip(self._characters, text[at:at + self.size], strict=True))

    def find(self, text: str, at: int, end: int) -> int:
        """The leftmost index from `at` where this piece stands and does not reach beyond `end`, or -1."""
        if self._plain is not None:
            return text.find(self._plain, at, end)
        alive, whole = 0, 1 << self.size - 1
        for i in range(at, end):
            alive = (alive << 1 | 1) & self._masks.get(text[i], self._any_mask)
            if alive & whole:
                return i - self.size + 1
        return -1


def parse_like(pattern: str, escape: str, position: int) -> LikePattern:
    """The pattern as written; `escape` is one character or empty for none. Raises InvalidSelector at `position`."""
    pieces: list[list[str]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, "")
            if escaped not in ("%", "_", escape):
                raise InvalidSelector(position, f"a pattern in which {escape!r} stands before %, _ or itself")
            pieces[-1].append(escaped)
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(_ANY if character == "_" else character)
    middle = [piece for piece in pieces[1:-1] if piece]
    kept = pieces if len(pieces) == 1 else [pieces[0], *middle, pieces[-1]]
    return LikePattern(tuple(LikePart(piece) for piece in kept))
