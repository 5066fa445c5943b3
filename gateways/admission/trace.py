"""The trace hook of the common path: counters only, plain integers, touched once per burst."""
from __future__ import annotations

from collections import Counter
from typing import Final

EVENTS_MAX: Final = 1024     # (door, event) pairs counted by name; names are ours, so this is only a guard


class Trace:
    """What was let in, and what became of the rest.

    `counts` maps (door, event) to a number; an event is a short constant name of the door's
    ("denied", "dropped_slow", ...), shown as a label on the metrics page.
    """

    __slots__ = ("bytes_in", "counts", "messages_in")

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.counts: Counter[tuple[str, str]] = Counter()

    def on_accepted(self, messages: int, size_bytes: int) -> None:
        self.messages_in += messages
        self.bytes_in += size_bytes

    def on_event(self, door: str, event: str, amount: int = 1) -> None:
        key = (door, event)
        if key in self.counts or len(self.counts) < EVENTS_MAX:
            self.counts[key] += amount
