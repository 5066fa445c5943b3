"""Consumer groups as state records, and the names of all assigned groups.

A group has one record, and each of its members one; what changes together is in one frame. Partition ids stand as runs,
(first, count): a member of a topic with ten thousand partitions takes one.
"""
from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from gatehouse.kernel.assigned.assigned_values import ClassicSide
from gatehouse.kernel.assigned.consumer_group import ConsumerGroup, ConsumerMember, Pace
from gatehouse.kernel.errors import GroupIsLeased
from gatehouse.kernel.groups.definitions import Definitions, LiveGroups
from gatehouse.kernel.groups.group_settings import ASSIGNED, GroupSettings, named_key, split_key
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.message import Owner
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


# --- names of assigned groups -------------------------------------------------------------------------------------

OURS: Final = GroupSettings(kind=ASSIGNED)
"""The definition that a group gets from its first member."""

PutState = Callable[[list[StateRecord], "Owner | None", object], None]
"""Puts records into the pending frame. Raises Stopping."""


# decision 159: one table of names
class GroupNames:
    """Who has a name: whoever comes first, members or leases. And which groups have members, which `live` learns.
    `has_offsets` says whether a group has committed any."""

    def __init__(self, definitions: Definitions[GroupSettings], live: LiveGroups, put_state: PutState,
                 has_offsets: Callable[[str, str], bool]) -> None:
        self._definitions = definitions
        self._live = live
        self._put_state = put_state
        self._has_offsets = has_offsets

    def claim(self, tenant: str, name: str) -> bool:
        """The name is an assigned group's from now on; whether it is only now. Raises GroupIsLeased, Stopping."""
        if self.require_not_leased(tenant, name) is not None:
            return False
        self._put_state([self._definitions.put(tenant, name, OURS)], None, None)
        return True

    def disclaim(self, tenant: str, name: str) -> list[StateRecord]:
        """Records that forget the definition that was made for a group's first member, where it is still that one and
        nothing was committed under it."""
        if self._definitions.get(tenant, name) == OURS and not self._has_offsets(tenant, name):
            return [self._definitions.put(tenant, name, None)]
        return []

    def is_there(self, tenant: str, name: str) -> bool:
        """Whether the group is defined, or has committed. Raises GroupIsLeased."""
        return self.require_not_leased(tenant, name) is not None or self._has_offsets(tenant, name)

    def require_not_leased(self, tenant: str, name: str) -> GroupSettings | None:
        """The definition, if there is one. Raises GroupIsLeased."""
        settings = self._definitions.get(tenant, name)
        if settings is not None and settings.kind != ASSIGNED:
            raise GroupIsLeased(f"messages of group {name!r} are leased and acked; nobody is assigned its partitions")
        return settings

    def note(self, tenant: str, name: str, has_members: bool) -> None:
        """Whether a group has members now."""
        self._live.note(tenant, name, has_members)
