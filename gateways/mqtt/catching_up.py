"""Clients that are behind and can be sent more: each sends a piece in its turn, some milliseconds a turn of the loop for
all of them. So a thousand that begin to read again at once hold up nobody, and none of them the others.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateways.mqtt.backlog import Backlog
    from kernel.delivery.slices import Slices


class CatchingUp:
    """One per hub, in `Clients`."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._waiting: dict[Backlog, None] = {}

    def add(self, backlog: Backlog) -> None:
        """It has something to send, or to read, and room for it."""
        self._waiting[backlog] = None
        if not self._slices.busy:
            self._slices.run(self._read(), self._go_on)

    def remove(self, backlog: Backlog) -> None:
        """Its client has gone."""
        self._waiting.pop(backlog, None)

    def _read(self) -> Iterator[None]:
        while self._waiting:
            backlog = next(iter(self._waiting))
            del self._waiting[backlog]
            backlog.go_on()
            yield

    def _go_on(self) -> None:
        """The work has ended; where it failed there are others."""
        if self._waiting:
            self._slices.run(self._read(), self._go_on)
