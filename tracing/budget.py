"""How many errors of a topic are recorded: an hour in which every message fails must not fill the disk. Pure.

    the first error of a message        as long as anything of the budget is left
    one between its first and its last  as long as half of it is left: messages that fail for ever take the rest from
                                        nobody
    the last of one that is followed    always: there was room for its first
"""
from __future__ import annotations

from typing import Final

WINDOW_MS: Final = 60_000
MAX_TOPICS: Final = 10_000
"""Topics that are counted apart; the others share one budget."""

ELSE: Final = -1


class Budget:
    """`most` events of a topic in a minute. What comes beyond is counted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun_ms = 0
        self._spent: dict[int, int] = {}
        self.left_out = 0
        """Events that were not recorded, since the start."""

    def spend(self, topic_id: int, now_ms: int, is_first: bool = True) -> bool:
        """Whether one more event of this topic is recorded: the first error of a message, or one that follows it."""
        if not 0 <= now_ms - self._begun_ms < WINDOW_MS:      # also where the clock was set back
            self._begun_ms = now_ms
            self._spent.clear()
        if topic_id not in self._spent and len(self._spent) >= MAX_TOPICS:
            topic_id = ELSE
        spent = self._spent.get(topic_id, 0)
        if spent >= (self._most if is_first else self._most // 2):
            self.left_out += 1
            return False
        self._spent[topic_id] = spent + 1
        return True
