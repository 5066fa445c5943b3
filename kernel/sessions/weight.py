"""The bytes of what waits for one session, in pieces of neighbours. Pure.

A session is weighed only where what waits could be too much at all, see `sessions`. Pieces are as small as a
sixty-fourth of the limit, or as one frame; within one all messages count as equally long.
"""
from __future__ import annotations

from typing import Final

PIECES: Final = 64           # that a limit is cut into, at least


class Weight:
    """See the module's text. `end_offset`: the offset behind all that is weighed."""

    __slots__ = ("_pieces", "_total", "end_offset")

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self._pieces: list[tuple[int, int, int]] = []        # first offset, offset behind, bytes
        self._total = 0

    @property
    def total(self) -> int:
        return self._total

    def add(self, behind: int, size: int, limit: int) -> None:
        """What lies from `end_offset` until before this offset."""
        assert behind > self.end_offset, "messages are weighed once, in order"
        pieces = self._pieces
        if pieces and pieces[-1][2] + size <= limit // PIECES:
            pieces[-1] = pieces[-1][0], behind, pieces[-1][2] + size
        else:
            pieces.append((self.end_offset, behind, size))
        self._total += size
        self.end_offset = behind

    def learn(self, first: int, behind: int, size: int) -> None:
        """What lies before everything that is weighed."""
        self._pieces.insert(0, (first, behind, size))
        self._total += size

    def pass_to(self, offset: int) -> None:
        """What lies before this offset waits no more."""
        pieces = self._pieces
        while pieces and pieces[0][0] < offset:
            first, behind, size = pieces[0]
            gone = size if behind <= offset else size * (offset - first) // (behind - first)
            self._total -= gone
            if behind <= offset:
                del pieces[0]
            else:
                pieces[0] = offset, behind, size - gone
        self.end_offset = max(self.end_offset, offset)

    def first_within(self, limit: int) -> int:
        """The first offset from which on what waits is not more than the limit; 0: all of it."""
        over, first = self._total - limit, 0
        for begin, behind, size in self._pieces:
            if over <= 0:
                break
            count = behind - begin
            first = behind if size <= over else begin + -(-over * count // size)
            over -= size
        return first
