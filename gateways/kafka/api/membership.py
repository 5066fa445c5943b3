"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: listed, so that clients ask, and refused, so that they say so.

The hub assigns no partitions yet. librdkafka waits in silence for ever where these APIs are not listed; told
UNSUPPORTED_VERSION when it joins, it raises that to its application, as other clients do. Nobody is a member, so
whoever claims to be one is answered UNKNOWN_MEMBER_ID.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from gatehouse.gateways.kafka.error_codes import GROUP_AUTHORIZATION_FAILED, UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION
from gatehouse.gateways.kafka.request import Api, Request


def refusing(asks: Any, answers: Any, code: int, **fields: Any) -> Callable[[Request], None]:
    """What answers a request of this kind: with this code, or that the client may not consume with the group."""
    def dispatch(request: Request) -> None:
        group = request.decode(asks).group_id
        may = request.session.admission.may_group(request.session.principal, Operation.CONSUME, group)
        request.answer(answers, throttle_time_ms=0, error_code=code if may else GROUP_AUTHORIZATION_FAILED, **fields)

    return dispatch


JOIN_GROUP = Api(key=11, name="JoinGroup", first_version=0, last_version=9, first_flexible=6, dispatch=refusing(
    JoinGroupRequest, JoinGroupResponse, UNSUPPORTED_VERSION, generation_id=-1, protocol_type=None, protocol_name="",
    leader="", skip_assignment=False, member_id="", members=[]))
HEARTBEAT = Api(key=12, name="Heartbeat", first_version=0, last_version=4, first_flexible=4, dispatch=refusing(
    HeartbeatRequest, HeartbeatResponse, UNKNOWN_MEMBER_ID))
LEAVE_GROUP = Api(key=13, name="LeaveGroup", first_version=0, last_version=5, first_flexible=4, dispatch=refusing(
    LeaveGroupRequest, LeaveGroupResponse, UNKNOWN_MEMBER_ID, members=[]))
SYNC_GROUP = Api(key=14, name="SyncGroup", first_version=0, last_version=5, first_flexible=4, dispatch=refusing(
    SyncGroupRequest, SyncGroupResponse, UNKNOWN_MEMBER_ID, protocol_type=None, protocol_name=None, assignment=b""))
