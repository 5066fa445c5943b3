"""What doors ask about groups and queues: `Kernel.groups`.

Beside it stand receipt handles as text, and two calls that take more than a line: leased messages that are read first
and given up later, and messages that move from a queue to another address.
"""
from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from hmac import compare_digest
from itertools import islice
from typing import Any, Final

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.addresses.routes import stated_in
from gatehouse.kernel.addresses.subscriptions import Subscriptions
from gatehouse.kernel.errors import (
    ExpiredReceipt,
    InvalidQueue,
    KernelError,
    OffsetOutOfRange,
    UnknownGroup,
    UnknownPartition,
    UnknownReceipt,
    UnknownTopic,
)
from gatehouse.kernel.groups.circuits import CircuitListener
from gatehouse.kernel.groups.cursor import MAX_ATTEMPT
from gatehouse.kernel.groups.dead_lettering import Gaps, Redriving, Route
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import (
    ASSIGNED,
    GroupSettings,
    Queue,
    QueueSettings,
    binding_key,
    check_name,
)
from gatehouse.kernel.groups.handing_out import HoldLimit, Member
from gatehouse.kernel.groups.leasing import Core, Leasing
from gatehouse.kernel.groups.policy import REJECTED
from gatehouse.kernel.groups.queues import Queues
from gatehouse.kernel.groups.sharing import Shared, Sharing
from gatehouse.kernel.message import (
    NOBODY,
    RETAIN,
    Chooser,
    Handle,
    Leased,
    Message,
    Origin,
    Owner,
    Placement,
    Record,
    StateRecord,
)
from gatehouse.kernel.records.batch import encode_headers, public_headers, read_headers
from gatehouse.kernel.state.state import Kind, Views, Watermarks, offset_record
from gatehouse.kernel.state.topics import Topic, Topics
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.pending_frame import check

UNDEFINED: Final = GroupSettings(kind=ASSIGNED)
"""A group that only commits offsets needs no definition."""

HANDLE_CHARACTERS: Final = 48
_HANDLE = struct.Struct(">QQHQ")
_MAC_BYTES: Final = 10

OnRead = Callable[["list[Leased] | None"], None]
"""Told of what was read; None where some of it cannot be."""


