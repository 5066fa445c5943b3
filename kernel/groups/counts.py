"""How a leased group is, in numbers."""
from __future__ import annotations

from typing import NamedTuple


class Counts(NamedTuple):
    """A group at this second."""

    ready: int
    leased: int
    waiting: int
    settled: int           # since the hub's start
    dead: int              # likewise
    expired: int           # likewise
    lost: int              # likewise: overtaken by retention, or damaged
    dropped: int           # likewise: gave way at the queue's limit
    oldest_ms: int         # when the oldest message that is not settled was appended; 0 where there is none
