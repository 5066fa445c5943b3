"""How much goes through the doors a second: totals looked at once a second, and what lies between two looks.

A look copies four integers per door, so it goes on whether or not anybody reads: whoever opens the console sees the
minutes before.
"""
from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gatehouse.gateways.admission.trace import Trace

TICK_S: Final = 1.0
KEPT: Final = 180                  # looks: three minutes of history
WINDOW: Final = 5                  # looks that a rate is the mean of

FIELDS: Final = ("messages_in", "bytes_in", "messages_out", "bytes_out")
NOTHING: Final = (0, 0, 0, 0)

Totals = dict[str, tuple[int, int, int, int]]
"""The fields' totals by door."""


class Rates:
    """Samples of the doors' totals; `start` begins to look, `stop` ends it."""

    def __init__(self, aio: asyncio.AbstractEventLoop, trace: Trace) -> None:
        self._aio = aio
        self._trace = trace
        self._looks: deque[tuple[float, Totals]] = deque(maxlen=KEPT + 1)
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._look()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def totals(self) -> Totals:
        """Messages and bytes of each door since the start, in and out, as they are now."""
        return {door: (flow.messages_in, flow.bytes_in, flow.messages_out, flow.bytes_out)
                for door, flow in self._trace.flows.items()}

    def current(self, door: str) -> dict[str, float]:
        """A door's rates a second over the last few looks; zeros before there are two."""
        if len(self._looks) < 2:
            return dict.fromkeys(FIELDS, 0.0)
        before_s, before = self._looks[-min(WINDOW + 1, len(self._looks))]
        now_s, now = self._looks[-1]
        return _between(before_s, before.get(door, NOTHING), now_s, now.get(door, NOTHING))

    def history(self) -> dict[str, Any]:
        """{"interval_s", "doors": {door: {"messages_in": [a second each, oldest first], "messages_out": [...]}}}."""
        looks = list(self._looks)
        steps = [(before, now) for before, now in zip(looks, looks[1:], strict=False)]
        doors: dict[str, dict[str, list[float]]] = {}
        for door in (looks[-1][1] if looks else {}):
            rates = [_between(before_s, before.get(door, NOTHING), now_s, now.get(door, NOTHING))
                     for (before_s, before), (now_s, now) in steps]
            doors[door] = {field: [rate[field] for rate in rates] for field in ("messages_in", "messages_out")}
        return {"interval_s": TICK_S, "doors": doors}

    def _look(self) -> None:  # decision 77
        self._looks.append((self._aio.time(), self.totals()))
        self._handle = self._aio.call_later(TICK_S, self._look)


def _between(before_s: float, before: tuple[int, ...], now_s: float, now: tuple[int, ...]) -> dict[str, float]:
    """Rates a second from one look to another."""
    elapsed_s = max(now_s - before_s, 0.001)
    return {field: round((end - begin) / elapsed_s, 1) for field, begin, end in zip(FIELDS, before, now, strict=True)}
