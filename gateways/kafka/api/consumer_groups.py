"""ConsumerGroupHeartbeat 0 and 1, ConsumerGroupDescribe 0 and 1: groups whose partitions the hub assigns (KIP-848).

One request does it all: it joins (epoch 0), says what the member wants and has, hears what it may have, and leaves
(epoch -1, or -2 for a static member that comes back). A change is answered when it is durable. A member that gives no
rights to a topic that it names is refused; what its regular expression finds are topics that it may read.

kafka-python has no schemas of these requests and answers, so they stand here, as `schemas` has them. Source:
https://kafka.apache.org/protocol#protocol_api_keys (68, 69).
"""
from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.own_topics import is_for_administrators
from gatehouse.gateways.kafka.api.group_administration import find_group
from gatehouse.gateways.kafka.api.membership import Deferred, client_host, code_of_refusal, require_group
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    GROUP_ID_NOT_FOUND,
    INVALID_REQUEST,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
)
from gatehouse.gateways.kafka.kept_configs import GroupConfigs
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.gateways.kafka.request import Api, Request
from gatehouse.gateways.kafka.schemas import BY_ID, BY_NAME, HEARTBEAT_RESPONSE, Message
from gatehouse.kernel.assigned.assigned_values import Beat, Beaten, DescribedConsumer
from gatehouse.kernel.errors import KernelError

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession


_ASSIGNMENT: Final = ("Assignment", [("TopicPartitions", ("[]TopicPartitions", BY_NAME), 0)])

CONSUMER_GROUP_HEARTBEAT_REQUEST: Final = Message("ConsumerGroupHeartbeatRequest", 1, [
    ("GroupId", "string", 0), ("MemberId", "string", 0), ("MemberEpoch", "int32", 0), ("InstanceId", "string?", 0),
    ("RackId", "string?", 0), ("RebalanceTimeoutMs", "int32", 0), ("SubscribedTopicNames", "[]string?", 0),
    ("SubscribedTopicRegex", "string?", 1), ("ServerAssignor", "string?", 0),
    ("TopicPartitions", ("[]TopicPartitions?", BY_ID), 0)])

CONSUMER_GROUP_HEARTBEAT_RESPONSE: Final = Message("ConsumerGroupHeartbeatResponse", 1, HEARTBEAT_RESPONSE)

CONSUMER_GROUP_DESCRIBE_REQUEST: Final = Message("ConsumerGroupDescribeRequest", 1, [
    ("GroupIds", "[]string", 0), ("IncludeAuthorizedOperations", "bool", 0)])

CONSUMER_GROUP_DESCRIBE_RESPONSE: Final = Message("ConsumerGroupDescribeResponse", 1, [
    ("ThrottleTimeMs", "int32", 0),
    ("Groups", ("[]DescribedGroup", [
        ("ErrorCode", "int16", 0), ("ErrorMessage", "string?", 0), ("GroupId", "string", 0),
        ("GroupState", "string", 0), ("GroupEpoch", "int32", 0), ("AssignmentEpoch", "int32", 0),
        ("AssignorName", "string", 0),
        ("Members", ("[]Member", [
            ("MemberId", "string", 0), ("InstanceId", "string?", 0), ("RackId", "string?", 0),
            ("MemberEpoch", "int32", 0), ("ClientId", "string", 0), ("ClientHost", "string", 0),
            ("SubscribedTopicNames", "[]string", 0), ("SubscribedTopicRegex", "string?", 0),
            ("Assignment", _ASSIGNMENT, 0), ("TargetAssignment", _ASSIGNMENT, 0), ("MemberType", "int8", 1)]), 0),
        ("AuthorizedOperations", "int32", 0)]), 0)])

