"""Why connections of a door ended: counted by reason, and logged as long as they are few."""
from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

log = logging.getLogger("gatehouse.gateways")

LOGGED_ENDS_PER_SECOND: Final = 20    # peers' faults beyond this are counted, not logged
REASONS_MAX: Final = 256              # kinds of endings counted by name; the rest is "other"


class Endings:
    """The endings of one door's connections. `counts` is the door's counter, and gets `closed_REASON`."""

    def __init__(self, door: str, counts: Counter[str], now_ms: Callable[[], int]) -> None:
        self._door = door
        self._counts = counts
        self._now_ms = now_ms
        self._second = 0
        self._logged = 0

    def note(self, peer: str, reason: str) -> None:
        """Count and log one ending. `reason`: `code` or `code: text for people`; empty for a plain end, which is not
        counted."""
        if not reason:
            return
        name = "closed_" + reason.partition(":")[0]
        if name not in self._counts and len(self._counts) >= REASONS_MAX:
            name = "closed_other"
        self._counts[name] += 1
        self.log(peer, reason)

    def log(self, peer: str, reason: str) -> None:
        """Log one ending that is counted elsewhere."""
        second = self._now_ms() // 1000
        if second != self._second:
            if self._logged > LOGGED_ENDS_PER_SECOND:
                log.info("%s: %d more connections ended in that second", self._door,
                         self._logged - LOGGED_ENDS_PER_SECOND)
            self._second, self._logged = second, 0
        self._logged += 1
        if self._logged <= LOGGED_ENDS_PER_SECOND:
            log.info("%s %s closed: %s", self._door, peer, reason)
