"""Finding a topic for a request, with the right to it.

A right is looked at before it is looked whether the topic is there: who has none does not learn which topics exist.
What lies in a produced batch is not opened, so every request needs the right to the whole topic.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.admission.own_topics import CHECKS
from gatehouse.gateways.kafka.transacting import CheckTopics
from gatehouse.kernel.errors import InvalidTopic

if TYPE_CHECKING:
    from gatehouse.gateways.admission.decision import Operation
    from gatehouse.gateways.kafka.session import KafkaSession
    from gatehouse.kernel.state.topics import Topic


def text_of(name: bytes) -> str:
    """A topic's name as text. Raises InvalidTopic where it is not UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise InvalidTopic("a topic's name is not UTF-8") from None


def find_topic(session: KafkaSession, name: str, operation: Operation) -> Topic:  # decision 93
    """The topic, which exists. Raises Denied, UnknownTopic."""
    try:
        return session.guard.topic(name, operation)
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


def note_fetch(session: KafkaSession, topic: Topic) -> None:
    """Whoever fetches a group's checks is there to be asked."""
    if topic.name.startswith(CHECKS):
        CheckTopics.of(session.services).note_fetch(topic.tenant, topic.name)
