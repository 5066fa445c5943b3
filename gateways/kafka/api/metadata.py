"""Metadata 0 to 13 and FindCoordinator 0 to 6: the one node, which coordinates every group, since it is the only one;
and topics with their partitions; where the client wants it, topics made by asking.

Which topics exist shows only to who may publish to them or consume them. Creating by asking follows the hub's
`auto_create_topics` and the client's own flag, and needs what making a topic by publishing needs: without it a topic
that is missing is refused as Kafka refuses it, with TOPIC_AUTHORIZATION_FAILED.

A transactional id has its coordinator here for whoever has the right `transact` on the group of that name; others are
answered TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Version 6 adds the keys of share groups' partitions (KIP-932), which
only brokers ask about: those have no coordinator here.
"""
from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.admission.own_topics import is_for_administrators
from gatehouse.gateways.kafka.acl_mapping import NOT_ASKED, cluster_operations, topic_operations
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_GROUP_ID,
    INVALID_REQUEST,
    INVALID_TOPIC,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
)
from gatehouse.gateways.kafka.mapping import code_of
from gatehouse.gateways.kafka.request import Api, Request
from gatehouse.kernel.addresses.address import is_topic_name
from gatehouse.kernel.errors import KernelError, UnknownTopic

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession
    from gatehouse.kernel.state.topics import Topic

NODE_ID: Final = 1               # decision 302
ALL_WHEN_EMPTY: Final = 0        # the version in which an empty list means all topics
NULL_NAMES: Final = 12           # the first version that answers without a name for an id that it does not know
NO_UUID: Final = uuid.UUID(int=0)
NODES: Final = [NODE_ID]
NO_NODES: Final[list[int]] = []


def dispatch(request: Request) -> Iterator[None]:
    session = request.session
    asked = request.decode(MetadataRequest)
    with_rights = asked.include_topic_authorized_operations
    topics: list[Row] = []
    if asked.topics is None or request.version == ALL_WHEN_EMPTY and not asked.topics:
        for topic in session.guard.topics.all():
            topics.append(describe(session, topic))
            yield
    else:
        nameless = None if request.version >= NULL_NAMES else ""
        for wanted in asked.topics:
            # Java's admin client says "" beside an id, and not null: where there is an id it counts, as in Kafka.
            by_id = wanted.name is None or wanted.topic_id not in (None, NO_UUID)
            topics.append(find_by_id(session, wanted.topic_id, nameless) if by_id
                          else find(session, wanted.name, asked.allow_auto_topic_creation))
            yield
    if with_rights:
        for row in topics:
            if row.error_code == NONE:
                row.authorized_operations = topic_operations(session, row.name)
            yield
    host, port = session.advertised()
    operations = cluster_operations(session) if asked.include_cluster_authorized_operations else NOT_ASKED
    request.answer(MetadataResponse, throttle_time_ms=0, error_code=NONE, cluster_id=session.services.hub_name,
                   controller_id=NODE_ID, topics=topics, authorized_operations=operations,
                   brokers=[Row(node_id=NODE_ID, host=host, port=port, rack=None)])


def find_by_id(session: KafkaSession, topic_id: uuid.UUID, nameless: str | None) -> Row:
    try:
        return describe(session, session.guard.topics.seen(topic_id.bytes))
    except UnknownTopic:
        return refused(nameless, topic_id, UNKNOWN_TOPIC_ID)
    except Denied:
        return refused(nameless, topic_id, TOPIC_AUTHORIZATION_FAILED)


def find(session: KafkaSession, name: str, may_create: bool) -> Row:
    if not is_topic_name(name):
        return refused(name, NO_UUID, INVALID_TOPIC)
    if not session.guard.sees_topic(name):
        return refused(name, NO_UUID, TOPIC_AUTHORIZATION_FAILED)
    topic = session.kernel.topic(name, session.principal.tenant)
    if topic is None:
        try:
            topic = make(session, name, may_create)
        except KernelError as refusal:
            return refused(name, NO_UUID, code_of(refusal))
    return describe(session, topic)


