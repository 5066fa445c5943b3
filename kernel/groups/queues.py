"""Queues by name, and the group that each is of itself.

A queue is a definition in the state until somebody uses it; then its group is in memory. Queues that are limited, or in
which something is to happen by itself, are in memory from the start on.

Queues that nobody uses for so long (`QueueSettings.expires_ms`) are deleted. Use is a member, a pop, a declaration, or
a session that sleeps and takes from the queue when it wakes.
When a queue was last used is kept with its definition, coarsely: a quarter of the time may pass before it is written
down again. A start gives whoever uses a queue the time to come back.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.addresses.subscriptions import Subscriptions
from gatehouse.kernel.errors import InvalidQueue, QueueExists, UnknownQueue
from gatehouse.kernel.groups.definitions import GroupDefinitions, QueueDefinitions
from gatehouse.kernel.groups.expiry import Sweep
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import (
    ASSIGNED,
    DEAD_LETTER_PREFIX,
    GroupSettings,
    Queue,
    QueueSettings,
    binding_key,
    check_name,
    decode_binding,
)
from gatehouse.kernel.groups.handing_out import Fetch
from gatehouse.kernel.groups.max_length import REJECT, MaxLength, MaxLengths, most
from gatehouse.kernel.groups.sharing import shared_name
from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.state.state import Kind, StateTable, Watermarks, offset_record
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.write.pending_frame import PendingFrame

if TYPE_CHECKING:
    from gatehouse.kernel.groups.leasing import Core, Cursors, Policies

REST_MS: Final = 15_000
"""A queue's group that rests at two looks in a row leaves memory; this lies between looks."""

USE_PARTS: Final = 4                   # of the time of an unused queue, before a use is written down again
SHORTEST_MS: Final = 100               # between two looks at a queue in use
COME_BACK_MS: Final = 60_000           # after a start, or the whole time where that is less
TRY_AGAIN_MS: Final = 1_000            # where the disk did not take the deletion


