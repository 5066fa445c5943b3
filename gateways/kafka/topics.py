"""Finding a topic for a request, with the right to it.

A right is looked at before it is looked whether the topic is there: who has none does not learn which topics exist.
What lies in a produced batch is not opened, so every request needs the right to the whole topic.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.admission.own_topics import CHECKS
from gatehouse.gateways.kafka.transacting import CheckTopics
from gatehouse.kernel.errors import InvalidTopic, UnknownTopic

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession
    from gatehouse.kernel.state.topics import Topic


def text_of(name: bytes) -> str:
    """A topic's name as text. Raises InvalidTopic where it is not UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise InvalidTopic("a topic's name is not UTF-8") from None


def find_topic(session: KafkaSession, name: str, operation: Operation) -> Topic:
    """The topic, which exists. Raises Denied, UnknownTopic."""
    _require(session, name, operation)
    topic = session.kernel.topic(name, session.principal.tenant)
    if topic is None:
        raise UnknownTopic(f"there is no topic {name!r}")
    return topic


def find_fetched(session: KafkaSession, uuid: bytes) -> Topic:
    """The topic with this id, to be read. Raises Denied, UnknownTopic."""
    topic = session.kernel.topic_by_uuid(uuid)
    if topic is None or topic.tenant != session.principal.tenant:
        raise UnknownTopic("there is no topic with this id")
    _require(session, topic.name, Operation.CONSUME)
    return topic


def note_fetch(session: KafkaSession, topic: Topic) -> None:
    """Whoever fetches a group's checks is there to be asked."""
    if topic.name.startswith(CHECKS):
        CheckTopics.of(session.services).note_fetch(topic.tenant, topic.name)


def _require(session: KafkaSession, name: str, operation: Operation) -> None:  # decision 93
    try:
        session.admission.require_topic(session.principal, operation, name)
    except Denied as refusal:
        session.admission.trace.on_event(session.door, refusal.code)
        raise
