"""What leases need of the log beyond retention; see `kernel.retention.owed.Owed`.

All that is not settled of a queue, and of a topic's partition what is leased, waits for its next time or is ready
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

    def wanted(self, partition_id: int, start: int, stop: int) -> list[Stretch]:
        readers = self._leasing.reading(partition_id)
        if self._topics.of_partition(partition_id) is not None:
            self._leasing.note_leaving(partition_id, stop)
        if readers:
            found: list[Stretch] = []
            for group, supply in readers:
                end = stop if group.queue is not None else min(stop, supply.line.next)
                if end < stop and not self._topics.is_compacted(partition_id):
                    self._leasing.touch_lazily(supply.line)
                    supply.overtake(stop)                  # what is going is handed to nobody in the meantime
                found += supply.line.unsettled_stretches(start, end)
            return found
        if self._topics.of_partition(partition_id) is not None:
            return []
        known = self._heads.log_start(partition_id)  # not below the floor, nor is a deleted partition's below its end
        return [(max(start, known if start >= known else self._leasing.queues.floor(partition_id)), stop)]

    def first_needed(self, partition_id: int) -> int:
        readers = self._leasing.reading(partition_id)
        if not readers:
            of_topic = self._topics.of_partition(partition_id) is not None
            return NONE_NEEDED if of_topic else self._leasing.queues.floor(partition_id)
        return min([supply.line.floor if group.queue is not None or supply.line.floor < supply.line.next
                    else NONE_NEEDED for group, supply in readers])
