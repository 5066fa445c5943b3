"""Looks twice a second how the hub does, and says what is left undone: memory, how late the loop is, how long the disk
keeps what is written. The ladder decides; everybody else looks at `kernel.shedding.Shedding`. How much is stored of
what limits bound is looked up with it."""
from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from gatehouse.kernel.shedding import NAMES, Rung

if TYPE_CHECKING:
    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.kernel.shedding import Shedding
    from gatehouse.memory import MemoryBudget
    from gatehouse.metrics import Sample

log = logging.getLogger("gatehouse")

RESTS: Final = 50                  # looking what is stored takes at most one part in so many of the time

LOOK_MS: Final = 500
"""Between two looks."""

CALM_MS: Final = 1_000

MEMORY_RUNGS: Final = ((0.80, Rung.TRACE_EVENTS), (0.85, Rung.BULK_READS), (0.90, Rung.QOS_0),
                       (0.95, Rung.NEW_CONNECTIONS), (1.00, Rung.PUBLISHERS))
"""From which share of the budget on each rung holds."""

FALLEN: Final = 0.05
"""So much of the budget must be free below where a rung began before it ends."""


class Overload:
    """How much one hub has to do: it looks at itself on its loop, and sets what is left undone."""

    def __init__(self, aio: asyncio.AbstractEventLoop, shedding: Shedding, admission: Admission, budget: MemoryBudget,
                 unflushed_ms: Callable[[], int], late_s: float, flush_s: float) -> None:
        """The loop may be `late_s` late, and the disk take `flush_s`."""
        self.budget = budget
        self._aio = aio
        self._shedding = shedding
        self._admission = admission
        self._unflushed_ms = unflushed_ms
        self._late_s = late_s
        self._flush_s = flush_s
        self._ladder = Ladder()
        self._due_s = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._memory = 0.0
        self._stored_due_s = 0.0

    def start(self) -> None:
        self._arm()

    def stop(self) -> None:
        """Nothing is left undone any more: the hub ends."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._set(Rung.NOTHING)

    def look(self, now_s: float, late_s: float) -> None:
        """Measure, and climb or descend."""
        self._memory = self.budget.share()
        others = {"the loop's lateness": late_s / self._late_s,
                  "the time that the disk takes": self._unflushed_ms() / 1000 / self._flush_s}
        self._set(self._ladder.look(round(now_s * 1000), self._memory, others))

    def describe(self) -> dict[str, Any]:
        """For people."""
        return {"level": int(self._shedding.level), "left_undone": self._shedding.left,
                "memory_budget_bytes": self.budget.limit_bytes, "memory_share": round(self._memory, 4),
                "held_bytes": self.budget.held(),
                "shed": {name: self._shedding.counts[rung] for rung, name in NAMES.items()}}

    def samples(self) -> Iterator[Sample]:
        """For the metrics page."""
        yield "gatehouse_overload_level", (), int(self._shedding.level)
        yield "gatehouse_memory_budget_bytes", (), self.budget.limit_bytes
        for holder, held_bytes in self.budget.held().items():
            yield "gatehouse_memory_held_bytes", (holder,), held_bytes
        for rung, name in NAMES.items():
            yield "gatehouse_shed", (name,), self._shedding.counts[rung]

    def _arm(self) -> None:
        self._due_s = self._aio.time() + LOOK_MS / 1000
        self._handle = self._aio.call_at(self._due_s, self._on_look)

    def _on_look(self) -> None:
        now_s = self._aio.time()
        if now_s >= self._stored_due_s:
            self._admission.look_at_stored()
            self._stored_due_s = now_s + RESTS * (self._aio.time() - now_s)
        self.look(now_s, max(0.0, now_s - self._due_s))
        self._arm()

    def _set(self, level: Rung) -> None:
        before = self._shedding.level
        if level == before:
            return
        self._shedding.set_level(level)
        self._admission.look_at_overload()
        if level > before:
            log.warning("overload, %s: left undone are now %s", self._ladder.reason, ", ".join(self._shedding.left))
        elif level:
            log.info("overload eases: left undone are still %s", ", ".join(self._shedding.left))
        else:
            log.info("overload is over: nothing is left undone")


# decision 251: memory says how far, time says how far else
class Ladder:
    """How much is left undone: `level` is the rung, from what is measured, and `reason` what has brought it there.
    Pure.

        memory           its share of the budget says the rung at once: see `MEMORY_RUNGS`
        anything else    a measure over its bound climbs a rung for each look that finds it so, from the second on: one
                         stall of the machine is no overload

    Down it goes a rung in `CALM_MS` without any of it. The order is `Rung`'s, whatever the reason.
    """

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
