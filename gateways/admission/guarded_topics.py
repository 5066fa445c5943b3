"""Topics as they are defined: looked through, made, changed and deleted, within one principal's rights.

Reached by `Guard.topics`. What is stored in a topic is asked of the guard itself.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied
from gatehouse.kernel.errors import UnknownTopic

if TYPE_CHECKING:
    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.door_side import Submitter, Switchboard
    from gatehouse.kernel.state.topics import Topic, TopicSettings


class GuardedTopics:
    """The topics of one principal's tenant. Each call asks for the rights as they are now."""

    def __init__(self, guard: Guard, admission: Admission, switchboard: Switchboard) -> None:
        self._guard = guard
        self._admission = admission
        self._port = switchboard.port

    def all(self) -> list[Topic]:
        """The topics of the tenant that the principal may know of, sorted by name."""
        return [topic for topic in self._port.topics(self._guard.tenant) if self._guard.sees_topic(topic.name)]

    def all_after(self, name: str, operation: Operation) -> list[Topic]:
        """The topics behind this name that the principal may do this with, sorted by name; their partitions may be
        asked about then."""
        return [self._guard.show(topic, operation) for topic in self._port.topics(self._guard.tenant)
                if topic.name > name and self._guard.may_topic(operation, topic.name)]

    def readable(self, topics: list[Topic]) -> list[Topic]:
        """Those of these topics that the principal may read; their partitions may be asked about then."""
        return [self._guard.show(topic, Operation.CONSUME) for topic in topics
                if self._guard.may_topic(Operation.CONSUME, topic.name)]

    def seen(self, uuid: bytes) -> Topic:
        """A topic by its id, for whoever may know of it. Raises UnknownTopic, Denied."""
        topic = self._port.topic_by_uuid(uuid)
        if topic is None or topic.tenant != self._guard.tenant:
            raise UnknownTopic("there is no topic with this id")
        if not self._guard.sees_topic(topic.name):
            raise Denied(f"{self._guard.principal.name} may not see the topic {topic.name!r}")
        return topic

    def to_change(self, name: str) -> Topic | None:
        """A topic that the principal may alter; None where there is none, and he may create it. Raises Denied."""
        topic: Topic | None = self._port.topic(name, self._guard.tenant)
        operation = Operation.CREATE if topic is None else Operation.ALTER
        self._guard.require_topic(operation, name)
        return None if topic is None else self._guard.show(topic, operation)

    def make(self, name: str) -> None:
        """Have a topic made by being asked for, where it is missing and that is allowed. Raises what `KernelPort.place`
        raises of a missing topic."""
        principal = self._guard.principal
        place = self._port.place_in(self._guard.number, name, None, None, principal.tenant,
                                    self._admission.may_create(principal, name), principal.name)
        self._port.forget_places(self._guard.number, [place])

    def create(self, name: str, partitions: int | None, settings: TopicSettings, owner: Submitter,
               token: object) -> Topic:
        """Raises Denied and what `KernelPort.create_topic` raises."""
        self._guard.require_topic(Operation.CREATE, name)
        with self._guard.submission(owner, token) as number:
            return self._port.create_topic(name, partitions, settings, self._guard.tenant,
                                           self._admission.maker(self._guard.principal), number)

    def change(self, name: str, partitions: int | None, settings: TopicSettings | None, owner: Submitter,
               token: object) -> Topic:
        """Raises Denied and what `KernelPort.change_topic` raises."""
        self._guard.require_topic(Operation.ALTER, name)
        with self._guard.submission(owner, token) as number:
            return self._port.change_topic(name, partitions, settings, self._guard.tenant, number)

    def pace(self) -> None:
        """A topic is to be changed: that counts as if one was made. Raises TooManyTopics."""
        self._port.pace_topics(self._admission.maker(self._guard.principal))

    def delete(self, name: str, owner: Submitter, token: object) -> None:
        """Raises Denied and what `KernelPort.delete_topic` raises."""
        self._guard.require_topic(Operation.ALTER, name)
        with self._guard.submission(owner, token) as number:
            self._port.delete_topic(name, self._guard.tenant, number)

    def delete_records(self, before: dict[int, int], owner: Submitter, token: object) -> None:
        """See `KernelPort.delete_records`. Raises Denied for a partition of no topic that was asked for to be
        altered, Stopping."""
        self._guard.require_alterable(before)
        with self._guard.submission(owner, token) as number:
            self._port.delete_records(before, number)

    def sizes(self, topics: list[Topic], on_done: Callable[[list[int]], None]) -> None:
        """The bytes of each partition of these topics, one after the other; see `KernelPort.sizes`. Raises Denied where
        the principal may not administer the hub."""
        self._admission.require_hub(self._guard.principal, Operation.ADMINISTER)
        self._port.sizes([partition_id for topic in topics for partition_id in topic.partition_ids()], on_done)
