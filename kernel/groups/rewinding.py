"""Groups as a whole: which there are, what they read, moving them to other offsets, forgetting them."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gatehouse.kernel.errors import OffsetOutOfRange, UnknownGroup, UnknownPartition
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.leasing import Leasing
from gatehouse.kernel.groups.settings import ASSIGNED, GroupSettings
from gatehouse.kernel.parts import Parts
from gatehouse.kernel.state.topics import Topic
from gatehouse.kernel.state.views import offset_record
from gatehouse.kernel.write.pending_frame import PendingFrame

UNDEFINED: Final = GroupSettings(kind=ASSIGNED)
"""A group that only commits offsets needs no definition."""


class Rewinding:
    def __init__(self, parts: Parts, leasing: Leasing, open_frame: Callable[[], PendingFrame]) -> None:
        self._parts = parts
        self._leasing = leasing
        self._open_frame = open_frame

    def settings(self, tenant: str, name: str) -> GroupSettings | None:
        """A group's settings; None where nobody has defined or used it."""
        settings = self._leasing.groups.get(tenant, name)
        return UNDEFINED if settings is None and self.topics(tenant, name) else settings

    def all(self, tenant: str) -> list[tuple[str, GroupSettings]]:
        """Every group of a tenant, sorted by name."""
        groups = dict(self._leasing.groups.all(tenant))
        for name in self._parts.views.offsets:
            if name not in groups and self.topics(tenant, name):
                groups[name] = UNDEFINED
        return sorted(groups.items())

    def topics(self, tenant: str, name: str) -> list[Topic]:
        """What the group has progress in, sorted by name."""
        partition_ids = set(self._parts.views.offsets.get(name, ()))
        for group in self._leasing.active(tenant, name):
            partition_ids.update(group.prefetchers)
        topic_partitions = [self._parts.topics.of_partition(partition_id) for partition_id in partition_ids]
        topics = {of[0].id: of[0] for of in topic_partitions if of is not None and of[0].tenant == tenant}
        return sorted(topics.values(), key=lambda topic: topic.name)

    def offsets(self, tenant: str, name: str, topic: Topic) -> dict[int, int]:
        """Per partition id, as far as the group has met the partition, the first offset that is not settled."""
        offsets = {partition_id: offset
                   for partition_id, (offset, _) in self._parts.views.offsets.get(name, {}).items()}
        for group in self._leasing.active(tenant, name):
            offsets.update({partition_id: prefetcher.cursor.committed for partition_id,
                            prefetcher in group.prefetchers.items()})
        return {partition_id: offsets[partition_id] for partition_id in topic.partition_ids()
                if partition_id in offsets}

    def behind(self, topics: list[Topic]) -> Iterator[tuple[int, int]]:
        """See `Groups.behind`; as far as is durable."""
        watermarks = self._parts.watermarks
        of_partition = {partition_id: topic.id for topic in topics for partition_id in topic.partition_ids()}
        for offsets in list(self._parts.views.offsets.values()):
            lags: dict[int, int] = {}
            for partition_id in offsets.keys() & of_partition.keys():
                begin = max(offsets[partition_id][0], watermarks.log_start(partition_id))
                topic_id = of_partition[partition_id]
                lags[topic_id] = lags.get(topic_id, 0) + max(watermarks.next_offset(partition_id) - begin, 0)
            yield from lags.items()

    def rewind(self, group: LeasedGroup, topic: Topic, offsets: Mapping[int, int]) -> None:
        """Go on from these offsets, by partition id, forward or back; what is leased or settled from there on counts no
        more. Raises UnknownPartition, OffsetOutOfRange, Stopping, with nothing changed."""
        watermarks = self._parts.watermarks
        partition_ids = set(topic.partition_ids())
        for partition_id, offset in offsets.items():
            if partition_id not in partition_ids:
                raise UnknownPartition(f"the topic {topic.name} has no partition of the id {partition_id}")
            start, end = watermarks.log_start(partition_id), watermarks.next_offset(partition_id)
            if not start <= offset <= end:
                raise OffsetOutOfRange(f"the partition holds the offsets {start} to {end}, the next, not {offset}")
        pending_frame = self._open_frame()
        for partition_id, offset in offsets.items():
            prefetcher = group.prefetchers.get(partition_id) or self._leasing.add_line(group, partition_id, offset)
            pending_frame.cursors.pop(prefetcher.cursor, None)
            group.drop_found(prefetcher.cursor)
            prefetcher.begin_anew(offset, self._leasing.new_epoch())
            self._leasing.touch(prefetcher.cursor)
            group.cursor_ready(prefetcher)

    def delete(self, tenant: str, name: str) -> None:
        """Forget settings, progress and leases. Raises UnknownGroup, GroupHasMembers, Stopping."""
        if self.settings(tenant, name) is None:
            raise UnknownGroup(f"there is no group {name!r}")
        self._leasing.live.require_no_members(tenant, name)
        pending_frame = self._open_frame()
        pending_frame.state.append(self._leasing.groups.put(tenant, name, None))
        for topic in self.topics(tenant, name):
            pending_frame.state += [offset_record(name, partition_id, None)
                                for partition_id in self.offsets(tenant, name, topic)]
        for group in self._leasing.active(tenant, name):
            pending_frame.state += self._leasing.page_deletions(pending_frame, group)
        self._leasing.forget_group(tenant, name)
        self._leasing.queues.configure_shared(tenant, name)
