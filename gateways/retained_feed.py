"""Retained values for one subscriber that has come: a page at a time, and never more than it can take now.

Where it has no room nothing is kept: the address that was to come next is remembered, and the values from there on are
asked for again when there is room. So no value is sent that has been replaced meanwhile.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.admission.errors import Denied

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.kernel.message import Retained

PAGE_VALUES: Final = 256
UNREADABLE: Final = "retained_unreadable"


class RetainedFeed:
    """Feeds one client. `options` are a door's own word for a subscription (MQTT's is the granted QoS).

    `room(options)` says how many values may be sent now; `send(filter, options, value)` is False where one had no room.
    `moved(filter, options, address)` is told behind each page which address comes next; None: there is no more.
    """

    def __init__(self, guard: Guard, room: Callable[[int], int], send: Callable[[str, int, Retained], bool],
                 moved: Callable[[str, int, str | None], None] | None = None) -> None:
        self._guard = guard
        self._room = room
        self._send = send
        self._moved = moved
        self._waiting: dict[str, tuple[int, str]] = {}     # options and where to begin, in the order of subscribing
        self._filter = ""                          # the one under way
        self._options = 0
        self._start: str | None = None             # where it goes on; None: no filter is under way
        self._is_asking = False

    @property
    def waits(self) -> bool:
        """Whether there is something more to send."""
        return self._start is not None or bool(self._waiting)

    def add(self, topic_filter: str, options: int = 0, start: str = "") -> None:
        """Send all values of a filter from an address on; again, where they were sent before."""
        self._waiting[topic_filter] = options, start
        self.pump()

    def remove(self, topic_filter: str) -> None:
        """The subscription is over."""
        self._waiting.pop(topic_filter, None)
        if topic_filter == self._filter:
            self._start = None

    def clear(self) -> None:
        """Send nothing more."""
        self._waiting.clear()
        self._start = None

    def pump(self) -> None:
        """Ask for the next page if there is room for it."""
        if self._is_asking:
            return
        if self._start is None:
            if not self._waiting:
                return
            self._filter = next(iter(self._waiting))
            self._options, self._start = self._waiting.pop(self._filter)
        count = min(PAGE_VALUES, self._room(self._options))
        if count > 0:
            self._is_asking = True
            try:
                self._guard.retained(self._filter, self._on_page, max_values=count, start=self._start, partly=True)
            except Denied:           # rights have changed, and the session is about to be told
                self._on_page([], None, None)

    def _on_page(self, values: list[Retained], after: str | None, error: Exception | None) -> None:
        self._is_asking = False
        if self._start is None:                    # unsubscribed, or the connection is over
            self.pump()
            return
        if error is not None:
            self._guard.count(UNREADABLE)
        self._start = after
        for value in values:
            if not self._send(self._filter, self._options, value):
                self._start = value.address
                break
        if self._moved is not None:
            self._moved(self._filter, self._options, self._start)
        self.pump()
