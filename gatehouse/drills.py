"""Drills: the hub holds its own disk, says that its memory is used up, or kills itself, when it is told to.

Only where `hub.allow_drills` says so. What a drill does is what a bad day does: the disk is held by a job on the log's
thread, in front of all frames; memory is used up by a holder that claims all of the budget; a link is lost by
hanging up and not dialling; the end is SIGKILL. What
clients see of it, `gatehouse drill` finds out.
"""
from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from gatehouse.kernel.ports import Worker
from gatehouse.memory import MemoryBudget

log = logging.getLogger("gatehouse")

HOLDER: Final = "drill"
ANSWERED_S: Final = 0.2            # what whoever asked for the end needs to hear that it comes


def end_at_once() -> None:
    """As `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


class HubDrills:  # decision 257
    """See `gateways.contract.Drills`. `hold` works on the log's thread."""

    def __init__(self, aio: asyncio.AbstractEventLoop, log_worker: Worker, budget: MemoryBudget,
                 end: Callable[[], None] = end_at_once, cut: Callable[[float], None] | None = None) -> None:
        self._aio = aio
        self._log_worker = log_worker
        self._budget = budget
        self._end = end
        self._cut = cut                # of links to other hubs; None: there are none
        self.under_way = ""

    def can(self, drill: str) -> bool:
        """Whether there is what the drill is about."""
        return drill != "lost_link" or self._cut is not None

    def begin(self, drill: str, lasts_s: float) -> bool:
        """Begin one of `contract.DRILLS`; False: another one is under way."""
        if self.under_way:
            return False
        self.under_way = drill
        log.warning("a drill begins: %s for %.1f s", drill, lasts_s)
        if drill == "held_disk":
            self._log_worker.submit(partial(time.sleep, lasts_s), lambda _, error: self._over())
        elif drill == "full_memory":
            self._budget.add(HOLDER, lambda: self._budget.limit_bytes)
            self._aio.call_later(lasts_s, self._over)
        elif drill == "lost_link":
            assert self._cut is not None, "it was asked whether there is a link"
            self._cut(lasts_s)
            self._aio.call_later(lasts_s, self._over)
        else:
            self._aio.call_later(ANSWERED_S, self._end)
        return True

    def _over(self) -> None:
        log.warning("the drill is over: %s", self.under_way)
        self._budget.remove(HOLDER)
        self.under_way = ""