class Groups:
    """Calls raise their refusals at once, with nothing taken; an `owner` is told when the rest is durable."""

    def __init__(self, leasing: Leasing, committer: Committer, subscriptions: Subscriptions, topics: Topics,
                 places: Places, views: Views, watermarks: Watermarks,
                 forget_offsets: Callable[[str, str], None]) -> None:
        """`forget_offsets` is told of a group, by tenant and name, whose offsets are deleted."""
        self._leasing = leasing
        self._core = leasing.core
        self._queues = leasing.queues
        self._committer = committer
        self._subscriptions = subscriptions
        self._topics = topics
        self._routes = places.routes
        self._views = views
        self._watermarks = watermarks
        self._forget_offsets = forget_offsets
        self._sharing = Sharing(self, topics, places.routes)
        self._redriving = Redriving(leasing.core, leasing.queues, places, topics, leasing.identity)
        self._moving = Moving(leasing.core, leasing.queues, places)
        self.queue_group: Final = leasing.queues.group_of
        """The group that a queue is of itself: who takes from the queue takes from it."""

    # ---- groups

    def group(self, name: str, topic: str, tenant: str = "/") -> LeasedGroup:
        """The leased group of this name over a topic; made where it is missing.

        Raises UnknownTopic, InvalidGroup, AssignedGroup, Stopping.
        """
        return self.over(name, self._topics.require(topic, tenant))

    def over(self, name: str, topic: Topic, start: str = "earliest") -> LeasedGroup:
        """The leased group of this name over this very topic; made where it is missing, to begin at `start`.

        Raises InvalidGroup, AssignedGroup, Stopping.
        """
        return self._leasing.of_topic(name, topic, start)

    def claim(self, name: str, tenant: str = "/") -> None:
        """The name is a leased group's from now on. Raises InvalidGroup, AssignedGroup, Stopping."""
        self._leasing.claim(tenant, name)

    def require_leasable(self, name: str, tenant: str = "/") -> None:
        """Raises InvalidGroup, and AssignedGroup where an assigned group has this name."""
        self._leasing.require_leasable(tenant, name)

    def define(self, name: str, settings: GroupSettings, tenant: str = "/", owner: Owner | None = None,
               token: object = None) -> None:
        """Make a group, or change its settings. Raises InvalidGroup, InvalidSelector, Stopping."""
        self._leasing.define(tenant, name, settings)
        self._core.answer(owner, token)

    def settings(self, name: str, tenant: str = "/") -> GroupSettings | None:
        """None where nobody has defined or used a group of this name."""
        settings = self._leasing.definitions.get(tenant, name)
        return UNDEFINED if settings is None and self.topics(name, tenant) else settings

    def all(self, tenant: str = "/") -> list[tuple[str, GroupSettings]]:
        """Every group, leased or assigned, sorted by name."""
        groups = dict(self._leasing.definitions.all(tenant))
        for name in self._views.offsets:
            if name not in groups and self.topics(name, tenant):
                groups[name] = UNDEFINED
        return sorted(groups.items())

    def topics(self, name: str, tenant: str = "/") -> list[Topic]:
        """What a group has progress in, sorted by name."""
        partition_ids = set(self._views.offsets.get(name, ()))
        for group in self._leasing.active(tenant, name):
            partition_ids.update(group.prefetchers)
        topic_partitions = [self._topics.of_partition(partition_id) for partition_id in partition_ids]
        topics = {of[0].id: of[0] for of in topic_partitions if of is not None and of[0].tenant == tenant}
        return sorted(topics.values(), key=lambda topic: topic.name)

    def offsets(self, name: str, topic: Topic) -> dict[int, int]:
        """Per partition id that the group has met, the first offset that is not settled."""
        offsets = {partition_id: offset
                   for partition_id, (offset, _) in self._views.offsets.get(name, {}).items()}
        for group in self._leasing.active(topic.tenant, name):
            offsets.update({partition_id: group.committed(partition_id) for partition_id in group.prefetchers})
        return {partition_id: offsets[partition_id] for partition_id in topic.partition_ids()
                if partition_id in offsets}

    def behind(self, topics: list[Topic], start: int, count: int) -> list[tuple[int, int]] | None:
        """(topic id, messages that are not settled) for the groups that read one of these topics, among `count` of all
        groups from the number `start` on, as far as is durable; None: there are no more groups."""
        groups = list(islice(self._views.offsets.values(), start, start + count))
        if not groups:
            return None
        rows: list[tuple[int, int]] = []
        of_partition = {partition_id: topic.id for topic in topics for partition_id in topic.partition_ids()}
        for offsets in groups:
            lags: dict[int, int] = {}
            for partition_id in offsets.keys() & of_partition.keys():
                begin = max(offsets[partition_id][0], self._watermarks.log_start(partition_id))
                topic_id = of_partition[partition_id]
                lags[topic_id] = lags.get(topic_id, 0) + max(self._watermarks.next_offset(partition_id) - begin, 0)
            rows += lags.items()
        return rows

    def rewind(self, name: str, topic: Topic, offsets: Mapping[int, int], owner: Owner | None = None,
               token: object = None) -> None:
        """Go on from these offsets, by partition id, forward or back; what is leased or settled from there on counts no
        more.

        Raises UnknownPartition, OffsetOutOfRange, AssignedGroup, Stopping, with nothing changed.
        """
        self.require_leasable(name, topic.tenant)
        partition_ids = set(topic.partition_ids())
        for partition_id, offset in offsets.items():
            if partition_id not in partition_ids:
                raise UnknownPartition(f"the topic {topic.name} has no partition of the id {partition_id}")
            start, end = self._watermarks.log_start(partition_id), self._watermarks.next_offset(partition_id)
            if not start <= offset <= end:
                raise OffsetOutOfRange(f"the partition holds the offsets {start} to {end}, the next, not {offset}")
        group = self.over(name, topic)
        for partition_id, offset in offsets.items():
            self._leasing.cursors.rewind(group, partition_id, offset)
        self._core.answer(owner, token)

    def delete(self, name: str, tenant: str = "/", owner: Owner | None = None, token: object = None) -> None:
        """Its settings, progress and leases; its dead letters stay. Raises UnknownGroup, GroupHasMembers, Stopping."""
        if self.settings(name, tenant) is None:
            raise UnknownGroup(f"there is no group {name!r}")
        self._leasing.live.require_no_members(tenant, name)
        partition_ids = [partition_id for topic in self.topics(name, tenant)
                         for partition_id in self.offsets(name, topic)]
        for pending in self._committer.pending():                    # committed, and not known to be durable yet
            for partition_id in pending.offsets_of(name):
                of = self._topics.of_partition(partition_id)
                if of is not None and of[0].tenant == tenant:
                    partition_ids.append(partition_id)
        self._store_no_offsets(name, partition_ids)
        self._forget_offsets(tenant, name)
        self._leasing.delete(tenant, name)
        self._core.answer(owner, token)

    def forget(self, name: str, topic: Topic, owner: Owner | None = None, token: object = None) -> None:
        """How far a leased group is in a topic, and its leases there: whoever takes next begins there anew. Raises
        UnknownTopic where it takes nothing of the topic, InvalidGroup, AssignedGroup, Stopping."""
        self.require_leasable(name, topic.tenant)
        if topic not in self.topics(name, topic.tenant):
            raise UnknownTopic(f"group {name!r} reads nothing of {topic.name!r}")
        self._store_no_offsets(name, topic.partition_ids())
        for group in self._leasing.active(topic.tenant, name):
            if group.topic_id == topic.id:
                self._leasing.delete_over(group)
        self._core.answer(owner, token)

    def _store_no_offsets(self, name: str, partition_ids: Iterable[int]) -> None:
        self._core.store([offset_record(name, partition_id, None) for partition_id in sorted(set(partition_ids))])

    def share(self, text: str, member: Member, credit: int, *, keeps: bool = True, tenant: str = "/",
              hold: HoldLimit | None = None, taker: Origin = NOBODY) -> Shared:
        """A place in the group of `$share/GROUP/FILTER`; see `kernel.groups.sharing`.

        Raises InvalidFilter, InvalidGroup, AssignedGroup, Stopping.
        """
        return self._sharing.join(text, member, credit, keeps=keeps, tenant=tenant, hold=hold, taker=taker)

    def shared_group(self, text: str, tenant: str = "/") -> LeasedGroup:
        """The group of `$share/GROUP/FILTER`. Raises UnknownTopic where its topic does not exist yet, InvalidFilter,
        InvalidGroup, AssignedGroup, Stopping."""
        return self._sharing.group(text, tenant)

    def address_of_leased(self, message: Leased) -> str:
        """The address that a leased message was published to."""
        topic_partition = self._topics.of_partition(message[0][0])
        headers = read_headers(message[7], 0)[0] if ADDRESS_HEADER in message[7] or self._routes.any else ()
        if topic_partition is not None:
            return self._routes.address_of(topic_partition[0].name, message[5], headers)
        return (stated_in(headers) or b"").decode(errors="replace")

    def ask(self, names_over: Callable[[str, str], Iterable[str]]) -> None:
        """See `Sharing.ask`."""
        self._sharing.ask(names_over)

    def on_topic(self, topic: Topic) -> None:
        """A topic was made: members that waited for it have their place in its group now."""
        self._sharing.on_topic(topic)

    def follow_circuits(self, listener: CircuitListener) -> None:
        """Tell it of every circuit of a group, those that are there first; see `circuits`."""
        self._core.circuits.follow(listener)

    # ---- receipt handles as text

    def handles(self, tenant: str, name: str) -> Handles:
        """Makes and reads the receipt handles of a tenant's group or queue."""
        return Handles(self._leasing.identity.secret, tenant, name)

    def find(self, tenant: str, name: str, partition_id: int, offset: int, attempt: int, epoch: int
             ) -> tuple[LeasedGroup, Handle] | None:
        """The group and handle that a decoded receipt handle means; None where there is no such cursor any more."""
        for group, prefetcher in self._leasing.cursors.readers.get(partition_id, ()):
            if group.tenant == tenant and (group.name or (group.queue and group.queue.name)) == name \
                    and prefetcher.cursor.epoch == epoch:
                return group, (prefetcher.cursor.key, offset, attempt)
        return None

    def held_in(self, tenant: str, name: str, texts: Sequence[str]) -> list[tuple[LeasedGroup, Handle] | KernelError]:
        """For each receipt of a group or queue what it holds, or why nothing."""
        reader = self.handles(tenant, name)
        held: list[tuple[LeasedGroup, Handle] | KernelError] = []
        for text in texts:
            try:
                held.append(self.find(tenant, name, *reader.decode(text)) or ExpiredReceipt("the lease has ended"))
            except UnknownReceipt as error:
                held.append(error)
        return held

    def held(self, tenant: str, receipts: Sequence[tuple[str, Sequence[str]]]
             ) -> tuple[list[tuple[LeasedGroup, list[Handle]]], bool]:
        """What receipts hold, (name of a group, texts) each, and whether none has ended. Raises UnknownReceipt."""
        by_group: dict[LeasedGroup, list[Handle]] = {}
        all_held = True
        for name, texts in receipts:
            for held in self.held_in(tenant, name, texts):
                if isinstance(held, UnknownReceipt):
                    raise held
                if isinstance(held, KernelError):
                    all_held = False
                else:
                    by_group.setdefault(held[0], []).append(held[1])
        return list(by_group.items()), all_held

    # ---- what metrics show

    def in_memory(self) -> list[LeasedGroup]:
        """Every group that is in memory, those of queues too."""
        return self._leasing.in_memory()

    # ---- queues

    def declare_queue(self, name: str, settings: QueueSettings | None = None, tenant: str = "/",
                      owner: Owner | None = None, token: object = None) -> Queue:
        """The queue of this name; made where it is missing. Raises QueueExists, InvalidQueue, Stopping."""
        queue = self._queues.declare(name, settings or QueueSettings(), tenant)
        self._core.answer(owner, token)
        return queue

    def change_queue(self, queue: Queue, settings: QueueSettings) -> Queue:
        """Other settings from now on, all but how many priorities it has; what is in it is held to them at once.
        Returns the queue as it is now. Raises InvalidQueue, UnknownQueue, Stopping."""
        return self._queues.change(queue, settings)

    def delete_queue(self, queue: Queue, owner: Owner | None = None, token: object = None) -> None:
        """The queue with everything in it, and its bindings. Raises Stopping."""
        self._queues.delete(queue)
        self._core.answer(owner, token)

    def purge(self, queue: Queue, owner: Owner | None = None, token: object = None) -> int:
        """Settle what is ready in a queue, and what is on its way in; how many messages that was. Raises Stopping."""
        count = self._queues.group_of(queue).purge()
        self._core.answer(owner, token)
        return count

    def queue(self, name: str, tenant: str = "/") -> Queue | None:
        return self._queues.definitions.get(tenant, name)

    def queues(self, tenant: str = "/") -> list[Queue]:
        """Sorted by name."""
        return [queue for _, queue in self._queues.definitions.all(tenant)]

    def ready(self, queue: Queue) -> int:
        """Messages that nobody holds, those included that are on their way in."""
        return self._queues.ready(queue)

    def redrive(self, queue: Queue, letters: list[Record], owner: Owner | None = None, token: object = None, *,
                gaps: Gaps = ()) -> list[KernelError | None]:
        """Send records of a dead-letter queue back to where they died. Answers for each why it stays; `owner` is told
        when the rest is durable. `gaps` are where whoever read the queue up to the last of them found nothing: however
        wide, they are passed over at once. Raises Stopping."""
        results = self._redriving.redrive(queue, letters, gaps)
        self._core.answer(owner, token)
        return results

    def move(self, queue: Queue, leases: list[Leased], to: str, owner: Owner | None = None, token: object = None, *,
             may_create: bool = False, maker: str = "") -> list[KernelError | None]:
        """Send messages that are leased from a queue to an address, `$queue/NAME` among them. Answers for each why it
        stays leased; `owner` is told when the rest is durable. Raises what the address is refused for, InvalidQueue
        where it is the queue itself, Stopping."""
        results = self._moving.move(queue, leases, to, may_create, maker)
        self._core.answer(owner, token)
        return results

    def bindings(self, queue: Queue) -> list[tuple[bool, str]]:
        """(chosen, filter) of what leads to a queue; see `bind`."""
        return self._subscriptions.bindings_of(queue.first_partition_id)

    def bind(self, filter: str, queue: Queue, *, chosen: bool = False, owner: Owner | None = None,
             token: object = None) -> None:
        """Messages to matching addresses of its tenant enter the queue too, by reference, from this frame on.

        `chosen` bindings do not count for messages whose door chose their queues. Raises InvalidFilter, Stopping.
        """
        self._subscriptions.bind(filter, queue.first_partition_id, chosen, queue.tenant)
        record = StateRecord(Kind.BINDING, binding_key(queue.first_partition_id, chosen, filter), b"")
        self._core.put_state([record], owner, token)

    def unbind(self, filter: str, queue: Queue, *, chosen: bool = False, owner: Owner | None = None,
               token: object = None) -> None:
        """Undo `bind`. Raises InvalidFilter, Stopping."""
        self._subscriptions.unbind(filter, queue.first_partition_id, chosen)
        record = StateRecord(Kind.BINDING, binding_key(queue.first_partition_id, chosen, filter), None)
        self._core.put_state([record], owner, token)

    def when_settled(self, owner: Owner, token: object) -> None:
        """Tell the owner when every lease that has ended so far is so durably, also where nobody waited for it. Raises
        Stopping."""
        self._core.when_settled(owner, token)

    def read_leased(self, group: Any, handles: list[Handle], on_read: OnRead) -> None:
        """Read what members of a group hold; see the function of this name."""
        read_leased(group, handles, on_read)

    def reject_read(self, group: Any, handles: list[Handle], messages: list[Leased]) -> None:
        """Reject what was read, in the frame that is being filled. Raises Stopping."""
        reject_read(group, handles, messages)

    def bind_chooser(self, filter: str, chooser: Chooser, tenant: str = "/") -> None:
        """Ask a door's chooser which queues messages to matching addresses enter, but for those whose door chose them;
        bound once more, it is asked anew. Kept in memory alone: a door binds it at each start. Raises InvalidFilter."""
        self._subscriptions.bind_chooser(filter, chooser, tenant)

    def unbind_chooser(self, filter: str, tenant: str = "/") -> None:
        """Undo `bind_chooser`."""
        self._subscriptions.unbind_chooser(filter, tenant)

    def on_queue_gone(self, listener: Callable[[Queue], None]) -> None:
        """Tell `listener` of every queue that is not there any more, whoever deleted it."""
        self._queues.on_gone(listener)

    def route_dead_letters(self, route: Route) -> None:
        """Ask `route` what becomes of dead letters of queues whose settings say so in a door's own words. What it gives
        None for is another door's."""
        self._leasing.letters.add_route(route)

    # ---- offsets of assigned groups

    def commit_offsets(self, group: str, offsets: dict[int, tuple[int, bytes]], owner: Owner | None,
                       token: object = None) -> None:
        """Per partition id the group's next offset and some bytes of its own (at most 4096).

        Raises GroupIsLeased, GroupHasMembers, Stopping. Members commit by `kernel.assigned`.
        """
        self._leasing.check_commits(group, offsets)
        self._committer.put_state([offset_record(group, partition_id, offset)
                                   for partition_id, offset in offsets.items()], owner, token)

    def require_commits(self, group: str, tenant: str = "/") -> None:
        """Raises GroupIsLeased where messages are leased from the group, which commits no offsets; InvalidGroup."""
        check_name(group, "group")
        self._leasing.require_commits(tenant, group)

    def committed(self, group: str, tenant: str = "/") -> dict[int, tuple[int, bytes]]:
        """The durable offsets by partition id of a tenant's group."""
        return {partition_id: offset for partition_id, offset in self._views.offsets.get(group, {}).items()
                for topic_partition in [self._topics.of_partition(partition_id)] if topic_partition is not None
                and topic_partition[0].tenant == tenant}


