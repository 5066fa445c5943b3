"""The trace hook of the common path: counters only, plain integers, touched once per burst."""
from __future__ import annotations

from collections import Counter
from typing import Final

EVENTS_MAX: Final = 1024     # (door, event) pairs counted by name; names are ours, so this is only a guard


class Flow:
    """What went through one door since the start: messages, and the bytes that they took on its wire, about.

    A door adds to `messages_out` and `bytes_out` whenever it has written a burst; what comes in is counted by guards,
    and by `Admission.charge`.
    """

    __slots__ = ("messages_in", "bytes_in", "messages_out", "bytes_out")

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.messages_out = self.bytes_out = 0


class Trace:
    """What was let in and given out, and what became of the rest.

    `counts` maps (door, event) to a number; an event is a short constant name of the door's
    ("denied", "dropped_slow", ...), shown as a label on the metrics page.
    """

    __slots__ = ("counts", "flows")

    def __init__(self) -> None:
        self.flows: dict[str, Flow] = {}
        self.counts: Counter[tuple[str, str]] = Counter()

    def flow(self, door: str) -> Flow:
        """The door's counters, always the same object."""
        flow = self.flows.get(door)
        if flow is None:
            flow = self.flows[door] = Flow()
        return flow

    def on_event(self, door: str, event: str, amount: int = 1) -> None:
        key = (door, event)
        if key in self.counts or len(self.counts) < EVENTS_MAX:
            self.counts[key] += amount
