"""What doors ask about groups and queues: the part of the kernel's face that `kernel.leasing` answers."""
from __future__ import annotations

from collections.abc import Iterator, Mapping

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.addresses.stated import stated_in
from gatehouse.kernel.delivery.subscriptions import Subscriptions
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.leasing import Leasing
from gatehouse.kernel.groups.members import HoldLimit, Member
from gatehouse.kernel.groups.redriving import Gaps, Redriving
from gatehouse.kernel.groups.rewinding import Rewinding
from gatehouse.kernel.groups.settings import (
    GroupSettings,
    Queue,
    QueueSettings,
    binding_key,
    check_name,
    decode_definition,
    definition_key,
)
from gatehouse.kernel.groups.sharing import Shared, Sharing
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.message import Leased, Owner, Placement, Record
from gatehouse.kernel.parts import Parts
from gatehouse.kernel.records.record import read_headers
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.state.topics import Topic, Topics
from gatehouse.kernel.write.appending import Appending


class GroupCalls:
    """Calls raise their refusals at once, with nothing taken; an `owner` is told when the rest is durable."""

    leasing: Leasing
    parts: Parts
    _appending: Appending
    _places: Places
    _redriving: Redriving
    _rewinding: Rewinding
    _sharing: Sharing
    _subscriptions: Subscriptions
    _topics: Topics

    # ---- groups

    def group(self, name: str, topic: str, tenant: str = "/") -> LeasedGroup:
        """The leased group of this name over a topic; made where it is missing.

        Raises UnknownTopic, InvalidGroup, AssignedGroup, Stopping.
        """
        return self.leasing.of_topic(name, self._topics.require(topic, tenant))

    def define_group(self, name: str, settings: GroupSettings, tenant: str = "/", owner: Owner | None = None,
                     token: object = None) -> None:
        """Make a group, or change its settings. Raises InvalidGroup, InvalidSelector, Stopping."""
        self.leasing.define(tenant, name, settings)
        self.leasing.answer(owner, token)

    def group_settings(self, name: str, tenant: str = "/") -> GroupSettings | None:
        """None where nobody has defined or used a group of this name."""
        return self._rewinding.settings(tenant, name)

    def groups(self, tenant: str = "/") -> list[tuple[str, GroupSettings]]:
        """Every group, leased or assigned, sorted by name."""
        return self._rewinding.all(tenant)

    def group_topics(self, name: str, tenant: str = "/") -> list[Topic]:
        """What a group has progress in, sorted by name."""
        return self._rewinding.topics(tenant, name)

    def group_offsets(self, name: str, topic: Topic) -> dict[int, int]:
        """Per partition id that the group has met, the first offset that is not settled."""
        return self._rewinding.offsets(topic.tenant, name, topic)

    def groups_behind(self, topics: list[Topic]) -> Iterator[tuple[int, int]]:
        """(topic id, messages that are not settled) for every group that reads one of these topics, one by one."""
        return self._rewinding.behind(topics)

    def rewind_group(self, name: str, topic: Topic, offsets: Mapping[int, int], owner: Owner | None = None,
                     token: object = None) -> None:
        """Go on from these offsets, by partition id; leases that run there are void.

        Raises UnknownPartition, OffsetOutOfRange, AssignedGroup, Stopping, with nothing changed.
        """
        self._rewinding.rewind(self.leasing.of_topic(name, topic), topic, offsets)
        self.leasing.answer(owner, token)

    def delete_group(self, name: str, tenant: str = "/", owner: Owner | None = None, token: object = None) -> None:
        """Its settings, progress and leases; its dead letters stay. Raises UnknownGroup, GroupHasMembers, Stopping."""
        self._rewinding.delete(tenant, name)
        self.leasing.answer(owner, token)

    def share(self, text: str, member: Member, credit: int, *, keeps: bool = True, tenant: str = "/",
              hold: HoldLimit | None = None) -> Shared:
        """A place in the group of `$share/GROUP/FILTER`; see `kernel.groups.sharing`.

        Raises InvalidFilter, InvalidGroup, AssignedGroup, Stopping.
        """
        return self._sharing.join(text, member, credit, keeps=keeps, tenant=tenant, hold=hold)

    def shared_group(self, text: str, tenant: str = "/") -> LeasedGroup:
        """The group of `$share/GROUP/FILTER`. Raises UnknownTopic where its topic does not exist yet, InvalidFilter,
        InvalidGroup, AssignedGroup, Stopping."""
        return self._sharing.group(text, tenant)

    def address_of_leased(self, message: Leased) -> str:
        """The address that a leased message was published to."""
        topic_partition = self._topics.of_partition(message[0].partition_id)
        headers = read_headers(message[7], 0)[0] if ADDRESS_HEADER in message[7] or self.has_routes else ()
        if topic_partition is not None:
            return self._places.routes.address_of(topic_partition[0].name, message[5], headers)
        return (stated_in(headers) or b"").decode(errors="replace")

    @property
    def has_routes(self) -> bool:
        """Whether addresses may lead elsewhere than to the topic of their first level."""
        return self._places.routes.any

    def topic(self, name: str, tenant: str = "/") -> Topic | None:
        return self._topics.get(name, tenant)

    # ---- queues

    def declare_queue(self, name: str, settings: QueueSettings | None = None, tenant: str = "/",
                      owner: Owner | None = None, token: object = None) -> Queue:
        """The queue of this name; made where it is missing. Raises QueueExists, InvalidQueue, Stopping."""
        queue = self.leasing.queues.declare(name, settings or QueueSettings(), tenant)
        self.leasing.answer(owner, token)
        return queue

    def delete_queue(self, queue: Queue, owner: Owner | None = None, token: object = None) -> None:
        """The queue with everything in it, and its bindings. Raises Stopping."""
        self.leasing.queues.delete(queue)
        self.leasing.answer(owner, token)

    def purge(self, queue: Queue, owner: Owner | None = None, token: object = None) -> int:
        """Settle what is ready in a queue, and what is on its way in; how many messages that was. Raises Stopping."""
        count = self.leasing.queues.group_of(queue).purge()
        self.leasing.answer(owner, token)
        return count

    def queue(self, name: str, tenant: str = "/") -> Queue | None:
        return self.leasing.queues.definitions.get(tenant, name)

    def queues(self, tenant: str = "/") -> list[Queue]:
        """Sorted by name."""
        return [queue for _, queue in self.leasing.queues.definitions.all(tenant)]

    def queue_group(self, queue: Queue) -> LeasedGroup:
        """The group that a queue is of itself: who takes from the queue takes from it."""
        return self.leasing.queues.group_of(queue)

    def redrive(self, queue: Queue, letters: list[Record], owner: Owner | None = None, token: object = None, *,
                gaps: Gaps = ()) -> list[KernelError | None]:
        """Send records of a dead-letter queue back to where they died. Answers for each why it stays; `owner` is told
        when the rest is durable. `gaps` are where whoever read the queue up to the last of them found nothing: however
        wide, they are passed over at once. Raises Stopping."""
        results = self._redriving.redrive(queue, letters, gaps)
        self.leasing.answer(owner, token)
        return results

    def bind(self, filter: str, queue: Queue, *, chosen: bool = False, owner: Owner | None = None,
             token: object = None) -> None:
        """Messages to matching addresses of its tenant enter the queue too, by reference, from this frame on.

        `chosen` bindings do not count for messages whose door chose their queues. Raises InvalidFilter, Stopping.
        """
        self._subscriptions.bind(filter, queue.first_partition_id, chosen, queue.tenant)
        record = StateRecord(Kind.BINDING, binding_key(queue.first_partition_id, chosen, filter), b"")
        self._appending.put_state([record], owner, token)

    def unbind(self, filter: str, queue: Queue, *, chosen: bool = False, owner: Owner | None = None,
               token: object = None) -> None:
        """Undo `bind`. Raises InvalidFilter, Stopping."""
        self._subscriptions.unbind(filter, queue.first_partition_id, chosen)
        record = StateRecord(Kind.BINDING, binding_key(queue.first_partition_id, chosen, filter), None)
        self._appending.put_state([record], owner, token)

    def place_queue(self, queue: Queue, priority: int = 0, key: bytes | None = None) -> Placement:
        """Into a queue alone."""
        return self._places.place_queue(queue, priority, key)

    def place_routed(self, address: str, partition_ids: tuple[int, ...], tenant: str = "/", may_create: bool = True,
                     maker: str = "") -> Placement:
        """Where the address leads, and by reference into exactly these queues, besides bindings that are not
        `chosen`. Raises as `place`."""
        return self._places.place_routed(address, partition_ids, tenant, may_create, maker)

    # ---- offsets of assigned groups

    def commit_offsets(self, group: str, offsets: dict[int, tuple[int, bytes]], owner: Owner | None,
                       token: object = None) -> None:
        """Per partition id the group's next offset and some bytes of its own (at most 4096).

        Raises GroupIsLeased, GroupHasMembers, Stopping. Members commit by `kernel.assigned`.
        """
        self.leasing.check_commits(group, offsets)
        self._appending.commit_offsets(group, offsets, owner, token)

    def require_commits(self, group: str, tenant: str = "/") -> None:
        """Raises GroupIsLeased where messages are leased from the group, which commits no offsets; InvalidGroup."""
        check_name(group, "group")
        self.leasing.require_commits(tenant, group)

    def committed(self, group: str, tenant: str = "/") -> dict[int, tuple[int, bytes]]:
        """The durable offsets by partition id of a tenant's group."""
        return {partition_id: offset for partition_id, offset in self.parts.views.offsets.get(group, {}).items()
                for topic_partition in [self._topics.of_partition(partition_id)] if topic_partition is not None
                and topic_partition[0].tenant == tenant}

    # ---- definitions of the doors' own

    def put_definition(self, space: str, name: str, value: bytes | None, tenant: str = "/",
                       owner: Owner | None = None, token: object = None) -> None:
        """Keep some bytes under a name, for ever; None forgets them. Raises Stopping."""
        record = StateRecord(Kind.DEFINITION, definition_key(space, tenant, name), value)
        self._appending.put_state([record], owner, token)

    def definitions(self, space: str) -> list[tuple[str, str, bytes]]:
        """(tenant, name, value) of what is kept in a space, as far as it is durable; in no order."""
        definitions = [(*decode_definition(key), value) for key, value in self.parts.state.scan(Kind.DEFINITION)]
        return [(tenant, name, value) for of, tenant, name, value in definitions if of == space]
