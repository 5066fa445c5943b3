"""JoinGroup 0 to 9, SyncGroup 0 to 5, Heartbeat 0 to 4, LeaveGroup 0 to 5: the members of consumer groups.

What the members of a group say to each other (subscriptions, assignments) is for them alone: bytes here. A join waits
for the group's next generation, a sync for the assignment; meanwhile what the same connection asks behind it waits,
as with Kafka: clients have a connection of its own for this. A connection that ends does not end its member: silence
does, after the member's session time-out.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    NONE,
)
from gatehouse.gateways.kafka.mapping import Refused, coordinator_code_of
from gatehouse.gateways.kafka.request import Api, Request
from gatehouse.kernel.assigned.assigned_values import Assigned, GroupRules, Joined, Joining
from gatehouse.kernel.errors import KernelError, MemberIdRequired, Stopping

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession


FIRST_COMES_AGAIN: Final = 4     # JoinGroup: a new client is given its member id and joins with it (KIP-394)
FIRST_NULL_PROTOCOL: Final = 7   # JoinGroup: there may be no protocol
FIRST_SKIPS: Final = 9           # JoinGroup: a leader may be told to assign nothing (KIP-814)
FIRST_SAYS_PROTOCOL: Final = 5   # SyncGroup: a member says which protocol it follows (KIP-559)
FIRST_LEAVES_MANY: Final = 3     # LeaveGroup: several members at once
NO_GENERATION: Final = -1


def require_group(session: KafkaSession, operation: Operation, name: str) -> None:
    """Raises Refused where the client may not do this with the group."""
    if not session.admission.may_group(session.principal, operation, name):
        raise Refused(GROUP_AUTHORIZATION_FAILED, f"{session.principal.name} may not {operation.value} with {name!r}")


def code_of_refusal(refusal: Exception) -> int:
    return refusal.code if isinstance(refusal, Refused) else coordinator_code_of(refusal)


class Deferred(ABC):
    """A request that its group answers later, unless the client or the hub goes before."""

    __slots__ = ("request", "ended")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.ended = False
        request.on_end = self.end
        request.on_stopping = partial(self.on_answer, Stopping("the hub is stopping"))

    def end(self) -> None:
        self.ended = True

    def on_answer(self, answer: Any) -> None:
        """What the group says: a value, or a KernelError."""
        if not self.ended:
            self.ended = True
            if isinstance(answer, KernelError):
                self.refuse(answer)
            else:
                self.accept(answer)

    @abstractmethod
    def accept(self, answer: Any) -> None: ...

    @abstractmethod
    def refuse(self, refusal: Exception) -> None: ...


# ---- JoinGroup

class Join(Deferred):
    """A JoinGroup until the group has its next generation."""

    __slots__ = ("member_id",)

    def __init__(self, request: Request, member_id: str) -> None:
        super().__init__(request)
        self.member_id = member_id

    def accept(self, answer: Joined) -> None:
        self.request.answer(
            JoinGroupResponse, throttle_time_ms=0, error_code=NONE, generation_id=answer.generation,
            protocol_type=answer.protocol_type, protocol_name=answer.protocol, leader=answer.leader,
            skip_assignment=answer.skip_assignment, member_id=answer.member_id,
            members=[Row(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
                     for member_id, instance_id, metadata in answer.members])

    def refuse(self, refusal: Exception) -> None:
        member_id = refusal.member_id if isinstance(refusal, MemberIdRequired) else self.member_id
        none = None if self.request.version >= FIRST_NULL_PROTOCOL else ""
        self.request.answer(
            JoinGroupResponse, throttle_time_ms=0, error_code=code_of_refusal(refusal), generation_id=NO_GENERATION,
            protocol_type=None, protocol_name=none, leader="", skip_assignment=False, member_id=member_id, members=[])


def joining_of(request: Request, asked: Any) -> Joining:
    """What the request says of a member. Raises Refused for a session time-out that is not offered."""
    session, session_ms = request.session, asked.session_timeout_ms
    config = session.config
    if not config.group_min_session_timeout_ms <= session_ms <= config.group_max_session_timeout_ms:
        raise Refused(INVALID_SESSION_TIMEOUT, f"a session time-out of {session_ms} ms is not offered here")
    return Joining(
        asked.protocol_type, tuple((protocol.name, protocol.metadata) for protocol in asked.protocols),
        asked.member_id, asked.group_instance_id, session.client_id, client_host(session), session_ms,
        asked.rebalance_timeout_ms if asked.rebalance_timeout_ms > 0 else session_ms,       # of 0 nobody can be in time
        request.version >= FIRST_COMES_AGAIN, request.version >= FIRST_SKIPS)


def client_host(session: KafkaSession) -> str:
    """A client's address as Kafka shows it."""
    return "/" + session.link.peer.rpartition(":")[0].strip("[]")


