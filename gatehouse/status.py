"""What a running hub says of itself: `GET /v1/status`, the console and `gatehouse status` show this document.

    {"hub", "version", "epoch", "ready", "now", "started",          times in ms since 1970
     "doors": [{"door", "listen": [...], "connections", "accepted", "refused", "faults",
                "messages_in", "bytes_in", "messages_out", "bytes_out",            since the start
                "rates": {the same four, a second, over the last five seconds}}],
     "log": {"bytes", "segments", "kept_bytes", "retention_bytes", "kept_limit_bytes", "dropped_segments",
             "damaged_ranges", "mended_headers",
             "set_aside_files", "set_aside_bytes",                 what is in the folder `damaged`
             "disk_free_bytes", "disk_bytes",
             "full"},                                              messages are refused for want of room
     "pending": {"bytes", "congested"},                             taken from publishers, not in the log yet
     "checkpoint": {"age_ms", "taken", "postponed", "unindexed_bytes"},
     "loop": {"stall_recent_ms", "stall_worst_ms"},
     "overload": {"level", "left_undone": [...],                    see docs/limits.md
                  "memory_budget_bytes", "memory_share", "held_bytes": {...}, "shed": {...}},
     "circuits": {"closed", "open", "half_open", "not_closed": [{"tenant", "id", "circuit", "by_hand", ...}]},
     "memory_bytes", "topics", "topics_left",                       that users may still make, all together
     "subscriptions", "scheduled",
     "groups": {"active", "ready", "leased", "waiting"},            leased groups and queues that are in use
     "transactions": {"open", "open_bytes", "members", "committed", "rolled_back", "expired"}}

Nothing is counted here: everything is read from what the parts count anyway.
"""
from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from gatehouse import __version__
from gatehouse.damaged import count_damaged
from gatehouse.memory import resident_bytes
from gatehouse.rates import FIELDS, NOTHING, Rates

if TYPE_CHECKING:
    from collections import Counter

    from gatehouse.gateways.admission.trace import Trace
    from gatehouse.gateways.runtime import Stall
    from gatehouse.storage import Storage

GROUPS_AT_ONCE: Final = 200        # counted before others have a turn: about two milliseconds
RESTS: Final = 20                  # counting takes at most one part in so many of the time

DoorCounts = Iterable[tuple[str, list[str], int, "Counter[str]"]]
"""(door, addresses it listens on, open connections, counts) of every door."""


class HubStatus:
    """`contract.Status`. `doors` and `ready` are asked each time."""

    def __init__(self, hub: str, storage: Storage, trace: Trace, stall: Stall, doors: Callable[[], DoorCounts],
                 ready: Callable[[], bool]) -> None:
        self._hub = hub
        self._storage = storage
        self._rates = Rates(asyncio.get_running_loop(), trace)
        self._stall = stall
        self._doors = doors
        self._ready = ready
        self._overload: Callable[[], dict[str, Any]] = dict
        self._circuits: Callable[[], dict[str, Any]] = dict

        self._started_ms = 0
        self._groups: dict[str, int] = {}
        self._groups_until_s = 0.0

    def show_overload(self, describe: Callable[[], dict[str, Any]]) -> None:
        """What is left undone, and why, is there to be shown."""
        self._overload = describe

    def show_circuits(self, describe: Callable[[], dict[str, Any]]) -> None:
        """How many circuits there are, and which are not closed, is there to be shown."""
        self._circuits = describe

    def start(self) -> None:
        """Begin to look at the doors' totals."""
        self._started_ms = time.time_ns() // 1_000_000
        self._rates.start()

    def stop(self) -> None:
        self._rates.stop()

    def summary(self) -> dict[str, Any]:
        """What everybody may know."""
        return {"hub": self._hub, "version": __version__, "ready": self._ready(),
                "now": time.time_ns() // 1_000_000, "started": self._started_ms}

    def history(self) -> dict[str, Any]:
        """The doors' rates of the last minutes, see `Rates.history`."""
        return self._rates.history()

    async def document(self) -> dict[str, Any]:  # decision 77
        """Everything; see above."""
        statistics = self._storage.kernel.statistics()
        return {
            **self.summary(),
            "epoch": statistics["epoch"],
            "doors": self._describe_doors(),
            "log": await self._describe_log(statistics),
            "pending": {"bytes": statistics["pending_bytes"], "congested": self._storage.kernel.congested},
            "checkpoint": {"age_ms": self._storage.kernel.checkpoint_age_ms(), "taken": statistics["checkpoints_total"],
                           "postponed": statistics["postponed_checkpoints_total"],
                           "unindexed_bytes": statistics["unindexed_bytes"]},
            "loop": {"stall_recent_ms": round(self._stall.recent_ms, 1),
                     "stall_worst_ms": round(self._stall.worst_ms, 1)},
            "overload": self._overload(),
            "circuits": self._circuits(),
            "memory_bytes": resident_bytes(),
            "topics": statistics["topics"],
            "topics_left": max(0, statistics["max_auto_topics"] - statistics["topics"]),
            "subscriptions": statistics["subscriptions"],
            "scheduled": statistics["scheduled"],
            "groups": await self._count_groups(),
            "transactions": self._describe_transactions(),
        }

    def _describe_doors(self) -> list[dict[str, Any]]:
        totals = self._rates.totals()
        return [{"door": name, "listen": listen, "connections": connections, "accepted": counts["accepted"],
                 "refused": counts["refused"], "faults": counts["faults"],
                 **dict(zip(FIELDS, totals.get(name, NOTHING), strict=True)), "rates": self._rates.current(name)}
                for name, listen, connections, counts in self._doors()]

    async def _describe_log(self, statistics: dict[str, int]) -> dict[str, Any]:
        settings = self._storage.kernel.settings
        disk = await asyncio.to_thread(shutil.disk_usage, self._storage.folder)
        set_aside = await asyncio.to_thread(count_damaged, self._storage.folder)
        return {"bytes": statistics["log_bytes"], "segments": statistics["log_segments"],
                "kept_bytes": statistics["kept_bytes"], "retention_bytes": settings.retention_bytes,
                "kept_limit_bytes": settings.kept_bytes, "dropped_segments": statistics["dropped_segments_total"],
                "damaged_ranges": self._storage.damaged_ranges, "mended_headers": self._storage.mended_headers,
                "set_aside_files": set_aside.files, "set_aside_bytes": set_aside.bytes,
                "disk_free_bytes": disk.free, "disk_bytes": disk.total,
                "full": self._storage.kernel.is_refusing}

    def _describe_transactions(self) -> dict[str, int]:
        counts = self._storage.transactions.statistics()
        return {"open": counts["transactions_open"], "open_bytes": counts["transactions_open_bytes"],
                "members": counts["transaction_members"], "committed": counts["transactions_committed_total"],
                "rolled_back": counts["transactions_rolled_back_total"],
                "expired": counts["transactions_expired_total"]}

    async def _count_groups(self) -> dict[str, int]:
        """Summed up in pieces, and the more there are the more seldom."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        if began_s < self._groups_until_s:
            return self._groups
        groups = self._storage.kernel.groups.in_memory()
        ready = leased = waiting = 0
        for number, group in enumerate(groups, 1):
            counts = group.counts()
            ready, leased, waiting = ready + counts.ready, leased + counts.leased, waiting + counts.waiting
            if number % GROUPS_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._groups = {"active": len(groups), "ready": ready, "leased": leased, "waiting": waiting}
        self._groups_until_s = loop.time() + RESTS * (loop.time() - began_s)
        return self._groups
