"""Assigned groups with members: found by name, written down, told what time it is.

    a door's request ─► ClassicGroup ─► answers now
                                    └─► a MEMBERS record in the pending frame ─► durable ─► the answers that waited

One record holds a group whole: generation, members with what they said, assignment. So after a crash members go on with
the generation that they are in. Its name is a group's definition like any other.
"""
from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import UUID

from gatehouse.kernel.assigned.assigned_values import (
    Assigned,
    Beat,
    ConsumerRules,
    DescribedConsumers,
    DescribedGroup,
    GroupLook,
    GroupRules,
    GroupState,
    Joined,
    Joining,
    MemberLook,
)
from gatehouse.kernel.assigned.classic_group import Answer, ClassicGroup, GroupMember
from gatehouse.kernel.assigned.consumer_group import ConsumerGroup
from gatehouse.kernel.assigned.consumer_groups import ConsumerGroups, MayRead, OnBeaten, classic_of, consumers_of
from gatehouse.kernel.assigned.consumer_protocol import PROTOCOL_TYPE, read_assignment
from gatehouse.kernel.assigned.named_groups import ForgetOffsets, GroupEntry, GroupNames, GroupTable, PutState, answered
from gatehouse.kernel.errors import (
    GroupFull,
    InconsistentProtocol,
    InvalidGroup,
    KernelError,
    Stopping,
    UnknownGroup,
    UnknownMember,
)
from gatehouse.kernel.groups.definitions import Definitions, LiveGroups
from gatehouse.kernel.groups.group_settings import GroupSettings, check_name, named_key, split_key
from gatehouse.kernel.ids import Identity
from gatehouse.kernel.message import Owner, StateRecord, Stored
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.receipts import Receipts
from gatehouse.kernel.state.state import Kind, StateTable, offset_record
from gatehouse.kernel.state.topics import Topic, Topics

MAX_BYTES: Final = 64 << 20
"""What the members of all groups say and are told."""

MAX_GROUP_BYTES: Final = 2 << 20
"""Of one group: it is one record, which is written whole, and one answer to its leader."""

MAX_PROTOCOLS: Final = 100
"""That one member knows."""

MAX_INSTANCE_BYTES: Final = 255
"""Of an instance id."""

MAX_CLIENT_ID: Final = 100
"""Characters of a client's name for itself that its member id begins with."""

OnJoined = Callable[["Joined | KernelError"], None]
OnAssigned = Callable[["Assigned | KernelError"], None]


class _Writing(NamedTuple):
    """A record on its way: of which generation, and who waits for it."""

    entry: _Entry
    generation: int
    held: list[tuple[object, Answer]]


class _Entry(GroupEntry):
    """A classic group under its name."""

    __slots__ = ("group", "is_stored")

    def __init__(self, tenant: str, name: str) -> None:
        super().__init__(tenant, name)
        self.group = ClassicGroup()
        self.is_stored = False                 # there is a record of it