def join(request: Request) -> None:
    asked = request.decode(JoinGroupRequest)
    session, config = request.session, request.session.config
    waiting = Join(request, asked.member_id)
    try:
        require_group(session, Operation.CONSUME, asked.group_id)
        if not asked.group_id:
            raise Refused(INVALID_GROUP_ID, "a group has a name")
        session.kernel.assigned.join(asked.group_id, joining_of(request, asked), GroupRules(
            config.group_initial_rebalance_delay_ms, config.group_max_size), waiting.on_answer,
            session.principal.tenant)
    except (KernelError, Refused) as refusal:
        waiting.refuse(refusal)


# ---- SyncGroup

class Sync(Deferred):
    """A SyncGroup until the assignment is durable."""

    __slots__ = ()

    def accept(self, answer: Assigned) -> None:
        self.request.answer(SyncGroupResponse, throttle_time_ms=0, error_code=NONE, protocol_type=answer.protocol_type,
                            protocol_name=answer.protocol, assignment=answer.assignment)

    def refuse(self, refusal: Exception) -> None:
        self.request.answer(SyncGroupResponse, throttle_time_ms=0, error_code=code_of_refusal(refusal),
                            protocol_type=None, protocol_name=None, assignment=b"")


def sync(request: Request) -> None:
    asked = request.decode(SyncGroupRequest)
    session = request.session
    waiting = Sync(request)
    try:
        require_group(session, Operation.CONSUME, asked.group_id)
        if request.version >= FIRST_SAYS_PROTOCOL and None in (asked.protocol_type, asked.protocol_name):
            raise Refused(INCONSISTENT_GROUP_PROTOCOL, "a member says which protocol it follows")
        session.kernel.assigned.sync(
            asked.group_id, asked.member_id, asked.group_instance_id, asked.generation_id,
            (asked.protocol_type, asked.protocol_name),
            {row.member_id: row.assignment for row in asked.assignments}, waiting.on_answer,
            session.principal.tenant)
    except (KernelError, Refused) as refusal:
        waiting.refuse(refusal)


# ---- Heartbeat, LeaveGroup

def heartbeat(request: Request) -> None:
    asked = request.decode(HeartbeatRequest)
    session, code = request.session, NONE
    try:
        require_group(session, Operation.CONSUME, asked.group_id)
        session.kernel.assigned.heartbeat(asked.group_id, asked.member_id, asked.group_instance_id,
                                          asked.generation_id, session.principal.tenant)
    except (KernelError, Refused) as refusal:
        code = code_of_refusal(refusal)
    request.answer(HeartbeatResponse, throttle_time_ms=0, error_code=code)


def leave(request: Request) -> None:
    asked = request.decode(LeaveGroupRequest)
    session, code, rows = request.session, NONE, []
    many = request.version >= FIRST_LEAVES_MANY
    leaving: list[tuple[str, str | None]]
    leaving = [(row.member_id, row.group_instance_id) for row in asked.members] if many else [(asked.member_id, None)]
    try:
        require_group(session, Operation.CONSUME, asked.group_id)
        refusals = session.kernel.assigned.leave(asked.group_id, leaving, session.principal.tenant)
    except (KernelError, Refused) as refusal:
        code = code_of_refusal(refusal)
    else:
        codes = [NONE if refusal is None else coordinator_code_of(refusal) for refusal in refusals]
        rows = [Row(member_id=member_id, group_instance_id=instance_id, error_code=each)
                for (member_id, instance_id), each in zip(leaving, codes, strict=True)]
        code = NONE if many else codes[0]
    request.answer(LeaveGroupResponse, throttle_time_ms=0, error_code=code, members=rows)


JOIN_GROUP = Api(key=11, name="JoinGroup", first_version=0, last_version=9, first_flexible=6, dispatch=join,
                 message=JoinGroupRequest)
HEARTBEAT = Api(key=12, name="Heartbeat", first_version=0, last_version=4, first_flexible=4, dispatch=heartbeat,
                message=HeartbeatRequest)
LEAVE_GROUP = Api(key=13, name="LeaveGroup", first_version=0, last_version=5, first_flexible=4, dispatch=leave,
                  message=LeaveGroupRequest)
SYNC_GROUP = Api(key=14, name="SyncGroup", first_version=0, last_version=5, first_flexible=4, dispatch=sync,
                 message=SyncGroupRequest)
