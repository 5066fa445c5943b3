"""Memory of this process: how much there is, and giving back what was freed.

The C library keeps what is freed behind something that is still in use, and the buffers of a few hundred clients that
stalled lie scattered: measured, all of their 90 MiB stayed when they had gone, and `malloc_trim` gave back all but
three. It takes about 0.4 ms for each MiB that goes, in which others wait that need large pieces of memory: so it runs
on another thread, once, some seconds after much was freed, where the C library has it (glibc).
"""
from __future__ import annotations

import asyncio
import ctypes
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

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
    """Once, some time after it was asked for, however often it is."""

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
