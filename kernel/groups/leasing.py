"""Leased groups: all that are in memory with the cursors that they read by, and what they need of the kernel around
them, which is clocks, the pending frame, their turn and their time.

    ack, pop, release ─► cursor changes ─► touch: into the pending frame ─► seal: changed pages as state records
    a durable frame   ─► its partitions ─► the cursors that read them ─► soon: their groups serve, once in this turn
    a refused frame   ─► definitions, bindings and cursors are as they are stored

Memory is ahead of the log by what gathers and by one frame that is on its way.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Final

from crc32c import crc32c

from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.addresses.subscriptions import Subscriptions
from gatehouse.kernel.errors import AssignedGroup, GroupIsLeased, KernelError, Stopping
from gatehouse.kernel.groups.circuits import GroupCircuits
from gatehouse.kernel.groups.cursor import Cursor, Key, Lease, decode_epoch, decode_page_key, encode_epoch, page_key
from gatehouse.kernel.groups.dead_lettering import DeadLettering, DeadLetters
from gatehouse.kernel.groups.definitions import GroupDefinitions, LiveGroups, QueueDefinitions
from gatehouse.kernel.groups.expiry import Expiry, QueueExpiry
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import ASSIGNED, GroupSettings, Pausing, Queue, check_name
from gatehouse.kernel.groups.handing_out import Prefetcher
from gatehouse.kernel.groups.max_length import MaxLengths
from gatehouse.kernel.groups.policy import Ordering, Policy, Selecting, Selectors
from gatehouse.kernel.groups.queues import Queues
from gatehouse.kernel.ids import Identity
from gatehouse.kernel.index.memtable import Memtables
from gatehouse.kernel.index.reader import Reader
from gatehouse.kernel.message import Owner, Piece, StateRecord
from gatehouse.kernel.ports import Loop, Timer
from gatehouse.kernel.receipts import Receipts
from gatehouse.kernel.recorder import Recorder
from gatehouse.kernel.retention.holders import NONE_NEEDED, Stretch
from gatehouse.kernel.state.state import Kind, StateTable, Views, Watermarks, decode_offset, offset_key, offset_record
from gatehouse.kernel.state.topics import Topic, Topics
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.pending_frame import Participant, PendingFrame

LAZY_MS: Final = 20
"""Changes that nobody waits for (a member's leases, acks whose end nobody asked to hear of) get a frame of their own
after this, if no other has come. A crash before forgets them: those messages come again."""

STEP_MS: Final = 50
"""Leases end at multiples of this: those of one step are looked at together."""

HOLD_STEP_MS: Final = 1_000
"""Ends of what members hold too long are rounded up to this, to be few timers: half an hour of it is at most 1,800
timers."""

LOOKED_THROUGH: Final = 1_024
"""Times that are remembered, of leases or of what waits, before those are looked through that nobody waits for."""

Wait = tuple[int, int, LeasedGroup, Prefetcher, int]
"""When, a number that tells it from others, whose, and the offset that waits."""

_CHANCE = struct.Struct("<QQ")

LEAVING: Final = 10_000  # partitions whose next start is remembered, before those that have reached it are not
PAUSE_MS: Final = 1_000                # before anything is tried again that a full disk has refused

Pages = dict[tuple[int, str], list[tuple[int, bytes]]]
"""By partition id and group: number and value of every stored page."""

NEVER: Final = Pausing()


class Deadlines:
    """What happens to groups when a time has come: leases end, what waited is ready again.

    One timer per step of leases, and one for the earliest of what waits. What has ended before its time is let go of
    now and then: memory is that of what is there.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._steps: dict[int, dict[Lease, tuple[LeasedGroup, Prefetcher]]] = {}     # leases by the time that ends them
        self._step_timers: dict[int, Timer] = {}
        self._steps_most = LOOKED_THROUGH                # so many, and they are looked through
        self._waits: list[Wait] = []
        self._waits_most = LOOKED_THROUGH
        self._waits_timer: Timer | None = None
        self._numbers = 0
        self._not_before_ms = 0
        self._stopped = False

    def lease_until(self, group: LeasedGroup, prefetcher: Prefetcher, lease: Lease) -> None:
        """Call `group.on_lease_over` when the lease's time is up, unless it has ended by then."""
        self._end_at(group, prefetcher, lease, -(-max(lease.until_ms, self._not_before_ms) // STEP_MS) * STEP_MS)

    def hold_for(self, group: LeasedGroup, prefetcher: Prefetcher, lease: Lease, hold_ms: int) -> None:
        """Call `on_lease_over` so long after now for a lease that otherwise lasts as long as its holder."""
        self._end_at(group, prefetcher, lease, -(-(self._loop.now_ms() + hold_ms) // HOLD_STEP_MS) * HOLD_STEP_MS)

    def _end_at(self, group: LeasedGroup, prefetcher: Prefetcher, lease: Lease, step: int) -> None:
        leases = self._steps.get(step)
        if leases is None:
            if len(self._steps) >= self._steps_most:
                self._drop_steps()
            leases = self._steps[step] = {}
            self._step_timers[step] = self._loop.call_at(step, partial(self._on_step, step))
        leases[lease] = (group, prefetcher)
        lease.end_with(leases)

    def _drop_steps(self) -> None:
        """Those whose leases have all ended."""
        for step in [step for step, leases in self._steps.items() if not leases]:
            del self._steps[step]
            self._step_timers.pop(step).cancel()
        self._steps_most = 2 * len(self._steps) + LOOKED_THROUGH

    def _on_step(self, step: int) -> None:
        """At most one timer per step and 50 ms."""
        self._step_timers.pop(step, None)
        leases = self._steps.pop(step, {})
        for lease in sorted(leases, key=lambda candidate: (candidate.until_ms, candidate.offsets[:1])):
            if lease in leases:          # the end of one may be that of another: its member is let go of
                group, prefetcher = leases[lease]
                self.act(partial(group.on_lease_over, prefetcher, lease))

    def wait_until(self, group: LeasedGroup, prefetcher: Prefetcher, offset: int, when_ms: int) -> None:
        """Call `group.on_wait_over` then. An offset of -1 is the cursor as a whole."""
        if len(self._waits) >= self._waits_most:
            self._drop_waits()
        self._numbers += 1
        earliest = self._waits[0][0] if self._waits else None
        heappush(self._waits, (when_ms, self._numbers, group, prefetcher, offset))
        if earliest is None or when_ms < earliest:
            self._wait_for(max(when_ms, self._not_before_ms))

    def _wait_for(self, when_ms: int) -> None:
        if self._waits_timer is not None:
            self._waits_timer.cancel()
        self._waits_timer = self._loop.call_at(when_ms, self._on_wait)

    def _drop_waits(self) -> None:
        """What waits no longer, or is there twice, as its cursor was put back to what is stored."""
        there = {(when_ms, prefetcher, offset): (when_ms, number, group, prefetcher, offset)
                 for when_ms, number, group, prefetcher, offset in self._waits if not group.gone
                 and (offset < 0 or prefetcher.cursor.waits_until(offset) == when_ms)}
        self._waits = list(there.values())
        heapify(self._waits)
        self._waits_most = 2 * len(self._waits) + LOOKED_THROUGH

    def _on_wait(self) -> None:
        self._waits_timer = None
        now_ms = self._loop.now_ms()
        while self._waits and self._waits[0][0] <= now_ms:
            when_ms, _, group, prefetcher, offset = heappop(self._waits)
            self.act(partial(group.on_wait_over, prefetcher, offset, when_ms))
        if self._waits:
            self._wait_for(self._waits[0][0])

    def at(self, when_ms: int, action: Callable[[], None]) -> None:
        """Do this then, by hub time."""
        self._loop.call_at(max(when_ms, self._not_before_ms), partial(self.act, action))

    def soon(self, action: Callable[[], None]) -> None:
        """Do this in the loop's next turn: others have theirs before."""
        self._loop.call_soon(partial(self.act, action))

    def at_wall(self, when_ms: int, action: Callable[[], None]) -> None:
        """Do this when wall time has got there, which it may at once by a step."""
        self._loop.call_at_wall(when_ms, partial(self._on_wall, action))

    def _on_wall(self, action: Callable[[], None]) -> None:
        if self._loop.now_ms() < self._not_before_ms:
            self.at(0, action)
        else:
            self.act(action)

    def pause(self, for_ms: int) -> None:
        """What is asked for from now on happens after this time, even if it is due."""
        self._not_before_ms = self._loop.now_ms() + for_ms

    def stop(self) -> None:
        """Nothing happens any more."""
        self._stopped = True

    def act(self, action: Callable[[], object]) -> None:
        """Do what is due, unless the hub is stopping."""
        if not self._stopped:
            try:
                action()
            except Stopping:
                self._stopped = True

    @property
    def stopped(self) -> bool:
        return self._stopped


class Core:
    """What groups and their policies need of the kernel around them: clocks, the pending frame, their turn, their time.

    `participant` stands for all groups in a frame; `append_ms` says when a message (partition id, offset), or the first
    behind it, was appended, 0 where there is none; `on_error` is told of faults of our own that were contained;
    `recorder` of what becomes of messages, where journeys are recorded, and `receipts`, which tell their senders.
    """

    def __init__(self, loop: Loop, committer: Committer, participant: Participant,
                 append_ms: Callable[[int, int], int], on_error: Callable[[Exception], None],
                 recorder: Recorder | None = None, receipts: Receipts | None = None) -> None:
        self.deadlines = Deadlines(loop)
        self.circuits = GroupCircuits(self)
        self.append_ms = append_ms
        self.on_error = on_error
        self._lingering = 0                              # groups that keep what they have read though nobody takes
        self._unused: dict[LeasedGroup, None] = {}       # nobody takes from them, and they need not wait for who might
        self.recorder = recorder
        self.receipts = receipts
        self._committer = committer
        self._participant = participant
        self._loop = loop
        self._woken: dict[LeasedGroup, None] = {}
        self._chances = 0
        self._touched: dict[Cursor, None] = {}           # cursors that the pending frame writes
        self._on_way: dict[Cursor, None] = {}            # cursors that the frame on its way writes
        self._lazy: dict[Cursor, None] = {}              # cursors that the next frame takes along
        self._lazy_armed = False
        self._stopped = False

    def stop(self) -> None:
        """Hand out nothing more; what nobody waits for goes into the pending frame."""
        self._gather_lazy()
        self._stopped = True
        self.deadlines.stop()

    def begin_lingering(self, most: int) -> bool:
        """Whether one more group may keep what it has read though nobody takes: fewer than `most` do."""
        may = self._lingering < most
        self._lingering += may
        return may

    def end_lingering(self) -> None:
        """One keeps nothing any more."""
        self._lingering -= 1

    def note_unused(self, group: LeasedGroup) -> None:
        """The group may leave memory once what has changed of it is durable."""
        self._unused[group] = None

    def take_unused(self) -> list[LeasedGroup]:
        """Those that were noted since the last call."""
        unused, self._unused = self._unused, {}
        return list(unused)

    # ---- clocks

    def now_ms(self) -> int:
        """Hub time: leases and waits end in it."""
        return self._loop.now_ms()

    def wall_ms(self) -> int:
        """Wall time: messages expire by it."""
        return self._loop.wall_ms()

    def chance(self) -> float:
        """A number in [0, 1), for jitter: evenly spread and the same in every run of a simulation, a clock and a
        counter, mixed."""
        self._chances += 1
        return crc32c(_CHANCE.pack(self._chances, self._loop.now_ms())) / (1 << 32)

    # ---- the pending frame

    def open_frame(self) -> PendingFrame:
        """The pending frame, in which groups take part from here on. Raises Stopping."""
        pending_frame = self._committer.open_frame()
        pending_frame.join(self._participant)
        return pending_frame

    def touch(self, cursor: Cursor) -> None:
        """The cursor has changed: its pages go into the pending frame. Raises Stopping."""
        self.open_frame()
        self._touched[cursor] = None

    def touch_lazily(self, cursor: Cursor) -> None:  # decision 23
        """The cursor has changed in a way that nobody waits for: its pages go into the next frame, whoever's it is."""
        self._lazy[cursor] = None
        self.join_next()
        if not self._lazy_armed:
            self._lazy_armed = True
            self._loop.call_at(self._loop.now_ms() + LAZY_MS, self._on_lazy)

    def _on_lazy(self) -> None:
        self._lazy_armed = False
        if not self._stopped:
            self._gather_lazy()

    def when_settled(self, owner: Owner, token: object) -> None:
        """Tell the owner when what has changed so far is durable, lazily or not. Raises Stopping."""
        self._gather_lazy()
        self.answer(owner, token)

    def _gather_lazy(self) -> None:
        if self._lazy:
            self.open_frame()
            self._take_lazy()

    def _take_lazy(self) -> None:
        self._touched.update(self._lazy)
        self._lazy = {}

    def join_next(self) -> None:
        """Groups take part in the next frame, whoever's it is."""
        self._committer.join_next(self._participant)

    def seal(self) -> list[Cursor]:
        """The cursors that the pending frame writes: it is being sealed."""
        self._take_lazy()
        self._on_way, self._touched = self._touched, {}
        return list(self._on_way)

    def applied(self) -> None:
        """What was sealed is durable."""
        self._on_way = {}

    def failed(self) -> list[Cursor]:
        """The cursors that refused frames would have written, the pending frame's too."""
        refused = self.changing()
        self._on_way, self._touched = {}, {}
        return refused

    def changing(self) -> list[Cursor]:
        """The cursors that frames write which are not durable yet."""
        return list(self._on_way | self._touched)

    def is_changing(self, cursor: Cursor) -> bool:
        """Whether something of it is not durable yet."""
        return cursor in self._on_way or cursor in self._touched or cursor in self._lazy

    def untouch(self, cursor: Cursor) -> None:
        """What has changed of a cursor is not to be written: it is deleted, or another one takes its place. Raises
        Stopping."""
        self.open_frame()
        self._touched.pop(cursor, None)
        self.forget(cursor)

    def forget(self, cursor: Cursor) -> None:
        """The cursor is not in memory any more."""
        self._lazy.pop(cursor, None)

    def store(self, records: list[StateRecord]) -> None:
        """These go into the pending frame. Raises Stopping."""
        self.open_frame().state.extend(records)

    def answer(self, owner: Owner | None, token: object) -> None:
        """Tell the owner once the pending frame is durable. Raises Stopping."""
        if owner is not None:
            self._committer.open_frame().answer(owner, token)

    def put_state(self, records: list[StateRecord], owner: Owner | None, token: object) -> None:
        """These go into the pending frame; the owner is told once they are durable. Raises Stopping."""
        self.store(records)
        self.answer(owner, token)

    def when_stored(self, waiting: Participant) -> None:
        """It takes part in the pending frame. Raises Stopping."""
        self._committer.open_frame().join(waiting)

    def recorder_in(self, partition_id: int) -> Recorder | None:
        """Who is to be told what happens to messages there: nobody, where none of them is followed."""
        return self.recorder if self.recorder is not None and partition_id in self.recorder.followed_in else None

    def when_next_stored(self, waiting: Participant) -> None:
        """It takes part in the next frame, whoever's it is."""
        self._committer.join_next(waiting)

    def entering(self, partition_id: int) -> int:
        """How many messages are on their way into a partition: behind its end, and not durable yet."""
        return sum([pending_frame.builder.entering(partition_id) for pending_frame in self._committer.pending()])

    # ---- serving

    def soon(self, group: LeasedGroup) -> None:
        """Call `group.serve` in this turn, once."""
        if not self._woken:
            self._loop.call_soon(self._serve_woken)
        self._woken[group] = None

    def not_soon(self, group: LeasedGroup) -> None:
        """It is served now: whatever it was woken for is looked at."""
        self._woken.pop(group, None)

    def _serve_woken(self) -> None:
        woken, self._woken = self._woken, {}
        for group in woken:
            self._serve(group)

    def _serve(self, group: LeasedGroup) -> None:
        if self._stopped:
            return
        try:
            group.serve()
        except Stopping:
            self._stopped = True
        except KernelError as error:
            self.on_error(error)


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
    """All leased groups. Takes part in frames and follows them, see `kernel.write.pending_frame`. `names` are those of
    `Selectors`; `on_committed` is told of a partition of `kept_in` when a committed offset in it is written; `live` are
    the assigned groups that have members."""

    def __init__(self, *, loop: Loop, reader: Reader, memtables: Memtables, watermarks: Watermarks, topics: Topics,
                 views: Views, state: StateTable, subscriptions: Subscriptions, places: Places, identity: Identity,
                 committer: Committer, names: Mapping[str, str], on_committed: Callable[[int], None],
                 kept_in: Container[int], on_error: Callable[[Exception], None], live: LiveGroups,
                 recorder: Recorder | None = None, receipts: Receipts | None = None) -> None:
        self.identity = identity
        self.live = live
        self.core = Core(loop, committer, self, reader.append_ms_of, on_error, recorder, receipts)
        self.cursors = Cursors(self.core, reader, memtables, watermarks, topics, views, state, committer.take_id,
                               on_committed, kept_in)
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
            self.delete_over(group)
        self.queues.configure_shared(tenant, name)

    def delete_over(self, group: LeasedGroup) -> None:
        """The leases of a group over one topic. Raises Stopping."""
        self.cursors.delete_pages(group)
        self._of_topic[group.topic_id].remove(group)
        self._forget(group)

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
        if self._undefined:
            frame.state.extend([self.definitions.put(group.tenant, group.name, group.settings)
                                for group in self._undefined if not group.gone])
            self._undefined.clear()
        return 0

    def applied(self, frame: PendingFrame) -> None:
        """Definitions are told one by one, see `settle`; whoever reads is told by `follow`."""
        self.core.applied()
        unused = self.core.take_unused()
        if unused:
            self.queues.let_go_of(unused)

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


class Cursors:
    """The cursors that are in memory: who reads a partition, what of them goes into each frame, what brings them back.

    A cursor is in memory while something of it is leased, waiting or settled out of order, or while its group is used;
    at a start those that have pages are loaded, the others when they are first asked for.

    They are a `kernel.retention.holders.Holder`, too. Of a queue all that is not settled is needed beyond retention; of
    a topic's partition what is leased, waits for its next time or is ready again. What nobody has had of a topic yet
    goes with its segment: a group that lags beyond retention has lost it.

    `new_epoch` gives a number that no cursor had before, in this start of the hub or another; `on_committed` is told of
    a partition of `kept_in` when the committed offset of a cursor in it is written."""

    def __init__(self, core: Core, reader: Reader, memtables: Memtables, watermarks: Watermarks, topics: Topics,
                 views: Views, state: StateTable, new_epoch: Callable[[], int], on_committed: Callable[[int], None],
                 kept_in: Container[int]) -> None:
        self._core = core
        self._reader = reader
        self._memtables = memtables
        self._watermarks = watermarks
        self._topics = topics
        self._views = views
        self._state = state
        self._new_epoch = new_epoch
        self._on_committed = on_committed
        self._kept_in = kept_in
        self.readers: dict[int, list[tuple[LeasedGroup, Prefetcher]]] = {}
        """Who reads a partition, by its id, as far as they are in memory."""

        self._leaving: dict[int, int] = {}                             # by partition id, see `_note_leaving`
        self._loading: Pages = {}                                      # of cursors that are being loaded

    # ---- coming and going

    def add(self, group: LeasedGroup, partition_id: int, committed: int | None = None) -> Prefetcher:
        """The group reads this partition too, from `committed` on, or from where it goes on."""
        if committed is None:
            committed = self.committed(group, partition_id)
        assert partition_id not in group.prefetchers, "a group has one cursor in a partition"
        queue = group.queue
        epoch = 0 if queue is not None else self._stored_epoch(group.name, partition_id)
        cursor = Cursor(partition_id, group.name, committed, group.topic_id, epoch or 0)
        prefetcher = Prefetcher(cursor, self._reader.fetch_kept, self._newest,
                                partial(self._watermarks.next_offset, partition_id),
                                partial(self._start_of, partition_id), self._reader.unreadable,
                                queue is not None and queue.settings.ttl_ms != 0)
        self._check_epoch(cursor)
        group.add(prefetcher)
        self.readers.setdefault(partition_id, []).append((group, prefetcher))
        pages = self._loading.get((partition_id, group.name), ())
        if pages:
            group.on_loaded(prefetcher, cursor.load(pages, prefetcher.end()))
        if cursor.ready(prefetcher.end()):
            group.cursor_ready(prefetcher)
        return prefetcher

    def end(self, group: LeasedGroup) -> None:
        """The group is not there any more."""
        for partition_id, prefetcher in group.prefetchers.items():
            self._core.forget(prefetcher.cursor)
            assert any(reader[0] is group for reader in self.readers[partition_id]), "it was added, and ends once"
            self.readers[partition_id] = [reader for reader in self.readers[partition_id] if reader[0] is not group]
            if not self.readers[partition_id]:
                del self.readers[partition_id]
        group.end()

    def rewind(self, group: LeasedGroup, partition_id: int, offset: int) -> None:
        """The group goes on from this offset, with attempts counted anew. Raises Stopping."""
        prefetcher = group.prefetchers.get(partition_id) or self.add(group, partition_id, offset)
        self._core.untouch(prefetcher.cursor)
        group.rewind(prefetcher, offset, self._new_epoch())

    def write_committed(self, cursor: Cursor) -> None:
        """The pending frame says where the cursor is, wherever it is. Raises Stopping."""
        cursor.write_committed()
        self._core.touch(cursor)

    def group_of(self, key: Key) -> LeasedGroup | None:
        """Whose cursor has this key; None where there is none any more, or it is not in memory: nothing of it is out
        then."""
        for group, prefetcher in self.readers.get(key[0], ()):
            if prefetcher.cursor.key == key:
                return group
        return None

    # ---- where a cursor goes on

    def committed(self, group: LeasedGroup, partition_id: int) -> int:
        """Where a group goes on in a partition as far as is stored; else where it begins."""
        if group.queue is not None:
            return self.committed_in_queue(partition_id)
        commits = self._views.offsets.get(group.name, {})
        if partition_id in commits:
            return commits[partition_id][0]
        if group.settings.start == "latest" and not self._reads(group, commits):  # decision 345
            return self._watermarks.next_offset(partition_id)
        return self._reader.start_of(partition_id)

    def _reads(self, group: LeasedGroup, commits: Mapping[int, object]) -> bool:
        """Whether a group over a topic has begun: what no commit is stored for was empty then, and is all new to it."""
        topic = self._topics.by_id(group.topic_id)
        return topic is not None and any(partition_id in commits for partition_id in topic.partition_ids())

    def committed_in_queue(self, partition_id: int) -> int:
        """Everything below is settled in a queue's partition, as far as is stored."""
        stored = self._state.get(Kind.OFFSET, offset_key("", partition_id))
        return 0 if stored is None else decode_offset(stored)[0]

    def _stored_epoch(self, group: str, partition_id: int) -> int:
        """The epoch that is stored for a cursor, or a new one."""
        stored = self._views.offsets.get(group, {}).get(partition_id)
        return decode_epoch(stored[1]) if stored is not None else self._new_epoch()

    def _check_epoch(self, cursor: Cursor) -> None:
        """An epoch that is not stored is written with the cursor's first change."""
        stored = self._views.offsets.get(cursor.group, {}).get(cursor.partition_id)
        if cursor.group and (stored is None or cursor.epoch != decode_epoch(stored[1])):
            cursor.write_committed()

    def _newest(self, partition_id: int, offset: int, max_bytes: int) -> list[Piece] | None:
        """What came a moment ago, without a way round; None where it is not all in memory, or has to be opened."""
        if offset < self._watermarks.log_start(partition_id):
            return None
        return self._memtables.newest_pieces(partition_id, offset, max_bytes)

    def _start_of(self, partition_id: int) -> int:
        start = self._reader.start_of(partition_id)
        return start if not self._leaving else max(start, self._leaving.get(partition_id, 0))

    # ---- frames

    def seal(self) -> list[StateRecord]:
        """The changed pages of every touched cursor as they are now."""
        return [record for cursor in self._core.seal() for record in self._records(cursor)]

    def _records(self, cursor: Cursor) -> list[StateRecord]:
        records: list[StateRecord] = []
        has_moved, pages = cursor.seal()
        if has_moved:
            if cursor.partition_id in self._kept_in:
                self._on_committed(cursor.partition_id)
            records.append(offset_record(cursor.group, cursor.partition_id,
                                         (cursor.committed, encode_epoch(cursor.epoch))))
        group = cursor.group.encode()
        records += [StateRecord(Kind.LEASES, page_key(cursor.partition_id, page, group), value)
                    for page, value in pages]
        return records

    def delete_pages(self, group: LeasedGroup) -> None:
        """The pages of a group's cursors go with the pending frame, and are not written any more. Raises Stopping."""
        name = group.name.encode()
        for partition_id, prefetcher in group.prefetchers.items():
            self._core.untouch(prefetcher.cursor)
            self._core.store([StateRecord(Kind.LEASES, page_key(partition_id, page, name), None)
                              for page in prefetcher.cursor.stored_pages])

    # ---- as the state says

    def load(self, add: Callable[[list[tuple[int, str]]], None]) -> None:
        """Load every cursor that has pages and is not in memory: `add` is given their partitions and groups ("" for a
        queue), and adds them."""
        self._loading = self._stored_pages()
        add([(partition_id, name) for partition_id, name in self._loading
             if not any(group.name == name for group, _ in self.readers.get(partition_id, ()))])
        self._loading = {}

    def _stored_pages(self) -> Pages:
        pages: Pages = {}
        for key, value in self._state.scan(Kind.LEASES):
            partition_id, page, group = decode_page_key(key)
            pages.setdefault((partition_id, group), []).append((page, value))
        return pages

    def restore(self, refused: list[Cursor]) -> None:  # decision 32
        """None of what changed in these cursors was stored: each is put back to what is.

        Members keep what they hold. What was handed out to nobody in particular is ready again, a second later, so that
        a full disk is not asked without a pause.
        """
        pages = self._stored_pages()
        again_ms = self._core.now_ms() + PAUSE_MS
        for cursor in refused:
            for group, prefetcher in self.readers.get(cursor.partition_id, ()):
                if prefetcher.cursor is cursor:
                    group.restore(prefetcher, self.committed(group, cursor.partition_id),
                                  pages.get((cursor.partition_id, cursor.group), []), again_ms)
                    self._check_epoch(cursor)

    # ---- what is needed beyond retention

    def needed(self, partition_id: int, start: int, stop: int) -> list[Stretch]:
        readers = self.readers.get(partition_id, ())
        is_topic = self._topics.of_partition(partition_id) is not None
        if is_topic:
            self._note_leaving(partition_id, stop)
        if readers:
            stretches: list[Stretch] = []
            for group, prefetcher in readers:
                end = stop if group.queue is not None else min(stop, prefetcher.cursor.next)
                if end < stop and not self._topics.is_compacted(partition_id):
                    self._core.touch_lazily(prefetcher.cursor)
                    prefetcher.overtake(stop)                  # what is going is handed to nobody in the meantime
                stretches += prefetcher.cursor.unsettled_stretches(start, end)
            return stretches
        if is_topic:                     # a cursor that is not in memory has nothing out
            return []
        log_start = self._watermarks.log_start(partition_id)  # nor is a deleted partition's below its end
        return [(max(start, log_start if start >= log_start else self.committed_in_queue(partition_id)), stop)]

    def first_needed(self, partition_id: int) -> int:
        readers = self.readers.get(partition_id, ())
        if not readers:
            of_topic = self._topics.of_partition(partition_id) is not None
            return NONE_NEEDED if of_topic else self.committed_in_queue(partition_id)
        return min([prefetcher.cursor.committed if group.queue is not None
                    or prefetcher.cursor.committed < prefetcher.cursor.next
                    else NONE_NEEDED for group, prefetcher in readers])

    def _note_leaving(self, partition_id: int, stop: int) -> None:  # decision 29
        """Retention is about to drop what a topic's partition has below `stop`: new readers begin there."""
        if self._topics.is_compacted(partition_id):
            return
        if len(self._leaving) >= LEAVING:
            log_start = self._watermarks.log_start
            self._leaving = {of: until for of, until in self._leaving.items() if log_start(of) < until}
        self._leaving[partition_id] = stop
