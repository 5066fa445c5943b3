"""DescribeGroups 0 to 6, ListGroups 0 to 5, DeleteGroups 0 to 2, OffsetDelete 0: groups as tools see them.

Assigned groups are those that `gatehouse groups` and HTTP show as such, whether members of Kafka's clients or nobody is
in them; a group whose messages are leased is a share group here, whoever takes from it. Who may consume with a group
sees it, who may alter it deletes it. What a tool does to a group waits for the disk.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer.group import OffsetDeleteRequest, OffsetDeleteResponse

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.api.membership import code_of_refusal, require_group
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC, NON_EMPTY_GROUP, NONE
from gatehouse.gateways.kafka.kept_configs import GroupConfigs
from gatehouse.gateways.kafka.mapping import Refused, coordinator_code_of, subscribed_topics
from gatehouse.gateways.kafka.request import Api, Request, find_topic
from gatehouse.gateways.kafka.share_members import ShareGroup, ShareGroups
from gatehouse.kernel.assigned.assigned_values import DescribedGroup, GroupState
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.groups.group_settings import ASSIGNED, check_name
from gatehouse.kernel.message import Stored

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession

CLASSIC: Final = "classic"               # kinds of groups, as ListGroups calls them
CONSUMER: Final = "consumer"             # and the protocol type of groups that consume
SHARE: Final = "share"                   # and of those that lease
FIRST_WITH_TYPES: Final = 5              # ListGroups: who asks knows of kinds
FIRST_NOT_FOUND: Final = 6               # DescribeGroups: an unknown group is an error; before it is "Dead"
MAY_CONSUME: Final = frozenset((3, 8))   # Kafka's numbers for read and describe
MAY_ALTER: Final = frozenset((6,))       # and for delete
NOBODY: Final = DescribedGroup(GroupState.EMPTY, "", "", ())


def find_group(session: KafkaSession, name: str) -> DescribedGroup | None:
    """A group of the classic protocol, or of no members, as it is now; None where there is none of this name."""
    tenant = session.principal.tenant
    described = session.kernel.assigned.describe(name, tenant)
    settings = session.kernel.groups.settings(name, tenant)
    consumers = session.kernel.assigned.describe_consumers(name, tenant)
    if consumers is not None and consumers.members:
        return None
    is_there = settings.kind == ASSIGNED if settings is not None else described is not None and bool(described.members)
    return described or NOBODY if is_there else None


def share_members(session: KafkaSession, name: str) -> ShareGroup | None:
    """The members of a share group; None where it has none."""
    tenant, services = session.principal.tenant, session.services
    rules = GroupConfigs.of(services).share_rules(tenant, name, session.config)
    return ShareGroups.of(services).get(tenant, name, services.now_ms(), rules)


def share_state(session: KafkaSession, name: str) -> str:
    """A share group's state in Kafka's words."""
    return GroupState.EMPTY.value if share_members(session, name) is None else GroupState.STABLE.value


# ---- DescribeGroups

def describe(request: Request) -> Iterator[None]:
    """Each group once, however often it is named: the answer is much larger than the question."""
    asked = request.decode(DescribeGroupsRequest)
    rows = []
    for name in dict.fromkeys(asked.groups):
        rows.append(describe_group(request, name, asked.include_authorized_operations))
        yield
    request.answer(DescribeGroupsResponse, throttle_time_ms=0, groups=rows)


def describe_group(request: Request, name: str, with_rights: bool) -> Row:
    session = request.session
    row = Row(error_code=NONE, error_message=None, group_id=name, group_state="", protocol_type="", protocol_data="",
              members=[], authorized_operations=None)
    try:
        require_group(session, Operation.CONSUME, name)
    except Refused as refusal:
        row.error_code, row.error_message = refusal.code, str(refusal)
        return row
    if with_rights:
        may_alter = session.admission.may_group(session.principal, Operation.ALTER, name)
        row.authorized_operations = MAY_CONSUME | MAY_ALTER if may_alter else MAY_CONSUME
    group = find_group(session, name)
    if group is None:
        row.group_state = GroupState.DEAD.value
        if request.version >= FIRST_NOT_FOUND:
            row.error_code, row.error_message = GROUP_ID_NOT_FOUND, f"Group {name} not found."
        return row
    stable = group.state is GroupState.STABLE
    row.group_state, row.protocol_type = group.state.value, group.protocol_type
    row.protocol_data = group.protocol if stable else ""
    row.members = [Row(member_id=member.member_id, group_instance_id=member.instance_id, client_id=member.client_id,
                       client_host=member.client_host, member_metadata=member.metadata if stable else b"",
                       member_assignment=member.assignment if stable else b"") for member in group.members]
    return row


# ---- ListGroups

def list_groups(request: Request) -> Iterator[None]:
    asked = request.decode(ListGroupsRequest)
    session = request.session
    states = {state.lower() for state in asked.states_filter or ()}
    types = {kind.lower() for kind in asked.types_filter or ()}
    rows = []
    for name, settings in session.kernel.groups.all(session.principal.tenant):
        yield
        if not session.admission.may_group(session.principal, Operation.CONSUME, name):
            continue
        if settings.kind == ASSIGNED:
            row = list_group(session, name)
        elif request.version >= FIRST_WITH_TYPES:
            row = Row(group_id=name, protocol_type=SHARE, group_state=share_state(session, name), group_type=SHARE)
        else:
            continue
        if (not states or row.group_state.lower() in states) and (not types or row.group_type in types):
            rows.append(row)
    request.answer(ListGroupsResponse, throttle_time_ms=0, error_code=NONE, groups=rows)


def list_group(session: KafkaSession, name: str) -> Row:
    """A group is of the protocol that its members follow, or followed last."""
    assigned, tenant = session.kernel.assigned, session.principal.tenant
    consumers = assigned.describe_consumers(name, tenant)
    if consumers is not None:
        return Row(group_id=name, protocol_type=CONSUMER, group_state=consumers.state.value, group_type=CONSUMER)
    group = assigned.describe(name, tenant) or NOBODY
    return Row(group_id=name, protocol_type=group.protocol_type, group_state=group.state.value, group_type=CLASSIC)


# ---- DeleteGroups

class Deletion:
    """One request until every group of it is gone for good."""

    __slots__ = ("request", "rows", "pending")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.rows: list[Row] = []
        self.pending = 1             # groups without an answer; one more while the request is gone through

    def delete(self, name: str) -> None:
        session, tenant = self.request.session, self.request.session.principal.tenant
        row = Row(group_id=name, error_code=NONE)
        self.rows.append(row)
        try:
            check_name(name, "group")
            require_group(session, Operation.ALTER, name)
            if share_members(session, name) is not None:
                raise Refused(NON_EMPTY_GROUP, f"Group {name} has members.")
            session.kernel.groups.delete(name, tenant, session, GoneGroup(self, row))
        except (KernelError, Refused) as refusal:
            row.error_code = code_of_refusal(refusal)
        else:
            self.pending += 1

    def settle(self) -> None:
        self.pending -= 1
        if not self.pending:
            self.request.answer(DeleteGroupsResponse, throttle_time_ms=0, results=self.rows)


class GoneGroup:
    """Waits for one group."""

    __slots__ = ("deletion", "row")

    def __init__(self, deletion: Deletion, row: Row) -> None:
        self.deletion = deletion
        self.row = row

    def on_stored(self, stored: Stored) -> None:
        if stored.error is not None:
            self.row.error_code = coordinator_code_of(stored.error)
        else:
            self.deletion.request.session.audit("group.deleted", {"group": self.row.group_id})
        self.deletion.settle()


def delete_groups(request: Request) -> Iterator[None]:
    deletion = Deletion(request)
    for name in dict.fromkeys(request.decode(DeleteGroupsRequest).groups_names):
        deletion.delete(name)
        yield
    deletion.settle()


# ---- OffsetDelete

class OffsetDeletion:
    """One request: the rows of its answer, and the partitions whose offsets go."""

    __slots__ = ("request", "rows", "deleted", "partition_ids")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.rows: list[Row] = []            # of topics
        self.deleted: list[Row] = []         # of partitions that wait for the disk
        self.partition_ids: list[int] = []

    def add(self, asked: Any, is_read: Callable[[str], bool]) -> Iterator[None]:
        """A topic's partitions; what is wrong with one of them stands in its row."""
        rows = [Row(partition_index=partition.partition_index, error_code=NONE) for partition in asked.partitions]
        self.rows.append(Row(name=asked.name, partitions=rows))
        for row in rows:
            try:
                topic = find_topic(self.request.session, asked.name, Operation.CONSUME)
                if is_read(asked.name):
                    raise Refused(GROUP_SUBSCRIBED_TO_TOPIC, "members of the group read this topic")
                self.partition_ids.append(topic.partition_id(row.partition_index))
            except Refused as refusal:
                row.error_code = refusal.code
            except (KernelError, Denied) as refusal:
                row.error_code = coordinator_code_of(refusal)
            else:
                self.deleted.append(row)
            yield

    def store(self, name: str) -> None:
        session = self.request.session
        try:
            session.kernel.assigned.delete_offsets(name, self.partition_ids, session, self, session.principal.tenant)
        except KernelError as refusal:
            self.answer(coordinator_code_of(refusal))

    def on_stored(self, stored: Stored) -> None:
        if stored.error is not None:
            for row in self.deleted:
                row.error_code = coordinator_code_of(stored.error)
        self.answer(NONE)

    def answer(self, code: int) -> None:
        self.request.answer(OffsetDeleteResponse, throttle_time_ms=0, error_code=code,
                            topics=self.rows if code == NONE else [])


