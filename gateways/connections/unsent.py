"""What all connections of all doors together hold for peers that do not take it: one budget, `hub.unsent_bytes`.

It is charged with what a slow peer has not taken (the shared connection and the HTTP door do that) and with messages
that wait in memory for one (MQTT's backlog). One connection may hold a part of what is left, so the largest are the
first that get nothing more and go on from the log, and the rest is there for those who come later. Whoever keeps up
holds nothing, and is not slowed by those who do not: a last piece (`FLOOR_BYTES`, and as much for what is owed from the
log) is everybody's, whatever is left.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

UNSENT_BYTES: Final = 64 << 20
"""The default size of the budget: with a thousand subscribers that stall at once about a tenth of a small machine's
memory."""

PART: Final = 4
"""One connection may hold this part of what is left: n of them together n / (n + 4) of the budget."""

FLOOR_BYTES: Final = 64 << 10
"""A connection that holds more is slow, and is told when its peer has taken nearly all of it."""

MUCH_BYTES: Final = 16 << 20
"""So many bytes are worth giving back to the system once they are no longer held."""


class UnsentBudget:  # decision 121
    """One per hub, in `Services`. `used_bytes` is at most `limit_bytes`, and twice `FLOOR_BYTES` and a message more
    for each peer that is slow."""

    def __init__(self, limit_bytes: int = UNSENT_BYTES, on_released: Callable[[], None] | None = None) -> None:
        """`on_released` is called when most of much is held no more."""
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._on_released = on_released
        self._most_bytes = 0                                     # held since then

    def charge(self, by: int) -> None:
        """Charge the budget with so many bytes more; a negative number gives bytes back."""
        used = self.used_bytes = self.used_bytes + by
        if used > self._most_bytes:
            self._most_bytes = used
        elif self._most_bytes >= MUCH_BYTES and used < self._most_bytes // 4:
            self._most_bytes = used
            if self._on_released is not None:
                self._on_released()

    def part(self) -> int:
        """What one connection may hold now, in bytes."""
        return max(0, (self.limit_bytes - self.used_bytes) // PART)

    def allowed(self, most: int) -> int:
        """How many unsent bytes a connection may have: at most `most`. Where nothing of the budget is left it is one
        more than `FLOOR_BYTES`, so that the connection counts as slow, and is therefore told when it is slow no
        longer."""
        return min(most, max(FLOOR_BYTES + 1, self.part()))