class Handles:
    """Makes and reads the receipt handles of one group: which lease of which of its messages, signed so that nobody
    makes one up.

        partition_id u64 | offset u64 | attempt u16 | epoch u64 | mac 10 B        in URL-safe base64: 48 characters

    The MAC covers tenant and group too. The key lies in the log: a handle is good for as long as its lease is, however
    often the hub starts in between. The epoch is the cursor's: after a rewind attempts are counted anew, and a handle
    from before it must not end somebody else's lease.
    """

    def __init__(self, secret: bytes, tenant: str, group: str) -> None:
        self._key = blake2b(tenant.encode() + b"\0" + group.encode(), key=secret, digest_size=32).digest()

    def encode(self, handle: Handle) -> str:  # decision 31
        """The text of a handle."""
        (partition_id, epoch, _), offset, attempt = handle
        named = _HANDLE.pack(partition_id, offset, min(attempt, MAX_ATTEMPT), epoch)
        return urlsafe_b64encode(named + self._mac(named)).decode()

    def decode(self, text: str) -> tuple[int, int, int, int]:
        """Partition id, offset, attempt, epoch. Raises UnknownReceipt."""
        try:
            raw = urlsafe_b64decode(text) if len(text) == HANDLE_CHARACTERS else b""
        except ValueError:
            raw = b""
        named = raw[:_HANDLE.size]
        if len(raw) != _HANDLE.size + _MAC_BYTES or not compare_digest(self._mac(named), raw[_HANDLE.size:]):
            raise UnknownReceipt("this is no receipt handle of this group")
        partition_id, offset, attempt, epoch = _HANDLE.unpack(named)
        return partition_id, offset, attempt, epoch

    def _mac(self, named: bytes) -> bytes:
        return blake2b(named, key=self._key, digest_size=_MAC_BYTES).digest()


