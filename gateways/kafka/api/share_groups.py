"""ShareGroupHeartbeat 1, ShareGroupDescribe 1, DescribeShareGroupOffsets 0 and 1, AlterShareGroupOffsets 0,
DeleteShareGroupOffsets 0: share groups as their members and tools see them (KIP-932).

A heartbeat joins (epoch 0), says what the member reads, hears which partitions that is, and leaves (epoch -1). With the
first member of a new group the leased group of its name begins, over each of its topics: with what comes from now on,
unless `share.auto.offset.reset` says otherwise. What is given to members is `share_fetch`.

A group's offset in a partition is that of the first message which is not settled. Source:
https://kafka.apache.org/protocol#protocol_api_keys (76, 77, 90 to 92), KIP-932, KIP-1226.
"""
from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.api.consumer_groups import (
    JOINS,
    UNKNOWN_RIGHTS,
    require_topics,
    rights_to,
)
from gatehouse.gateways.kafka.api.group_administration import find_group, share_members, share_state
from gatehouse.gateways.kafka.api.membership import client_host, code_of_refusal, require_group
from gatehouse.gateways.kafka.api.parts import REFUSALS, AskedPart, AskedParts, refuse
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    GROUP_ID_NOT_FOUND,
    INVALID_REQUEST,
    NON_EMPTY_GROUP,
    NONE,
    UNKNOWN_MEMBER_ID,
)
from gatehouse.gateways.kafka.kept_configs import GroupConfigs, start_of
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.gateways.kafka.request import Api, Request, find_topic
from gatehouse.gateways.kafka.schemas import BY_NAME, HEARTBEAT_RESPONSE, Message
from gatehouse.gateways.kafka.share_members import Assignment, ShareGroup, ShareGroups, ShareMember, ShareRules
from gatehouse.gateways.kafka.share_session import MAX_TOPICS
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.groups.group_settings import ASSIGNED, check_name

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession
    from gatehouse.kernel.state.topics import Topic


SHARE_GROUP_HEARTBEAT_REQUEST: Final = Message("ShareGroupHeartbeatRequest", 1, [
    ("GroupId", "string", 0), ("MemberId", "string", 0), ("MemberEpoch", "int32", 0), ("RackId", "string?", 0),
    ("SubscribedTopicNames", "[]string?", 0)])

SHARE_GROUP_HEARTBEAT_RESPONSE: Final = Message("ShareGroupHeartbeatResponse", 1, HEARTBEAT_RESPONSE)

SHARE_GROUP_DESCRIBE_REQUEST: Final = Message("ShareGroupDescribeRequest", 1, [
    ("GroupIds", "[]string", 0), ("IncludeAuthorizedOperations", "bool", 0)])

SHARE_GROUP_DESCRIBE_RESPONSE: Final = Message("ShareGroupDescribeResponse", 1, [
    ("ThrottleTimeMs", "int32", 0),
    ("Groups", ("[]DescribedGroup", [
        ("ErrorCode", "int16", 0), ("ErrorMessage", "string?", 0), ("GroupId", "string", 0),
        ("GroupState", "string", 0), ("GroupEpoch", "int32", 0), ("AssignmentEpoch", "int32", 0),
        ("AssignorName", "string", 0),
        ("Members", ("[]Member", [
            ("MemberId", "string", 0), ("RackId", "string?", 0), ("MemberEpoch", "int32", 0), ("ClientId", "string", 0),
            ("ClientHost", "string", 0), ("SubscribedTopicNames", "[]string", 0),
            ("Assignment", ("Assignment", [("TopicPartitions", ("[]TopicPartitions", BY_NAME), 0)]), 0)]), 0),
        ("AuthorizedOperations", "int32", 0)]), 0)])

DESCRIBE_OFFSETS_REQUEST: Final = Message("DescribeShareGroupOffsetsRequest", 1, [
    ("Groups", ("[]Group", [
        ("GroupId", "string", 0),
        ("Topics", ("[]Topic?", [("TopicName", "string", 0), ("Partitions", "[]int32", 0)]), 0)]), 0)])

DESCRIBE_OFFSETS_RESPONSE: Final = Message("DescribeShareGroupOffsetsResponse", 1, [
    ("ThrottleTimeMs", "int32", 0),
    ("Groups", ("[]Group", [
        ("GroupId", "string", 0),
        ("Topics", ("[]Topic", [
            ("TopicName", "string", 0), ("TopicId", "uuid", 0),
            ("Partitions", ("[]Partition", [
                ("PartitionIndex", "int32", 0), ("StartOffset", "int64", 0), ("LeaderEpoch", "int32", 0),
                ("Lag", "int64", 1), ("ErrorCode", "int16", 0), ("ErrorMessage", "string?", 0)]), 0)]), 0),
        ("ErrorCode", "int16", 0), ("ErrorMessage", "string?", 0)]), 0)])