class Queues:
    """`definitions` are those of queues, `groups` those of groups: behind a shared filter a group says how its queue
    hands out messages. `fetch` reads partitions, and what is kept of them."""

    def __init__(self, core: Core, cursors: Cursors, policies: Policies, max_lengths: MaxLengths,
                 definitions: QueueDefinitions, groups: GroupDefinitions, subscriptions: Subscriptions, topics: Topics,
                 state: StateTable, loop: Loop, watermarks: Watermarks, fetch: Fetch) -> None:
        self.definitions = definitions
        self.max_lengths = max_lengths
        self._core = core
        self._cursors = cursors
        self._policies = policies
        self._group_definitions = groups
        self._subscriptions = subscriptions
        self._topics = topics
        self._state = state
        self._sweep = Sweep(core, loop, watermarks, fetch, definitions.get, self.group_of)
        self._unused = Unused(core, self)
        self._listeners: list[Callable[[Queue], None]] = []      # see `on_gone`
        self._has_sleeper: Callable[[str, str], bool] = _nobody_sleeps
        self._watermarks = watermarks
        self._groups: dict[int, LeasedGroup] = {}      # by first partition id
        self._resting: set[LeasedGroup] = set()        # as of the last look
        self._started = False

    def start(self) -> None:
        """What happens to queues without anybody's doing begins."""
        self._started = True
        queues = list(self.definitions.every())
        for queue in queues:
            if queue.settings.watched:
                self.group_of(queue)
            if queue.settings.expires_ms:
                self._unused.watch_again(queue)
        for group in self.in_memory():
            self._core.deadlines.act(group.start)
        self._core.deadlines.at(self._core.now_ms() + REST_MS, self._look_who_rests)
        self._sweep.begin([queue for queue in queues if queue.first_partition_id not in self._groups])

    def ask(self, has_sleeper: Callable[[str, str], bool]) -> None:
        """Whether a session has a shared filter of a tenant: `has_sleeper(tenant, filter)`."""
        self._has_sleeper = has_sleeper

    def is_awaited(self, queue: Queue) -> bool:
        """Whether somebody takes from it, or sleeps and will."""
        group = self._groups.get(queue.first_partition_id)
        return group is not None and group.taken_from or self._has_sleeper(queue.tenant, queue.name)

    def in_memory(self) -> list[LeasedGroup]:
        """The groups of queues that somebody uses."""
        return list(self._groups.values())

    def ready(self, queue: Queue) -> int:
        """Messages that nobody holds, those included that are on their way in. A queue that rests goes on resting. One
        that drops its head never has more than its limit: what is on its way in pushes out what is there."""
        group = self._groups.get(queue.first_partition_id)
        if group is not None:
            ready = group.ready + group.entering
            return ready if queue.settings.overflow == REJECT else min(ready, most(queue.settings.max_length))
        return sum([max(0, self._watermarks.next_offset(partition_id) + self._core.entering(partition_id)
                        - self._cursors.committed_in_queue(partition_id)) for partition_id in queue.partition_ids()])

    def _look_who_rests(self) -> None:
        """Groups that nobody has used for a while and of which nothing is outstanding leave memory."""
        resting = {group for group in self._groups.values() if self._may_go(group)}
        for group in resting & self._resting:
            self._let_go(group)
        self._resting = resting - self._resting
        self._core.deadlines.at(self._core.now_ms() + REST_MS, self._look_who_rests)

    def let_go_of(self, unused: list[LeasedGroup]) -> None:  # decision 305
        """A frame is durable: groups that nobody need wait for leave memory when what has changed of them is, too."""
        for group in unused:
            if self._is_changing(group):
                self._core.note_unused(group)
            elif not group.gone and self._may_go(group):
                self._let_go(group)

    def _is_changing(self, group: LeasedGroup) -> bool:
        return any(self._core.is_changing(prefetcher.cursor) for prefetcher in group.prefetchers.values())

    def _may_go(self, group: LeasedGroup) -> bool:
        """Whether a queue's group need not be in memory."""
        return group.queue is not None and not group.queue.settings.watched and group.rests \
            and not self._is_changing(group)

    def _let_go(self, group: LeasedGroup) -> None:
        assert group.queue is not None
        self._unused.note_use(group.queue, group.used_ms)
        del self._groups[group.queue.first_partition_id]
        self._cursors.end(group)
        group.follow([])                         # they know each other: nobody need look for that circle

    # ---- definitions

    def declare(self, name: str, settings: QueueSettings, tenant: str) -> Queue:
        """The queue of this name; made where it is missing. Raises QueueExists, InvalidQueue, Stopping."""
        existing = self.definitions.get(tenant, name)
        if existing is not None:
            if existing.settings != settings:
                raise QueueExists(f"queue {name!r} exists with other settings")
            self._unused.note_use(existing, self._core.now_ms())
            return existing
        check_name(name.removeprefix(DEAD_LETTER_PREFIX), "queue")
        settings.check()
        queue = self.definitions.add(tenant, name, settings)
        if settings.watched:
            self.group_of(queue)
        if settings.expires_ms:
            self._unused.watch(queue, queue.used_ms)
        return queue

    def change(self, queue: Queue, settings: QueueSettings) -> Queue:  # decision 194
        """The queue with other settings, which count for what is in it too. Raises InvalidQueue, UnknownQueue,
        Stopping."""
        existing = self.definitions.get(queue.tenant, queue.name)
        if existing is None or existing.first_partition_id != queue.first_partition_id:
            raise UnknownQueue(f"there is no queue {queue.name!r}")
        if settings.priorities != existing.settings.priorities:
            raise InvalidQueue("the priorities of a queue do not change")
        settings.check()
        changed = replace(existing, settings=settings)
        self.redefine(changed)
        self._take_over(changed)
        return changed

    def _take_over(self, queue: Queue) -> None:
        """What happens to a queue is as its definition says now."""
        self.max_lengths.forget(queue)
        group = self._groups.get(queue.first_partition_id)
        if group is not None:
            group.redefine(queue)
            kept = [policy for policy in group.policies if not isinstance(policy, MaxLength)]
            group.follow([*kept, *self._policies.limits_of(group, queue)])
            if queue.settings.ttl_ms:
                group.note_entry()
            group.configure(self._group_settings(queue, shared_name(queue)))
            if self._started:
                for policy in group.policies:
                    policy.on_start()
        elif queue.settings.watched:
            self.group_of(queue)
        if queue.settings.expires_ms:
            self._unused.watch(queue, self._core.now_ms())
        self._topics.touch()                     # whether a queue refuses is noted in placements
        self._subscriptions.touch()

    def redefine(self, queue: Queue) -> None:
        """Write down what has changed of a queue. Raises Stopping."""
        self._core.store([self.definitions.put(queue.tenant, queue.name, queue)])

    def delete(self, queue: Queue) -> None:
        """The queue with everything in it, and its bindings. Raises Stopping."""
        pending_frame = self._core.open_frame()
        pending_frame.state.append(self.definitions.put(queue.tenant, queue.name, None))
        pending_frame.state.extend([offset_record("", partition_id, None) for partition_id in queue.partition_ids()])
        if queue.first_partition_id in self._groups:
            self._cursors.delete_pages(self._groups[queue.first_partition_id])
        pending_frame.delete_partitions(queue.first_partition_id, queue.settings.priorities)
        for chosen, filter_text in self._subscriptions.bindings_of(queue.first_partition_id):
            self._subscriptions.unbind(filter_text, queue.first_partition_id, chosen)
            key = binding_key(queue.first_partition_id, chosen, filter_text)
            pending_frame.state.append(StateRecord(Kind.BINDING, key, None))
        self._forget(queue)
        self._topics.touch()                     # placements that lead to it are looked at again
        self._subscriptions.touch()

    def _forget(self, queue: Queue) -> None:
        """It is not there any more."""
        self.max_lengths.forget(queue)
        self._unused.forget(queue)
        group = self._groups.pop(queue.first_partition_id, None)
        if group is not None:
            self._cursors.end(group)
        for listener in self._listeners:
            listener(queue)

    def on_gone(self, listener: Callable[[Queue], None]) -> None:
        """Tell `listener` of every queue that is not there any more, whoever deleted it."""
        self._listeners.append(listener)

    # ---- as the state says

    def bind_again(self) -> None:
        """Every binding that is stored, at a start."""
        tenants = self.definitions.tenants()
        for key, _ in self._state.scan(Kind.BINDING):
            partition_id, chosen, filter_text = decode_binding(key)
            if partition_id in tenants:
                self._subscriptions.bind(filter_text, partition_id, chosen, tenants[partition_id])

    def undo(self, pending_frames: list[PendingFrame]) -> None:
        """None of these was stored: definitions and bindings are as they were."""
        self.definitions.undo()
        tenants = self.definitions.tenants()
        for record in (record for pending_frame in pending_frames for record in pending_frame.state):
            if record.kind == Kind.BINDING:
                partition_id, chosen, filter_text = decode_binding(record.key)
                if self._state.get(Kind.BINDING, record.key) is None:
                    self._subscriptions.unbind(filter_text, partition_id, chosen)
                elif partition_id in tenants:
                    self._subscriptions.bind(filter_text, partition_id, chosen, tenants[partition_id])

    def forget_undefined(self) -> None:
        """Queues that were to be made are not there."""
        for group in self.in_memory():
            assert group.queue is not None
            defined = self.definitions.get(group.tenant, group.queue.name)
            if defined is None or defined.first_partition_id != group.queue.first_partition_id:
                self._forget(group.queue)
            elif defined.settings != group.queue.settings:     # they were to be others
                self._take_over(defined)

    def add_groups_of(self, partition_ids: set[int]) -> None:
        """The groups of the queues of these partitions come into memory."""
        if partition_ids:
            for queue in self.definitions.every():
                if not partition_ids.isdisjoint(queue.partition_ids()):
                    self.group_of(queue)

    # ---- groups

    def group_of(self, queue: Queue) -> LeasedGroup:
        """The group that a queue is of itself."""
        return self._groups.get(queue.first_partition_id) or self._make(queue)

    def group_in_memory(self, queue: Queue) -> LeasedGroup | None:
        """The group of a queue, if somebody uses it."""
        return self._groups.get(queue.first_partition_id)

    def _make(self, queue: Queue) -> LeasedGroup:
        shared = shared_name(queue)
        group = LeasedGroup(self._core, queue.tenant, "", 0, self._group_settings(queue, shared), queue, shared)
        group.follow(self._policies.of_queue(group, queue))
        self._groups[queue.first_partition_id] = group
        for partition_id in queue.partition_ids():
            self._cursors.add(group, partition_id)
        if self._started:
            group.start()
        return group

    def _group_settings(self, queue: Queue, shared: str) -> GroupSettings:
        """A queue says itself how often it hands out a message. Behind a shared filter the group of that name does, and
        when it does so again."""
        of_queue = queue.settings
        if not shared:
            return GroupSettings(max_attempts=of_queue.max_attempts, single_active=of_queue.single_active)
        settings = self._group_definitions.get(queue.tenant, shared)
        if settings is None or settings.kind == ASSIGNED:
            settings = GroupSettings()
        return GroupSettings(invisible_ms=settings.invisible_ms, max_attempts=settings.max_attempts,
                             dead_letters=settings.dead_letters, retry=settings.retry,
                             single_active=settings.single_active, pausing=settings.pausing)

    def shared(self, tenant: str, name: str) -> list[LeasedGroup]:
        """The groups behind shared filters of this name that are in memory."""
        return [group for group in self._groups.values() if group.shared == name and group.tenant == tenant]

    def configure_shared(self, tenant: str, name: str) -> None:
        """The settings of a group have changed: of its queues behind shared filters, too."""
        for group in self.shared(tenant, name):
            if group.queue is not None:
                group.configure(self._group_settings(group.queue, name))


