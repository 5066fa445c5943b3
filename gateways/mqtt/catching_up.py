"""Clients that are behind and can be sent more: each is sent a piece in its turn, some milliseconds a turn of the loop
for all of them. So a thousand that begin to read again at once hold up nobody, and none of them the others.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gatehouse.gateways.mqtt.backlog import Backlog
    from gatehouse.kernel.slices import Slices


class CatchingUp:
    """One per hub, in `Clients`."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._waiting: deque[Backlog] = deque()
        self._known: set[Backlog] = set()          # the same, but for those whose client has gone

    def add(self, backlog: Backlog) -> None:
        """Let a backlog wait for its turn: it has something to send or to read, and room for it."""
        if backlog not in self._known:
            self._known.add(backlog)
            self._waiting.append(backlog)
            self._go_on()

    def remove(self, backlog: Backlog) -> None:
        """Take a backlog out of the turns: its client has gone."""
        self._known.discard(backlog)

    def _take_turns(self) -> Iterator[None]:
        while self._waiting:
            backlog = self._waiting.popleft()
            if backlog in self._known:
                self._known.discard(backlog)
                backlog.go_on()
                yield

    def _go_on(self) -> None:
        if self._waiting and not self._slices.busy:
            self._slices.run(self._take_turns(), self._go_on)