JOINS: Final = 0                         # member epochs that mean something
LEAVES_FOR_A_WHILE: Final = -2
FIRST_OWN_ID: Final = 1                  # the version from which on members bring their id (KIP-1082)
UNKNOWN_RIGHTS: Final = -1 << 31         # authorized operations, where nobody has asked for them
MAY_CONSUME: Final = 1 << 3 | 1 << 8     # Kafka's numbers for read and describe
MAY_ALTER: Final = 1 << 6                # and for delete
CLASSIC_MEMBER: Final = 0                # kinds of members
CONSUMER_MEMBER: Final = 1


class Beating(Deferred):
    """A heartbeat until what it changed is durable."""

    __slots__ = ()

    def accept(self, answer: Beaten) -> None:
        parts = None if answer.assigned is None else Row(topic_partitions=[
            Row(topic_id=uuid.UUID(bytes=topic.uuid), partitions=numbers)
            for topic, numbers in self.request.session.kernel.assigned.topics_of(answer.assigned)])
        self.request.answer(
            CONSUMER_GROUP_HEARTBEAT_RESPONSE, throttle_time_ms=0, error_code=NONE, error_message=None,
            member_id=answer.member_id, member_epoch=answer.epoch, heartbeat_interval_ms=answer.heartbeat_ms,
            assignment=parts)

    def refuse(self, refusal: Exception) -> None:
        self.request.answer(
            CONSUMER_GROUP_HEARTBEAT_RESPONSE, throttle_time_ms=0, error_code=code_of_refusal(refusal),
            error_message=str(refusal), member_id=None, member_epoch=0, heartbeat_interval_ms=0, assignment=None)


def beat(request: Request) -> None:
    asked = request.decode(CONSUMER_GROUP_HEARTBEAT_REQUEST)
    session, tenant, waiting = request.session, request.session.principal.tenant, Beating(request)
    try:
        require_group(session, Operation.CONSUME, asked.group_id)
        check_heartbeat(request.version, asked)
        require_topics(session, asked.subscribed_topic_names or ())
        said = beat_of(session, asked)
        if said.epoch < JOINS:
            session.kernel.assigned.leave_consumers(asked.group_id, said, waiting.on_answer, tenant)
            return
        principal = session.principal
        rules = GroupConfigs.of(session.services).rules(tenant, asked.group_id, session.config)
        session.kernel.assigned.beat(
            asked.group_id, said, rules,
            lambda topic: (session.admission.may_topic(principal, Operation.CONSUME, topic)
                           and not is_for_administrators(topic, tenant)), waiting.on_answer, tenant,
            session.guard.version)
    except (KernelError, Refused) as refusal:
        waiting.refuse(refusal)


def check_heartbeat(version: int, asked: Any) -> None:
    """Raises Refused for what no member says."""
    text = ""
    joins = asked.member_epoch == JOINS
    if not asked.member_id and (version >= FIRST_OWN_ID or not joins):
        text = "a member has an id"
    elif "" in (asked.group_id, asked.instance_id, asked.rack_id):
        text = "a group, an instance and a rack have a name, or are not named"
    elif asked.member_epoch < LEAVES_FOR_A_WHILE:
        text = f"{asked.member_epoch} is no member epoch"
    elif asked.member_epoch == LEAVES_FOR_A_WHILE and asked.instance_id is None:
        text = "only a static member leaves for a while"
    elif joins and asked.rebalance_timeout_ms <= 0:
        text = "who joins says how long giving up partitions may take"
    elif joins and asked.topic_partitions != []:
        text = "who joins has no partitions, and says so"
    elif joins and asked.subscribed_topic_names is None and not asked.subscribed_topic_regex:
        text = "who joins says what it subscribes to"
    if text:
        raise Refused(INVALID_REQUEST, text)


def require_topics(session: KafkaSession, names: Any) -> None:
    """Raises Refused where the client may not read one of them."""
    for name in names:
        if not session.admission.may_topic(session.principal, Operation.CONSUME, name):
            raise Refused(TOPIC_AUTHORIZATION_FAILED, f"{session.principal.name} may not read {name!r}")


