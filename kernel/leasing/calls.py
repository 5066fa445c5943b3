"""What doors ask about groups and light queues: the part of the kernel's face that `kernel.leasing` answers."""
from __future__ import annotations

from collections.abc import Mapping

from kernel.appending import Appending
from kernel.errors import KernelError
from kernel.frame import StateRecord
from kernel.leasing.group import LeasedGroup
from kernel.leasing.leasing import Leasing
from kernel.leasing.redriving import Redriving
from kernel.leasing.rewinding import Rewinding
from kernel.leasing.settings import GroupSettings, LightQueue, QueueSettings, binding_key
from kernel.message import Owner, Placement, Record
from kernel.placing import Places
from kernel.state import Kind
from kernel.subscriptions import Subscriptions
from kernel.topics import Topic, Topics


class GroupCalls:
    """Calls raise their refusals at once, with nothing taken; an `owner` is told when the rest is durable."""

    leasing: Leasing
    _appending: Appending
    _rewinding: Rewinding
    _redriving: Redriving
    _subscriptions: Subscriptions
    _places: Places
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
        """Per queue id that the group has met, the first offset that is not settled."""
        return self._rewinding.offsets(topic.tenant, name, topic)

    def rewind_group(self, name: str, topic: Topic, offsets: Mapping[int, int], owner: Owner | None = None,
                     token: object = None) -> None:
        """Go on from these offsets, by queue id; leases that run there are void.

        Raises UnknownQueue, OffsetOutOfRange, AssignedGroup, Stopping, with nothing changed.
        """
        self._rewinding.rewind(self.leasing.of_topic(name, topic), topic, offsets)
        self.leasing.answer(owner, token)

    def delete_group(self, name: str, tenant: str = "/", owner: Owner | None = None, token: object = None) -> None:
        """Its settings, progress and leases; its dead letters stay. Raises UnknownGroup, Stopping."""
        self._rewinding.delete(tenant, name)
        self.leasing.answer(owner, token)

    # ---- light queues

    def declare_queue(self, name: str, settings: QueueSettings | None = None, tenant: str = "/",
                      owner: Owner | None = None, token: object = None) -> LightQueue:
        """The light queue of this name; made where it is missing. Raises QueueExists, InvalidQueue, Stopping."""
        queue = self.leasing.declare(name, settings or QueueSettings(), tenant)
        self.leasing.answer(owner, token)
        return queue

    def delete_queue(self, queue: LightQueue, owner: Owner | None = None, token: object = None) -> None:
        """The queue with everything in it, and its bindings. Raises Stopping."""
        self.leasing.delete(queue)
        self.leasing.answer(owner, token)

    def queue(self, name: str, tenant: str = "/") -> LightQueue | None:
        return self.leasing.queues.get(tenant, name)

    def queues(self, tenant: str = "/") -> list[LightQueue]:
        """Sorted by name."""
        return [queue for _, queue in self.leasing.queues.all(tenant)]

    def queue_group(self, queue: LightQueue) -> LeasedGroup:
        """The group that a light queue is of itself: who takes from the queue takes from it."""
        return self.leasing.of_queue(queue)

    def redrive(self, queue: LightQueue, letters: list[Record], owner: Owner | None = None, token: object = None
                ) -> list[KernelError | None]:
        """Send records of a dead-letter queue back to where they died. Answers for each why it stays; `owner` is told
        when the rest is durable. Raises Stopping."""
        results = self._redriving.redrive(queue, letters)
        self.leasing.answer(owner, token)
        return results

    def bind(self, filter: str, queue: LightQueue, *, chosen: bool = False, owner: Owner | None = None,
             token: object = None) -> None:
        """Messages to matching addresses enter the queue too, by reference, from this frame on.

        `chosen` bindings do not count for messages whose door chose their queues. Raises InvalidFilter, Stopping.
        """
        self._subscriptions.bind(filter, queue.first_queue_id, chosen)
        record = StateRecord(Kind.BINDING, binding_key(queue.first_queue_id, chosen, filter), b"")
        self._appending.put_state([record], owner, token)

    def unbind(self, filter: str, queue: LightQueue, *, chosen: bool = False, owner: Owner | None = None,
               token: object = None) -> None:
        """Undo `bind`. Raises InvalidFilter, Stopping."""
        self._subscriptions.unbind(filter, queue.first_queue_id, chosen)
        record = StateRecord(Kind.BINDING, binding_key(queue.first_queue_id, chosen, filter), None)
        self._appending.put_state([record], owner, token)

    def place_queue(self, queue: LightQueue, priority: int = 0, key: bytes | None = None) -> Placement:
        """Into a light queue alone."""
        return self._places.place_light(queue, priority, key)

    def place_routed(self, address: str, queue_ids: tuple[int, ...], tenant: str = "/", may_create: bool = True
                     ) -> Placement:
        """Where the address leads, and by reference into exactly these light queues, besides bindings that are not
        `chosen`. Raises as `place`."""
        return self._places.place_routed(address, queue_ids, tenant, may_create)
