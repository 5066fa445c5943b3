"""A log is two chains of segments, whatever a chain is made of: the main one and the one of what is kept."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from gatehouse.kernel.log.log import KEPT_BASE, Damage, Frame, Segment


class Chain(Protocol):
    """One sequence of frames in segments; its methods are those of `kernel.log.log.Log` for one chain."""

    def recover(self, start: int, on_damage: Callable[[Damage], None]) -> Iterator[Frame]: ...

    def advance(self, position: int) -> None: ...

    def append(self, head: bytes, body: bytes) -> int: ...

    def sync(self) -> None: ...

    def read(self, position: int, offset: int, size: int) -> bytes: ...

    def heads(self, segment: Segment) -> Iterator[Frame]: ...

    def segments(self) -> list[Segment]: ...

    def drop(self, segment: Segment) -> None: ...

    def end(self) -> int: ...

    def close(self) -> None: ...


class TwoChains:
    """`kernel.log.log.Log` over a main and a kept chain; positions from KEPT_BASE on are the kept one's."""

    def __init__(self, main: Chain, kept: Chain) -> None:
        self._main = main
        self._kept = kept

    def recover(self, start: int, kept_start: int, on_damage: Callable[[Damage], None]) -> Iterator[Frame]:
        yield from self._kept.recover(kept_start, on_damage)
        yield from self._main.recover(start, on_damage)

    def advance(self, main: int, kept: int) -> None:
        self._main.advance(main)
        self._kept.advance(kept)

    def append(self, head: bytes, body: bytes) -> int:
        position = self._main.append(head, body)
        assert position < KEPT_BASE, "the main chain has used up its positions"
        return position

    def sync(self) -> None:
        self._main.sync()

    def keep(self, head: bytes, body: bytes) -> int:
        position = self._kept.append(head, body)
        assert position >= KEPT_BASE, "kept frames are above all of the main chain"
        return position

    def sync_kept(self) -> None:
        self._kept.sync()

    def read(self, spans: list[tuple[int, int, int]]) -> list[bytes]:
        return [self._chain(position).read(position, offset, size) for position, offset, size in spans]

    def heads(self, segment: Segment) -> Iterator[Frame]:
        return self._chain(segment.base).heads(segment)

    def segments(self) -> list[Segment]:
        return self._main.segments()

    def kept_segments(self) -> list[Segment]:
        return self._kept.segments()

    def drop(self, segment: Segment) -> None:
        assert segment.base >= KEPT_BASE or segment.base == self._main.segments()[0].base, "only the oldest is dropped"
        self._chain(segment.base).drop(segment)

    def end(self) -> int:
        return self._main.end()

    def kept_end(self) -> int:
        return self._kept.end()

    def close(self) -> None:
        self._main.close()
        self._kept.close()

    def _chain(self, position: int) -> Chain:
        return self._kept if position >= KEPT_BASE else self._main
