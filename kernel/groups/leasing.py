"""Every group that somebody uses: their cursors, what goes into each frame, what a flush brings them, and their time.

    ack, pop, release ─► cursor changes ─► touch: into the pending frame ─► seal: changed pages as state records
    a durable frame   ─► its partitions ─► the cursors that read them ─► their groups serve

A cursor is in memory while something of it is leased, waiting or settled out of order, or while its group is used; at a
start those that have pages are loaded, the others when they are first asked for.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from crc32c import crc32c

from gatehouse.kernel.errors import AssignedGroup, GroupIsLeased, KernelError, Stopping
from gatehouse.kernel.groups.cursor import Cursor, Lease
from gatehouse.kernel.groups.dead_lettering import DeadLettering
from gatehouse.kernel.groups.deadlines import Deadlines
from gatehouse.kernel.groups.definitions import LiveGroups, group_definitions
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.handles import Handles
from gatehouse.kernel.groups.pages import decode_epoch, encode_epoch, page_key
from gatehouse.kernel.groups.prefetcher import Prefetcher
from gatehouse.kernel.groups.queues import Queues
from gatehouse.kernel.groups.restoring import Pages, Restoring
from gatehouse.kernel.groups.selecting import Selecting
from gatehouse.kernel.groups.settings import ASSIGNED, GroupSettings, Queue, check_name
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.message import Handle, Leased, Owner
from gatehouse.kernel.parts import Parts
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.state.topics import Topic
from gatehouse.kernel.state.views import offset_record
from gatehouse.kernel.write.pending_frame import PendingFrame, Reserved, Submission

LEAVING: Final = 10_000  # partitions whose next start is remembered, before those that have reached it are not
LAZY_MS: Final = 20
"""Changes that nobody waits for (a member's leases, acks whose end nobody asked to hear of) get a frame of their own
after this, if no other has come. A crash before forgets them: those messages come again."""

_CHANCE = struct.Struct("<QQ")
_PARTITION = struct.Struct(">Q")


class Leasing:
    """`open_frame` gives the pending frame, and raises Stopping; `pending` is what is not applied yet; `new_epoch`
    gives a cursor a number that none had before; `names` are those of `Selecting`."""

    def __init__(self, parts: Parts, open_frame: Callable[[], PendingFrame], pending: Callable[[], list[PendingFrame]],
                 new_epoch: Callable[[], int], names: Mapping[str, str], live: LiveGroups) -> None:
        self.selecting = Selecting(names, parts.topics, parts.places.routes)
        self._parts = parts
        self._open_frame = open_frame
        self._pending = pending
        self.new_epoch = new_epoch
        self._loop = parts.loop
        self.queues = Queues(parts, self, open_frame, pending)
        self.groups = group_definitions(parts.state)
        self.live = live
        self.dead_lettering = DeadLettering(parts, self, open_frame)
        self._by_name: dict[tuple[str, str], dict[int, LeasedGroup]] = {}      # by tenant and name, then by topic
        self._of_topic: dict[int, list[LeasedGroup]] = {}
        self._readers: dict[int, list[tuple[LeasedGroup, Prefetcher]]] = {}     # by partition id
        self._woken: dict[LeasedGroup, None] = {}
        self.deadlines = Deadlines(parts.loop)
        self.on_committed: Callable[[int], None] = lambda partition_id: None
        self._numbers = 0
        self._lazy: dict[Cursor, None] = {}
        self._leaving: dict[int, int] = {}                             # by partition id, see `note_leaving`
        self._lazy_armed = False
        self.loaded_pages: Pages = {}                  # of cursors that are being loaded
        self.undefined: dict[LeasedGroup, None] = {}    # whose definitions the disk refused: for the next frame
        self._restoring = Restoring(parts, self)
        self._stopped = False

    # ---- opening and closing

    def open(self) -> None:
        """After recovery: load every cursor of which something is outstanding."""
        self._restoring.open()

    def start(self) -> None:
        """Once everything is open: what happens to queues without anybody's doing begins."""
        self.queues.start()

    def stop(self) -> None:
        """Hand out nothing more."""
        self._gather_lazy()
        self._stopped = self.deadlines.stopped = True

    # ---- groups

    def of_topic(self, name: str, topic: Topic, start: str = "earliest") -> LeasedGroup:
        """The leased group of this name over a topic; made where it is missing, to begin at `start`.

        Raises InvalidGroup, AssignedGroup, Stopping.
        """
        group = self._by_name.get((topic.tenant, name), {}).get(topic.id)
        if group is None:
            check_name(name, "group")
            settings = self.groups.get(topic.tenant, name)
            if settings is None and self.has_offsets(topic.tenant, name):
                raise AssignedGroup(f"group {name!r} commits offsets; messages cannot be leased from it")
            group = self._make(name, topic, settings, start)
        if group.settings.kind == ASSIGNED:
            raise AssignedGroup(f"group {name!r} is an assigned one; messages cannot be leased from it")
        return group

    def has_offsets(self, tenant: str, name: str) -> bool:
        """Whether a tenant's group of this name has committed offsets."""
        topic_partitions = map(self._parts.topics.of_partition, self._parts.views.offsets.get(name, ()))
        return any(of is not None and of[0].tenant == tenant for of in topic_partitions)

    def _make(self, name: str, topic: Topic, settings: GroupSettings | None, start: str) -> LeasedGroup:
        group_settings = settings if settings is not None else GroupSettings(start=start)
        if group_settings.kind != ASSIGNED and settings is None:
            self._open_frame().state.append(self.groups.put(topic.tenant, name, group_settings))
        group = LeasedGroup(self, topic.tenant, name, topic.id, group_settings)
        if group_settings.kind == ASSIGNED:
            return group
        group.wants = self.selecting.wants(group_settings.selector)
        group.ttl_ms = topic.settings.message_ttl_ms or 0
        self._by_name.setdefault((topic.tenant, name), {})[topic.id] = group
        self._of_topic.setdefault(topic.id, []).append(group)
        offsets = self._parts.views.offsets.get(name, {})
        read = [partition_id for partition_id in topic.partition_ids()
                if partition_id in offsets or self._parts.watermarks.next_offset(partition_id)]
        for partition_id in read or [topic.partition_id(0)]:
            prefetcher = self.add_line(group, partition_id, self.stored_committed(group, partition_id))
            if group_settings.start == "latest" and partition_id not in offsets:
                self._write_floor(prefetcher.cursor)
        if offsets.keys().isdisjoint(read):          # from now on the group is known to read this topic
            self._write_floor(next(iter(group.prefetchers.values())).cursor)
        return group

    def stored_committed(self, group: LeasedGroup, partition_id: int) -> int:
        """Where a group goes on in a partition as far as is stored; else where it begins."""
        if group.queue is not None:
            return self.queues.committed(partition_id)
        commit = self._parts.views.offsets.get(group.name, {}).get(partition_id)
        if commit is not None:
            return commit[0]
        late = group.settings.start == "latest"
        return self._parts.watermarks.next_offset(partition_id) if late else self._parts.reader.start_of(partition_id)

    def _write_floor(self, cursor: Cursor) -> None:
        cursor.write_committed()
        self.touch(cursor)

    def define(self, tenant: str, name: str, settings: GroupSettings) -> None:
        """Make a group, or change its settings. Raises InvalidGroup, InvalidSelector, Stopping."""
        check_name(name, "group")
        settings.check()
        self.selecting.check(settings.selector)
        self._open_frame().state.append(self.groups.put(tenant, name, settings))
        for group in self.active(tenant, name):
            group.configure(settings)
            group.wants = self.selecting.wants(settings.selector)
        self.queues.configure_shared(tenant, name)

    def check_commits(self, name: str, partition_ids: Iterable[int]) -> None:
        """Raises GroupIsLeased where messages of one of these partitions are leased from the group, GroupHasMembers
        where they are assigned to members."""
        tenants = {topic_partition[0].tenant for topic_partition in map(self._parts.topics.of_partition, partition_ids)
                   if topic_partition is not None}
        for tenant in tenants:
            self.require_commits(tenant, name)
            self.live.require_no_members(tenant, name)

    def require_commits(self, tenant: str, name: str) -> None:
        """Raises GroupIsLeased where messages are leased from the group."""
        settings = self.groups.get(tenant, name)
        if settings is not None and settings.kind != ASSIGNED:
            raise GroupIsLeased(f"messages of group {name!r} are leased and acked; it commits no offsets")

    def active(self, tenant: str, name: str) -> list[LeasedGroup]:
        """The groups of this name that are in memory, one per topic."""
        return list(self._by_name.get((tenant, name), {}).values())

    def in_memory(self) -> list[LeasedGroup]:
        """Every group that is in memory."""
        return [group for named in self._by_name.values() for group in named.values()] + self.queues.in_memory()

    def reading(self, partition_id: int) -> list[tuple[LeasedGroup, Prefetcher]]:
        """Who reads this partition, as far as they are in memory."""
        return self._readers.get(partition_id, [])

    def end_topic(self, topic: Topic) -> None:
        """The topic is deleted, and with it how far groups were in it. Raises Stopping."""
        pending_frame = self._open_frame()
        for group in self._of_topic.get(topic.id, ()):
            pending_frame.state += self.page_deletions(pending_frame, group)
        self.forget_topic(topic)

    def page_deletions(self, pending_frame: PendingFrame, group: LeasedGroup) -> list[StateRecord]:
        """What deletes the pages of a group's cursors, which are not written any more."""
        records: list[StateRecord] = []
        for partition_id, prefetcher in group.prefetchers.items():
            pending_frame.cursors.pop(prefetcher.cursor, None)
            records += [StateRecord(Kind.LEASES, page_key(partition_id, page, group.name.encode()), None)
                        for page in prefetcher.cursor.stored_pages]
        return records

    def forget_topic(self, topic: Topic) -> None:
        """The topic is not there any more: its groups are gone with it."""
        for group in self._of_topic.pop(topic.id, []):
            self._forget(group)
            self.end(group)

    def _forget(self, group: LeasedGroup) -> None:
        named = self._by_name[group.tenant, group.name]
        del named[group.topic_id]
        if not named:
            del self._by_name[group.tenant, group.name]

    def forget_group(self, tenant: str, name: str) -> None:
        """A group is deleted."""
        for group in self.active(tenant, name):
            self._forget(group)
            self._of_topic[group.topic_id].remove(group)
            self.end(group)

    def end(self, group: LeasedGroup) -> None:
        """It is not there any more."""
        for partition_id, prefetcher in group.prefetchers.items():
            prefetcher.cursor.clear()
            self._readers[partition_id] = [reader for reader in self._readers[partition_id] if reader[0] is not group]
            if not self._readers[partition_id]:
                del self._readers[partition_id]
        group.end()

    # ---- cursors

    def _start_of(self, partition_id: int) -> int:
        start = self._parts.reader.start_of(partition_id)
        return start if not self._leaving else max(start, self._leaving.get(partition_id, 0))

    def note_leaving(self, partition_id: int, stop: int) -> None:  # decision 29
        """Retention is about to drop what a topic's partition has below `stop`: new readers begin there."""
        if self._parts.topics.is_compacted(partition_id):
            return
        if len(self._leaving) >= LEAVING:
            log_start = self._parts.watermarks.log_start
            self._leaving = {of: until for of, until in self._leaving.items() if log_start(of) < until}
        self._leaving[partition_id] = stop

    def add_line(self, group: LeasedGroup, partition_id: int, committed: int) -> Prefetcher:
        """The group reads this partition too, from `committed` on, as far as nothing else is stored."""
        watermarks = self._parts.watermarks
        epoch = self._epoch(group.name, partition_id) if group.queue is None else 0
        cursor = Cursor(partition_id, group.name, committed, group.topic_id, epoch)
        prefetcher = Prefetcher(cursor, self._parts.reader.fetch_kept, partial(watermarks.next_offset, partition_id),
                        partial(self._start_of, partition_id), self._parts.reader.unreadable)
        self.check_epoch(cursor)
        group.prefetchers[partition_id] = prefetcher
        self._readers.setdefault(partition_id, []).append((group, prefetcher))
        pages = self.loaded_pages.get((partition_id, group.name), ())
        if pages:
            self.load(group, prefetcher, pages)
        if cursor.ready(watermarks.next_offset(partition_id)):
            group.cursor_ready(prefetcher)
        return prefetcher

    def _epoch(self, group: str, partition_id: int) -> int:
        """The epoch that is stored for a cursor, or a new one."""
        stored = self._parts.views.offsets.get(group, {}).get(partition_id)
        return decode_epoch(stored[1]) if stored is not None else self.new_epoch()

    def check_epoch(self, cursor: Cursor) -> None:
        """An epoch that is not stored is written with the cursor's first change."""
        stored = self._parts.views.offsets.get(cursor.group, {}).get(cursor.partition_id)
        if cursor.group and (stored is None or cursor.epoch != decode_epoch(stored[1])):
            cursor.write_committed()

    def load(self, group: LeasedGroup, prefetcher: Prefetcher, pages: Iterable[tuple[int, bytes]]) -> None:
        """Take the stored pages of a cursor into memory."""
        cursor = prefetcher.cursor
        self.run_on(group, prefetcher, cursor.load(pages, self._parts.watermarks.next_offset(cursor.partition_id)))

    def run_on(self, group: LeasedGroup, prefetcher: Prefetcher, leases: list[Lease]) -> None:
        """After a cursor was loaded: these leases end in time, what waits comes again in time."""
        cursor = prefetcher.cursor
        for lease in leases:
            self.lease_until(group, prefetcher, lease)
        for offset, when_ms in cursor.waits():
            self.wait_until(group, prefetcher, offset, when_ms)
        if group.settings.ordered:
            prefetcher.want_keys(cursor.leased_offsets() + [offset for offset, _ in cursor.waits()])

    # ---- what groups ask for; see `kernel.groups.group.Core`

    def now_ms(self) -> int:
        return self._loop.now_ms()

    def wall_ms(self) -> int:
        return self._loop.wall_ms()

    def chance(self) -> float:
        """Evenly spread and the same in every run of a simulation: a clock and a counter, mixed."""
        self._numbers += 1
        return crc32c(_CHANCE.pack(self._numbers, self._loop.now_ms())) / (1 << 32)

    def touch(self, cursor: Cursor) -> None:
        self._open_frame().cursors[cursor] = None

    def touch_lazily(self, cursor: Cursor) -> None:  # decision 23
        self._lazy[cursor] = None
        if not self._lazy_armed:
            self._lazy_armed = True
            self._loop.call_at(self._loop.now_ms() + LAZY_MS, self._on_lazy)

    def _on_lazy(self) -> None:
        self._lazy_armed = False
        if not self._stopped:
            self._gather_lazy()

    def _gather_lazy(self, pending_frame: PendingFrame | None = None) -> None:
        """Into this frame, or the pending one, with what no frame has taken along."""
        cursors, self._lazy = self._lazy, {}
        cursors = {cursor: None for cursor in cursors
                 if any(prefetcher.cursor is cursor for _, prefetcher in self._readers.get(cursor.partition_id, ()))}
        if cursors:
            (pending_frame or self._open_frame()).cursors.update(cursors)

    def answer(self, owner: Owner | None, token: object) -> None:
        if owner is not None:
            pending_frame = self._open_frame()
            pending_frame.submissions.append(Submission(owner, token, None, (pending_frame.builder.now_ms, [])))

    def entering(self, partition_id: int) -> int:
        return sum([pending_frame.builder.entering(partition_id) for pending_frame in self._pending()])

    def message_ttl_ms(self, topic_id: int) -> int:
        topic = self._parts.topics.by_id(topic_id)
        return topic.settings.message_ttl_ms or 0 if topic is not None else 0

    def used(self, queue: Queue) -> None:
        self.queues.idle.use(queue)

    def append_ms(self, partition_id: int, offset: int) -> int:
        return self._parts.reader.append_ms_of(partition_id, offset)

    def when_stored(self, waiting: Reserved) -> None:
        self._open_frame().reserved.append(waiting)

    def on_error(self, fault: Exception) -> None:
        self._parts.on_error(fault)

    def dead_letter(self, group: LeasedGroup, prefetcher: Prefetcher, messages: list[Leased], reason: str) -> None:
        self.dead_lettering.dead_letter(group, prefetcher, messages, reason)

    def soon(self, group: LeasedGroup) -> None:
        if not self._woken:
            self._loop.call_soon(self._serve_woken)
        self._woken[group] = None

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
            self._parts.on_error(error)

    # ---- time

    def lease_until(self, group: LeasedGroup, prefetcher: Prefetcher, lease: Lease) -> None:
        self.deadlines.lease_until(group, prefetcher, lease)

    def hold_for(self, group: LeasedGroup, prefetcher: Prefetcher, lease: Lease, hold_ms: int) -> None:
        self.deadlines.hold_for(group, prefetcher, lease, hold_ms)

    def wait_until(self, group: LeasedGroup, prefetcher: Prefetcher, offset: int, when_ms: int) -> None:
        self.deadlines.wait_until(group, prefetcher, offset, when_ms)

    # ---- frames

    def seal(self, pending_frame: PendingFrame) -> None:
        """The changed pages of every touched cursor as they are now."""
        if self._lazy:
            self._gather_lazy(pending_frame)
        for cursor in pending_frame.cursors:
            pending_frame.state += self._records(cursor)
        if self.undefined:
            pending_frame.state += [self.groups.put(group.tenant, group.name, group.settings)
                                    for group in self.undefined
                                if not group.gone]
            self.undefined.clear()

    def _records(self, cursor: Cursor) -> list[StateRecord]:
        records: list[StateRecord] = []
        has_moved, pages = cursor.seal()
        if has_moved:
            self.on_committed(cursor.partition_id)
            records.append(offset_record(cursor.group, cursor.partition_id,
                                         (cursor.committed, encode_epoch(cursor.epoch))))
        group = cursor.group.encode()
        records += [StateRecord(Kind.LEASES, page_key(cursor.partition_id, page, group), value)
                    for page, value in pages]
        return records

    def expire_after(self, topic_id: int, ttl_ms: int) -> None:
        """A topic's messages expire so long after their timestamp; 0: never."""
        for group in self._of_topic.get(topic_id, ()):
            group.ttl_ms = ttl_ms

    def settle(self, record: StateRecord) -> None:
        """This definition is durable."""
        (self.queues.definitions if record.kind == Kind.QUEUE else self.groups).settle(record)

    def applied(self, partition_ids: Iterable[int]) -> None:
        """Messages entered these partitions: whoever reads them is served next turn, after the answers of this one."""
        if not self._readers and not self._of_topic:
            return
        for partition_id in partition_ids:
            readers = self._readers.get(partition_id, ())
            if self._of_topic:
                readers = self._with_new_lines(partition_id)
            for group, prefetcher in readers:
                group.cursor_ready(prefetcher)

    def _with_new_lines(self, partition_id: int) -> list[tuple[LeasedGroup, Prefetcher]]:
        """The partition may be one that groups over its topic have not met yet."""
        topic_partition = self._parts.topics.of_partition(partition_id)
        if topic_partition is not None:
            for group in self._of_topic.get(topic_partition[0].id, ()):
                if partition_id not in group.prefetchers:
                    self.add_line(group, partition_id, 0)
        return self._readers.get(partition_id, [])

    def failed(self, pending_frames: list[PendingFrame]) -> None:
        """None of these was stored."""
        self._restoring.failed(pending_frames)

    # ---- handles as text

    def handles(self, tenant: str, name: str) -> Handles:
        return Handles(self._parts.secret, tenant, name)

    def find(self, tenant: str, name: str, partition_id: int, offset: int, attempt: int, epoch: int
             ) -> tuple[LeasedGroup, Handle] | None:
        """The group and handle that a decoded text means; None where there is no such cursor any more."""
        for group, prefetcher in self._readers.get(partition_id, ()):
            if group.tenant == tenant and (group.name or (group.queue and group.queue.name)) == name \
                    and prefetcher.cursor.epoch == epoch:
                return group, (prefetcher.cursor, offset, attempt)
        return None
