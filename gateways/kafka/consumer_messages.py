"""ConsumerGroupHeartbeat and ConsumerGroupDescribe as schemas, which kafka-python has not: fields, and since when.

    ("Name", type, first version)      null may stand where the type ends in "?"; a list of fields is a struct

Source: https://kafka.apache.org/protocol#protocol_api_keys (68, 69), KIP-848. They are walked and written by the same
code as kafka-python's own, see `cold`.
"""
from __future__ import annotations

from typing import Any, Final

from kafka.protocol.schemas import StructField

from gatehouse.gateways.kafka.cold import Row

Field = tuple[str, "str | tuple[str, list[Any]]", int]


def _json(name: str, kind: str | tuple[str, list[Any]], first: int) -> dict[str, Any]:
    versions = f"{first}+"
    typed, fields = (kind, None) if isinstance(kind, str) else kind
    may_be_null = {"nullableVersions": versions, "default": "null"} if typed.endswith("?") else {}
    inside = {} if fields is None else {"fields": [_json(*field) for field in fields]}
    return {"name": name, "type": typed.rstrip("?"), "versions": versions, **may_be_null, **inside}


class Message:
    """A request or an answer by its schema, with what `cold` asks of kafka-python's classes."""

    def __init__(self, name: str, last_version: int, fields: list[Field]) -> None:
        self.name = name
        versions = f"0-{last_version}"
        self._struct = StructField({"name": name, "type": name, "versions": versions,
                                    "fields": [_json(*field) for field in fields]})

    def flexible_version_q(self, version: int) -> bool:
        return True

    def __call__(self, version: int, **fields: Any) -> Encoding:
        return Encoding(self._struct, Row(**fields))


class Encoding:
    def __init__(self, schema: Any, row: Row) -> None:
        self._schema = schema
        self._row = row

    def encode(self, version: int) -> bytes:
        return bytes(self._schema.encode(self._row, version=version, compact=True, tagged=True))


_BY_ID: Final[list[Field]] = [("TopicId", "uuid", 0), ("Partitions", "[]int32", 0)]
_BY_NAME: Final[list[Field]] = [("TopicId", "uuid", 0), ("TopicName", "string", 0), ("Partitions", "[]int32", 0)]
_ASSIGNMENT: Final = ("Assignment", [("TopicPartitions", ("[]TopicPartitions", _BY_NAME), 0)])

CONSUMER_GROUP_HEARTBEAT_REQUEST: Final = Message("ConsumerGroupHeartbeatRequest", 1, [
    ("GroupId", "string", 0), ("MemberId", "string", 0), ("MemberEpoch", "int32", 0), ("InstanceId", "string?", 0),
    ("RackId", "string?", 0), ("RebalanceTimeoutMs", "int32", 0), ("SubscribedTopicNames", "[]string?", 0),
    ("SubscribedTopicRegex", "string?", 1), ("ServerAssignor", "string?", 0),
    ("TopicPartitions", ("[]TopicPartitions?", _BY_ID), 0)])

CONSUMER_GROUP_HEARTBEAT_RESPONSE: Final = Message("ConsumerGroupHeartbeatResponse", 1, [
    ("ThrottleTimeMs", "int32", 0), ("ErrorCode", "int16", 0), ("ErrorMessage", "string?", 0),
    ("MemberId", "string?", 0), ("MemberEpoch", "int32", 0), ("HeartbeatIntervalMs", "int32", 0),
    ("Assignment", ("Assignment?", [("TopicPartitions", ("[]TopicPartitions", _BY_ID), 0)]), 0)])

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
