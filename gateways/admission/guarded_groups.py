"""What one principal may do with groups and queues: each call asks for his rights as they are now. Made by a guard.

The right to a group is not one to what it reads: who takes from it has both. A queue's rights are those to its address.
"""
# decision 218: groups in plain values, rights inside
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gatehouse.gateways.addresses import queue_address
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied
from gatehouse.kernel.errors import UnknownGroup, UnknownQueue
from gatehouse.kernel.groups.group_settings import DEAD_LETTER_PREFIX, check_name

if TYPE_CHECKING:
    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.door_side import Submitter, Switchboard
    from gatehouse.kernel.api import Settling, Source, Taken
    from gatehouse.kernel.assigned.assigned_values import GroupLook
    from gatehouse.kernel.errors import KernelError
    from gatehouse.kernel.groups.group import Counts
    from gatehouse.kernel.groups.group_settings import GroupSettings, Queue, QueueSettings
    from gatehouse.kernel.message import Fetched, Handle, Leased, Record
    from gatehouse.kernel.state.topics import Topic


class GuardedGroups:
    """Groups and queues within one principal's rights; `api.GroupCalls` says what each call does and raises."""

    def __init__(self, guard: Guard, admission: Admission, switchboard: Switchboard) -> None:
        self._guard = guard
        self._admission = admission
        self._port = switchboard.port
        self._calls = switchboard.port.groups

    # ---- groups

    def may_share(self, name: str) -> bool:
        """Whether the principal may take part in a shared filter, see `Admission.may_share`. Raises InvalidFilter."""
        return self._admission.may_share(self._guard.principal, name)

    def all_after(self, name: str) -> list[tuple[str, GroupSettings]]:
        """The groups behind this name that the principal may consume with, sorted by name."""
        return [(group, settings) for group, settings in self._calls.all(self._guard.tenant)
                if group > name and self._guard.may_group(Operation.CONSUME, group)]

    def find(self, name: str, operation: Operation) -> GroupSettings | None:
        """The settings of a group that the principal may do this with; None where there is no such group. Raises
        Denied."""
        self._guard.require_group(operation, name)
        return self._calls.settings(name, self._guard.tenant)

    def settings(self, name: str, operation: Operation) -> GroupSettings:
        """As `find`. Raises Denied, UnknownGroup."""
        settings = self.find(name, operation)
        if settings is None:
            raise UnknownGroup(f"there is no group {name!r}")
        return settings

    def topics(self, name: str) -> list[Topic]:
        """What a group reads, and the principal may."""
        self._guard.require_group(Operation.CONSUME, name)
        return self._guard.topics.readable(self._calls.topics(name, self._guard.tenant))

    def offsets(self, name: str, topic: Topic) -> dict[int, int]:
        """Per partition id that the group has met, the first offset that is not settled. Raises Denied."""
        self._require_reader(name, topic.name)
        return self._calls.offsets(name, topic)

    def counts(self, name: str, topic: str) -> Counts:
        """A group at this second; made where it is missing. Raises Denied."""
        self._require_reader(name, topic)
        return self._calls.counts((name, topic), self._guard.tenant)

    def unsettled(self, name: str, topic: str) -> list[tuple[int, int]]:
        """(partition id, committed offset) of every partition in which something is not settled. Raises Denied."""
        self._require_reader(name, topic)
        return self._calls.unsettled((name, topic), self._guard.tenant)

    def _require_reader(self, name: str, topic: str) -> None:
        """Who may alter a group may know how far it is."""
        if not self._guard.may_group(Operation.ALTER, name):
            self._guard.require_group(Operation.CONSUME, name)
        self._guard.require_topic(Operation.CONSUME, topic)

    def behind(self, topics: list[Topic], start: int, count: int) -> list[tuple[int, int]] | None:
        """See `GroupCalls.behind`; of topics that the principal was shown. Names of groups are not told."""
        return self._calls.behind(topics, start, count)

    def look(self, name: str) -> GroupLook | None:
        """An assigned group as people are shown it. Raises Denied."""
        self._guard.require_group(Operation.CONSUME, name)
        return self._calls.look(name, self._guard.tenant)

    def topics_of(self, partition_ids: list[int]) -> list[tuple[Topic, list[int]]]:
        """The topics of these partitions that the principal may read, each with the numbers of its partitions."""
        return [(topic, numbers) for topic, numbers in self._calls.topics_of(partition_ids)
                if self._guard.may_topic(Operation.CONSUME, topic.name)]

    def open(self, name: str, topic: str, start: str | dict[int, int]) -> None:
        """Make a leased group over a topic, where it is missing; a new name begins at `start`, or the group at these
        offsets, by partition id. Raises Denied, UnknownTopic, InvalidGroup, AssignedGroup, Stopping, and for offsets
        UnknownPartition, OffsetOutOfRange."""
        self.require_taker((name, topic))
        self._calls.open(name, topic, start, self._guard.tenant)

    def define(self, name: str, settings: GroupSettings, owner: Submitter, token: object) -> None:
        """Raises Denied, InvalidGroup, AssignedGroup, Stopping."""
        self._guard.require_group(Operation.ALTER, name)
        with self._guard.submission(owner, token) as number:
            self._calls.define(name, settings, self._guard.tenant, number)

    def delete(self, name: str, owner: Submitter, token: object) -> None:
        """Raises Denied, UnknownGroup, GroupHasMembers, Stopping."""
        self._guard.require_group(Operation.ALTER, name)
        with self._guard.submission(owner, token) as number:
            self._calls.delete(name, self._guard.tenant, number)

    def forget(self, name: str, topic: Topic, owner: Submitter, token: object) -> None:
        """Raises Denied, UnknownTopic, AssignedGroup, Stopping."""
        self._guard.require_group(Operation.ALTER, name)
        self._guard.require_topic(Operation.CONSUME, topic.name)
        with self._guard.submission(owner, token) as number:
            self._calls.forget(name, topic, number)

    def rewind(self, name: str, topic: Topic, offsets: dict[int, int], owner: Submitter, token: object) -> None:
        """Raises Denied, UnknownPartition, OffsetOutOfRange, GroupHasMembers, Stopping."""
        self._guard.require_group(Operation.ALTER, name)
        self._guard.require_topic(Operation.CONSUME, topic.name)
        with self._guard.submission(owner, token) as number:
            self._calls.rewind(name, topic, offsets, number)

    # ---- queues

    def queues_after(self, name: str) -> list[Queue]:
        """The queues behind this name that the principal may take from, sorted by name."""
        return [queue for queue in self._calls.queues(self._guard.tenant)
                if queue.name > name and self._guard.may(Operation.CONSUME, queue_address(queue.name))]

    def queue_or_none(self, name: str, operation: Operation) -> Queue | None:
        """A queue that the principal may do this with; None where there is none. Raises Denied."""
        self._guard.require(operation, queue_address(name))
        return self._calls.queue(name, self._guard.tenant)

    def queue(self, name: str, operation: Operation) -> Queue:
        """As `queue_or_none`. Raises Denied, UnknownQueue."""
        queue = self.queue_or_none(name, operation)
        if queue is None:
            raise UnknownQueue(f"there is no queue {name!r}")
        return queue

    def dead_letters(self, group: str, operation: Operation) -> Queue | None:
        """The queue of a group's dead letters; None while nothing has died. Raises Denied, UnknownGroup."""
        settings = self.find(group, operation)
        queue = self._calls.queue(DEAD_LETTER_PREFIX + group, self._guard.tenant)
        if queue is None and settings is None:
            raise UnknownGroup(f"there is no group {group!r}")
        return queue

    def queue_counts(self, queue: Queue) -> Counts:
        """A queue at this second. Raises Denied where the principal may neither take from it nor alter it."""
        address = queue_address(queue.name)
        if not self._guard.may(Operation.ALTER, address):
            self._guard.require(Operation.CONSUME, address)
        return self._calls.counts((queue.name, ""), self._guard.tenant)

    def declare_queue(self, name: str, settings: QueueSettings, owner: Submitter, token: object) -> Queue:
        """Raises Denied, QueueExists, InvalidQueue, Stopping."""
        self._guard.require(Operation.CREATE, queue_address(name))
        with self._guard.submission(owner, token) as number:
            return self._calls.declare_queue(name, settings, self._guard.tenant, number)

    def delete_queue(self, queue: Queue, owner: Submitter, token: object) -> None:
        """Raises Denied, Stopping."""
        self._guard.require(Operation.ALTER, queue_address(queue.name))
        with self._guard.submission(owner, token) as number:
            self._calls.delete_queue(queue, number)

    def purge(self, queue: Queue, owner: Submitter, token: object) -> int:
        """How many messages that was. Raises Denied, Stopping."""
        self._guard.require(Operation.CONSUME, queue_address(queue.name))
        with self._guard.submission(owner, token) as number:
            return self._calls.purge(queue, number)

    def bindings(self, queue: Queue) -> list[tuple[bool, str]]:
        """(chosen by its door, filter) of what leads to a queue that was shown."""
        return self._calls.bindings(queue)

    def bind(self, filter_text: str, queue: Queue, owner: Submitter, token: object) -> None:
        """Raises Denied where the principal may not publish to the queue, or not consume with the filter;
        InvalidFilter, Stopping."""
        self._guard.require(Operation.PUBLISH, queue_address(queue.name))
        self._guard.require(Operation.CONSUME, filter_text)
        with self._guard.submission(owner, token) as number:
            self._calls.bind(filter_text, queue, number)

    def unbind(self, filter_text: str, queue: Queue, owner: Submitter, token: object) -> None:
        """Raises Denied, InvalidFilter, Stopping."""
        self._guard.require(Operation.PUBLISH, queue_address(queue.name))
        with self._guard.submission(owner, token) as number:
            self._calls.unbind(filter_text, queue, number)

    def move(self, queue: Queue, leases: list[Leased], to: str, owner: Submitter, token: object
             ) -> list[KernelError | None]:
        """Send leased messages to an address. Raises Denied, and what `Groups.move` raises."""
        self._guard.require(Operation.CONSUME, queue_address(queue.name))
        self._guard.require(Operation.PUBLISH, to)
        principal = self._guard.principal
        with self._guard.submission(owner, token) as number:
            return self._calls.move(queue, leases, to, self._admission.may_create(principal, to), principal.name,
                                    number)

    def redrive(self, group: str, queue: Queue, letters: list[Record], gaps: list[tuple[int, int]], owner: Submitter,
                token: object) -> list[KernelError | None]:
        """Send a group's dead letters back. Raises Denied, Stopping."""
        self._guard.require_group(Operation.ALTER, group)
        if queue.name != DEAD_LETTER_PREFIX + group:
            raise Denied(f"{queue.name!r} is not of the dead letters of {group!r}")
        with self._guard.submission(owner, token) as number:
            return self._calls.redrive(queue, letters, gaps, number)

    # ---- what lies in a queue

    def committed(self, queue: Queue, partition_id: int) -> int:
        """The first offset of a partition of a queue that is not settled; -1: the queue is gone."""
        return self._calls.committed(queue, partition_id)

    def end_of(self, queue: Queue, partition_id: int) -> int:
        """Behind the last message of a partition of a queue."""
        return self._port.bounds(partition_id)[1] if partition_id in queue.partition_ids() else 0

    def states(self, queue: Queue, partition_id: int, offsets: list[int]) -> list[tuple[bool, bool]]:
        """For each message whether it is settled, and whether somebody holds it."""
        return self._calls.states(queue, partition_id, offsets)

    def fetch(self, queue: Queue, partition_id: int, offset: int, max_bytes: int,
              on_done: Callable[[list[Fetched]], None]) -> None:
        """Read a partition of a queue from an offset on, taking nothing. Raises Denied where the principal may not
        take from the queue, nor consume with or alter the group whose dead letters it has."""
        dead = queue.name.startswith(DEAD_LETTER_PREFIX) and any(
            self._guard.may_group(operation, queue.name.removeprefix(DEAD_LETTER_PREFIX))
            for operation in (Operation.CONSUME, Operation.ALTER))
        if not dead:
            self._guard.require(Operation.CONSUME, queue_address(queue.name))
        if queue.tenant != self._guard.tenant or partition_id not in queue.partition_ids():
            raise Denied("a partition of another queue")
        self._port.fetch([(partition_id, offset, max_bytes)], max_bytes, on_done, False)

    # ---- messages for a time

    def require_taker(self, source: Source) -> None:
        """Raises Denied where the principal may not take from there: with the group, and from its topic or the queue;
        UnknownTopic, UnknownQueue where that is gone."""
        name, topic = source
        if topic:
            self._guard.require_group(Operation.CONSUME, name)
            self._guard.topic(topic, Operation.CONSUME)
        else:
            self.queue(name, Operation.CONSUME)

    def take(self, source: Source, count: int, invisible_ms: int,
             on_taken: Callable[[list[Taken], KernelError | None], None]) -> tuple[int, bool]:
        """See `GroupCalls.take`. Raises Denied, and what the group refuses."""
        self.require_taker(source)
        return self._calls.take(source, self._guard.tenant, count, invisible_ms, self._guard.origin, on_taken)

    def time_up(self, request: int) -> None:
        """See `GroupCalls.time_up`."""
        self._calls.time_up(request)

    def give_back(self, request: int, handles: list[Handle]) -> None:
        """See `GroupCalls.give_back`."""
        self._calls.give_back(request, handles)

    def end_request(self, request: int) -> None:
        """See `GroupCalls.end_request`."""
        self._calls.end_request(request)

    def require_settler(self, name: str, of_queue: bool) -> None:
        """Who may take messages of a group, or a queue, may settle them. Raises Denied."""
        if of_queue:
            self._guard.require(Operation.CONSUME, queue_address(name))
        else:
            self._guard.require_group(Operation.CONSUME, name)

    def settle(self, name: str, of_queue: bool, receipts: list[str], settling: Settling, owner: Submitter,
               token: object) -> list[KernelError | None]:
        """See `GroupCalls.settle`. Raises Denied, InvalidGroup."""
        self.require_settler(name, of_queue)
        check_name(name, "group")
        with self._guard.submission(owner, token) as number:
            return self._calls.settle(name, self._guard.tenant, receipts, settling, number)
