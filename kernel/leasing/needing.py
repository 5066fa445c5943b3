"""What leases need of the log beyond retention; see `kernel.retention.owed.Owed`.

All that is not settled of a light queue, and of a topic's queue what is leased, waits for its next time or is ready
again. What nobody has had of a topic yet goes with its segment: a group that lags beyond retention has lost it.
"""
from __future__ import annotations

from kernel.leasing.leasing import Leasing
from kernel.parts import Parts
from kernel.retention.owed import NONE_NEEDED, Stretch


class NeededByLines:
    """`kernel.retention.owed.Owed` for every line. A topic's line that is not in memory has nothing out."""

    def __init__(self, parts: Parts, leasing: Leasing) -> None:
        self._topics = parts.topics
        self._heads = parts.heads
        self._leasing = leasing

    def wanted(self, queue_id: int, start: int, stop: int) -> list[Stretch]:
        readers = self._leasing.reading(queue_id)
        if self._topics.of_queue(queue_id) is not None:
            self._leasing.note_leaving(queue_id, stop)
        if readers:
            found: list[Stretch] = []
            for group, supply in readers:
                end = stop if group.queue is not None else min(stop, supply.line.next)
                if end < stop and not self._topics.is_compacted(queue_id):
                    self._leasing.touch_lazily(supply.line)
                    supply.overtake(stop)                  # what is going is handed to nobody in the meantime
                found += supply.line.unsettled_stretches(start, end)
            return found
        if self._topics.of_queue(queue_id) is not None:
            return []
        known = self._heads.log_start(queue_id)        # not below the floor, nor is a deleted queue's below its end
        return [(max(start, known if start >= known else self._leasing.light.floor(queue_id)), stop)]

    def first_needed(self, queue_id: int) -> int:
        readers = self._leasing.reading(queue_id)
        if not readers:
            return NONE_NEEDED if self._topics.of_queue(queue_id) is not None else self._leasing.light.floor(queue_id)
        return min([supply.line.floor if group.queue is not None or supply.line.floor < supply.line.next
                    else NONE_NEEDED for group, supply in readers])