ALTER_OFFSETS_REQUEST: Final = Message("AlterShareGroupOffsetsRequest", 0, [
    ("GroupId", "string", 0),
    ("Topics", ("[]Topic", [
        ("TopicName", "string", 0),
        ("Partitions", ("[]Partition", [("PartitionIndex", "int32", 0), ("StartOffset", "int64", 0)]), 0)]), 0)])

ALTER_OFFSETS_RESPONSE: Final = Message("AlterShareGroupOffsetsResponse", 0, [
    ("ThrottleTimeMs", "int32", 0), ("ErrorCode", "int16", 0), ("ErrorMessage", "string?", 0),
    ("Responses", ("[]Topic", [
        ("TopicName", "string", 0), ("TopicId", "uuid", 0),
        ("Partitions", ("[]Partition", [("PartitionIndex", "int32", 0), ("ErrorCode", "int16", 0),
                                        ("ErrorMessage", "string?", 0)]), 0)]), 0)])

DELETE_OFFSETS_REQUEST: Final = Message("DeleteShareGroupOffsetsRequest", 0, [
    ("GroupId", "string", 0), ("Topics", ("[]Topic", [("TopicName", "string", 0)]), 0)])

DELETE_OFFSETS_RESPONSE: Final = Message("DeleteShareGroupOffsetsResponse", 0, [
    ("ThrottleTimeMs", "int32", 0), ("ErrorCode", "int16", 0), ("ErrorMessage", "string?", 0),
    ("Responses", ("[]Topic", [
        ("TopicName", "string", 0), ("TopicId", "uuid", 0), ("ErrorCode", "int16", 0),
        ("ErrorMessage", "string?", 0)]), 0)])

LEAVES: Final = -1                       # a member epoch
ASSIGNOR: Final = "everything"           # every member is given every partition
MAX_ID_BYTES: Final = 255
NO_UUID: Final = uuid.UUID(int=0)
NOBODY_YET: Final = -1                   # an offset, where nothing of the partition was read


# ---- ShareGroupHeartbeat

def beat(request: Request) -> Iterator[None]:
    asked, session = request.decode(SHARE_GROUP_HEARTBEAT_REQUEST), request.session
    rules = GroupConfigs.of(session.services).share_rules(session.principal.tenant, asked.group_id, session.config)
    try:
        require_group(session, Operation.CONSUME, asked.group_id)
        check_heartbeat(asked)
        if asked.member_epoch == LEAVES:
            if not ShareGroups.of(session.services).leave(session.principal.tenant, asked.group_id, asked.member_id):
                raise Refused(UNKNOWN_MEMBER_ID, f"{asked.member_id} is no member of the group")
            epoch, assigned = LEAVES, None
        else:
            require_topics(session, asked.subscribed_topic_names or ())
            epoch, assigned = yield from beat_of(session, asked, rules)
    except (KernelError, Refused, Denied) as refusal:
        request.answer(SHARE_GROUP_HEARTBEAT_RESPONSE, throttle_time_ms=0, error_code=code_of_refusal(refusal),
                       error_message=str(refusal), member_id=None, member_epoch=0, heartbeat_interval_ms=0,
                       assignment=None)
        return
    parts = None if assigned is None else Row(topic_partitions=[
        Row(topic_id=uuid.UUID(bytes=topic_id), partitions=list(range(count))) for _, topic_id, count in assigned])
    request.answer(SHARE_GROUP_HEARTBEAT_RESPONSE, throttle_time_ms=0, error_code=NONE, error_message=None,
                   member_id=asked.member_id, member_epoch=epoch, heartbeat_interval_ms=rules.heartbeat_ms,
                   assignment=parts)


def check_heartbeat(asked: Any) -> None:
    """Raises Refused for what no member says."""
    text = ""
    if not asked.group_id or not asked.member_id or asked.rack_id == "":
        text = "a group and a member have names, and a rack has one, or is not named"
    elif max(len(asked.member_id.encode()), len((asked.rack_id or "").encode())) > MAX_ID_BYTES:
        text = f"names of members and racks have {MAX_ID_BYTES} bytes at most"
    elif asked.member_epoch < LEAVES:
        text = f"{asked.member_epoch} is no member epoch"
    elif asked.member_epoch == JOINS and not asked.subscribed_topic_names:
        text = "who joins says what it subscribes to"
    elif len(asked.subscribed_topic_names or ()) > MAX_TOPICS:
        text = f"a member subscribes to {MAX_TOPICS} topics at most"
    if text:
        raise Refused(INVALID_REQUEST, text)


