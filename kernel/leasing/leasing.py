"""Every group that somebody uses: their lines, what goes into each frame, what a flush brings them, and their time.

    ack, pop, release ─► line changes ─► touch: into the frame being gathered ─► seal: changed pages as state records
    a durable frame   ─► its queues ─► the lines that read them ─► their groups serve

A line is in memory while something of it is leased, waiting or settled out of order, or while its group is used; at a
start those that have pages are loaded, the others when they are first asked for.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from crc32c import crc32c

from kernel.errors import AssignedGroup, KernelError, QueueExists, Stopping
from kernel.frame import StateRecord
from kernel.gathering import Gathering, Submission
from kernel.leasing.burial import Burial
from kernel.leasing.deadlines import Deadlines
from kernel.leasing.definitions import group_definitions, queue_definitions
from kernel.leasing.group import LeasedGroup
from kernel.leasing.handles import Handles
from kernel.leasing.line import Lease, Line
from kernel.leasing.pages import decode_page_key, encode_page, fill_gaps, load_page, page_key
from kernel.leasing.selecting import Selecting
from kernel.leasing.settings import ASSIGNED, GroupSettings, LightQueue, QueueSettings, binding_key, check_name
from kernel.leasing.supply import Supply
from kernel.message import Handle, Leased, Owner
from kernel.owed import NONE_NEEDED, Stretch
from kernel.parts import Parts
from kernel.state import Kind
from kernel.topics import Topic
from kernel.views import decode_offset, offset_record

_CHANCE = struct.Struct("<QQ")
_QUEUE = struct.Struct(">Q")


class Leasing:
    """`gather` gives the frame being gathered, and raises Stopping; `names` are those of `Selecting`."""

    def __init__(self, parts: Parts, gather: Callable[[], Gathering], names: Mapping[str, str]) -> None:
        self.selecting = Selecting(names, parts.topics, parts.places.routes)
        self._parts = parts
        self._gather = gather
        self._loop = parts.loop
        self.queues = queue_definitions(parts.state)
        self.groups = group_definitions(parts.state)
        self.burial = Burial(parts, self, gather)
        self._by_topic: dict[tuple[str, str, int], LeasedGroup] = {}
        self._of_topic: dict[int, list[LeasedGroup]] = {}
        self._of_queue: dict[int, LeasedGroup] = {}                    # light queues, by their first queue id
        self._readers: dict[int, list[tuple[LeasedGroup, Supply]]] = {}     # by queue id
        self._woken: dict[LeasedGroup, None] = {}
        self.deadlines = Deadlines(parts.loop)
        self.on_floor: Callable[[int], None] = lambda queue_id: None
        self._numbers = 0
        self._loaded_pages: dict[tuple[int, str], list[tuple[int, bytes]]] = {}       # while opening
        self._stopped = False

    # ---- opening and closing

    def open(self) -> None:
        """After recovery: load every line of which something is outstanding."""
        pages: dict[tuple[int, str], list[tuple[int, bytes]]] = {}
        for key, value in self._parts.state.scan(Kind.LEASES):
            queue_id, page, group = decode_page_key(key)
            pages.setdefault((queue_id, group), []).append((page, value))
        self._loaded_pages = pages
        light = {queue_id for queue_id, group in pages if not group}
        if light:
            for key, value in self._parts.state.scan(Kind.QUEUE):
                queue = self.queues.read(key, value)
                if not light.isdisjoint(queue.queue_ids()):
                    self.of_queue(queue)
        for queue_id, group in list(pages):
            found = self._parts.topics.of_queue(queue_id)
            if group and found is not None:
                self.of_topic(group, found[0])
        self._loaded_pages = {}

    def stop(self) -> None:
        """Hand out nothing more."""
        self._stopped = self.deadlines.stopped = True

    # ---- light queues

    def declare(self, name: str, settings: QueueSettings, tenant: str) -> LightQueue:
        """The light queue of this name; made where it is missing. Raises QueueExists, InvalidQueue, Stopping."""
        known = self.queues.get(tenant, name)
        if known is not None:
            if known.settings != settings:
                raise QueueExists(f"queue {name!r} exists with other settings")
            return known
        check_name(name, "queue")
        settings.check()
        gathering = self._gather()
        first = self._parts.topics.new_queue_ids(settings.priorities)
        queue = LightQueue(tenant, name, first, settings, gathering.burst.now_ms)
        gathering.state += [self.queues.put(tenant, name, queue),
                            StateRecord(Kind.COUNTERS, b"", self._parts.topics.counters())]
        return queue

    def delete(self, queue: LightQueue) -> None:
        """The queue with everything in it, and its bindings. Raises Stopping."""
        gathering = self._gather()
        gathering.state.append(self.queues.put(queue.tenant, queue.name, None))
        for queue_id in queue.queue_ids():
            gathering.state.append(offset_record("", queue_id, None))
            for _, supply in self._readers.get(queue_id, ()):
                gathering.state += [StateRecord(Kind.LEASES, page_key(queue_id, page, b""), None)
                                    for page in supply.line.stored]
                gathering.lines.pop(supply.line, None)
        gathering.deleted += ((queue.first_queue_id, queue.settings.priorities),)
        subscriptions = self._parts.subscriptions
        for chosen, filter_text in subscriptions.bindings_of(queue.first_queue_id):
            subscriptions.unbind(filter_text, queue.first_queue_id, chosen)
            key = binding_key(queue.first_queue_id, chosen, filter_text)
            gathering.state.append(StateRecord(Kind.BINDING, key, None))
        self.forget_queue(queue)
        self._parts.topics.version += 1            # placements that lead to it are looked at again
        subscriptions.touch()

    # ---- groups

    def of_queue(self, queue: LightQueue) -> LeasedGroup:
        """The group that a light queue is of itself."""
        group = self._of_queue.get(queue.first_queue_id)
        if group is None:
            of_queue = queue.settings
            settings = GroupSettings(max_attempts=of_queue.max_attempts, single_active=of_queue.single_active)
            group = LeasedGroup(self, queue.tenant, "", 0, settings)
            group.queue = queue
            group.by_priority = queue.settings.priorities > 1
            group.ttl_ms = queue.settings.ttl_ms
            self._of_queue[queue.first_queue_id] = group
            for queue_id in queue.queue_ids():
                self.add_line(group, queue_id, self._floor(queue_id))
        return group

    def of_topic(self, name: str, topic: Topic, start: str = "earliest") -> LeasedGroup:
        """The leased group of this name over a topic; made where it is missing, to begin at `start`.

        Raises InvalidGroup, AssignedGroup, Stopping.
        """
        group = self._by_topic.get((topic.tenant, name, topic.id))
        if group is None:
            check_name(name, "group")
            settings = self.groups.get(topic.tenant, name)
            if settings is None and any(self._parts.topics.of_queue(queue_id) is not None
                                        for queue_id in self._parts.views.offsets.get(name, ())):
                raise AssignedGroup(f"group {name!r} commits offsets; messages cannot be leased from it")
            group = self._make(name, topic, settings, start)
        if group.settings.kind == ASSIGNED:
            raise AssignedGroup(f"group {name!r} is an assigned one; messages cannot be leased from it")
        return group

    def _make(self, name: str, topic: Topic, settings: GroupSettings | None, start: str) -> LeasedGroup:
        known = settings if settings is not None else GroupSettings(start=start)
        if known.kind != ASSIGNED and settings is None:
            self._gather().state.append(self.groups.put(topic.tenant, name, known))
        group = LeasedGroup(self, topic.tenant, name, topic.id, known)
        if known.kind == ASSIGNED:
            return group
        group.wants = self.selecting.wants(known.selector)
        self._by_topic[topic.tenant, name, topic.id] = group
        self._of_topic.setdefault(topic.id, []).append(group)
        offsets = self._parts.views.offsets.get(name, {})
        heads = self._parts.heads
        for queue_id in topic.queue_ids():
            end = heads.next_offset(queue_id)
            if end or queue_id in offsets:
                known_floor = offsets.get(queue_id)
                late = known.start == "latest" and known_floor is None
                floor = end if late else known_floor[0] if known_floor is not None \
                    else self._parts.reader.start_of(queue_id)
                supply = self.add_line(group, queue_id, floor)
                if late:
                    supply.line.stored_floor = -1
                    self.touch(supply.line)
        return group

    def configure(self, tenant: str, name: str, settings: GroupSettings) -> None:
        """A group's settings have changed."""
        for group in self._by_topic.values():
            if (group.tenant, group.name) == (tenant, name):
                group.configure(settings)
                group.wants = self.selecting.wants(settings.selector)

    def active(self, tenant: str, name: str) -> list[LeasedGroup]:
        """The groups of this name that are in memory, one per topic."""
        return [group for group in self._by_topic.values() if (group.tenant, group.name) == (tenant, name)]

    def reading(self, queue_id: int) -> list[tuple[LeasedGroup, Supply]]:
        """Who reads this queue, as far as they are in memory."""
        return self._readers.get(queue_id, [])

    def forget_topic(self, topic: Topic) -> None:
        """The topic is deleted: its groups are gone with it."""
        for group in self._of_topic.pop(topic.id, []):
            del self._by_topic[group.tenant, group.name, topic.id]
            self._end(group)

    def forget_queue(self, queue: LightQueue) -> None:
        """A light queue is deleted."""
        group = self._of_queue.pop(queue.first_queue_id, None)
        if group is not None:
            self._end(group)

    def forget_group(self, tenant: str, name: str) -> None:
        """A group is deleted."""
        for group in self.active(tenant, name):
            del self._by_topic[tenant, name, group.topic_id]
            self._of_topic[group.topic_id].remove(group)
            self._end(group)

    def _end(self, group: LeasedGroup) -> None:
        for queue_id, supply in group.supplies.items():
            supply.line.clear()
            self._readers[queue_id] = [one for one in self._readers[queue_id] if one[0] is not group]
            if not self._readers[queue_id]:
                del self._readers[queue_id]
        group.end()

    # ---- lines

    def _floor(self, queue_id: int) -> int:
        stored = self._parts.state.get(Kind.OFFSET, _QUEUE.pack(queue_id))
        return 0 if stored is None else decode_offset(stored)[0]

    def add_line(self, group: LeasedGroup, queue_id: int, floor: int) -> Supply:
        """The group reads this queue too, from `floor` on, as far as nothing else is stored."""
        heads = self._parts.heads
        line = Line(queue_id, group.name, floor)
        line.topic_id = group.topic_id
        supply = Supply(line, self._parts.reader.fetch_kept, partial(heads.next_offset, queue_id),
                        partial(self._parts.reader.start_of, queue_id))
        group.supplies[queue_id] = supply
        self._readers.setdefault(queue_id, []).append((group, supply))
        pages = self._loaded_pages.get((queue_id, group.name), ())
        if pages:
            self._load(group, supply, pages)
        if line.ready(heads.next_offset(queue_id)):
            group.line_ready(supply)
        return supply

    def _load(self, group: LeasedGroup, supply: Supply, pages: Iterable[tuple[int, bytes]]) -> None:
        line = supply.line
        end = self._parts.heads.next_offset(line.queue_id)
        for page, value in sorted(pages):
            for lease, offsets in load_page(line, page, value, end):
                lease.offsets = offsets
                self.lease_until(group, supply, lease)
        fill_gaps(line)
        for offset, when_ms in line.waiting.items():
            self.wait_until(group, supply, offset, when_ms)
        if group.settings.ordered:
            supply.want_keys([*line.out, *line.waiting])

    # ---- what groups ask for; see `kernel.leasing.group.Core`

    def now_ms(self) -> int:
        return self._loop.now_ms()

    def chance(self) -> float:
        """Evenly spread and the same in every run of a simulation: a clock and a counter, mixed."""
        self._numbers += 1
        return crc32c(_CHANCE.pack(self._numbers, self._loop.now_ms())) / (1 << 32)

    def touch(self, line: Line) -> None:
        self._gather().lines[line] = None

    def answer(self, owner: Owner | None, token: object) -> None:
        if owner is not None:
            gathering = self._gather()
            gathering.submissions.append(Submission(owner, token, None, (gathering.burst.now_ms, [])))

    def bury(self, group: LeasedGroup, supply: Supply, messages: list[Leased], reason: str) -> None:
        self.burial.bury(group, supply, messages, reason)

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

    def lease_until(self, group: LeasedGroup, supply: Supply, lease: Lease) -> None:
        self.deadlines.lease_until(group, supply, lease)

    def wait_until(self, group: LeasedGroup, supply: Supply, offset: int, when_ms: int) -> None:
        self.deadlines.wait_until(group, supply, offset, when_ms)

    # ---- frames

    def seal(self, gathering: Gathering) -> None:
        """The changed pages of every touched line as they are now."""
        for line in gathering.lines:
            gathering.state += self._records(line)

    def _records(self, line: Line) -> list[StateRecord]:
        records: list[StateRecord] = []
        if line.floor != line.stored_floor:
            line.stored_floor = line.floor
            self.on_floor(line.queue_id)
            records.append(offset_record(line.group, line.queue_id, (line.floor, b"")))
        group = line.group.encode()
        for page in line.dirty:
            value = encode_page(line, page)
            if value is not None:
                line.stored.add(page)
            elif page in line.stored:
                line.stored.discard(page)
            else:
                continue
            records.append(StateRecord(Kind.LEASES, page_key(line.queue_id, page, group), value))
        line.dirty = set()
        return records

    def wanted(self, queue_id: int, start: int, stop: int) -> list[Stretch]:
        """What must outlive retention, see `kernel.owed.Owed`: all that is not settled of a light queue, and what is
        out of a topic's queue, or waits for its next time. What nobody has had of a topic goes with its segment."""
        readers = self._readers.get(queue_id)
        if readers is not None:
            found: list[Stretch] = []
            for group, supply in readers:
                end = stop if group.queue is not None else min(stop, supply.line.next)
                found += supply.line.unsettled_stretches(start, end)
            return found
        if self._parts.topics.of_queue(queue_id) is not None:
            return []
        known = self._parts.heads.log_start(queue_id)      # not below the floor, nor is a deleted queue's below its end
        return [(max(start, known if start >= known else self._floor(queue_id)), stop)]

    def first_needed(self, queue_id: int) -> int:
        """See `kernel.owed.Owed`."""
        readers = self._readers.get(queue_id)
        if readers is None:
            return NONE_NEEDED if self._parts.topics.of_queue(queue_id) is not None else self._floor(queue_id)
        return min([supply.line.floor if group.queue is not None or supply.line.floor < supply.line.next
                    else NONE_NEEDED for group, supply in readers], default=NONE_NEEDED)

    def settle(self, record: StateRecord) -> None:
        """This definition is durable."""
        (self.queues if record.kind == Kind.QUEUE else self.groups).settle(record)

    def applied(self, queue_ids: Iterable[int]) -> None:
        """Messages entered these queues: whoever reads them is served."""
        if not self._readers and not self._of_topic:
            return
        for queue_id in queue_ids:
            readers = self._readers.get(queue_id, ())
            if self._of_topic:
                readers = self._with_new_lines(queue_id)
            for group, supply in readers:
                group.line_ready(supply)
        if self._woken:
            self._serve_woken()

    def _with_new_lines(self, queue_id: int) -> list[tuple[LeasedGroup, Supply]]:
        """The queue may be one that groups over its topic have not met yet."""
        found = self._parts.topics.of_queue(queue_id)
        if found is not None:
            for group in self._of_topic.get(found[0].id, ()):
                if queue_id not in group.supplies:
                    self.add_line(group, queue_id, 0)
        return self._readers.get(queue_id, [])

    def failed(self, gatherings: list[Gathering]) -> None:
        """These were not stored: their lines are what the state says; members keep what they hold."""
        self.queues.undo()
        self.groups.undo()
        lines = {line: None for gathering in gatherings for line in gathering.lines}
        if not lines:
            return
        pages: dict[tuple[int, str], list[tuple[int, bytes]]] = {}
        for key, value in self._parts.state.scan(Kind.LEASES):
            queue_id, page, group_name = decode_page_key(key)
            pages.setdefault((queue_id, group_name), []).append((page, value))
        for line in lines:
            for group, supply in self._readers.get(line.queue_id, ()):
                if supply.line is line:
                    self._restore(group, supply, pages.get((line.queue_id, line.group), []))

    def _restore(self, group: LeasedGroup, supply: Supply, pages: list[tuple[int, bytes]]) -> None:
        line = supply.line
        held = {offset: lease for offset, lease in line.out.items() if lease.holder is not None}
        stored = self._parts.views.offsets.get(line.group, {}).get(line.queue_id) if line.group else None
        floor = stored[0] if stored is not None else self._floor(line.queue_id) if not line.group \
            else self._parts.heads.log_start(line.queue_id)
        line.reset(floor)
        supply.reset()
        line.dirty, line.stored, line.stored_floor = set(), set(), floor
        self._load(group, supply, pages)
        kept = {offset: lease for offset, lease in held.items() if not line.is_settled(offset)}
        line.hold(kept)
        group.line_ready(supply)

    # ---- handles as text

    def handles(self, tenant: str, name: str) -> Handles:
        return Handles(self._parts.secret, tenant, name)

    def find(self, tenant: str, name: str, queue_id: int, offset: int, attempt: int
             ) -> tuple[LeasedGroup, Handle] | None:
        """The group and handle that a decoded text means; None where there is no such line any more."""
        for group, supply in self._readers.get(queue_id, ()):
            if group.tenant == tenant and (group.name or (group.queue and group.queue.name)) == name:
                return group, (supply.line, offset, attempt)
        return None