def readers_of(session: KafkaSession, name: str) -> Callable[[str], bool]:
    """Whether members of the group read a topic. Raises Refused where there is no such group, or nobody knows."""
    consumers = session.kernel.assigned.describe_consumers(name, session.principal.tenant)
    if consumers is not None and consumers.members:
        wanted = {topic for member in consumers.members for topic in member.topics | member.matched}
        return wanted.__contains__
    group = find_group(session, name)
    if group is None:
        raise Refused(GROUP_ID_NOT_FOUND, f"Group {name} not found.")
    if group.members and group.protocol_type != CONSUMER:
        raise Refused(NON_EMPTY_GROUP, "the group has members, and nobody knows what they read")
    wanted = set()
    for member in group.members:
        topics = subscribed_topics(member.metadata)
        if topics is None:               # one that is not understood may read any
            return lambda topic: True
        wanted.update(topics)
    return wanted.__contains__


def delete_offsets(request: Request) -> Iterator[None]:
    asked = request.decode(OffsetDeleteRequest)
    deletion = OffsetDeletion(request)
    try:
        require_group(request.session, Operation.ALTER, asked.group_id)
        request.session.kernel.groups.require_commits(asked.group_id, request.session.principal.tenant)
        is_read = readers_of(request.session, asked.group_id)
    except (KernelError, Refused) as refusal:
        deletion.answer(code_of_refusal(refusal))
        return
    for topic in asked.topics:
        yield from deletion.add(topic, is_read)
    deletion.store(asked.group_id)


DESCRIBE_GROUPS = Api(key=15, name="DescribeGroups", first_version=0, last_version=6, first_flexible=5,
                      dispatch=describe, shows=True, message=DescribeGroupsRequest)
LIST_GROUPS = Api(key=16, name="ListGroups", first_version=0, last_version=5, first_flexible=3, dispatch=list_groups,
                  shows=True, message=ListGroupsRequest)
DELETE_GROUPS = Api(key=42, name="DeleteGroups", first_version=0, last_version=2, first_flexible=2,
                    dispatch=delete_groups, message=DeleteGroupsRequest)
OFFSET_DELETE = Api(key=47, name="OffsetDelete", first_version=0, last_version=0, first_flexible=1,
                    dispatch=delete_offsets, message=OffsetDeleteRequest)
