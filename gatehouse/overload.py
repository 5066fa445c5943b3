"""Looks twice a second how the hub does, and says what is left undone: memory, how late the loop is, how long the disk
keeps what is written. The ladder decides; everybody else looks at `Shedding` of `kernel.background`. How much is stored
of what limits bound is looked up with it."""
from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from gatehouse.kernel.shedding import NAMES, Rung
from gatehouse.ladder import LOOK_MS, Ladder

if TYPE_CHECKING:
    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.kernel.shedding import Shedding
    from gatehouse.memory import MemoryBudget
    from gatehouse.metrics import Sample

log = logging.getLogger("gatehouse")

RESTS: Final = 50                  # looking what is stored takes at most one part in so many of the time


class Overload:
    """Of one hub, on its loop."""

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
