"""How many connections the descriptors allow, counted over all doors: none may take those that the log needs."""
from __future__ import annotations

import resource
from typing import Final

RESERVED_DESCRIPTORS: Final = 256     # for the log's segments, the index, the SQL file, listeners, the loop itself


def descriptor_capacity() -> int:
    """How many connections the soft descriptor limit allows beside what the hub itself needs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, soft - RESERVED_DESCRIPTORS)


class Capacity:
    """How many connections may be open, over all doors, and how many are."""

    __slots__ = ("limit", "open")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0
