"""Finding a topic for a request, with the right to it."""
from __future__ import annotations

from typing import TYPE_CHECKING

from gateways.admission.admission import Denied
from gateways.admission.decision import Operation
from kernel.errors import InvalidTopic, UnknownTopic

if TYPE_CHECKING:
    from gateways.kafka.session import KafkaSession
    from kernel.topics import Topic


def text_of(name: bytes) -> str:
    """A topic's name as text. Raises InvalidTopic where it is not UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise InvalidTopic("a topic's name is not UTF-8") from None


def find_topic(session: KafkaSession, name: str, operation: Operation) -> Topic:
    """The topic, which exists. Raises UnknownTopic or Denied; a right to the topic is a right to its whole address."""
    topic = session.kernel.topic(name, session.principal.tenant)
    if topic is None:
        raise UnknownTopic(f"there is no topic {name!r}")
    require(session, topic.name, operation)
    return topic


def require(session: KafkaSession, name: str, operation: Operation) -> None:
    if not session.admission.may(session.principal, operation, name):
        raise Denied(f"{session.principal.name} may not {operation.value} at {name!r}")
