"""The memory that the hub may have, `hub.memory_bytes`, what of it is in use, and how the process gives back what it
freed.

What grows with what clients do is counted by those who hold it (`add`); what the process has in RAM is looked at beside
it. The larger of the two shares says how much of the budget is used, but memory that nobody counts makes no publisher
wait: it may have been freed and not be given back, and then waiting frees nothing. It is asked for back instead.
"""
from __future__ import annotations

import asyncio
import ctypes
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

# --- memory of this process ---------------------------------------------------------------------------------------

# The C library keeps what is freed behind something that is still in use. The buffers of a few hundred clients that
# stalled lie scattered: measured, all of their 90 MiB stayed when they had gone, and `malloc_trim` gave back all but
# three. It takes about 0.4 ms for each MiB that goes, and whoever needs a large piece of memory waits meanwhile. So it
# runs on another thread, once, some seconds after much was freed, where the C library has it (glibc).

GIVE_BACK_S: Final = 3.0         # after much was freed; what is freed meanwhile goes along


def resident_bytes() -> int:
    """Memory of this process that is in RAM; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()


def give_back() -> None:
    """Give what is free back to the system."""
    trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class GivingBack:
    """Gives memory back once, some time after it was asked for, however often that is."""

    def __init__(self, aio: asyncio.AbstractEventLoop, give: Callable[[], None] = give_back) -> None:
        self._aio = aio
        self._give = give
        self._handle: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """Much was freed, or is about to be."""
        if self._handle is None:
            self._handle = self._aio.call_later(GIVE_BACK_S, self._begin)

    def _begin(self) -> None:
        self._handle = None
        self._aio.run_in_executor(None, self._give)


# --- the budget ---------------------------------------------------------------------------------------------------

CGROUP_FILES: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
PART: Final = 0.75
"""Of what the machine, or the container, has, where nothing is set."""

SEEN_MOST: Final = 0.99
"""The share that memory which nobody counts comes to at most: new connections wait for it, publishers do not."""


class MemoryBudget:
    """How many bytes the hub may use, and what share of them is in use."""

    def __init__(self, limit_bytes: int, give_back: Callable[[], None],
                 holders: dict[str, Callable[[], int]] | None = None,
                 resident: Callable[[], int] = resident_bytes) -> None:
        """`give_back` has the process give back what it has freed, some time later."""
        self.limit_bytes: Final = limit_bytes or default_bytes()
        self._give_back = give_back
        self._resident = resident
        self._holders = {} if holders is None else holders

    def add(self, name: str, held_bytes: Callable[[], int]) -> None:
        """Somebody who holds memory for clients, and says how much."""
        self._holders[name] = held_bytes

    def remove(self, name: str) -> None:
        """Undo `add`."""
        self._holders.pop(name, None)

    def held(self) -> dict[str, int]:
        """Bytes by who holds them."""
        return {name: held_bytes() for name, held_bytes in self._holders.items()}

    def share(self) -> float:
        """How much of the budget is in use; 1 and more: it is used up."""
        counted = sum(self.held().values()) / self.limit_bytes
        seen = self._resident() / self.limit_bytes
        if seen >= 1 and counted < 1:
            self._give_back()
        return max(counted, min(seen, SEEN_MOST))


def default_bytes() -> int:
    """Three quarters of what there is to have."""
    there = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in CGROUP_FILES:
        try:
            there.append(int(Path(name).read_text()))
        except (OSError, ValueError):        # there is no such file, or it says `max`
            continue
    return int(min(there) * PART)