def beat_of(session: KafkaSession, asked: Any) -> Beat:
    names = asked.subscribed_topic_names
    return Beat(
        asked.member_id or str(uuid.uuid4()), asked.member_epoch, asked.instance_id, asked.rack_id, session.client_id,
        client_host(session), None if asked.rebalance_timeout_ms <= 0 else asked.rebalance_timeout_ms,
        None if names is None else frozenset(names), asked.subscribed_topic_regex, asked.server_assignor,
        None if asked.topic_partitions is None else owned(session, asked.topic_partitions))


def owned(session: KafkaSession, rows: list[Any]) -> frozenset[int]:
    """Partition ids of what a member says that it has; of topics that are gone nobody has any."""
    partition_ids: set[int] = set()
    for row in rows:
        try:
            topic = session.guard.topics.seen(row.topic_id.bytes)
            partition_ids.update([topic.partition_id(number) for number in row.partitions])
        except (KernelError, Denied):
            continue
    return frozenset(partition_ids)


def describe(request: Request) -> Iterator[None]:
    """Each group once, however often it is named."""
    asked = request.decode(CONSUMER_GROUP_DESCRIBE_REQUEST)
    rows = []
    for name in dict.fromkeys(asked.group_ids):
        rows.append(describe_group(request.session, name, asked.include_authorized_operations))
        yield
    request.answer(CONSUMER_GROUP_DESCRIBE_RESPONSE, throttle_time_ms=0, groups=rows)


def describe_group(session: KafkaSession, name: str, with_rights: bool) -> Row:
    row = Row(error_code=NONE, error_message=None, group_id=name, group_state="", group_epoch=0, assignment_epoch=0,
              assignor_name="", members=[], authorized_operations=UNKNOWN_RIGHTS)
    try:
        require_group(session, Operation.CONSUME, name)
        tenant = session.principal.tenant
        group = session.kernel.assigned.describe_consumers(name, tenant)
        if group is None or not group.members and session.kernel.groups.settings(name, tenant) is None:
            raise Refused(GROUP_ID_NOT_FOUND, f"Group {name} not found." if find_group(session, name) is None
                          else f"Group {name} is not a consumer group.")
    except (KernelError, Refused) as refusal:
        row.error_code, row.error_message = code_of_refusal(refusal), str(refusal)
        return row
    if with_rights:
        row.authorized_operations = rights_to(session, name)
    row.group_state, row.group_epoch, row.assignment_epoch = group.state.value, group.epoch, group.target_epoch
    row.assignor_name = group.assignor
    row.members = [member_row(session, member) for member in group.members]
    return row


def rights_to(session: KafkaSession, name: str) -> int:
    """What a client that may consume with a group may do with it, as Kafka's bits."""
    may_alter = session.admission.may_group(session.principal, Operation.ALTER, name)
    return MAY_CONSUME | MAY_ALTER if may_alter else MAY_CONSUME


def member_row(session: KafkaSession, member: DescribedConsumer) -> Row:
    return Row(
        member_id=member.member_id, instance_id=member.instance_id, rack_id=member.rack_id, member_epoch=member.epoch,
        client_id=member.client_id, client_host=member.client_host, subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern or None, assignment=parts_row(session, member.assigned),
        target_assignment=parts_row(session, member.target),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER)


def parts_row(session: KafkaSession, partition_ids: frozenset[int]) -> Row:
    return Row(topic_partitions=[
        Row(topic_id=uuid.UUID(bytes=topic.uuid), topic_name=topic.name, partitions=numbers)
        for topic, numbers in session.kernel.assigned.topics_of(partition_ids)])


CONSUMER_GROUP_HEARTBEAT = Api(key=68, name="ConsumerGroupHeartbeat", first_version=0, last_version=1, first_flexible=0,
                               dispatch=beat, message=CONSUMER_GROUP_HEARTBEAT_REQUEST)
CONSUMER_GROUP_DESCRIBE = Api(key=69, name="ConsumerGroupDescribe", first_version=0, last_version=1, first_flexible=0,
                              dispatch=describe, shows=True, message=CONSUMER_GROUP_DESCRIBE_REQUEST)