class AssignedGroups(GroupTable[_Entry]):
    """All assigned groups, as doors ask for them: those of the classic protocol, and beside them, under the same names,
    those of the consumer protocol. `open` before use. `live` learns which groups have members; `has_offsets` says
    whether a group has committed any."""

    def __init__(self, *, loop: Loop, state: StateTable, topics: Topics, definitions: Definitions[GroupSettings],
                 live: LiveGroups, put_state: PutState, has_offsets: Callable[[str, str], bool], identity: Identity,
                 on_error: Callable[[Exception], None], receipts: Receipts | None = None,
                 forget_offsets: ForgetOffsets | None = None) -> None:
        """`forget_offsets` is told of a group, by tenant and name, and the partitions in which its offsets are
        deleted."""
        names = GroupNames(definitions, live, put_state, has_offsets)
        super().__init__(loop, names, put_state, on_error)
        self._state = state
        self._receipts = receipts
        self._forget_offsets = forget_offsets
        self._consumers = ConsumerGroups(loop=loop, state=state, topics=topics, names=names, put_state=put_state,
                                         give_back=self._take_back, on_error=on_error)
        self._numbers = 0
        self._identity = identity
        self._member_ids = b""                 # what signs them, from this start on

    # ---- opening and closing

    def open(self) -> None:
        """Load the groups that are stored: their members have a session's time to be heard of."""
        self._member_ids = blake2b(self._identity.epoch.to_bytes(8, "big"), key=self._identity.secret,
                                   person=b"member ids", digest_size=32).digest()
        now_ms = self._loop.now_ms()
        for key, value in list(self._state.scan(Kind.MEMBERS)):
            entry = _Entry(*split_key(key))
            entry.is_ours = restore_members(entry.group, value, now_ms)
            entry.is_stored = True
            self._entries[entry.tenant, entry.name] = entry
            self._settle(entry)
        self._consumers.open()

    def stop(self) -> None:
        """Who waits is told that the hub stops; groups stay as they are stored."""
        self._stop()
        self._consumers.stop()
        for entry in self._entries.values():
            entry.group.end(Stopping("the hub is stopping"))
            self._tell(entry.group.take().answers)

    # ---- what members ask for

    def join(self, name: str, joining: Joining, rules: GroupRules, on_done: OnJoined, tenant: str = "/") -> None:
        """Join a group, which is made where it is missing; `on_done` is told when its next generation begins.

        Raises InvalidGroup, GroupIsLeased, GroupFull, InconsistentProtocol, MemberIdRequired, UnknownMember,
        FencedMember, Stopping.
        """
        self._require_running()
        check_name(name, "group")
        entry = self._entries.get((tenant, name))
        if len(joining.protocols) > MAX_PROTOCOLS:
            raise InconsistentProtocol(f"a member knows at most {MAX_PROTOCOLS} protocols")
        if len((joining.instance_id or "").encode()) > MAX_INSTANCE_BYTES:
            raise InvalidGroup(f"an instance id has at most {MAX_INSTANCE_BYTES} bytes")
        self._require_room(0 if entry is None else entry.size_bytes, joining.said_bytes)
        self._names.require_not_leased(tenant, name)
        if self._consumers.has_members(tenant, name):
            self._consumers.join(tenant, name, joining, rules, self._new_member_id(joining), on_done)
            return
        if entry is None:
            if joining.member_id:
                raise UnknownMember(f"there is no group {name!r} with members")
            self._make_room()
            self._consumers.forget_unused(tenant, name)
            entry = self._entries[tenant, name] = _Entry(tenant, name)
        self._claim(entry)
        try:
            entry.group.join(self._loop.now_ms(), joining, rules, self._new_member_id(joining), on_done)
        finally:
            self._settle(entry)

    def sync(self, name: str, member_id: str, instance_id: str | None, generation: int,
             protocol: tuple[str | None, str | None], assignments: dict[str, bytes], on_done: OnAssigned,
             tenant: str = "/") -> None:
        """Ask for a member's part of the assignment; the leader brings it along. `protocol` is its type and name, as
        far as the member says them. `on_done` is told when the assignment is durable.

        Raises UnknownMember, FencedMember, StaleGeneration, InconsistentProtocol, Rebalancing, GroupIsLeased,
        GroupFull, Stopping.
        """
        if self._consumers.has_members(tenant, name):
            self._consumers.sync(tenant, name, member_id, instance_id, generation, on_done)
            return
        entry = self._require_entry(tenant, name)
        self._claim(entry)
        self._require_room(entry.size_bytes, sum(map(len, assignments.values())))
        try:
            entry.group.sync(self._loop.now_ms(), member_id, instance_id, generation, protocol, assignments, on_done)
        finally:
            self._settle(entry)

    def heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int, tenant: str = "/") -> None:
        """Say that a member is there. Raises UnknownMember, FencedMember, StaleGeneration, Rebalancing, Stopping."""
        consumers = self._consumers.group(tenant, name)
        if consumers is not None and consumers.members:
            self._require_running()
            consumers.heartbeat(self._loop.now_ms(), member_id, instance_id, generation)
            return
        self._require_entry(tenant, name).group.heartbeat(self._loop.now_ms(), member_id, instance_id, generation)

    def leave(self, name: str, leaving: list[tuple[str, str | None]], tenant: str = "/") -> list[KernelError | None]:
        """Take members, (member id, instance id) each, out of a group; says for each why it is none. Raises
        InvalidGroup, Stopping."""
        if self._consumers.has_members(tenant, name):
            self._require_running()
            return self._consumers.leave_classic(tenant, name, leaving)
        try:
            entry = self._require_entry(tenant, name)
        except UnknownMember as refusal:
            return [refusal] * len(leaving)
        try:
            return entry.group.leave(self._loop.now_ms(), leaving)
        finally:
            self._settle(entry)

    def require_member(self, name: str, member_id: str, epoch: int = -1, tenant: str = "/") -> None:
        """Raises UnknownMember where the group has no member of this id, StaleEpoch where that is in another `epoch`,
        Stopping."""
        consumers = self._consumers.group(tenant, name)
        if consumers is not None and consumers.members:
            consumers.require_epoch(member_id, epoch)
            return
        if member_id not in self._require_entry(tenant, name).group.members:
            raise UnknownMember(f"the group {name!r} has no member {member_id!r}")

    # ---- members of consumer groups

    def beat(self, name: str, beat: Beat, rules: ConsumerRules, may_read: MayRead, on_done: OnBeaten,
             tenant: str = "/", rights: object = None) -> None:
        """Join a consumer group, which is made where it is missing, or be there still. `on_done` is told the member's
        epoch and what it may have, once that is durable. `may_read` says of which topics a pattern may find the names,
        and says the same for the same `rights`.

        Raises InvalidGroup, GroupIsLeased, UnknownGroup, UnknownMember, FencedMember, FencedEpoch, InstanceTaken,
        GroupFull, UnknownAssignor, InvalidPattern, InconsistentProtocol, Stopping.
        """
        entry = self._entries.get((tenant, name))
        if entry is not None and beat.epoch == 0:
            if entry.group.members:
                self._consumers.check(tenant, name, beat, may_read, 0)
                self._convert(entry, rules)
            else:
                self._forget(entry)
        self._consumers.beat(tenant, name, beat, rules, may_read, on_done, rights)

    # decision 185: live conversion
    def _convert(self, entry: _Entry, rules: ConsumerRules) -> None:
        """The group's members are members of a consumer group from now on."""
        tenant, name = entry.tenant, entry.name
        if len(entry.group.members) >= rules.max_members:
            raise GroupFull(f"the group has {rules.max_members} members, as many as may be")
        group = consumers_of(entry.group, self._loop.now_ms(),
                             lambda parts: self._consumers.partition_ids(tenant, parts))
        entry.group.interrupt()
        self._tell(entry.group.take().answers)
        if entry.is_stored:
            self._put_state([StateRecord(Kind.MEMBERS, named_key(tenant, name), None)], None, None)
        self._drop(entry)
        self._consumers.adopt(tenant, name, group, entry.is_ours)

    def _take_back(self, tenant: str, name: str, group: ConsumerGroup, is_ours: bool) -> None:
        """All members of a consumer group follow the classic protocol."""
        entry = self._entries[tenant, name] = _Entry(tenant, name)
        entry.is_ours = is_ours
        entry.group = classic_of(group, self._loop.now_ms(), lambda partition_ids: [
            (topic.name, numbers) for topic, numbers in self.topics_of(partition_ids)])
        self._write(entry, [])
        self._settle(entry)

    def leave_consumers(self, name: str, beat: Beat, on_done: OnBeaten, tenant: str = "/") -> None:
        """Be no member of a consumer group any more, or for a while. Raises UnknownGroup, UnknownMember, FencedMember,
        InvalidGroup, Stopping."""
        self._consumers.leave(tenant, name, beat, on_done)

    def describe_consumers(self, name: str, tenant: str = "/") -> DescribedConsumers | None:
        """None where no member of the consumer protocol was in the group for a while."""
        return self._consumers.describe(tenant, name)

    def topics_of(self, partition_ids: Iterable[int]) -> list[tuple[Topic, list[int]]]:
        """The partitions by topic, with their numbers in it; without those of topics that are gone."""
        return self._consumers.topics_of(partition_ids)

    # ---- offsets

    def commit_offsets(self, name: str, offsets: Mapping[int, tuple[int, bytes] | None], owner: Owner | None,
                       token: object, member_id: str = "", instance_id: str | None = None, generation: int = -1,
                       tenant: str = "/") -> None:
        """Per partition id the group's next offset and some bytes of its own (at most 4096), None forgets them; for a
        member, or without a generation for somebody who assigns for itself. Of no offsets only whether they might be
        committed.

        Raises InvalidGroup, GroupIsLeased, UnknownGroup, UnknownMember, FencedMember, StaleGeneration, StaleEpoch,
        Rebalancing, Stopping.
        """
        check_name(name, "group")
        is_there = self._names.is_there(tenant, name)
        entry, consumers = self._entries.get((tenant, name)), self._consumers.group(tenant, name)
        if consumers is not None and consumers.members:
            consumers.require_commit(member_id, instance_id, generation)
        elif entry is not None:
            entry.group.require_commit(self._loop.now_ms(), member_id, instance_id, generation)
        elif generation >= 0 and not is_there and consumers is None:
            raise UnknownGroup(f"there is no group {name!r}")
        elif generation >= 0:
            raise UnknownMember(f"the group {name!r} has no members")
        if offsets:
            self._tell_senders(name, offsets)
            self._put_state([offset_record(name, partition_id, offset) for partition_id, offset in offsets.items()],
                            owner, token)

    def _tell_senders(self, name: str, offsets: Mapping[int, tuple[int, bytes] | None]) -> None:
        """Of what the group has read, in the frame of its offsets. Raises Stopping."""
        if self._receipts is not None and self._receipts.waiting:
            for partition_id, offset in offsets.items():
                if offset is not None:
                    self._receipts.on_committed(name, partition_id, offset[0])

    def delete_offsets(self, name: str, partition_ids: Iterable[int], owner: Owner | None, token: object,
                       tenant: str = "/") -> None:
        """Forget what the group has committed there: of partitions that no member reads, which its door knows.

        Raises InvalidGroup, GroupIsLeased, Stopping.
        """
        check_name(name, "group")
        self._names.require_not_leased(tenant, name)
        partition_ids = list(partition_ids)
        if self._forget_offsets is not None:
            self._forget_offsets(tenant, name, partition_ids)
        self._put_state([offset_record(name, partition_id, None) for partition_id in partition_ids], owner, token)

    # ---- what anybody may ask

    def describe(self, name: str, tenant: str = "/") -> DescribedGroup | None:
        """None where the group has had no members for a while."""
        entry = self._entries.get((tenant, name))
        return None if entry is None else entry.group.describe()

    def look(self, name: str, tenant: str = "/") -> GroupLook | None:
        """A group of either protocol as people are shown it; None where it has had no members for a while."""
        consumers = self._consumers.describe(tenant, name)
        if consumers is not None:
            return GroupLook(consumers.state, "consumer", consumers.assignor, consumers.epoch, tuple(
                MemberLook(member.member_id, member.instance_id, member.client_id, member.client_host, member.epoch,
                           member.assigned) for member in consumers.members))
        entry = self._entries.get((tenant, name))
        if entry is None:
            return None
        group = entry.group.describe()
        is_read = group.protocol_type == PROTOCOL_TYPE and group.state is GroupState.STABLE
        return GroupLook(group.state, "classic", group.protocol, entry.group.generation, tuple(
            MemberLook(member.member_id, member.instance_id, member.client_id, member.client_host,
                       entry.group.generation, self._consumers.partition_ids(
                           tenant, read_assignment(member.assignment) if is_read else []))
            for member in group.members))

    # ---- names

    def _claim(self, entry: _Entry) -> None:
        """The name is an assigned group's from now on. Raises GroupIsLeased, Stopping."""
        if self._names.claim(entry.tenant, entry.name):
            entry.is_ours = True

    def _require_entry(self, tenant: str, name: str) -> _Entry:
        self._require_running()
        entry = self._entries.get((tenant, name))
        if entry is None:
            check_name(name, "group")
            raise UnknownMember(f"there is no group {name!r} with members")
        return entry

    def _new_member_id(self, joining: Joining) -> str:
        """One that nobody had before, in this start of the hub or another, and that nobody can guess."""
        self._numbers += 1
        digest = blake2b(self._numbers.to_bytes(8, "big"), key=self._member_ids, digest_size=16).digest()
        return f"{(joining.instance_id or joining.client_id)[:MAX_CLIENT_ID]}-{UUID(bytes=digest)}"

    def _require_room(self, group_bytes: int, more_bytes: int) -> None:
        if group_bytes + more_bytes > MAX_GROUP_BYTES or self._size_bytes + more_bytes > MAX_BYTES:
            raise GroupFull("what members say and are told is more than may be kept")

    # ---- what became of a call

    def _settle(self, entry: _Entry) -> None:
        """Write down what is to be written, tell who is to be told, and see to it that time goes on."""
        group = entry.group
        effects = group.take()
        self._names.note(entry.tenant, entry.name,
                         bool(group.members) or self._consumers.has_members(entry.tenant, entry.name))
        self._note(entry, group.size_bytes, group.is_unused)
        if effects.store:
            self._write(entry, effects.held)
        self._look_next(entry, group.next_ms())
        self._tell(effects.answers)

    # decision 158: before any member hears its part
    def _write(self, entry: _Entry, held: list[tuple[object, Answer]]) -> None:
        writing = _Writing(entry, entry.group.generation, held)
        record = StateRecord(Kind.MEMBERS, named_key(entry.tenant, entry.name),
                             encode_members(entry.group, entry.is_ours))
        try:
            self._put_state([record], self, writing)
        except Stopping as refusal:
            self._written(writing, refusal)
        else:
            entry.is_stored = True

    def on_stored(self, stored: list[Stored]) -> None:
        """Records are durable, or were refused."""
        for writing, error in answered(stored):
            assert isinstance(writing, _Writing)
            self._written(writing, error)
            if self._entries.get((writing.entry.tenant, writing.entry.name)) is writing.entry:
                self._settle(writing.entry)

    def _written(self, writing: _Writing, error: KernelError | None) -> None:
        writing.entry.group.stored(self._loop.now_ms(), writing.generation, error)
        self._tell([(waiting, answer if error is None else error) for waiting, answer in writing.held])

    def _forget(self, entry: _Entry) -> None:
        """The group has had no members for long. Its definition goes where it is still the one that was made for them,
        and nothing was committed under it."""
        records = [StateRecord(Kind.MEMBERS, named_key(entry.tenant, entry.name), None)] if entry.is_stored else []
        if entry.is_ours:
            records += self._names.disclaim(entry.tenant, entry.name)
        if records:
            self._put_state(records, None, None)
        self._drop(entry)
        entry.group.end(UnknownMember("the group is forgotten"))

    def _go_on(self, entry: _Entry, now_ms: int) -> None:
        entry.group.on_time(now_ms)
        self._settle(entry)


