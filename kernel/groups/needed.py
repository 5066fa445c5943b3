"""What leases need of the log beyond retention; see `kernel.retention.holders.Holder`.

All that is not settled of a queue, and of a topic's partition what is leased, waits for its next time or is ready
again. What nobody has had of a topic yet goes with its segment: a group that lags beyond retention has lost it.
"""
from __future__ import annotations

from gatehouse.kernel.groups.leasing import Leasing
from gatehouse.kernel.parts import Parts
from gatehouse.kernel.retention.holders import NONE_NEEDED, Stretch


class NeededByCursors:
    """`kernel.retention.holders.Holder` for every cursor. A topic's cursor that is not in memory has nothing out."""

    def __init__(self, parts: Parts, leasing: Leasing) -> None:
        self._topics = parts.topics
        self._watermarks = parts.watermarks
        self._leasing = leasing

    def needed(self, partition_id: int, start: int, stop: int) -> list[Stretch]:
        readers = self._leasing.reading(partition_id)
        if self._topics.of_partition(partition_id) is not None:
            self._leasing.note_leaving(partition_id, stop)
        if readers:
            stretches: list[Stretch] = []
            for group, prefetcher in readers:
                end = stop if group.queue is not None else min(stop, prefetcher.cursor.next)
                if end < stop and not self._topics.is_compacted(partition_id):
                    self._leasing.touch_lazily(prefetcher.cursor)
                    prefetcher.overtake(stop)                  # what is going is handed to nobody in the meantime
                stretches += prefetcher.cursor.unsettled_stretches(start, end)
            return stretches
        if self._topics.of_partition(partition_id) is not None:
            return []
        log_start = self._watermarks.log_start(partition_id)  # nor is a deleted partition's below its end
        return [(max(start, log_start if start >= log_start else self._leasing.queues.committed(partition_id)), stop)]

    def first_needed(self, partition_id: int) -> int:
        readers = self._leasing.reading(partition_id)
        if not readers:
            of_topic = self._topics.of_partition(partition_id) is not None
            return NONE_NEEDED if of_topic else self._leasing.queues.committed(partition_id)
        return min([prefetcher.cursor.committed if group.queue is not None
                    or prefetcher.cursor.committed < prefetcher.cursor.next
                    else NONE_NEEDED for group, prefetcher in readers])
