"""How much is left undone: the rung of the ladder, from what is measured. Pure: time is an argument.

    memory           its share of the budget says the rung at once: see `MEMORY_RUNGS`
    anything else    a measure over its bound climbs a rung for each look that finds it so, from the second on: one
                     stall of the machine is no overload

Down it goes a rung in `CALM_MS` without any of it. The order is `Rung`'s, whatever the reason.
"""
# decision 251: memory says how far, time says how far else
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gatehouse.kernel.shedding import Rung

LOOK_MS: Final = 500
"""Between two looks."""

CALM_MS: Final = 1_000

MEMORY_RUNGS: Final = ((0.80, Rung.TRACE_EVENTS), (0.85, Rung.BULK_READS), (0.90, Rung.QOS_0),
                       (0.95, Rung.NEW_CONNECTIONS), (1.00, Rung.PUBLISHERS))
"""From which share of the budget on each rung holds."""

FALLEN: Final = 0.05
"""So much of the budget must be free below where a rung began before it ends."""


class Ladder:
    """`level` is the rung, `reason` what has brought it there."""

    def __init__(self) -> None:
        self.level = Rung.NOTHING
        self.reason = ""
        self._over: dict[str, int] = {}          # looks in a row that found a measure over its bound
        self._calm_since_ms = 0

    def look(self, now_ms: int, memory: float, others: Mapping[str, float]) -> Rung:
        """The rung from now on. `memory` is a share of the budget, each of `others` one of its bound."""
        wanted, reason = self._wanted_by_memory(memory), f"memory is at {memory:.0%} of its budget"
        for name, share in others.items():
            over = self._over[name] = self._over.get(name, 0) + 1 if share >= 1 else 0
            if over > 1 and self.level < Rung.PUBLISHERS and wanted <= self.level:
                wanted, reason = Rung(self.level + 1), f"{name} is {share:.1f} of its bound"
            elif over > 1 and wanted < self.level:
                wanted = self.level
        if wanted >= self.level:
            self._calm_since_ms = now_ms
            if wanted > self.level:
                self.level, self.reason = wanted, reason
        elif now_ms - self._calm_since_ms >= CALM_MS:
            self._calm_since_ms = now_ms
            self.level = Rung(self.level - 1)
        return self.level

    def _wanted_by_memory(self, memory: float) -> Rung:
        """A rung that holds already holds on a little below where it begins."""
        wanted = Rung.NOTHING
        for share, rung in MEMORY_RUNGS:
            if memory >= share or rung <= self.level and memory > share - FALLEN:
                wanted = rung
        return wanted
