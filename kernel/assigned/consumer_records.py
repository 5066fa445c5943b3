"""Consumer groups as state records. Pure.

A group has one record, and each of its members one; what changes together is in one frame. Partition ids stand as runs,
(first, count): a member of a topic with ten thousand partitions takes one.
"""
from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Final, NamedTuple

from gatehouse.kernel.assigned.assigned_values import ClassicSide
from gatehouse.kernel.assigned.consumer_group import ConsumerGroup, ConsumerMember, Pace
from gatehouse.kernel.groups.group_settings import named_key, split_key
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.state.state import Kind

SIZE: Final = struct.Struct(">H")
SAME: Final = ("instance_id", "rack_id", "client_id", "client_host", "rebalance_ms", "pattern", "assignor", "epoch",
               "previous_epoch", "is_away")
"""Attributes of a member that stand as they are."""

NAMES: Final = ("topics", "matched")
PARTITIONS: Final = ("assigned", "revoking", "target")


class StoredGroup(NamedTuple):
    epoch: int
    target_epoch: int
    assignor: str
    topics_digest: bytes
    is_ours: bool


def group_record(tenant: str, name: str, group: ConsumerGroup | None, is_ours: bool = False) -> StateRecord:
    """None: it is forgotten."""
    value = None if group is None else json.dumps({
        "epoch": group.epoch, "target_epoch": group.target_epoch, "assignor": group.assignor,
        "topics": group.topics_digest.hex(), "ours": is_ours}).encode()
    return StateRecord(Kind.CONSUMER_GROUP, named_key(tenant, name), value)


def read_group(value: bytes) -> StoredGroup:
    read = json.loads(value)
    return StoredGroup(read["epoch"], read["target_epoch"], read["assignor"], bytes.fromhex(read["topics"]),
                       read["ours"])


def member_record(tenant: str, name: str, member_id: str, member: ConsumerMember | None) -> StateRecord:
    """None: it is a member no more."""
    group_key = named_key(tenant, name)
    key = SIZE.pack(len(group_key)) + group_key + member_id.encode()
    value = None if member is None else json.dumps({
        **{attribute: getattr(member, attribute) for attribute in SAME},
        **{attribute: sorted(getattr(member, attribute)) for attribute in NAMES},
        **{attribute: runs(getattr(member, attribute)) for attribute in PARTITIONS},
        "pace": member.pace.value,
        "classic": None if member.classic is None else [member.classic.session_ms, [
            (protocol, b64encode(metadata).decode()) for protocol, metadata in member.classic.protocols]]}).encode()
    return StateRecord(Kind.CONSUMER_MEMBER, key, value)


def read_member(key: bytes, value: bytes) -> tuple[str, str, ConsumerMember]:
    """(tenant, group's name, member)."""
    size, = SIZE.unpack_from(key)
    end = SIZE.size + size
    tenant, name = split_key(key[SIZE.size:end])
    read = json.loads(value)
    member = ConsumerMember(key[end:].decode())
    for attribute in SAME:
        setattr(member, attribute, read[attribute])
    for attribute in NAMES:
        setattr(member, attribute, frozenset(read[attribute]))
    for attribute in PARTITIONS:
        setattr(member, attribute, frozenset([each for first, count in read[attribute]
                                              for each in range(first, first + count)]))
    member.pace = Pace(read["pace"])
    if read["classic"] is not None:
        session_ms, protocols = read["classic"]
        member.classic = ClassicSide(tuple((protocol, b64decode(metadata)) for protocol, metadata in protocols),
                                     session_ms)
    return tenant, name, member


def runs(partition_ids: Iterable[int]) -> list[tuple[int, int]]:
    """(first, count) of each run of ids that follow each other."""
    joined: list[tuple[int, int]] = []
    for partition_id in sorted(partition_ids):
        if joined and partition_id == sum(joined[-1]):
            joined[-1] = (joined[-1][0], joined[-1][1] + 1)
        else:
            joined.append((partition_id, 1))
    return joined