def beat_of(session: KafkaSession, asked: Any, rules: ShareRules
            ) -> Generator[None, None, tuple[int, Assignment | None]]:
    """The member's epoch, and its partitions where they have changed, in steps. Raises Refused, Denied, and what the
    kernel refuses."""
    groups, tenant, name = ShareGroups.of(session.services), session.principal.tenant, asked.group_id
    now_ms = session.services.now_ms()
    names = None if asked.subscribed_topic_names is None else frozenset(asked.subscribed_topic_names)
    if asked.member_epoch == JOINS:
        check_name(name, "group")
        require_no_other_kind(session, name)
        member = ShareMember(asked.member_id, asked.rack_id, session.client_id, client_host(session),
                             names or frozenset())
        assigned = yield from assignment_of(session, name, member.topics)
        group = groups.join(tenant, name, member, now_ms, rules)
    else:
        group, member = groups.find(tenant, name, asked.member_id, asked.member_epoch, now_ms, rules)
        assigned = yield from assignment_of(session, name, member.topics if names is None else names)
        if names is not None:
            groups.subscribe(tenant, name, member, names, now_ms)
        if assigned == member.assigned:
            return member.epoch, assigned if asked.member_epoch != member.epoch else None
    group.assign(member, assigned)
    return member.epoch, assigned


def assignment_of(session: KafkaSession, group: str, names: frozenset[str]) -> Generator[None, None, Assignment]:
    """What there is of these topics, and the client may read; from each of them the group takes from now on. A topic a
    step. One in which the group is still to be told where to begin comes with a later heartbeat, as in Kafka."""
    tenant, start = session.principal.tenant, start_of(session, group)
    begun = session.guard.groups.topics(group) if isinstance(start, int) else []
    assigned = []
    for name in sorted(names):
        yield
        topic = session.kernel.topic(name, tenant)
        if topic is not None and session.admission.may_topic(session.principal, Operation.CONSUME, name):
            if isinstance(start, int):
                if topic not in begun:
                    yield from Beginning(session, group, topic).look(start)
                    continue
            else:
                session.guard.groups.open(group, name, start)
            assigned.append((name, topic.uuid, topic.partitions))
    return tuple(assigned)


class Beginning:
    """A group is to begin in a topic with what came since some time: the offsets of its partitions are looked for."""

    def __init__(self, session: KafkaSession, group: str, topic: Topic) -> None:
        self._session = session
        self._group = group
        self._topic = topic
        self._offsets: dict[int, int] = {}

    def look(self, since_ms: int) -> Iterator[None]:
        """A partition a step."""
        for partition_id in find_topic(self._session, self._topic.name, Operation.CONSUME).partition_ids():
            self._session.guard.offset_for_time(partition_id, since_ms, partial(self._on_offset, partition_id))
            yield

    def _on_offset(self, partition_id: int, offset: int | None, timestamp_ms: int) -> None:
        session = self._session
        if session.closed:                               # the next member looks again
            return
        start, end = session.guard.bounds(partition_id)[:2]
        self._offsets[partition_id] = end if offset is None else max(start, offset)
        if len(self._offsets) == self._topic.partitions:
            with suppress(KernelError, Denied):          # likewise
                session.guard.groups.open(self._group, self._topic.name, self._offsets)


# ---- ShareGroupDescribe

def require_no_other_kind(session: KafkaSession, name: str) -> None:
    """Raises Refused where members of another kind have this name, or had it."""
    settings = session.kernel.groups.settings(name, session.principal.tenant)
    if settings is not None and settings.kind == ASSIGNED or find_group(session, name) is not None:
        raise Refused(GROUP_ID_NOT_FOUND, f"Group {name} is not a share group.")


def require_share_group(session: KafkaSession, name: str) -> ShareGroup | None:
    """The members of a group that leases. Raises Refused where there is no such group, or it is another kind of one."""
    require_no_other_kind(session, name)
    members = share_members(session, name)
    if members is None and session.kernel.groups.settings(name, session.principal.tenant) is None:
        raise Refused(GROUP_ID_NOT_FOUND, f"Group {name} not found.")
    return members