def read_leased(group: LeasedGroup, handles: Sequence[Handle], on_read: OnRead) -> None:
    """Read messages that are leased; nothing of them changes."""
    by_cursor = group.good_handles(handles)[1]
    gathering = _Gathering(len(by_cursor), on_read)
    for prefetcher, offsets in by_cursor:
        prefetcher.read_leased(offsets, gathering.add)


def reject_read(group: LeasedGroup, handles: Sequence[Handle], messages: list[Leased]) -> None:
    """Give up what `read_leased` has read: its dead letters are in the frame that is being filled. Raises Stopping."""
    by_place = {(message[0], message[1]): message for message in messages}
    for prefetcher, offsets in group.good_handles(handles)[1]:
        key = prefetcher.cursor.key
        there = [by_place[key, offset] for offset in offsets if (key, offset) in by_place]
        group.give_up_leased(prefetcher, offsets, there, REJECTED)


class _Gathering:
    """What several cursors have, until all of them have answered."""

    def __init__(self, cursors: int, on_read: OnRead) -> None:
        self._left = cursors
        self._on_read = on_read
        self._messages: list[Leased] = []
        self._failed = False
        if not cursors:
            on_read([])

    def add(self, messages: list[Leased] | None) -> None:
        self._left -= 1
        self._failed = self._failed or messages is None
        self._messages += messages or []
        if not self._left:
            self._on_read(None if self._failed else self._messages)


