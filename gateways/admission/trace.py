"""What is noted of what passes and of what is refused: counters, touched once per burst, and lines in the log. Pure.

What is refused leaves a line on every door by one rule: once a minute for each peer and reason. What is refused again
within the minute is counted, and the next line says how often. A peer is an address for a login that failed, and a user
for a right that is missing.
"""
from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final

from gatehouse.tracing.context import in_a_line, trace_id_in

EVENTS_MAX: Final = 1024     # (door, event) pairs counted by name; names are ours, so this is only a guard

log = logging.getLogger("gatehouse.admission")

EVERY_MS: Final = 60_000
MAX_KEPT: Final = 10_000
"""Peers and reasons that are remembered; the oldest is forgotten first, and may have a line again."""

MAX_LINES: Final = 100
"""In a minute, whoever they are about: a flood of peers is counted."""


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


class Refusals:
    """Writes the lines of one hub: once a minute for each door, peer and reason, and at most `MAX_LINES` in all."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._last: OrderedDict[tuple[str, str, str], tuple[int, int]] = OrderedDict()
        self._minute = self._lines = 0

    def note(self, door: str, peer: str, reason: str, text: str, said: bytes = b"") -> None:
        """Somebody was refused: at a door, for a reason (a constant name), in words. `said`: the message that was, or
        its headers, whose trace id the line has."""
        key, now_ms = (door, peer, reason), self._now_ms()
        last_ms, again = self._last.get(key, (0, 0))
        if key in self._last and now_ms - last_ms < EVERY_MS:
            self._last[key] = (last_ms, again + 1)
            return
        self._last[key] = (now_ms, 0)
        self._last.move_to_end(key)
        if len(self._last) > MAX_KEPT:
            self._last.popitem(last=False)
        if now_ms // EVERY_MS != self._minute:
            self._minute, self._lines = now_ms // EVERY_MS, 0
        self._lines += 1
        if self._lines > MAX_LINES:
            return
        more = f" ({again} times more since the last line)" if again else ""
        trace, traced = in_a_line(trace_id_in(said))
        log.info("%s refused %s: %s: %s%s%s", door or "the hub", peer, reason, text, more, trace,
                 extra={"fields": {"door": door, "peer": peer, "reason": reason, "again": again, **traced}})


def address_of(peer: str) -> str:
    """A peer without its port: one that comes back has another."""
    return peer.rpartition(":")[0] or peer