def describe(request: Request) -> Iterator[None]:
    """Each group once, however often it is named."""
    asked = request.decode(SHARE_GROUP_DESCRIBE_REQUEST)
    rows = []
    for name in dict.fromkeys(asked.group_ids):
        rows.append((yield from describe_group(request.session, name, asked.include_authorized_operations)))
        yield
    request.answer(SHARE_GROUP_DESCRIBE_RESPONSE, throttle_time_ms=0, groups=rows)


def describe_group(session: KafkaSession, name: str, with_rights: bool) -> Generator[None, None, Row]:
    """A member a step."""
    row = Row(error_code=NONE, error_message=None, group_id=name, group_state="", group_epoch=0, assignment_epoch=0,
              assignor_name="", members=[], authorized_operations=UNKNOWN_RIGHTS)
    try:
        require_group(session, Operation.CONSUME, name)
        group = require_share_group(session, name)
    except (KernelError, Refused) as refusal:
        row.error_code, row.error_message = code_of_refusal(refusal), str(refusal)
        return row
    if with_rights:
        row.authorized_operations = rights_to(session, name)
    row.group_state, row.assignor_name = share_state(session, name), ASSIGNOR
    if group is not None:
        row.group_epoch = row.assignment_epoch = group.epoch
        numbers: dict[int, list[int]] = {}
        for member in list(group.members.values()):
            row.members.append(member_row(session, member, numbers))
            yield
    return row


def member_row(session: KafkaSession, member: ShareMember, numbers: dict[int, list[int]]) -> Row:
    """A member, with those of its topics that whoever asks may see. `numbers`: those of so many partitions, once for
    all members."""
    def may_see(name: str) -> bool:
        return session.admission.may_topic(session.principal, Operation.CONSUME, name)

    return Row(
        member_id=member.member_id, rack_id=member.rack, member_epoch=member.epoch, client_id=member.client_id,
        client_host=member.client_host, subscribed_topic_names=sorted(filter(may_see, member.topics)),
        assignment=Row(topic_partitions=[
            Row(topic_id=uuid.UUID(bytes=topic_id), topic_name=name,
                partitions=numbers.get(count) or numbers.setdefault(count, list(range(count))))
            for name, topic_id, count in member.assigned if may_see(name)]))


# ---- DescribeShareGroupOffsets

def describe_offsets(request: Request) -> Iterator[None]:
    """Each group once, however often it is named."""
    asked, session = request.decode(DESCRIBE_OFFSETS_REQUEST), request.session
    rows: dict[str, Row] = {}
    for group in asked.groups:
        if group.group_id in rows:
            continue
        row = rows[group.group_id] = Row(group_id=group.group_id, topics=[], error_code=NONE, error_message=None)
        try:
            require_group(session, Operation.CONSUME, group.group_id)
            require_share_group(session, group.group_id)
        except Refused as refusal:
            refuse(row, refusal)
            continue
        wanted = [(topic.topic_name, topic.partitions) for topic in group.topics] if group.topics is not None else \
            [(topic.name, range(topic.partitions)) for topic in session.guard.groups.topics(group.group_id)]
        for name, numbers in wanted:
            row.topics.append((yield from offsets_row(session, group.group_id, name, numbers)))
            yield
    request.answer(DESCRIBE_OFFSETS_RESPONSE, throttle_time_ms=0, groups=list(rows.values()))


def offsets_row(session: KafkaSession, group: str, name: str, numbers: Any) -> Generator[None, None, Row]:
    """How far a group is in partitions of one topic, and how much is left. A partition a step."""
    row = Row(topic_name=name, topic_id=NO_UUID, partitions=[
        Row(partition_index=number, start_offset=NOBODY_YET, leader_epoch=0, lag=-1, error_code=NONE,
            error_message=None) for number in dict.fromkeys(numbers)])
    try:
        topic = find_topic(session, name, Operation.CONSUME)
        offsets = session.guard.groups.offsets(group, topic)
    except REFUSALS as refusal:
        for part in row.partitions:
            refuse(part, refusal)
        return row
    row.topic_id = uuid.UUID(bytes=topic.uuid)
    for part in row.partitions:
        yield
        try:
            partition_id = topic.partition_id(part.partition_index)
            start, end = session.guard.bounds(partition_id)[:2]
        except REFUSALS as refusal:
            refuse(part, refusal)
            continue
        if partition_id in offsets:
            part.start_offset = max(offsets[partition_id], start)
            part.lag = max(0, end - part.start_offset)
    return row


