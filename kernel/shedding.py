"""What the hub leaves undone when there is too much of it, in a declared order. Pure.

    TRACE_EVENTS       journeys of messages are not recorded
    BULK_READS         replays and reads of what only the disk has wait for their turn
    QOS_0              what MQTT may lose is not taken
    NEW_CONNECTIONS    nobody new is let in; who comes back under its client id is
    PUBLISHERS         publishing waits, on every door in its words

What stands above in this list is left undone too. Acknowledgements, pings and the control plane never are, and nothing
that was acknowledged is ever given up. Who measures the pressure sets the level; who does the work looks at it.
"""
# decision 250: one ladder, and everybody looks at the rung it is on
from __future__ import annotations

from enum import IntEnum
from typing import Final


class Rung(IntEnum):
    """How far it has come; see the module's text."""

    NOTHING = 0
    TRACE_EVENTS = 1
    BULK_READS = 2
    QOS_0 = 3
    NEW_CONNECTIONS = 4
    PUBLISHERS = 5


# decision 357: looked up once
TRACE_EVENTS: Final = Rung.TRACE_EVENTS
BULK_READS: Final = Rung.BULK_READS
QOS_0: Final = Rung.QOS_0
PUBLISHERS: Final = Rung.PUBLISHERS

NAMES: Final = {Rung.TRACE_EVENTS: "trace_events", Rung.BULK_READS: "bulk_reads", Rung.QOS_0: "qos_0",
                Rung.NEW_CONNECTIONS: "new_connections", Rung.PUBLISHERS: "publishers"}
"""For people, metrics and the log."""

WAIT_MS: Final = 500
"""For how long a publisher is told to wait at once while publishing waits: it is asked again then."""


class Shedding:
    """The level of one hub, and what was left undone at each rung since its start."""

    __slots__ = ("counts", "level")

    def __init__(self) -> None:
        self.level: int = Rung.NOTHING
        self.counts: dict[Rung, int] = dict.fromkeys(NAMES, 0)

    def set_level(self, level: int) -> None:
        """Work of this rung and of those below is left undone from now on."""
        self.level = level

    def leaves(self, rung: Rung, count: int = 1) -> bool:
        """Whether work of this rung is to be left undone now; it is counted then."""
        if self.level < rung:
            return False
        self.counts[rung] += count
        return True

    @property
    def left(self) -> list[str]:
        """The names of what is left undone now."""
        return [name for rung, name in NAMES.items() if rung <= self.level]
