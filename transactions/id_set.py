"""A sorted set of transaction ids in eight bytes each: nearly always they come in order, and go in any. Pure. Hot.

    chunks    arrays of u64, ascending and not empty, the ids of each below those of the next

Whatever is done to one id moves no more than a chunk, however many there are. A million undecided transactions are in
several of these; sets of Python's would be seventy bytes an id.
"""
from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from operator import itemgetter
from typing import Final

CHUNK: Final = 1_024          # ids; twice as many are cut in two
FEW: Final = 256              # neighbours that have no more than this become one

_FIRST: Final = itemgetter(0)


# decision 44: eight bytes an id, and no more than a chunk moves
class IdSet:
    __slots__ = ("_chunks", "_count")

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._chunks: list[array[int]] = []
        self._count = 0
        for transaction_id in ids:
            self.add(transaction_id)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, transaction_id: int) -> bool:
        number = bisect_right(self._chunks, transaction_id, key=_FIRST) - 1
        if number < 0:
            return False
        chunk = self._chunks[number]
        at = bisect_left(chunk, transaction_id)
        return at < len(chunk) and chunk[at] == transaction_id

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._chunks)

    def add(self, transaction_id: int) -> None:
        chunks = self._chunks
        if not chunks or transaction_id > chunks[-1][-1]:
            if not chunks or len(chunks[-1]) >= CHUNK:
                chunks.append(array("Q"))
            chunks[-1].append(transaction_id)
            self._count += 1
            return
        number = max(0, bisect_right(chunks, transaction_id, key=_FIRST) - 1)
        chunk = chunks[number]
        at = bisect_left(chunk, transaction_id)
        if at < len(chunk) and chunk[at] == transaction_id:
            return
        chunk.insert(at, transaction_id)
        self._count += 1
        if len(chunk) >= 2 * CHUNK:
            chunks.insert(number + 1, chunk[CHUNK:])
            del chunk[CHUNK:]

    def discard(self, transaction_id: int) -> None:
        chunks = self._chunks
        number = bisect_right(chunks, transaction_id, key=_FIRST) - 1
        if number < 0:
            return
        chunk = chunks[number]
        at = bisect_left(chunk, transaction_id)
        if at == len(chunk) or chunk[at] != transaction_id:
            return
        del chunk[at]
        self._count -= 1
        if not chunk:
            del chunks[number]
        elif len(chunk) <= FEW and number + 1 < len(chunks) and len(chunks[number + 1]) <= FEW:
            chunk.extend(chunks.pop(number + 1))

    def take(self, limit: int) -> list[int]:
        """Up to so many, the first ones, taken out."""
        taken: list[int] = []
        while len(taken) < limit and self._chunks:
            chunk = self._chunks[0]
            more = chunk[:limit - len(taken)]
            taken.extend(more)
            if len(more) == len(chunk):
                del self._chunks[0]
            else:
                del chunk[:len(more)]
        self._count -= len(taken)
        return taken

    def after(self, transaction_id: int) -> Iterator[int]:
        """The ids above this one, in order. The set must not change meanwhile."""
        number = max(0, bisect_right(self._chunks, transaction_id, key=_FIRST) - 1)
        if number >= len(self._chunks):
            return iter(())
        chunk = self._chunks[number]
        return chain(chunk[bisect_right(chunk, transaction_id):],
                     chain.from_iterable(islice(self._chunks, number + 1, None)))