def encode_members(group: ClassicGroup, is_ours: bool) -> bytes:
    """The value of a MEMBERS record."""
    return json.dumps({
        "ours": is_ours, "anew": group.state is GroupState.PREPARING, "generation": group.generation,
        "protocol_type": group.protocol_type, "protocol": group.protocol, "leader": group.leader, "members": [{
            "id": member.id, "instance_id": member.instance_id, "client_id": member.joining.client_id,
            "client_host": member.joining.client_host, "session_ms": member.joining.session_ms,
            "rebalance_ms": member.joining.rebalance_ms, "assignment": b64encode(member.assignment).decode(),
            "protocols": [(name, b64encode(metadata).decode()) for name, metadata in member.joining.protocols],
        } for member in group.members.values()]}).encode()


def restore_members(group: ClassicGroup, value: bytes, now_ms: int) -> bool:
    """Make a new group what a MEMBERS record says; whether its definition was made for its first member."""
    read = json.loads(value)
    members = []
    for row in read["members"]:
        joining = Joining(
            read["protocol_type"], tuple((name, b64decode(metadata)) for name, metadata in row["protocols"]), row["id"],
            row["instance_id"], row["client_id"], row["client_host"], row["session_ms"], row["rebalance_ms"])
        member = GroupMember(row["id"], joining)
        member.assignment = b64decode(row["assignment"])
        members.append(member)
    group.restore(now_ms, read["generation"], read["protocol_type"], read["protocol"], read["leader"], members)
    if read.get("anew"):               # what somebody had who is in the group no more is nobody's yet
        group.share_out_anew(now_ms)
    return bool(read["ours"])
