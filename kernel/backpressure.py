"""Whether publishers are to be read: everybody who may fall behind them reports it here, and says when it is over."""
from __future__ import annotations

from collections.abc import Callable


class Backpressure:  # decision 137
    """Congested as long as anybody is behind."""

    def __init__(self, on_change: Callable[[bool], None]) -> None:
        """`on_change` is told each time that `congested` becomes another."""
        self._on_change = on_change
        self.congested = False
        """More is pending than is good: publishers are not read."""

        self._behind: set[object] = set()
        self._relief: list[Callable[[], None]] = []

    def on_relief(self, callback: Callable[[], None]) -> None:
        """Call once, when no longer congested."""
        self._relief.append(callback)

    def report(self, who: object, is_behind: bool) -> None:
        """Whether this one does not keep pace. The same may be said again."""
        if is_behind:
            self._behind.add(who)
            if not self.congested:
                self._change(True)
            return
        self._behind.discard(who)
        if self.congested and not self._behind:
            self._change(False)
            waiting, self._relief = self._relief, []
            for callback in waiting:
                callback()

    def _change(self, congested: bool) -> None:
        self.congested = congested
        self._on_change(congested)
