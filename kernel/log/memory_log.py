"""The commit log in memory: for tests, and proof that nothing outside `kernel.log.segments` knows of files."""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from gatehouse.kernel.log.log import KEPT_BASE, Damage, Frame, Segment
from gatehouse.kernel.log.segments import TwoChains


class MemoryChain:
    def __init__(self, base: int, frames_per_segment: int) -> None:
        self._frames_per_segment = frames_per_segment
        self._frames: list[tuple[int, bytes, bytes]] = []        # position, head, body
        self._bases: list[int] = [base]
        self._counts: dict[int, int] = {base: 0}
        self._next = base

    def recover(self, start: int, on_damage: Callable[[Damage], None]) -> Iterator[Frame]:
        return self._frames_between(start, self._next)

    def heads(self, segment: Segment) -> Iterator[Frame]:
        return self._frames_between(segment.base, segment.end)

    def _frames_between(self, start: int, stop: int) -> Iterator[Frame]:
        first = bisect_right(self._frames, start, key=lambda frame: frame[0] + 1)
        for position, head, body in self._frames[first:]:
            if position >= stop:
                return
            yield Frame(position, head, position + len(body) + 1)

    def advance(self, position: int) -> None:
        if self._next < position:
            self._next = position + 1

    def append(self, head: bytes, body: bytes) -> int:
        if self._counts[self._bases[-1]] == self._frames_per_segment:
            self._bases.append(self._next)
            self._counts[self._next] = 0
        position = self._next
        self._frames.append((position, head, body))
        self._counts[self._bases[-1]] += 1
        self._next += len(body) + 1
        return position

    def ask(self, position: int, offset: int, size: int) -> None:
        """It is there."""

    def read(self, position: int, offset: int, size: int) -> bytes:
        i = bisect_right(self._frames, position, key=lambda frame: frame[0]) - 1
        if i < 0 or self._frames[i][0] != position:
            return b""
        return self._frames[i][2][offset:offset + size]

    def read_many(self, spans: list[tuple[int, int, int]]) -> list[bytes]:
        return [self.read(position, offset, size) for position, offset, size in spans]

    def segments(self) -> list[Segment]:
        ends = [*self._bases[1:], self._next]
        return [Segment(base, end, end - base) for base, end in zip(self._bases, ends, strict=True)]

    def drop(self, segment: Segment) -> None:
        assert segment.base != self._bases[-1], "the segment being written is never dropped"
        assert segment.base in self._counts, "a segment is dropped once"
        self._frames = [frame for frame in self._frames if not segment.base <= frame[0] < segment.end]
        self._bases.remove(segment.base)
        del self._counts[segment.base]

    def newest_base(self) -> int:
        return self._bases[-1]

    def end(self) -> int:
        return self._next

    def sync(self) -> None:
        """Memory is as durable as it gets."""

    def close(self) -> None:
        """Nothing to let go of."""


class MemoryLog(TwoChains):  # decision 6
    """`kernel.log.log.Log` whose frames live as long as the object."""

    def __init__(self, frames_per_segment: int = 1000) -> None:
        super().__init__(MemoryChain(0, frames_per_segment), MemoryChain(KEPT_BASE, frames_per_segment))
