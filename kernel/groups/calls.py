"""What doors ask about groups and queues: `Kernel.groups`."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.addresses.stated import stated_in
from gatehouse.kernel.delivery.subscriptions import Subscriptions
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.groups.dead_lettering import Route
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.handles import Handles
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
)
from gatehouse.kernel.groups.sharing import Shared, Sharing
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.message import Handle, Leased, Owner, Record
from gatehouse.kernel.records.record import read_headers
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.state.topics import Topic, Topics
from gatehouse.kernel.state.views import Views
from gatehouse.kernel.write.appending import Appending


class Groups:
    """Calls raise their refusals at once, with nothing taken; an `owner` is told when the rest is durable."""

    def __init__(self, leasing: Leasing, rewinding: Rewinding, redriving: Redriving, appending: Appending,
                 subscriptions: Subscriptions, topics: Topics, routes: Routes, views: Views) -> None:
        self._leasing = leasing
        self._rewinding = rewinding
        self._redriving = redriving
        self._appending = appending
        self._subscriptions = subscriptions
        self._topics = topics
        self._routes = routes
        self._views = views
        self._sharing = Sharing(self, topics, routes)

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

    def define(self, name: str, settings: GroupSettings, tenant: str = "/", owner: Owner | None = None,
               token: object = None) -> None:
        """Make a group, or change its settings. Raises InvalidGroup, InvalidSelector, Stopping."""
        self._leasing.define(tenant, name, settings)
        self._leasing.answer(owner, token)

    def settings(self, name: str, tenant: str = "/") -> GroupSettings | None:
        """None where nobody has defined or used a group of this name."""
        return self._rewinding.settings(tenant, name)

    def all(self, tenant: str = "/") -> list[tuple[str, GroupSettings]]:
        """Every group, leased or assigned, sorted by name."""
        return self._rewinding.all(tenant)

    def topics(self, name: str, tenant: str = "/") -> list[Topic]:
        """What a group has progress in, sorted by name."""
        return self._rewinding.topics(tenant, name)

    def offsets(self, name: str, topic: Topic) -> dict[int, int]:
        """Per partition id that the group has met, the first offset that is not settled."""
        return self._rewinding.offsets(topic.tenant, name, topic)

    def behind(self, topics: list[Topic]) -> Iterator[tuple[int, int]]:
        """(topic id, messages that are not settled) for every group that reads one of these topics, one by one."""
        return self._rewinding.behind(topics)

    def rewind(self, name: str, topic: Topic, offsets: Mapping[int, int], owner: Owner | None = None,
               token: object = None) -> None:
        """Go on from these offsets, by partition id; leases that run there are void.

        Raises UnknownPartition, OffsetOutOfRange, AssignedGroup, Stopping, with nothing changed.
        """
        self._rewinding.rewind(self.over(name, topic), topic, offsets)
        self._leasing.answer(owner, token)

    def delete(self, name: str, tenant: str = "/", owner: Owner | None = None, token: object = None) -> None:
        """Its settings, progress and leases; its dead letters stay. Raises UnknownGroup, GroupHasMembers, Stopping."""
        self._rewinding.delete(tenant, name)
        self._leasing.answer(owner, token)

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
        headers = read_headers(message[7], 0)[0] if ADDRESS_HEADER in message[7] or self._routes.any else ()
        if topic_partition is not None:
            return self._routes.address_of(topic_partition[0].name, message[5], headers)
        return (stated_in(headers) or b"").decode(errors="replace")

    def on_topic(self, topic: Topic) -> None:
        """A topic was made: members that waited for it have their place in its group now."""
        self._sharing.on_topic(topic)

    # ---- receipt handles as text

    def handles(self, tenant: str, name: str) -> Handles:
        """Makes and reads the receipt handles of a tenant's group or queue."""
        return self._leasing.handles(tenant, name)

    def find(self, tenant: str, name: str, partition_id: int, offset: int, attempt: int, epoch: int
             ) -> tuple[LeasedGroup, Handle] | None:
        """The group and handle that a decoded receipt handle means; None where there is no such cursor any more."""
        return self._leasing.find(tenant, name, partition_id, offset, attempt, epoch)

    # ---- what metrics show

    def in_memory(self) -> list[LeasedGroup]:
        """Every group that is in memory, those of queues too."""
        return self._leasing.in_memory()

    def entering(self, partition_id: int) -> int:
        """How many messages are on their way into a partition: behind its end, and not durable yet."""
        return self._leasing.entering(partition_id)

    # ---- queues

    def declare_queue(self, name: str, settings: QueueSettings | None = None, tenant: str = "/",
                      owner: Owner | None = None, token: object = None) -> Queue:
        """The queue of this name; made where it is missing. Raises QueueExists, InvalidQueue, Stopping."""
        queue = self._leasing.queues.declare(name, settings or QueueSettings(), tenant)
        self._leasing.answer(owner, token)
        return queue

    def delete_queue(self, queue: Queue, owner: Owner | None = None, token: object = None) -> None:
        """The queue with everything in it, and its bindings. Raises Stopping."""
        self._leasing.queues.delete(queue)
        self._leasing.answer(owner, token)

    def purge(self, queue: Queue, owner: Owner | None = None, token: object = None) -> int:
        """Settle what is ready in a queue, and what is on its way in; how many messages that was. Raises Stopping."""
        count = self._leasing.queues.group_of(queue).purge()
        self._leasing.answer(owner, token)
        return count

    def queue(self, name: str, tenant: str = "/") -> Queue | None:
        return self._leasing.queues.definitions.get(tenant, name)

    def queues(self, tenant: str = "/") -> list[Queue]:
        """Sorted by name."""
        return [queue for _, queue in self._leasing.queues.definitions.all(tenant)]

    def queue_group(self, queue: Queue) -> LeasedGroup:
        """The group that a queue is of itself: who takes from the queue takes from it."""
        return self._leasing.queues.group_of(queue)

    def redrive(self, queue: Queue, letters: list[Record], owner: Owner | None = None, token: object = None, *,
                gaps: Gaps = ()) -> list[KernelError | None]:
        """Send records of a dead-letter queue back to where they died. Answers for each why it stays; `owner` is told
        when the rest is durable. `gaps` are where whoever read the queue up to the last of them found nothing: however
        wide, they are passed over at once. Raises Stopping."""
        results = self._redriving.redrive(queue, letters, gaps)
        self._leasing.answer(owner, token)
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

    def on_queue_gone(self, listener: Callable[[Queue], None]) -> None:
        """Tell `listener` of every queue that is not there any more, whoever deleted it."""
        self._leasing.queues.on_gone(listener)

    def route_dead_letters(self, route: Route) -> None:
        """Ask `route` what becomes of dead letters of queues whose settings say so in a door's own words. What it gives
        None for is another door's."""
        self._leasing.dead_lettering.add_route(route)

    # ---- offsets of assigned groups

    def commit_offsets(self, group: str, offsets: dict[int, tuple[int, bytes]], owner: Owner | None,
                       token: object = None) -> None:
        """Per partition id the group's next offset and some bytes of its own (at most 4096).

        Raises GroupIsLeased, GroupHasMembers, Stopping. Members commit by `kernel.assigned`.
        """
        self._leasing.check_commits(group, offsets)
        self._appending.commit_offsets(group, offsets, owner, token)

    def require_commits(self, group: str, tenant: str = "/") -> None:
        """Raises GroupIsLeased where messages are leased from the group, which commits no offsets; InvalidGroup."""
        check_name(group, "group")
        self._leasing.require_commits(tenant, group)

    def committed(self, group: str, tenant: str = "/") -> dict[int, tuple[int, bytes]]:
        """The durable offsets by partition id of a tenant's group."""
        return {partition_id: offset for partition_id, offset in self._views.offsets.get(group, {}).items()
                for topic_partition in [self._topics.of_partition(partition_id)] if topic_partition is not None
                and topic_partition[0].tenant == tenant}