def _nobody_sleeps(tenant: str, filter_text: str) -> bool:
    """Where there are no sessions."""
    return False


class Unused:
    """Deletes queues that nobody uses."""

    def __init__(self, core: Core, queues: Queues) -> None:
        self._core = core
        self._queues = queues
        self._used: dict[int, int] = {}                # by first partition id
        self._looks: dict[int, int] = {}               # when it is looked at next; other timers are of no account

    def watch(self, queue: Queue, used_ms: int) -> None:
        """From now on; it was used last at this time. Its time may be shorter than it was."""
        first = queue.first_partition_id
        self._used[first] = max(used_ms, self._used.get(first, 0))
        when_ms = self._core.now_ms() + max(1, queue.settings.expires_ms // USE_PARTS)
        if when_ms < self._looks.get(first, when_ms + 1):
            self._wake(queue, when_ms)

    def watch_again(self, queue: Queue) -> None:
        """Watch a queue after a start: whoever uses it gets the time to come back."""
        expires_ms = queue.settings.expires_ms
        grace_ms = min(expires_ms, COME_BACK_MS)
        self.watch(queue, max(queue.used_ms, self._core.now_ms() + grace_ms - expires_ms))

    def note_use(self, queue: Queue, used_ms: int) -> None:
        """Somebody used a queue then."""
        if queue.first_partition_id in self._used:
            self._used[queue.first_partition_id] = max(used_ms, self._used[queue.first_partition_id])

    def forget(self, queue: Queue) -> None:
        """It is deleted."""
        self._used.pop(queue.first_partition_id, None)
        self._looks.pop(queue.first_partition_id, None)

    def _wake(self, queue: Queue, when_ms: int) -> None:
        self._looks[queue.first_partition_id] = when_ms
        self._core.deadlines.at(when_ms, partial(self._look, queue.tenant, queue.name, queue.first_partition_id,
                                                 when_ms))

    def _look(self, tenant: str, name: str, first_partition_id: int, when_ms: int) -> None:
        if self._looks.get(first_partition_id) != when_ms:
            return
        del self._looks[first_partition_id]
        queue = self._queues.definitions.get(tenant, name)
        if queue is None or queue.first_partition_id != first_partition_id:
            self._used.pop(first_partition_id, None)
            return
        now_ms, expires_ms = self._core.now_ms(), queue.settings.expires_ms
        if not expires_ms:                           # it did once
            self._used.pop(first_partition_id, None)
            return
        group = self._queues.group_in_memory(queue)
        is_awaited = self._queues.is_awaited(queue)
        if group is not None:
            self.note_use(queue, group.used_ms)
        used_ms = now_ms if is_awaited else self._used.get(first_partition_id, queue.used_ms)
        if now_ms - used_ms >= expires_ms:
            self._queues.delete(queue)
            self._wake(queue, now_ms + TRY_AGAIN_MS)
            return
        self._used[first_partition_id] = used_ms
        step_ms = max(expires_ms // USE_PARTS, SHORTEST_MS)
        if used_ms - queue.used_ms >= step_ms:
            self._queues.redefine(replace(queue, used_ms=used_ms))
        self._wake(queue, now_ms + step_ms if is_awaited else min(used_ms + expires_ms, now_ms + step_ms))
