"""The kernel's end of a port's groups and queues: sources become groups, and memberships and requests numbers."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from gatehouse.kernel.api import ACK, EXTEND, LEAVE, REJECT, Settling, Source, Taken
from gatehouse.kernel.errors import ExpiredReceipt, KernelError, Stopping, UnknownQueue, UnknownTopic
from gatehouse.kernel.groups.circuits import GONE_AWAY
from gatehouse.kernel.groups.group_settings import ASSIGNED
from gatehouse.kernel.message import Stored, tell

if TYPE_CHECKING:
    from gatehouse.kernel.assigned.assigned_groups import AssignedGroups
    from gatehouse.kernel.assigned.assigned_values import GroupLook
    from gatehouse.kernel.groups.calls import Groups
    from gatehouse.kernel.groups.group import Counts, LeasedGroup
    from gatehouse.kernel.groups.group_settings import GroupSettings, Queue, QueueSettings
    from gatehouse.kernel.groups.handing_out import Membership, Pop
    from gatehouse.kernel.message import Handle, Leased, Origin, Owner, Record
    from gatehouse.kernel.state.topics import Topic, Topics


class PortGroups:
    """See `api.GroupCalls`. `owner` is the port, which is answered for all of its door."""

    def __init__(self, owner: Owner, groups: Groups, assigned: AssignedGroups, topics: Topics) -> None:
        self._owner = owner
        self._groups = groups
        self._assigned = assigned
        self._topics = topics
        self._requests: dict[int, Request] = {}
        self._members: dict[int, NumberedMember] = {}
        self._last = 0

    def _asks(self, number: int) -> Owner | None:
        return self._owner if number else None

    def _group(self, source: Source, tenant: str) -> LeasedGroup:
        """The group of a source; that of a topic is made where it is missing. Raises UnknownQueue besides."""
        name, topic = source
        groups = self._groups
        if topic:
            return groups.group(name, topic, tenant)
        queue = groups.queue(name, tenant)
        if queue is None:
            raise UnknownQueue(f"there is no queue {name!r}")
        return groups.queue_group(queue)

    # ---- from definitions

    def settings(self, name: str, tenant: str) -> GroupSettings | None:
        return self._groups.settings(name, tenant)

    def all(self, tenant: str) -> list[tuple[str, GroupSettings]]:
        return self._groups.all(tenant)

    def topics(self, name: str, tenant: str) -> list[Topic]:
        return self._groups.topics(name, tenant)

    def offsets(self, name: str, topic: Topic) -> dict[int, int]:
        return self._groups.offsets(name, topic)

    def behind(self, topics: list[Topic], start: int, count: int) -> list[tuple[int, int]] | None:
        return self._groups.behind(topics, start, count)

    def counts(self, source: Source, tenant: str) -> Counts:
        return self._group(source, tenant).counts()

    def unsettled(self, source: Source, tenant: str) -> list[tuple[int, int]]:
        return self._group(source, tenant).unsettled()

    def look(self, name: str, tenant: str) -> GroupLook | None:
        return self._assigned.look(name, tenant)

    def topics_of(self, partition_ids: list[int]) -> list[tuple[Topic, list[int]]]:
        return self._assigned.topics_of(partition_ids)

    def queue(self, name: str, tenant: str) -> Queue | None:
        return self._groups.queue(name, tenant)

    def queues(self, tenant: str) -> list[Queue]:
        return self._groups.queues(tenant)

    def bindings(self, queue: Queue) -> list[tuple[bool, str]]:
        return self._groups.bindings(queue)

    def committed(self, queue: Queue, partition_id: int) -> int:
        return self._groups.queue_group(queue).committed(partition_id) if self._is_there(queue) else -1

    def states(self, queue: Queue, partition_id: int, offsets: list[int]) -> list[tuple[bool, bool]]:
        if not self._is_there(queue):
            return [(True, False)] * len(offsets)
        group = self._groups.queue_group(queue)
        return [(group.is_settled(partition_id, offset), group.is_leased(partition_id, offset)) for offset in offsets]

    def _is_there(self, queue: Queue) -> bool:
        """It may have been deleted, and made anew."""
        now = self._groups.queue(queue.name, queue.tenant)
        return now is not None and now.first_partition_id == queue.first_partition_id

    def _require(self, queue: Queue) -> None:
        """Raises UnknownQueue where it is not there any more: its caller waited for something since it was shown."""
        if not self._is_there(queue):
            raise UnknownQueue(f"there is no queue {queue.name!r}, or it was made anew")

    # ---- told

    def open(self, name: str, topic: str, start: str | dict[int, int], tenant: str) -> None:
        over = self._topics.require(topic, tenant)
        if isinstance(start, str):
            self._groups.over(name, over, start)
        elif over not in self._groups.topics(name, tenant):
            self._groups.rewind(name, over, start)

    def define(self, name: str, settings: GroupSettings, tenant: str, number: int) -> None:
        self._groups.define(name, settings, tenant=tenant, owner=self._asks(number), token=number)

    def delete(self, name: str, tenant: str, number: int) -> None:
        self._groups.delete(name, tenant, self._asks(number), number)

    def forget(self, name: str, topic: Topic, number: int) -> None:
        self._groups.forget(name, topic, self._asks(number), number)

    def rewind(self, name: str, topic: Topic, offsets: dict[int, int], number: int) -> None:
        groups, now = self._groups, self._topics.get(topic.name, topic.tenant)
        if now is None or now.id != topic.id:
            raise UnknownTopic(f"there is no topic {topic.name!r}, or it was made anew")
        settings = groups.settings(name, topic.tenant)
        if settings is not None and settings.kind == ASSIGNED:
            groups.commit_offsets(name, {partition_id: (at, b"") for partition_id, at in offsets.items()},
                                  self._asks(number), number)
        else:
            groups.rewind(name, topic, offsets, self._asks(number), number)

    def declare_queue(self, name: str, settings: QueueSettings, tenant: str, number: int) -> Queue:
        return self._groups.declare_queue(name, settings, tenant, self._asks(number), number)

    def delete_queue(self, queue: Queue, number: int) -> None:
        self._require(queue)
        self._groups.delete_queue(queue, self._asks(number), number)

    def purge(self, queue: Queue, number: int) -> int:
        self._require(queue)
        return self._groups.purge(queue, self._asks(number), number)

    def bind(self, filter: str, queue: Queue, number: int) -> None:
        self._require(queue)
        self._groups.bind(filter, queue, owner=self._asks(number), token=number)

    def unbind(self, filter: str, queue: Queue, number: int) -> None:
        self._require(queue)
        self._groups.unbind(filter, queue, owner=self._asks(number), token=number)

    def redrive(self, queue: Queue, letters: list[Record], gaps: list[tuple[int, int]], number: int
                ) -> list[KernelError | None]:
        if not self._is_there(queue):
            if number:
                tell(self._owner, [Stored(number, None, 0, [])])
            return [ExpiredReceipt("this dead letter is gone with its queue")] * len(letters)
        return self._groups.redrive(queue, letters, self._asks(number), number, gaps=gaps)

    def move(self, queue: Queue, leases: list[Leased], to: str, may_create: bool, maker: str, number: int
             ) -> list[KernelError | None]:
        self._require(queue)
        return self._groups.move(queue, leases, to, self._asks(number), number, may_create=may_create, maker=maker)

    # ---- messages for a time

    def take(self, source: Source, tenant: str, count: int, invisible_ms: int, taker: Origin,
             on_taken: Callable[[list[Taken], KernelError | None], None]) -> tuple[int, bool]:
        group = self._group(source, tenant)
        reader = self._groups.handles(tenant, source[0])
        address_of = self._groups.address_of_leased

        self._last = request = self._last + 1
        asked = self._requests[request] = Request(group)

        def on_popped(leases: list[Leased]) -> None:
            if request in self._requests:
                on_taken([Taken(leased, address_of(leased), reader.encode(leased[:3])) for leased in leases],
                         asked.pop.error if asked.pop is not None else None)
            else:
                asked.give_back([leased[:3] for leased in leases])

        try:
            asked.pop = group.pop(count, invisible_ms or group.settings.invisible_ms, on_popped, taker)
        except KernelError:
            del self._requests[request]
            raise
        return request, group.has_ready

    def time_up(self, request: int) -> None:
        asked = self._requests.get(request)
        if asked is not None and asked.pop is not None:
            asked.pop.on_time()

    def give_back(self, request: int, handles: list[Handle]) -> None:
        asked = self._requests.get(request)
        if asked is not None:
            asked.give_back(handles)

    def end_request(self, request: int) -> None:
        asked = self._requests.pop(request, None)
        if asked is not None and asked.pop is not None:
            asked.pop.cancel()

    # decision 218: a name has a group for each topic, a receipt says which
    def settle(self, name: str, tenant: str, receipts: list[str], settling: Settling, number: int
               ) -> list[KernelError | None]:
        errors: list[KernelError | None] = [None] * len(receipts)
        held: dict[LeasedGroup, list[tuple[int, Handle]]] = {}
        for at, lease in enumerate(self._groups.held_in(tenant, name, receipts)):
            if isinstance(lease, KernelError):
                errors[at] = lease
            else:
                held.setdefault(lease[0], []).append((at, lease[1]))
        owner = self._asks(number)
        if owner is not None and len(held) > 1:
            owner = AllSettled(owner, len(held))
        for group, mine in held.items():
            refused = _settle(group, [handle for _, handle in mine], settling, owner, number)
            for (at, _), error in zip(mine, refused, strict=True):
                errors[at] = error
        if not held and number:
            tell(self._owner, [Stored(number, None, 0, [])])
        return errors

    # ---- members

    def join(self, source: Source, tenant: str, credit: int, keeps: bool, taker: Origin,
             on_leased: Callable[[list[Taken]], None], on_gone: Callable[[], None]) -> int:
        group = self._group(source, tenant)
        self._last = number = self._last + 1

        def gone() -> None:
            self._members.pop(number, None)
            on_gone()

        member = self._members[number] = NumberedMember(group, self._groups.address_of_leased, on_leased, gone)
        member.membership = group.join(member, credit, keeps=keeps, taker=taker)
        return number

    def add_credit(self, member: int, count: int) -> None:
        if member in self._members:
            self._members[member].membership.add_credit(count)

    def settle_held(self, member: int, handles: list[Handle], settling: Settling) -> None:
        if member in self._members:
            _settle(self._members[member].group, handles, settling, None, None)

    def leave(self, member: int) -> None:
        left = self._members.pop(member, None)
        if left is not None:
            left.membership.leave()


class Request:
    """One request for messages that its door knows by a number."""

    pop: Pop | None = None

    def __init__(self, group: LeasedGroup) -> None:
        self._group = group

    def give_back(self, handles: list[Handle]) -> None:
        """What it was given is ready again."""
        if handles:
            with suppress(Stopping):             # their time runs out by itself
                self._group.give_back(handles)


class AllSettled:
    """The owner of what is settled in several groups for one call, which is answered once."""

    def __init__(self, owner: Owner, groups: int) -> None:
        self._owner = owner
        self._left = groups
        self._error: Exception | None = None

    def on_stored(self, stored: list[Stored]) -> Iterator[None] | None:
        self._left -= len(stored)
        for answer in stored:
            self._error = self._error or answer.error
        if self._left:
            return None
        last = stored[-1]
        return self._owner.on_stored([Stored(last.token, self._error, last.append_ms, [])])


class NumberedMember:
    """A `groups.group.Member` that its door knows by a number."""

    membership: Membership

    def __init__(self, group: LeasedGroup, address_of: Callable[[Leased], str],
                 on_leased: Callable[[list[Taken]], None], on_gone: Callable[[], None]) -> None:
        self.group = group
        self._address_of = address_of
        self._on_leased = on_leased
        self._on_gone = on_gone

    def on_leased(self, messages: list[Leased]) -> None:
        self._on_leased([Taken(leased, self._address_of(leased), "") for leased in messages])

    def on_gone(self) -> None:
        self._on_gone()


def _settle(group: LeasedGroup, handles: list[Handle], settling: Settling, owner: Owner | None, token: object
            ) -> list[KernelError | None]:
    """What is wrong with each; the rest is settled."""
    if settling.what == ACK:
        return group.ack(handles, owner, token)
    if settling.what == EXTEND:
        return group.extend(handles, settling.ms or group.settings.invisible_ms, owner, token)
    if settling.what == REJECT:
        return group.reject(handles, owner, token)
    if settling.what == LEAVE:
        return group.release(handles, 0, owner, token, reason=GONE_AWAY)
    return group.release(handles, settling.ms, owner, token)
