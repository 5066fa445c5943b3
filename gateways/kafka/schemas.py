"""Requests and answers that kafka-python has no schemas of: fields, and since when. Pure.

    ("Name", type, first version)      null may stand where the type ends in "?"; a list of fields is a struct

They are walked and written by the same code as kafka-python's own, see `cold`. All are of Kafka's flexible versions.
"""
from __future__ import annotations

from typing import Any, Final

from kafka.protocol.schemas import StructField

from gatehouse.gateways.kafka.cold import Row

Field = tuple[str, "str | tuple[str, list[Any]]", int]

BY_ID: Final[list[Field]] = [("TopicId", "uuid", 0), ("Partitions", "[]int32", 0)]
BY_NAME: Final[list[Field]] = [("TopicId", "uuid", 0), ("TopicName", "string", 0), ("Partitions", "[]int32", 0)]
HEARTBEAT_RESPONSE: Final[list[Field]] = [
    ("ThrottleTimeMs", "int32", 0), ("ErrorCode", "int16", 0), ("ErrorMessage", "string?", 0),
    ("MemberId", "string?", 0), ("MemberEpoch", "int32", 0), ("HeartbeatIntervalMs", "int32", 0),
    ("Assignment", ("Assignment?", [("TopicPartitions", ("[]TopicPartitions", BY_ID), 0)]), 0)]
"""To a member of a group whose partitions the hub assigns, consumer or share."""


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
    """Such a message with its fields, ready to be written."""

    def __init__(self, schema: Any, row: Row) -> None:
        self._schema = schema
        self._row = row

    def encode(self, version: int) -> bytes:
        return bytes(self._schema.encode(self._row, version=version, compact=True, tagged=True))
