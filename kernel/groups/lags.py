"""How far every group is behind, and every queue: what the metrics page shows of consumers.

A look takes a while where there are many: it goes through so many cursors and no more, and says what it left out.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.leasing import Leasing
from gatehouse.kernel.state.state import Views, Watermarks
from gatehouse.kernel.state.topics import Topics

MAX_CURSORS: Final = 50_000          # of all groups, in one look: 20 ms
MAX_OLDEST: Final = 16               # partitions of a group whose oldest message is looked for


class Lag(NamedTuple):
    """One group in one topic, or one queue, at this second."""

    tenant: str
    group: str               # "" where it is a queue
    of: str                  # the topic, or the queue
    lag: int                 # messages that are not settled, or not read
    ready: int = 0
    leased: int = 0
    waiting: int = 0


class Lags:
    """Looks how far every group is behind, and every queue. `append_ms` says when the message at an offset of a
    partition was appended, 0 where none is there."""

    def __init__(self, *, leasing: Leasing, views: Views, topics: Topics, watermarks: Watermarks,
                 append_ms: Callable[[int, int], int]) -> None:
        self._leasing = leasing
        self._views = views
        self._topics = topics
        self._watermarks = watermarks
        self._append_ms = append_ms

    def look(self) -> tuple[list[Lag], int]:
        """Every group in each of its topics, and every queue that is in use; and how many groups were left out."""
        left = MAX_CURSORS
        lags: list[Lag] = []
        left_out = 0
        in_memory: set[tuple[str, str]] = set()
        for group in self._leasing.in_memory():
            in_memory.add((group.tenant, group.name))
            left -= len(group.prefetchers)
            if left < 0:
                left_out += 1
                continue
            lag = self._of_leased(group)
            if lag is not None:
                lags.append(lag)
        for name, offsets in self._views.offsets.items():
            if left < 0:
                left_out += 1
                continue
            left -= len(offsets)
            lags += [lag for lag in self._of_offsets(name, offsets) if (lag.tenant, name) not in in_memory]
        return lags, left_out

    def _of_leased(self, group: LeasedGroup) -> Lag | None:
        leased = waiting = 0
        for prefetcher in group.prefetchers.values():
            leased += prefetcher.cursor.leased_count
            waiting += prefetcher.cursor.waiting_count
        ready = group.ready
        if group.queue is not None:
            return Lag(group.tenant, "", group.queue.name, ready + leased + waiting, ready, leased, waiting)
        topic = self._topics.by_id(group.topic_id)
        return None if topic is None else Lag(group.tenant, group.name, topic.name, ready + leased + waiting, ready,
                                              leased, waiting)

    def _of_offsets(self, name: str, offsets: dict[int, tuple[int, bytes]]) -> Iterator[Lag]:
        behind: dict[tuple[str, str], int] = {}
        for partition_id, (offset, _) in offsets.items():
            topic_partition = self._topics.of_partition(partition_id)
            if topic_partition is not None:
                key = topic_partition[0].tenant, topic_partition[0].name
                start = max(offset, self._watermarks.log_start(partition_id))
                behind[key] = behind.get(key, 0) + max(0, self._watermarks.next_offset(partition_id) - start)
        for (tenant, topic), lag in behind.items():
            yield Lag(tenant, name, topic, lag)

    def oldest_ms(self, lag: Lag) -> int:
        """When the oldest message was appended that one of these is behind with; 0 where there is none."""
        if not lag.lag:
            return 0
        oldest: list[int] = []
        for partition_id, offset in self._committed(lag):
            if offset < self._watermarks.next_offset(partition_id):
                oldest.append(self._append_ms(partition_id, max(offset, self._watermarks.log_start(partition_id))))
                if len(oldest) >= MAX_OLDEST:
                    break
        return min([at_ms for at_ms in oldest if at_ms], default=0)

    def _committed(self, lag: Lag) -> Iterator[tuple[int, int]]:
        if not lag.group:
            queue = self._leasing.queues.definitions.get(lag.tenant, lag.of)
            group = None if queue is None else self._leasing.queues.group_in_memory(queue)
        else:
            topic = self._topics.get(lag.of, lag.tenant)
            active = self._leasing.active(lag.tenant, lag.group)
            group = next((each for each in active if topic is not None and each.topic_id == topic.id), None)
            if group is None and topic is not None:
                offsets = self._views.offsets.get(lag.group, {})
                yield from [(partition_id, offsets[partition_id][0]) for partition_id in topic.partition_ids()
                            if partition_id in offsets]
        if group is not None:
            yield from [(partition_id, prefetcher.cursor.committed)
                        for partition_id, prefetcher in group.prefetchers.items()]
