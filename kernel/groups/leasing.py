"""Leased groups over topics, and what happens to every group at a start, in a frame and after it.

    ack, pop, release ─► cursor changes ─► touch: into the pending frame ─► seal: changed pages as state records
    a durable frame   ─► its partitions ─► the cursors that read them ─► their groups serve
    a refused frame   ─► definitions, bindings and cursors are as they are stored

Memory is ahead of the log by what gathers and by one frame that is on its way.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.addresses.subscriptions import Subscriptions
from gatehouse.kernel.errors import AssignedGroup, GroupIsLeased, KernelError
from gatehouse.kernel.groups.core import Core
from gatehouse.kernel.groups.cursors import PAUSE_MS, Cursors
from gatehouse.kernel.groups.dead_lettering import DeadLettering, DeadLetters
from gatehouse.kernel.groups.definitions import GroupDefinitions, LiveGroups, QueueDefinitions
from gatehouse.kernel.groups.expiry import Expiry, QueueExpiry
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import ASSIGNED, GroupSettings, Pausing, Queue, check_name
from gatehouse.kernel.groups.max_length import MaxLengths
from gatehouse.kernel.groups.ordering import Ordering
from gatehouse.kernel.groups.policy import Policy
from gatehouse.kernel.groups.queues import Queues
from gatehouse.kernel.groups.selecting import Selecting, Selectors
from gatehouse.kernel.ids import Identity
from gatehouse.kernel.index.reader import Reader
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.receipts.receipts import Receipts
from gatehouse.kernel.recorder import Recorder
from gatehouse.kernel.state.state import Kind, StateTable, Views
from gatehouse.kernel.state.topics import Topic, Topics
from gatehouse.kernel.state.watermarks import Watermarks
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.pending_frame import PendingFrame

NEVER: Final = Pausing()


class Policies:
    """Which policies a group has: the one place. Messages are judged in the order of the list."""

    def __init__(self, core: Core, topics: Topics, letters: DeadLetters, selectors: Selectors, max_lengths: MaxLengths
                 ) -> None:
        self._core = core
        self._topics = topics
        self._letters = letters
        self._selectors = selectors
        self._max_lengths = max_lengths

    def of_topic(self, group: LeasedGroup) -> list[Policy]:
        """Those of a group over a topic. Raises InvalidSelector."""
        return [Expiry(partial(self._ttl_ms, group.topic_id)), DeadLettering(self._letters, group),
                Selecting(self._selectors, group), Ordering(self._core, group)]

    def of_queue(self, group: LeasedGroup, queue: Queue) -> list[Policy]:
        """Those of a queue's own group."""
        return [QueueExpiry(self._core, group, queue), DeadLettering(self._letters, group),
                *self.limits_of(group, queue)]

    def limits_of(self, group: LeasedGroup, queue: Queue) -> list[Policy]:
        """The policy about how much is in a queue, where that is limited."""
        return [self._max_lengths.limit(self._core, group, queue)] if queue.settings.limited else []

    def _ttl_ms(self, topic_id: int) -> int:
        topic = self._topics.by_id(topic_id)
        return topic.settings.message_ttl_ms or 0 if topic is not None else 0


def assigned(name: str) -> AssignedGroup:
    """Why nothing is leased from this group."""
    return AssignedGroup(f"group {name!r} is an assigned one; messages cannot be leased from it")


