"""What a client is told that it may do, in Kafka's numbers of operations."""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.admission.decision import Operation

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession

READ: Final = 3
WRITE: Final = 4
CREATE: Final = 5
DELETE: Final = 6
ALTER: Final = 7
DESCRIBE: Final = 8
CLUSTER_ACTION: Final = 9
DESCRIBE_CONFIGS: Final = 10
ALTER_CONFIGS: Final = 11
IDEMPOTENT_WRITE: Final = 12

NOT_ASKED: Final = None
"""What stands in an answer to who has not asked: kafka-python encodes it as the least number that there is."""

_OF_TOPICS: Final[dict[Operation, frozenset[int]]] = {
    Operation.CONSUME: frozenset((READ, DESCRIBE, DESCRIBE_CONFIGS)),
    Operation.PUBLISH: frozenset((WRITE, DESCRIBE, DESCRIBE_CONFIGS)),
    Operation.CREATE: frozenset((CREATE,)),
    Operation.DESCRIBE: frozenset((DESCRIBE, DESCRIBE_CONFIGS)),
    Operation.ALTER: frozenset((DELETE, ALTER, ALTER_CONFIGS)),
}
_OF_ADMINISTRATORS: Final = frozenset((CREATE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS))


def topic_operations(session: KafkaSession, name: str) -> frozenset[int]:
    """What this client may do with a topic."""
    return frozenset().union(*[numbers for operation, numbers in _OF_TOPICS.items()
                               if session.admission.may_topic(session.principal, operation, name)])


def cluster_operations(session: KafkaSession) -> frozenset[int]:
    """What this client may do with the hub."""
    may = session.admission.may_hub(session.principal, Operation.ADMINISTER)
    return _OF_ADMINISTRATORS | {IDEMPOTENT_WRITE} if may else frozenset((DESCRIBE, IDEMPOTENT_WRITE))


def as_bits(numbers: Iterable[int]) -> int:
    """Numbers of operations as the bits of one number, where kafka-python does not make it."""
    return sum([1 << number for number in numbers])
