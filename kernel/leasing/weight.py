"""The bytes of what one line of a light queue holds: the sizes of its values, by offset from the floor on."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from kernel.errors import CorruptBatch
from kernel.leasing.line import PAGE_SHIFT
from kernel.leasing.supply import FETCH_BYTES, Supply
from kernel.message import Fetched
from kernel.records.batch import leased_of

FORGOTTEN_AT_ONCE: Final = 1_000


class Weight:
    """Learns sizes by looking at every message once, on entering or after a start."""

    def __init__(self, supply: Supply) -> None:
        self._supply = supply
        self._line = supply.line
        self._reading = False
        self._at_once = False
        self._begin()

    def _begin(self) -> None:
        self._moved = self._line.moved
        self._first = self._line.floor                # whose size is the first of `_sizes`
        self._sizes: list[int] = []
        self._done = 0                                # sizes below the floor, at the beginning of `_sizes`
        self._total = 0                               # of the others

    def free_bytes(self, on_more: Callable[[], None]) -> int:
        """Of what nobody has leased, as far as it is known; `on_more` is called later where more gets known."""
        if self._moved != self._line.moved:           # the line was read back
            self._begin()
        self._learn(on_more)
        self._forget_settled()
        out = sum([self._size_of(offset) for offset in self._line.out])
        return self._total - out - self._settled_beyond()

    def _learn(self, on_more: Callable[[], None]) -> None:
        end, before = self._supply.end(), -1
        while not self._reading and before < self._end < end:
            before = self._end
            self._reading = self._at_once = True
            wants = [(self._line.queue_id, self._end, FETCH_BYTES)]
            self._supply.fetch(wants, FETCH_BYTES, partial(self._read, self._moved, on_more))
            self._at_once = False

    @property
    def _end(self) -> int:
        return self._first + len(self._sizes)

    def _read(self, moved: int, on_more: Callable[[], None], found: list[Fetched]) -> None:
        self._reading = False
        if moved != self._moved or not found[0].pieces:
            return
        for piece in found[0].pieces:
            try:
                messages = leased_of(piece, self._line)
            except CorruptBatch:                      # the line settles them when it gets there
                messages = []
            sizes = {message[1]: len(message[6] or b"") for message in messages}
            new = [sizes.get(offset, 0) for offset in range(self._end, piece.first_offset + piece.count)]
            self._sizes += new
            self._total += sum(new)
        if not self._at_once:
            on_more()

    def _forget_settled(self) -> None:
        below = min(self._line.floor - self._first, len(self._sizes))
        self._total -= sum(self._sizes[self._done:below])
        self._done = max(self._done, below)
        if self._done > FORGOTTEN_AT_ONCE and 2 * self._done > len(self._sizes):
            del self._sizes[:self._done]
            self._first += self._done
            self._done = 0

    def _size_of(self, offset: int) -> int:
        at = offset - self._first
        return self._sizes[at] if 0 <= at < len(self._sizes) else 0

    def _settled_beyond(self) -> int:
        """Bytes of what is settled above the floor."""
        total = 0
        for page, mask in self._line.settled.items() if self._line.beyond else ():
            if (page + 1) << PAGE_SHIFT > self._line.floor:
                mask &= -1 << max(0, self._line.floor - (page << PAGE_SHIFT))
                while mask:
                    lowest = mask & -mask
                    mask ^= lowest
                    total += self._size_of((page << PAGE_SHIFT) + lowest.bit_length() - 1)
        return total