class Leasing:
    """Takes part in frames and follows them, see `kernel.write.pending_frame`. `names` are those of `Selectors`;
    `on_committed` is told of a partition when a committed offset in it is written; `live` are the assigned groups that
    have members."""

    def __init__(self, *, loop: Loop, reader: Reader, watermarks: Watermarks, topics: Topics, views: Views,
                 state: StateTable, subscriptions: Subscriptions, places: Places, identity: Identity,
                 committer: Committer, names: Mapping[str, str], on_committed: Callable[[int], None],
                 on_error: Callable[[Exception], None], live: LiveGroups, recorder: Recorder | None = None,
                 receipts: Receipts | None = None) -> None:
        self.identity = identity
        self.live = live
        self.core = Core(loop, committer, self, reader.append_ms_of, on_error, recorder, receipts)
        self.cursors = Cursors(self.core, reader, watermarks, topics, views, state, committer.take_id, on_committed)
        self.definitions = GroupDefinitions(state)
        queue_definitions = QueueDefinitions(state, topics, self.core)
        self.letters = DeadLetters(self.core, places, topics, subscriptions, queue_definitions, identity)
        self.selectors = Selectors(names, topics, places.routes)
        max_lengths = MaxLengths(subscriptions.limited, committer.pending)
        self._policies = Policies(self.core, topics, self.letters, self.selectors, max_lengths)
        self.queues = Queues(self.core, self.cursors, self._policies, max_lengths, queue_definitions, self.definitions,
                             subscriptions, topics, state, loop, watermarks, reader.fetch_kept)
        self._topics = topics
        self._views = views
        self._state = state
        self._watermarks = watermarks
        self._on_error = on_error
        self._by_name: dict[tuple[str, str], dict[int, LeasedGroup]] = {}      # by tenant and name, then by topic
        self._of_topic: dict[int, list[LeasedGroup]] = {}
        self.waiting = self.cursors.readers              # a group that is in memory reads a partition at least
        self._undefined: dict[LeasedGroup, None] = {}    # whose definitions the disk refused: for the next frame

    # ---- opening and closing

    def open(self) -> None:
        """After recovery: load every cursor of which something is outstanding, bind queues again."""
        self.core.circuits.load(self._state, self._named)
        self.cursors.load(self._add)
        self.queues.bind_again()

    def _add(self, missing: list[tuple[int, str]]) -> None:
        """Bring the groups of these cursors (partition, group) into memory."""
        self.queues.add_groups_of({partition_id for partition_id, name in missing if not name})
        for partition_id, name in missing:
            topic_partition = self._topics.of_partition(partition_id)
            if name and topic_partition is not None:
                try:
                    self.of_topic(name, topic_partition[0])
                except KernelError as error:         # its settings make no sense to this version
                    self._on_error(error)

    def start(self) -> None:
        """Once everything is open: what happens to queues without anybody's doing begins."""
        self.queues.start()

    def stop(self) -> None:
        """Hand out nothing more."""
        self.core.stop()

    # ---- groups

    def of_topic(self, name: str, topic: Topic, start: str = "earliest") -> LeasedGroup:
        """The leased group of this name over a topic; made where it is missing, to begin at `start`.

        Raises InvalidGroup, AssignedGroup, Stopping.
        """
        group = self._by_name.get((topic.tenant, name), {}).get(topic.id)
        if group is None:
            return self._make(name, topic, self.require_leasable(topic.tenant, name), start)
        if group.settings.kind == ASSIGNED:
            raise assigned(name)
        return group

    def claim(self, tenant: str, name: str) -> None:
        """The name is a leased group's from now on. Raises InvalidGroup, AssignedGroup, Stopping."""
        if self.require_leasable(tenant, name) is None:
            self.core.store([self.definitions.put(tenant, name, GroupSettings())])

    def require_leasable(self, tenant: str, name: str) -> GroupSettings | None:
        """The settings of the name, which no assigned group has; None where nobody has it. Raises InvalidGroup,
        AssignedGroup."""
        check_name(name, "group")
        settings = self.definitions.get(tenant, name)
        if settings is None and self.has_offsets(tenant, name) or settings is not None and settings.kind == ASSIGNED:
            raise assigned(name)
        return settings

    def has_offsets(self, tenant: str, name: str) -> bool:
        """Whether a tenant's group of this name has committed offsets."""
        topic_partitions = map(self._topics.of_partition, self._views.offsets.get(name, ()))
        return any(of is not None and of[0].tenant == tenant for of in topic_partitions)

    def _make(self, name: str, topic: Topic, settings: GroupSettings | None, start: str) -> LeasedGroup:
        if settings is None:
            settings = GroupSettings(start=start)
            self.core.store([self.definitions.put(topic.tenant, name, settings)])
        group = LeasedGroup(self.core, topic.tenant, name, topic.id, settings)
        group.follow(self._policies.of_topic(group))
        self._by_name.setdefault((topic.tenant, name), {})[topic.id] = group
        self._of_topic.setdefault(topic.id, []).append(group)
        offsets = self._views.offsets.get(name, {})
        read = [partition_id for partition_id in topic.partition_ids()
                if partition_id in offsets or self._watermarks.next_offset(partition_id)]
        for partition_id in read or [topic.partition_id(0)]:
            prefetcher = self.cursors.add(group, partition_id)
            if settings.start == "latest" and partition_id not in offsets:
                self.cursors.write_committed(prefetcher.cursor)
        if offsets.keys().isdisjoint(read):          # from now on the group is known to read this topic
            self.cursors.write_committed(next(iter(group.prefetchers.values())).cursor)
        group.start()
        return group

    def define(self, tenant: str, name: str, settings: GroupSettings) -> None:
        """Make a group, or change its settings. Raises InvalidGroup, InvalidSelector, Stopping."""
        check_name(name, "group")
        settings.check()
        self.selectors.check(settings.selector)
        self.core.store([self.definitions.put(tenant, name, settings)])
        self.core.circuits.of(tenant, name, settings.pausing if settings.kind != ASSIGNED else NEVER)
        for group in self.active(tenant, name):
            group.configure(settings)
        self.queues.configure_shared(tenant, name)

    def check_commits(self, name: str, partition_ids: Iterable[int]) -> None:
        """Raises GroupIsLeased where messages of one of these partitions are leased from the group, GroupHasMembers
        where they are assigned to members."""
        tenants = {topic_partition[0].tenant for topic_partition in map(self._topics.of_partition, partition_ids)
                   if topic_partition is not None}
        for tenant in tenants:
            self.require_commits(tenant, name)
            self.live.require_no_members(tenant, name)

    def require_commits(self, tenant: str, name: str) -> None:
        """Raises GroupIsLeased where messages are leased from the group."""
        settings = self.definitions.get(tenant, name)
        if settings is not None and settings.kind != ASSIGNED:
            raise GroupIsLeased(f"messages of group {name!r} are leased and acked; it commits no offsets")

    def active(self, tenant: str, name: str) -> list[LeasedGroup]:
        """The groups of this name that are in memory, one per topic."""
        return list(self._by_name.get((tenant, name), {}).values())

    def _named(self, tenant: str, name: str) -> list[LeasedGroup]:
        """The groups of this name that are in memory, over topics and behind shared filters."""
        return self.active(tenant, name) + self.queues.shared(tenant, name)

    def in_memory(self) -> list[LeasedGroup]:
        """Every group that is in memory."""
        return self._over_topics() + self.queues.in_memory()

    def _over_topics(self) -> list[LeasedGroup]:
        return [group for named in self._by_name.values() for group in named.values()]

    def end_topic(self, topic: Topic) -> None:
        """The topic is deleted, and with it how far groups were in it. Raises Stopping."""
        for group in self._of_topic.get(topic.id, ()):
            self.cursors.delete_pages(group)
        self._forget_topic(topic.id)

    def configure_topic(self, topic: Topic) -> None:
        """The topic has other settings."""
        for group in self._of_topic.get(topic.id, ()):
            group.configure(group.settings)

    def _forget_topic(self, topic_id: int) -> None:
        """The topic is not there any more: its groups are gone with it."""
        for group in self._of_topic.pop(topic_id, []):
            self._forget(group)

    def delete(self, tenant: str, name: str) -> None:
        """The settings and leases of a group. Raises Stopping."""
        self.core.store([self.definitions.put(tenant, name, None)])
        self.core.circuits.of(tenant, name, NEVER)
        for group in self.active(tenant, name):
            self.cursors.delete_pages(group)
            self._of_topic[group.topic_id].remove(group)
            self._forget(group)
        self.queues.configure_shared(tenant, name)

    def _forget(self, group: LeasedGroup) -> None:
        named = self._by_name[group.tenant, group.name]
        del named[group.topic_id]
        if not named:
            del self._by_name[group.tenant, group.name]
        self.cursors.end(group)

    # ---- frames

    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """What has changed of cursors, as it is now."""
        frame.state.extend(self.cursors.seal())
        frame.state.extend(self.core.circuits.seal())
        if self._undefined:
            frame.state.extend([self.definitions.put(group.tenant, group.name, group.settings)
                                for group in self._undefined if not group.gone])
            self._undefined.clear()
        return 0

    def applied(self, frame: PendingFrame) -> None:
        """Definitions are told one by one, see `settle`; whoever reads is told by `follow`."""
        self.core.applied()
        self.core.circuits.applied()
        self.queues.let_go_of_unused()

    def settle(self, record: StateRecord) -> None:
        """This definition is durable."""
        if record.kind == Kind.QUEUE:
            self.queues.definitions.settle(record)
        else:
            self.definitions.settle(record)

    def follow(self, entered: AbstractSet[int]) -> None:
        """Messages entered these partitions: whoever reads them is served next turn, after the answers of this one."""
        for partition_id in entered:
            if self._of_topic:
                self._add_to_groups(partition_id)
            for group, prefetcher in self.cursors.readers.get(partition_id, ()):
                group.cursor_ready(prefetcher)

    def _add_to_groups(self, partition_id: int) -> None:
        """The partition may be one that groups over its topic have not met yet."""
        topic_partition = self._topics.of_partition(partition_id)
        if topic_partition is not None:
            for group in self._of_topic.get(topic_partition[0].id, ()):
                if partition_id not in group.prefetchers:
                    self.cursors.add(group, partition_id, 0)

    def failed(self, frames: list[PendingFrame]) -> None:  # decision 32
        """None of these was stored; topics are as they were already."""
        for topic_id in [topic_id for topic_id in self._of_topic if self._topics.by_id(topic_id) is None]:
            self._forget_topic(topic_id)
        self.definitions.undo()
        self.core.circuits.failed()
        self.queues.undo(frames)
        refused = self.core.failed()
        if not refused and not any(frame.state for frame in frames):
            return
        self.core.deadlines.pause(PAUSE_MS)
        self.queues.forget_undefined()
        for group in self._over_topics():
            settings = self.definitions.get(group.tenant, group.name)
            if settings is None:              # it was to be made, and is at work already: defined with its next frame
                self._undefined[group] = None
                self.core.join_next()
            else:
                group.configure(settings)     # and its topic is as it was
        self.cursors.restore(refused)
        self.cursors.load(self._add)
