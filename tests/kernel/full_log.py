"""A log that says it is full while it is told to."""
from __future__ import annotations

from gatehouse.kernel.log.log import LogFull
from gatehouse.kernel.log.memory_log import MemoryLog


class FullLog(MemoryLog):
    full = False

    def append(self, head: bytes, body: bytes) -> int:
        if self.full:
            raise LogFull("no space left on device")
        return super().append(head, body)
