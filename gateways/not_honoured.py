"""What clients ask for and a door takes without effect: counted each time, and logged once a client.

A door that takes anything so has a table of it, `NOT_HONOURED`: its short names for what is asked, and what happens
instead. The same table stands in its README. What loses or repeats messages against a client's word does not belong
into it: that is refused.
"""
from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

log = logging.getLogger("gatehouse.gateways")

CLIENTS_MAX: Final = 10_000            # (client, what) pairs that were logged; beyond, the oldest may be logged again
LOGGED_PER_SECOND: Final = 10          # further clients are counted, and logged when they ask again
SHOWN_CHARACTERS: Final = 80           # of a client's name


class NotHonoured:  # decision 127
    """What was asked for at any door and had no effect: counted by door and name, logged once a client. One per hub."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        """By door and what was asked for; both are names of ours."""

        self._now_ms = now_ms
        self._logged: dict[tuple[str, str, str], None] = {}
        self._second = 0
        self._logged_in_second = 0

    def note(self, door: str, what: str, instead: str, client: str) -> None:
        """`client`: who asks, by a name that is the same when it comes again; it may be anything."""
        self.counts[door, what] += 1
        key = (door, what, client)
        if key in self._logged or not self._may_log():
            return
        if len(self._logged) >= CLIENTS_MAX:
            del self._logged[next(iter(self._logged))]
        self._logged[key] = None
        log.warning("%s: %r asks for %s, which is taken without effect: %s", door, client[:SHOWN_CHARACTERS], what,
                    instead)

    def samples(self) -> Iterator[tuple[str, tuple[str, str], float]]:
        """For the metrics page."""
        for labels, amount in self.counts.items():
            yield "gatehouse_not_honoured", labels, amount

    def _may_log(self) -> bool:
        second = self._now_ms() // 1000
        if second != self._second:
            self._second, self._logged_in_second = second, 0
        self._logged_in_second += 1
        return self._logged_in_second <= LOGGED_PER_SECOND