class Moving:
    """Moves messages that were taken from a queue to another queue or an address: settled here and stored there in one
    frame.

    The copy has the message's id, key, value and headers; its attempts begin anew. In a queue it keeps its priority, as
    far as that queue has one, and what its door keeps for itself; in a topic it is a message like any other."""

    def __init__(self, core: Core, queues: Queues, places: Places) -> None:
        self._core = core
        self._queues = queues
        self._places = places

    # decision 192: a copy in the frame that settles
    def move(self, queue: Queue, leases: list[Leased], to: str, may_create: bool, maker: str
             ) -> list[KernelError | None]:
        """Send these messages, leased from the queue, to the address `to`. Answers for each why it stays leased. Raises
        what the address is refused for, and Stopping."""
        placement = self._places.place(to, queue.tenant, may_create, maker)
        target = placement.queue if isinstance(placement.queue, Queue) else None
        if target is not None and target.first_partition_id == queue.first_partition_id:
            raise InvalidQueue("a queue's messages cannot be moved to that queue")
        group = self._queues.group_of(queue)
        pending_frame = self._core.open_frame()
        results, _ = group.good_handles([leased[:3] for leased in leases])
        gone: list[Handle] = []
        for number, leased in enumerate(leases):
            if results[number] is not None:
                continue
            message = self._message(queue, leased, placement, target)
            try:
                if check([message], self._places.refresh):
                    [message] = self._places.choose([message])
                    self._queues.max_lengths.refuse_full([message])
            except KernelError as error:
                results[number] = error
                continue
            pending_frame.builder.add_copies([message], [leased[3]], None)
            gone.append(leased[:3])
        group.ack(gone)
        return results

    def _message(self, queue: Queue, leased: Leased, placement: Placement, target: Queue | None) -> Message:
        headers, attributes = leased[7], leased[8] & ~RETAIN
        if target is not None:                       # the address that it was published to stays with it
            priority = leased[0][0] - queue.first_partition_id
            return self._places.place_queue(target, priority, leased[5]), leased[6], headers, attributes, leased[4]
        public = [header for header in public_headers(headers)
                  if not placement.address_header or header[0] != ADDRESS_HEADER]       # it is added anew
        return placement, leased[6], encode_headers(tuple(public)), attributes, leased[4]
