"""Work that grows with subscribers or records, in slices: a few milliseconds a turn of the loop, so that everybody else
is served in between.

Work is an iterator that yields wherever it may be interrupted. The first slice runs at once: what is small is done
before `run` returns, and costs no turn.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gatehouse.kernel.ports import Loop

SLICE_MS: Final = 5
"""How long one turn may work, in ms. Shorter slices cost more turns than they save waiting: a turn itself takes some
0.1 ms."""


class Slices:  # decision 122
    """One work at a time. `slice_ms` 0 makes a turn of every step, for tests that want all the turns there are."""

    def __init__(self, loop: Loop, on_error: Callable[[Exception], None], slice_ms: int = SLICE_MS) -> None:
        self.slice_ms = slice_ms
        self._loop = loop
        self._on_error = on_error
        self._in_turn = False
        self._work: Iterator[None] | None = None
        self._done: Callable[[], None] = _nothing

    @property
    def busy(self) -> bool:
        """Whether there is work that has not ended."""
        return self._work is not None

    def run(self, work: Iterator[None], done: Callable[[], None]) -> None:
        """`done` is called in the turn in which the work ends, whether it came to its end or failed."""
        assert self._work is None, "one work at a time"
        self._work, self._done = work, done
        if not self._in_turn:
            self._turn()

    def _turn(self) -> None:
        """One slice: of the work, and of what `done` begins when it ends, together."""
        self._in_turn = True
        try:
            until_ms = self._loop.now_ms() + self.slice_ms
            while self._work is not None:
                if not self._goes_on(self._work, until_ms):
                    self._loop.call_soon(self._turn)
                    break
        finally:
            self._in_turn = False

    def _goes_on(self, work: Iterator[None], until_ms: int) -> bool:
        """Work until the slice is over; whether there is time left."""
        now_ms = self._loop.now_ms
        try:
            for _ in work:
                if now_ms() >= until_ms:
                    return False
        except Exception as error:           # our own fault, and the next work is not to suffer for it
            self._on_error(error)
        done, self._work, self._done = self._done, None, _nothing
        done()
        return now_ms() < until_ms or not self.busy        # `done` may have begun more


def _nothing() -> None:
    """What is done after no work."""
