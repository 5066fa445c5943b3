"""FindCoordinator 0 to 6: this node coordinates every group, since it is the only one.

A transaction has no coordinator here: Kafka's transactions are not offered. Whoever asks for one is answered
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one error at which every client gives up at once and shows the text beside
it. Told UNSUPPORTED_VERSION, librdkafka goes on asking in silence for as long as its caller lets it.

Version 6 adds the keys of share groups (KIP-932), which are refused, since those are not offered.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.api.metadata import NODE_ID
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_GROUP_ID,
    INVALID_REQUEST,
    NONE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from gatehouse.gateways.kafka.request import Api, Request

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession

GROUP: Final = 0                 # key types
TRANSACTION: Final = 1
SHARE: Final = 2
FIRST_WITH_MANY: Final = 4       # the version from which on a request names several keys
NO_NODE: Final = -1


def dispatch(request: Request) -> Iterator[None]:
    asked = request.decode(FindCoordinatorRequest)
    session = request.session
    if request.version >= FIRST_WITH_MANY:
        coordinators = []
        for key in asked.coordinator_keys:
            coordinators.append(find(session, key, asked.key_type))
            yield
        request.answer(FindCoordinatorResponse, throttle_time_ms=0, coordinators=coordinators)
    else:
        coordinator = find(session, asked.key, asked.key_type)
        request.answer(FindCoordinatorResponse, throttle_time_ms=0, error_code=coordinator.error_code,
                       error_message=coordinator.error_message, node_id=coordinator.node_id,
                       host=coordinator.host, port=coordinator.port)


def find(session: KafkaSession, key: str, key_type: int) -> Row:
    error, text = check(session, key, key_type)
    host, port = session.advertised() if error == NONE else ("", NO_NODE)
    return Row(key=key, node_id=NODE_ID if error == NONE else NO_NODE, host=host, port=port, error_code=error,
               error_message=text)


def check(session: KafkaSession, key: str, key_type: int) -> tuple[int, str | None]:
    """Why there is no coordinator for this key, as error number and text; NONE where there is one."""
    if key_type == TRANSACTION:
        return (TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "Kafka's transactions are not offered here, so nobody may use an id for them")
    if key_type == SHARE:
        return INVALID_REQUEST, "share groups are not offered here, so their partitions have no coordinator"
    if key_type != GROUP:
        return INVALID_REQUEST, f"coordinator type {key_type} is not known here"
    if not key:
        return INVALID_GROUP_ID, "a group's name is not empty"
    if not session.admission.may_group(session.principal, Operation.CONSUME, key):
        return GROUP_AUTHORIZATION_FAILED, f"{session.principal.name} may not consume with the group {key!r}"
    return NONE, None


FIND_COORDINATOR = Api(key=10, name="FindCoordinator", first_version=0, last_version=6, first_flexible=3,
                       dispatch=dispatch, message=FindCoordinatorRequest)