def make(session: KafkaSession, name: str, may_create: bool) -> Topic:
    """A topic by being asked for. Raises UnknownTopic, and what the kernel says to the name."""
    if may_create and session.kernel.settings.auto_create_topics:
        session.guard.topics.make(name)
    topic = session.kernel.topic(name, session.principal.tenant)
    if topic is None:
        raise UnknownTopic(f"there is no topic {name!r}")
    return topic


def describe(session: KafkaSession, topic: Topic) -> Row:
    epoch = session.epoch
    partitions = [Row(error_code=NONE, partition_index=index, leader_id=NODE_ID, leader_epoch=epoch,
                      replica_nodes=NODES, isr_nodes=NODES, offline_replicas=NO_NODES)
                  for index in range(topic.partitions)]
    return Row(error_code=NONE, name=topic.name, topic_id=uuid.UUID(bytes=topic.uuid),
               is_internal=is_for_administrators(topic.name, topic.tenant), partitions=partitions,
               authorized_operations=None)


def refused(name: str | None, topic_id: uuid.UUID, error: int) -> Row:
    return Row(error_code=error, name=name, topic_id=topic_id, is_internal=False, partitions=[],
               authorized_operations=None)


METADATA = Api(key=3, name="Metadata", first_version=0, last_version=13, first_flexible=9, dispatch=dispatch,
               message=MetadataRequest)


GROUP: Final = 0                 # key types
TRANSACTION: Final = 1
SHARE: Final = 2
FIRST_WITH_MANY: Final = 4       # the version from which on a request names several keys
NO_NODE: Final = -1


def find_coordinators(request: Request) -> Iterator[None]:
    asked = request.decode(FindCoordinatorRequest)
    session = request.session
    if request.version >= FIRST_WITH_MANY:
        coordinators = []
        for key in asked.coordinator_keys:
            coordinators.append(coordinator_of(session, key, asked.key_type))
            yield
        request.answer(FindCoordinatorResponse, throttle_time_ms=0, coordinators=coordinators)
    else:
        coordinator = coordinator_of(session, asked.key, asked.key_type)
        request.answer(FindCoordinatorResponse, throttle_time_ms=0, error_code=coordinator.error_code,
                       error_message=coordinator.error_message, node_id=coordinator.node_id,
                       host=coordinator.host, port=coordinator.port)


def coordinator_of(session: KafkaSession, key: str, key_type: int) -> Row:
    error, text = check_key(session, key, key_type)
    host, port = session.advertised() if error == NONE else ("", NO_NODE)
    return Row(key=key, node_id=NODE_ID if error == NONE else NO_NODE, host=host, port=port, error_code=error,
               error_message=text)


def check_key(session: KafkaSession, key: str, key_type: int) -> tuple[int, str | None]:
    """Why there is no coordinator for this key, as error number and text; NONE where there is one."""
    if key_type == TRANSACTION:
        if not session.admission.may_group(session.principal, Operation.TRANSACT, key):
            return (TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    f"{session.principal.name} has not the right `transact` on the group {key!r}")
        return NONE, None
    if key_type == SHARE:
        return INVALID_REQUEST, "the partitions of share groups have no coordinator here: any member fetches from any"
    if key_type != GROUP:
        return INVALID_REQUEST, f"coordinator type {key_type} is not known here"
    if not key:
        return INVALID_GROUP_ID, "a group's name is not empty"
    if not session.admission.may_group(session.principal, Operation.CONSUME, key):
        return GROUP_AUTHORIZATION_FAILED, f"{session.principal.name} may not consume with the group {key!r}"
    return NONE, None


FIND_COORDINATOR = Api(key=10, name="FindCoordinator", first_version=0, last_version=6, first_flexible=3,
                       dispatch=find_coordinators, message=FindCoordinatorRequest)