# ---- AlterShareGroupOffsets, DeleteShareGroupOffsets

def alter_offsets(request: Request) -> Iterator[None]:
    """The group goes on from these offsets."""
    asked = request.decode(ALTER_OFFSETS_REQUEST)
    rows = [Row(topic_name=topic.topic_name, topic_id=NO_UUID, error_code=NONE, error_message=None, partitions=[
        Row(partition_index=partition.partition_index) for partition in topic.partitions]) for topic in asked.topics]

    def answer(code: int = NONE, text: str | None = None) -> None:
        for row in rows:                                           # a topic's offsets are moved together
            for partition in row.partitions:
                partition.error_code, partition.error_message = row.error_code, row.error_message
        request.answer(ALTER_OFFSETS_RESPONSE, throttle_time_ms=0, error_code=code, error_message=text,
                       responses=rows)

    yield from change_offsets(request.session, asked, rows, rewind, answer)


def delete_offsets(request: Request) -> Iterator[None]:
    """The group begins anew in these topics, as a new one would."""
    asked = request.decode(DELETE_OFFSETS_REQUEST)
    rows = [Row(topic_name=topic.topic_name, topic_id=NO_UUID, error_code=NONE, error_message=None)
            for topic in asked.topics]

    def answer(code: int = NONE, text: str | None = None) -> None:
        request.answer(DELETE_OFFSETS_RESPONSE, throttle_time_ms=0, error_code=code, error_message=text,
                       responses=rows)

    yield from change_offsets(request.session, asked, rows, forget, answer)


def change_offsets(session: KafkaSession, asked: Any, rows: list[Row],
                   change: Callable[[KafkaSession, str, Any, AskedPart], None], answer: Callable[..., None]
                   ) -> Iterator[None]:
    """Change a group in topics, each with its row of the answer. It has no members meanwhile, as with Kafka."""

    try:
        require_group(session, Operation.ALTER, asked.group_id)
        if require_share_group(session, asked.group_id) is not None:
            raise Refused(NON_EMPTY_GROUP, f"Group {asked.group_id} has members.")
    except Refused as refusal:
        rows.clear()
        answer(refusal.code, str(refusal))
        return
    parts = AskedParts(answer)
    for topic, row in zip(asked.topics, rows, strict=True):
        yield
        parts.begin(row, partial(change, session, asked.group_id, topic))
    parts.settle()


def rewind(session: KafkaSession, group: str, asked: Any, part: AskedPart) -> None:
    """Move a group in one topic. Raises REFUSALS."""
    topic = find_topic(session, asked.topic_name, Operation.CONSUME)
    part.row.topic_id = uuid.UUID(bytes=topic.uuid)
    offsets = {topic.partition_id(partition.partition_index): partition.start_offset for partition in asked.partitions}
    session.guard.groups.rewind(group, topic, offsets, session, part)


def forget(session: KafkaSession, group: str, asked: Any, part: AskedPart) -> None:
    """How far a group is in one topic. Raises REFUSALS."""
    topic = find_topic(session, asked.topic_name, Operation.CONSUME)
    part.row.topic_id = uuid.UUID(bytes=topic.uuid)
    session.guard.groups.forget(group, topic, session, part)


SHARE_GROUP_HEARTBEAT = Api(key=76, name="ShareGroupHeartbeat", first_version=1, last_version=1, first_flexible=0,
                            dispatch=beat, message=SHARE_GROUP_HEARTBEAT_REQUEST)
SHARE_GROUP_DESCRIBE = Api(key=77, name="ShareGroupDescribe", first_version=1, last_version=1, first_flexible=0,
                           dispatch=describe, shows=True, message=SHARE_GROUP_DESCRIBE_REQUEST)
DESCRIBE_SHARE_GROUP_OFFSETS = Api(key=90, name="DescribeShareGroupOffsets", first_version=0, last_version=1,
                                   first_flexible=0, dispatch=describe_offsets, shows=True,
                                   message=DESCRIBE_OFFSETS_REQUEST)
ALTER_SHARE_GROUP_OFFSETS = Api(key=91, name="AlterShareGroupOffsets", first_version=0, last_version=0,
                                first_flexible=0, dispatch=alter_offsets, message=ALTER_OFFSETS_REQUEST)
DELETE_SHARE_GROUP_OFFSETS = Api(key=92, name="DeleteShareGroupOffsets", first_version=0, last_version=0,
                                 first_flexible=0, dispatch=delete_offsets, message=DELETE_OFFSETS_REQUEST)
