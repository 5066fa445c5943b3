"""Finding a topic for a request, with the right to it.

A right is looked at before it is looked whether the topic is there: who has none does not learn which topics exist.
What lies in a produced batch is not opened, so every request needs the right to the whole topic.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.admission.own_topics import CHECKS
from gatehouse.gateways.kafka.error_codes import UNKNOWN_TOPIC_ID
from gatehouse.gateways.kafka.mapping import Refused, coordinator_code_of
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
