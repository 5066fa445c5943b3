"""Queues by name, and the group that each is of itself.

A queue is a definition in the state until somebody uses it; then its group is in memory. Queues that are limited, or in
which something is to happen by itself, are in memory from the start on.
"""
from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.errors import QueueExists
from gatehouse.kernel.groups.dead_lettering import PREFIX
from gatehouse.kernel.groups.definitions import queue_definitions
from gatehouse.kernel.groups.expiry import Expiry, Sweep
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.idle import Idle
from gatehouse.kernel.groups.max_length import MaxLengths
from gatehouse.kernel.groups.settings import ASSIGNED, GroupSettings, Queue, QueueSettings, binding_key, check_name
from gatehouse.kernel.groups.sharing import shared_name
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.parts import Parts
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.state.views import decode_offset, offset_record
from gatehouse.kernel.write.pending_frame import PendingFrame

if TYPE_CHECKING:
    from gatehouse.kernel.groups.leasing import Leasing

REST_MS: Final = 15_000
"""A queue's group that rests at two looks in a row leaves memory; this lies between looks."""

_QUEUE = struct.Struct(">Q")


class Queues:
    def __init__(self, parts: Parts, leasing: Leasing, open_frame: Callable[[], PendingFrame],
                 pending: Callable[[], list[PendingFrame]]) -> None:
        self._parts = parts
        self._leasing = leasing
        self._open_frame = open_frame
        self.definitions = queue_definitions(parts.state)
        self.max_lengths = MaxLengths(leasing, parts.subscriptions.limited, pending)
        self.idle = Idle(leasing)
        self._listeners: list[Callable[[Queue], None]] = []      # see `on_gone`
        self._groups: dict[int, LeasedGroup] = {}      # by first partition id
        self._pending = pending
        self._resting: set[LeasedGroup] = set()        # as of the last look
        self._started = False

    def start(self) -> None:
        """What happens to queues without anybody's doing begins."""
        self._started = True
        queues = [self.definitions.read(key, value) for key, value in self._parts.state.scan(Kind.QUEUE)]
        for queue in queues:
            if queue.settings.watched:
                self.group_of(queue)
            if queue.settings.expires_ms:
                self.idle.watch_again(queue)
        for group in self.in_memory():
            self._leasing.deadlines.act(partial(self._begin, group))
        self._leasing.deadlines.at(self._leasing.now_ms() + REST_MS, self._let_go)
        Sweep(self._parts, self._leasing).begin([queue for queue in queues
                                                 if queue.first_partition_id not in self._groups])

    @staticmethod
    def _begin(group: LeasedGroup) -> None:
        if group.limit is not None:
            group.limit.room()                         # begins to learn what its messages weigh
            group.limit.enforce()
        if group.expiry is not None:
            group.expiry.look()

    def tenants(self) -> dict[int, str]:
        """The tenant of every queue, by its first partition id."""
        queues = (self.definitions.read(key, value) for key, value in self._parts.state.scan(Kind.QUEUE))
        return {queue.first_partition_id: queue.tenant for queue in queues}

    def in_memory(self) -> list[LeasedGroup]:
        """The groups of queues that somebody uses."""
        return list(self._groups.values())

    def is_taken_from(self, queue: Queue) -> bool:
        """Whether anybody is there to take."""
        group = self._groups.get(queue.first_partition_id)
        return group is not None and group.taken_from

    def committed(self, partition_id: int) -> int:
        """Everything below is settled, as far as is stored."""
        stored = self._parts.state.get(Kind.OFFSET, _QUEUE.pack(partition_id))
        return 0 if stored is None else decode_offset(stored)[0]

    def _let_go(self) -> None:
        """Groups that nobody has used for a while and of which nothing is outstanding leave memory."""
        pending = {cursor for pending_frame in self._pending() for cursor in pending_frame.cursors}
        resting = {group for group in self._groups.values() if rests(group)
                   and pending.isdisjoint([prefetcher.cursor for prefetcher in group.prefetchers.values()])}
        for group in resting & self._resting:
            assert group.queue is not None
            del self._groups[group.queue.first_partition_id]
            self._leasing.end(group)
        self._resting = resting - self._resting
        self._leasing.deadlines.at(self._leasing.now_ms() + REST_MS, self._let_go)

    # ---- definitions

    def declare(self, name: str, settings: QueueSettings, tenant: str) -> Queue:
        """The queue of this name; made where it is missing. Raises QueueExists, InvalidQueue, Stopping."""
        existing = self.definitions.get(tenant, name)
        if existing is not None:
            if existing.settings != settings:
                raise QueueExists(f"queue {name!r} exists with other settings")
            self.idle.use(existing)
            return existing
        check_name(name.removeprefix(PREFIX), "queue")
        settings.check()
        pending_frame = self._open_frame()
        first = self._parts.topics.new_partition_ids(settings.priorities)
        queue = Queue(tenant, name, first, settings, pending_frame.builder.now_ms, pending_frame.now_ms)
        pending_frame.state += [self.definitions.put(tenant, name, queue),
                            StateRecord(Kind.COUNTERS, b"", self._parts.topics.counters())]
        if settings.watched:
            self.group_of(queue)
        if settings.expires_ms:
            self.idle.watch(queue, queue.used_ms)
        return queue

    def redefine(self, queue: Queue) -> None:
        """Write down what has changed of a queue. Raises Stopping."""
        self._open_frame().state.append(self.definitions.put(queue.tenant, queue.name, queue))

    def delete(self, queue: Queue) -> None:
        """The queue with everything in it, and its bindings. Raises Stopping."""
        pending_frame = self._open_frame()
        pending_frame.state.append(self.definitions.put(queue.tenant, queue.name, None))
        for partition_id in queue.partition_ids():
            pending_frame.state.append(offset_record("", partition_id, None))
        if queue.first_partition_id in self._groups:
            pending_frame.state += self._leasing.page_deletions(pending_frame, self._groups[queue.first_partition_id])
        pending_frame.deleted += ((queue.first_partition_id, queue.settings.priorities),)
        subscriptions = self._parts.subscriptions
        for chosen, filter_text in subscriptions.bindings_of(queue.first_partition_id):
            subscriptions.unbind(filter_text, queue.first_partition_id, chosen)
            key = binding_key(queue.first_partition_id, chosen, filter_text)
            pending_frame.state.append(StateRecord(Kind.BINDING, key, None))
        self.forget(queue)
        self._parts.topics.version += 1                # placements that lead to it are looked at again
        subscriptions.touch()

    def forget(self, queue: Queue) -> None:
        """It is not there any more."""
        self.max_lengths.forget(queue)
        self.idle.forget(queue)
        group = self._groups.pop(queue.first_partition_id, None)
        if group is not None:
            self._leasing.end(group)
        for listener in self._listeners:
            listener(queue)

    def on_gone(self, listener: Callable[[Queue], None]) -> None:
        """Tell `listener` of every queue that is not there any more, whoever deleted it."""
        self._listeners.append(listener)

    # ---- groups

    def group_of(self, queue: Queue) -> LeasedGroup:
        """The group that a queue is of itself."""
        return self._groups.get(queue.first_partition_id) or self._make(queue)

    def _make(self, queue: Queue) -> LeasedGroup:
        of_queue, shared = queue.settings, shared_name(queue)
        group = LeasedGroup(self._leasing, queue.tenant, "", 0, self._group_settings(queue, shared))
        group.queue, group.shared = queue, shared
        group.by_priority = of_queue.priorities > 1
        group.ttl_ms = of_queue.ttl_ms
        self._groups[queue.first_partition_id] = group
        for partition_id in queue.partition_ids():
            self._leasing.add_line(group, partition_id, self.committed(partition_id)).dated = of_queue.ttl_ms > 0
        group.expiry = Expiry(self._leasing, group)
        if of_queue.limited:
            group.limit = self.max_lengths.add(group, queue)
        if self._started:
            self._begin(group)
        return group

    def _group_settings(self, queue: Queue, shared: str) -> GroupSettings:
        """A queue says itself how often it hands out a message. Behind a shared filter the group of that name does, and
        when it does so again."""
        of_queue = queue.settings
        if not shared:
            return GroupSettings(max_attempts=of_queue.max_attempts, single_active=of_queue.single_active)
        settings = self._leasing.groups.get(queue.tenant, shared)
        if settings is None or settings.kind == ASSIGNED:
            settings = GroupSettings()
        return GroupSettings(max_attempts=settings.max_attempts, dead_letters=settings.dead_letters,
                             retry=settings.retry, single_active=settings.single_active)

    def configure_shared(self, tenant: str, name: str) -> None:
        """The settings of a group have changed: of its queues behind shared filters, too."""
        for group in self._groups.values():
            if group.shared == name and group.tenant == tenant and group.queue is not None:
                group.configure(self._group_settings(group.queue, name))


def rests(group: LeasedGroup) -> bool:
    """Whether nobody takes from a queue, nothing is outstanding, and nothing is to happen in it by itself."""
    watched = group.queue is None or group.queue.settings.watched or group.expiry is None or group.expiry.watches
    return not group.taken_from and not watched and all(prefetcher.rests for prefetcher in group.prefetchers.values())
