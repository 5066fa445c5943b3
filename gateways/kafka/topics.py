"""Finding a topic for a request, with the right to it.

A right is looked at before it is looked whether the topic is there: who has none does not learn which topics exist.
What lies in a produced batch is not opened, so every request needs the right to the whole topic.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.admission.own_topics import CHECKS
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_ID
from gatehouse.gateways.kafka.mapping import Refused, code_of, coordinator_code_of
from gatehouse.gateways.kafka.request import Request
from gatehouse.gateways.kafka.transacting import CheckTopics
from gatehouse.kernel.errors import InvalidTopic, KernelError, UnknownTopic

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession
    from gatehouse.kernel.state.topics import Topic


def text_of(name: bytes) -> str:
    """A topic's name as text. Raises InvalidTopic where it is not UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise InvalidTopic("a topic's name is not UTF-8") from None


def find_topic(session: KafkaSession, name: str, operation: Operation, said: bytes = b"") -> Topic:  # decision 93
    """The topic, which exists. Raises Denied, UnknownTopic. `said`: a batch for it, see `Guard.place`."""
    try:
        return session.guard.topic(name, operation, said)
    except Denied as refusal:
        session.guard.count(refusal.code)
        raise


def find_by_id(session: KafkaSession, uuid: bytes, operation: Operation) -> Topic:
    """The topic with this id. Raises Denied, UnknownTopic."""
    try:
        return session.guard.topic_by_uuid(uuid, operation)
    except Denied as refusal:
        session.guard.count(refusal.code)
        raise


def find_asked(session: KafkaSession, asked: Any, by_id: bool) -> Topic:
    """The topic that a part of a request names, or says by its id, to be read. Raises Refused, with Kafka's number."""
    if not by_id:
        try:
            return find_topic(session, asked.name, Operation.CONSUME)
        except (KernelError, Denied) as refusal:
            raise Refused(coordinator_code_of(refusal), str(refusal)) from None
    try:
        return find_by_id(session, asked.topic_id.bytes, Operation.CONSUME)
    except UnknownTopic as refusal:
        raise Refused(UNKNOWN_TOPIC_ID, str(refusal)) from None
    except Denied as refusal:
        raise Refused(coordinator_code_of(refusal), str(refusal)) from None


def note_fetch(session: KafkaSession, topic: Topic) -> None:
    """Whoever fetches a group's checks is there to be asked."""
    if topic.name.startswith(CHECKS):
        CheckTopics.of(session.services).note_fetch(topic.tenant, topic.name)


# What a request asks about partitions one by one: it is answered when each of them has its row.

class PartitionLookup:
    """One request until every partition has its answer. `response` is the schema of that."""

    def __init__(self, request: Request, response: Any) -> None:
        self.request = request
        self.topics: list[Row] = []
        self.epoch = request.session.kernel.epoch
        self._response = response
        self._pending = 1                    # partitions being looked up; one more while the request is gone through

    def look_up(self, topic_name: str, asked: Sequence[tuple[Row, int, Any]]) -> Iterator[None]:
        """The partitions of a topic: (row, number, what is asked). What is wrong with one stands in its row."""
        yield
        try:
            topic = find_topic(self.request.session, topic_name, Operation.CONSUME)
        except (KernelError, Denied) as refusal:
            for row, _, _ in asked:
                row.error_code = code_of(refusal)
            return
        for row, number, partition in asked:
            try:
                partition_id = topic.partition_id(number)
                current = partition.current_leader_epoch
                if current >= 0 and current != self.epoch:
                    row.error_code = FENCED_LEADER_EPOCH if current < self.epoch else UNKNOWN_LEADER_EPOCH
                else:
                    self.look_up_one(row, partition_id, partition)
            except (KernelError, Denied) as refusal:
                row.error_code = code_of(refusal)
            yield

    def look_up_one(self, row: Row, partition_id: int, asked: Any) -> None:
        """Fill a row, now or after `expect`, which a `settle` ends."""
        raise NotImplementedError

    def expect(self) -> None:
        """One row is filled later."""
        self._pending += 1

    def settle(self) -> None:
        """That row is filled, or all of the request was gone through."""
        self._pending -= 1
        if not self._pending:
            self.request.answer(self._response, throttle_time_ms=0, topics=self.topics)
