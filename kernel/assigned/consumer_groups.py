"""Consumer groups by name: written down, told what topics there are and what time it is. And how a group goes from the
classic protocol to the newer one, or back, while it has members.

    a member's heartbeat ─► ConsumerGroup ─► nothing has changed: the answer now
                                         └─► records of whatever has, in one frame ─► durable ─► the answer

An answer never overtakes what it tells of: while a frame of the group is on its way, later answers wait behind it.

A group has one state record, and each of its members one; what changes together is in one frame. Partition ids stand as
runs, (first, count): a member of a topic with ten thousand partitions takes one.
"""
from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from gatehouse.kernel.assigned.assigned_values import (
    Assigned,
    Beat,
    Beaten,
    ClassicSide,
    ConsumerRules,
    DescribedConsumers,
    GroupRules,
    GroupState,
    Joined,
    Joining,
)
from gatehouse.kernel.assigned.classic_group import ClassicGroup, GroupMember
from gatehouse.kernel.assigned.consumer_group import (
    JOINS,
    LEAVES_FOR_A_WHILE,
    Answer,
    Changes,
    ConsumerGroup,
    ConsumerMember,
    Pace,
    check_assignor,
)
from gatehouse.kernel.assigned.consumer_protocol import (
    PROTOCOL_TYPE,
    Parts,
    Subscription,
    encode_assignment,
    read_assignment,
    read_subscription,
)
from gatehouse.kernel.assigned.named_groups import GroupEntry, GroupNames, GroupTable, PutState, answered
from gatehouse.kernel.assigned.topic_patterns import TopicPattern
from gatehouse.kernel.errors import (
    FencedMember,
    GroupFull,
    InconsistentProtocol,
    KernelError,
    MemberIdRequired,
    Stopping,
    UnknownGroup,
    UnknownMember,
)
from gatehouse.kernel.groups.group_settings import check_name, named_key, split_key
from gatehouse.kernel.message import StateRecord, Stored
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.state.state import Kind, StateTable
from gatehouse.kernel.state.topics import Topic, Topics

MAX_BYTES: Final = 256 << 20
"""What the members of all groups say and have, by their own reckoning."""

MAX_GROUP_BYTES: Final = 64 << 20
"""Of one group: half a million partitions, about."""

MAX_MEMBER_ID_BYTES: Final = 255
MAX_TOPICS: Final = 10_000
"""That one member names."""

MAX_PATTERNS: Final = 64
"""That are kept compiled, with the names that they match."""

SIZE: Final = struct.Struct(">H")
SAME: Final = ("instance_id", "rack_id", "client_id", "client_host", "rebalance_ms", "pattern", "assignor", "epoch",
               "previous_epoch", "is_away")
"""Attributes of a member that stand as they are."""

NAMES: Final = ("topics", "matched")
PARTITIONS: Final = ("assigned", "revoking", "target")

OnJoined = Callable[["Joined | KernelError"], None]
OnAssigned = Callable[["Assigned | KernelError"], None]
OnBeaten = Callable[["Beaten | KernelError"], None]
MayRead = Callable[[str], bool]


NOTHING: Final = Beaten("", 0, 0, None)
"""An answer that only says that what was before it is durable."""


def ignore(answer: object) -> None:
    """An answer for which nobody waits."""


def understood(protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
               ) -> tuple[str | None, Subscription | None]:
    """The first protocol of a member that the hub can follow in its stead, and what the member subscribes to."""
    if protocol_type != PROTOCOL_TYPE:
        return None, None
    for protocol, metadata in protocols:
        subscription = read_subscription(metadata)
        if subscription is not None:
            return protocol, subscription
    return None, None


class _GroupWriting:
    """Records on their way, and who waits for them."""

    __slots__ = ("entry", "held", "members")

    def __init__(self, entry: _ConsumerEntry, held: list[tuple[object, Answer]], members: list[str]) -> None:
        self.entry = entry
        self.held = held
        self.members = members


class _ConsumerEntry(GroupEntry):
    """A consumer group under its name."""

    __slots__ = ("group", "versions", "promised", "writing")

    def __init__(self, tenant: str, name: str) -> None:
        super().__init__(tenant, name)
        self.group = ConsumerGroup()
        self.versions: dict[str, tuple[int, object]] = {}      # of the topics in which a member's pattern was looked
                                                     # up, and of the rights
        self.promised: dict[str, None] = {}          # ids that were given to who has yet to join with the old protocol
        self.writing: _GroupWriting | None = None    # the last one


class _Matches:
    """A pattern, and which names it was tried on."""

    __slots__ = ("pattern", "version", "names", "tried")

    def __init__(self, pattern: TopicPattern) -> None:
        self.pattern = pattern
        self.version = -1
        self.names: set[str] = set()
        self.tried: set[str] = set()


class ConsumerGroups(GroupTable[_ConsumerEntry]):
    """All consumer groups of a hub. `open` before use."""

    def __init__(self, *, loop: Loop, state: StateTable, topics: Topics, names: GroupNames, put_state: PutState,
                 give_back: Callable[[str, str, ConsumerGroup, bool], None], on_error: Callable[[Exception], None]
                 ) -> None:
        """`give_back` takes over a group, by tenant and name, all of whose members follow the classic protocol; and
        whether its definition was made for its first member."""
        super().__init__(loop, names, put_state, on_error)
        self._state = state
        self._topics = topics
        self._give_back = give_back
        self._patterns: OrderedDict[tuple[str, str], _Matches] = OrderedDict()

    def open(self) -> None:
        """Load the groups that are stored: their members have a session's time to be heard of. Who is of none is
        forgotten for good."""
        members: dict[tuple[str, str], list[ConsumerMember]] = {}
        for key, value in self._state.scan(Kind.CONSUMER_MEMBER):
            tenant, name, member = read_member(key, value)
            members.setdefault((tenant, name), []).append(member)
        now_ms, rules = self._loop.now_ms(), ConsumerRules()
        for key, value in list(self._state.scan(Kind.CONSUMER_GROUP)):
            entry = _ConsumerEntry(*split_key(key))
            stored = read_group(value)
            entry.is_ours = stored.is_ours
            entry.group.restore(now_ms, stored.epoch, stored.target_epoch, stored.assignor, stored.topics_digest,
                                sorted(members.pop((entry.tenant, entry.name), []), key=lambda each: each.id), rules)
            self._entries[entry.tenant, entry.name] = entry
            entry.group.take()
            self._settle(entry)
        for (tenant, name), orphans in members.items():
            self._put_state([member_record(tenant, name, member.id, None) for member in orphans], None, None)

    def stop(self) -> None:
        """Who waits is told that the hub stops; groups stay as they are stored."""
        self._stop()

    # ---- what members ask for

    def check(self, tenant: str, name: str, beat: Beat, may_read: MayRead, held_bytes: int) -> frozenset[str] | None:
        """Raises what `beat` raises of what a member says, whoever is in the group, which holds so many bytes. Gives
        the topics that its pattern finds, where it says one."""
        self._require_running()
        check_name(name, "group")
        self._names.require_not_leased(tenant, name)
        if len(beat.member_id.encode()) > MAX_MEMBER_ID_BYTES or len(beat.topics or ()) > MAX_TOPICS:
            raise GroupFull(f"a member's id has at most {MAX_MEMBER_ID_BYTES} bytes, and it names {MAX_TOPICS} topics")
        check_assignor(beat.assignor)
        if held_bytes + beat.said_bytes > MAX_GROUP_BYTES or self._size_bytes + beat.said_bytes > MAX_BYTES:
            raise GroupFull("what members say and have is more than may be kept")
        return self._match(tenant, beat.pattern, may_read) if beat.pattern else None

    def beat(self, tenant: str, name: str, beat: Beat, rules: ConsumerRules, may_read: MayRead, on_done: OnBeaten,
             rights: object = None) -> None:
        """See `AssignedGroups.beat`."""
        entry = self._entries.get((tenant, name))
        matched = self.check(tenant, name, beat, may_read, 0 if entry is None else entry.size_bytes)
        if entry is None:
            if beat.epoch and self._names.is_there(tenant, name):
                raise UnknownMember(f"the group {name!r} has no member {beat.member_id!r}")      # who joins again then
            if beat.epoch:
                raise UnknownGroup(f"there is no consumer group {name!r} with members")
            self._make_room()
            entry = self._entries[tenant, name] = _ConsumerEntry(tenant, name)
            entry.is_ours = self._names.claim(tenant, name)
        else:
            if beat.pattern is None:
                matched = self._match_again(entry, beat.member_id, may_read, rights)
            if beat.epoch == JOINS and not entry.group.members and self._names.claim(tenant, name):
                entry.is_ours = True               # it was deleted when its last members had gone
        try:
            entry.group.beat(self._loop.now_ms(), beat, matched, rules, self._topics.version,
                             lambda topic: self._ranges(tenant, topic), on_done)
            if matched is not None:
                entry.versions[beat.member_id] = self._topics.version, rights
        finally:
            self._settle(entry)

    def leave(self, tenant: str, name: str, beat: Beat, on_done: OnBeaten) -> None:
        self._require_running()
        entry = self._require(tenant, name)
        try:
            entry.group.leave(self._loop.now_ms(), beat.member_id, beat.instance_id,
                              beat.epoch == LEAVES_FOR_A_WHILE, lambda topic: self._ranges(tenant, topic), on_done)
        finally:
            self._settle(entry)

    # ---- members of the classic protocol among others

    def adopt(self, tenant: str, name: str, group: ConsumerGroup, is_ours: bool) -> None:
        """A classic group is a consumer group from now on; what it was is forgotten by the caller, in this turn."""
        self._entries.pop((tenant, name), None)
        entry = self._entries[tenant, name] = _ConsumerEntry(tenant, name)
        entry.group, entry.is_ours = group, is_ours
        group.store_all()
        self._settle(entry, is_new=True)

    def join(self, tenant: str, name: str, joining: Joining, rules: GroupRules, new_id: str, on_done: OnJoined) -> None:
        """As `AssignedGroups.join`, into a group with members of the consumer protocol: the hub assigns for it, too."""
        entry = self._require(tenant, name)
        group = entry.group
        protocol, subscription = understood(joining.protocol_type, joining.protocols)
        if protocol is None or subscription is None:
            raise InconsistentProtocol(f"the hub assigns in group {name!r}, and does not understand this member")
        holder = group.member_id(joining.member_id, joining.instance_id)
        if not group.shares_protocol(holder, joining.protocol_names):
            raise InconsistentProtocol("a member offers a protocol that all others of the classic protocol know")
        member_id = joining.member_id
        if not member_id and joining.instance_id is None and joining.comes_again:
            while len(entry.promised) >= rules.max_members:
                del entry.promised[next(iter(entry.promised))]
            entry.promised[new_id] = None
            raise MemberIdRequired("join again, with this member id", new_id)
        if member_id and group.member_id("", joining.instance_id) not in ("", member_id):
            raise FencedMember(f"another member has the instance id {joining.instance_id!r}")
        if member_id and member_id not in group.members and member_id not in entry.promised:
            raise UnknownMember(f"the group has no member {member_id!r}")
        entry.promised.pop(member_id, None)
        member_id = member_id or new_id
        member = group.members.get(member_id)
        beat = Beat(member_id, JOINS if member is None else member.epoch, joining.instance_id, None, joining.client_id,
                    joining.client_host, joining.rebalance_ms, subscription.topics, None, None,
                    self.partition_ids(tenant, subscription.owned), ClassicSide(joining.protocols, joining.session_ms))

        def told(answer: Answer) -> None:
            on_done(Joined(member_id, answer.epoch, PROTOCOL_TYPE, protocol, "") if isinstance(answer, Beaten)
                    else answer)

        self.beat(tenant, name, beat, ConsumerRules(max_members=rules.max_members), lambda topic: True, told)

    def sync(self, tenant: str, name: str, member_id: str, instance_id: str | None, generation: int, on_done: OnAssigned
             ) -> None:
        """As `AssignedGroups.sync`; the assignment is the hub's."""
        self._require_running()
        entry = self._require(tenant, name)
        assigned = entry.group.sync(self._loop.now_ms(), member_id, instance_id, generation)
        side = entry.group.members[member_id].classic
        assert side is not None
        protocol, _ = understood(PROTOCOL_TYPE, side.protocols)
        rows = [(topic.name, numbers) for topic, numbers in self.topics_of(assigned)]
        answer = Assigned(PROTOCOL_TYPE, protocol or "", encode_assignment(rows))
        if entry.writing is not None:
            entry.writing.held.append((lambda before: on_done(answer if before is NOTHING else before), NOTHING))
        else:
            on_done(answer)

    def leave_classic(self, tenant: str, name: str, leaving: list[tuple[str, str | None]]
                      ) -> list[KernelError | None]:
        """As `AssignedGroups.leave`."""
        entry, refusals = self._require(tenant, name), list[KernelError | None]()
        for member_id, instance_id in leaving:
            try:
                entry.group.leave(self._loop.now_ms(), entry.group.member_id(member_id, instance_id), instance_id,
                                  False, lambda topic: self._ranges(tenant, topic), ignore)
                refusals.append(None)
            except KernelError as refusal:
                refusals.append(refusal)
        self._settle(entry)
        return refusals

    def partition_ids(self, tenant: str, parts: Parts) -> frozenset[int]:
        """The ids of partitions that a member names, without those that are not there."""
        partition_ids: set[int] = set()
        for name, numbers in parts:
            topic = self._topics.get(name, tenant)
            if topic is not None:
                there = range(topic.partitions)
                partition_ids.update([topic.partition_id(number) for number in numbers if number in there])
        return frozenset(partition_ids)

    # ---- what others ask

    def has_members(self, tenant: str, name: str) -> bool:
        entry = self._entries.get((tenant, name))
        return entry is not None and bool(entry.group.members)

    def group(self, tenant: str, name: str) -> ConsumerGroup | None:
        entry = self._entries.get((tenant, name))
        return None if entry is None else entry.group

    def describe(self, tenant: str, name: str) -> DescribedConsumers | None:
        entry = self._entries.get((tenant, name))
        return None if entry is None else entry.group.describe()

    def forget_unused(self, tenant: str, name: str) -> None:
        """Another kind of group takes the name. Raises Stopping."""
        entry = self._entries.get((tenant, name))
        if entry is not None and not entry.group.members:
            self._forget(entry)

    # ---- topics

    def topics_of(self, partition_ids: Iterable[int]) -> list[tuple[Topic, list[int]]]:
        """See `AssignedGroups.topics_of`."""
        matched: dict[Topic, list[int]] = {}
        for partition_id in sorted(partition_ids):
            there = self._topics.of_partition(partition_id)
            if there is not None:
                matched.setdefault(there[0], []).append(there[1])
        return list(matched.items())

    def _ranges(self, tenant: str, name: str) -> tuple[tuple[int, int], ...]:
        topic = self._topics.get(name, tenant)
        return () if topic is None else topic.ranges

    def _match_again(self, entry: _ConsumerEntry, member_id: str, may_read: MayRead, rights: object
                     ) -> frozenset[str] | None:
        """What the pattern finds that the member has said before, where it may find something else than then."""
        member = entry.group.members.get(member_id)
        if member is None or not member.pattern or entry.versions.get(member_id) == (self._topics.version, rights):
            return None
        return self._match(entry.tenant, member.pattern, may_read)

    def _match(self, tenant: str, text: str, may_read: MayRead) -> frozenset[str]:
        matched = self._patterns.get((tenant, text))
        if matched is None:
            matched = self._patterns[tenant, text] = _Matches(TopicPattern(text))
            if len(self._patterns) > MAX_PATTERNS:
                self._patterns.popitem(last=False)
        self._patterns.move_to_end((tenant, text))
        if matched.version != self._topics.version:
            names = {topic.name for topic in self._topics.of(tenant)}
            matched.names &= names
            matched.names |= matched.pattern.matching(list(names - matched.tried))
            matched.tried, matched.version = names, self._topics.version
        return frozenset([name for name in matched.names if may_read(name)])

    # ---- names

    def _require(self, tenant: str, name: str) -> _ConsumerEntry:
        entry = self._entries.get((tenant, name))
        if entry is None:
            check_name(name, "group")
            raise UnknownGroup(f"there is no consumer group {name!r} with members")
        return entry

    def _forget(self, entry: _ConsumerEntry) -> None:
        """The group has had no members for long."""
        records = [group_record(entry.tenant, entry.name, None)]
        records += [member_record(entry.tenant, entry.name, member_id, None)
                    for member_id in entry.group.take().members]           # a full disk refused their leaving
        if entry.is_ours:
            records += self._names.disclaim(entry.tenant, entry.name)
        self._put_state(records, None, None)
        self._drop(entry)

    # ---- what became of a call

    def _settle(self, entry: _ConsumerEntry, is_new: bool = False) -> None:
        """Write down what is to be written, tell who is to be told, and see to it that time goes on."""
        group = entry.group
        changes = group.take()
        self._names.note(entry.tenant, entry.name, bool(group.members))
        self._note(entry, group.size_bytes, not group.members)
        for member_id in changes.members:
            if member_id not in group.members:
                entry.versions.pop(member_id, None)
        if changes.members or changes.group or changes.held:
            self._write(entry, changes)
        self._look_next(entry, group.next_ms())
        if entry.writing is not None:
            entry.writing.held.extend(changes.answers)
        else:
            self._tell(changes.answers)
        if group.is_all_classic and not is_new:
            self._release(entry)

    # decision 185: the last member of the consumer protocol has gone
    def _release(self, entry: _ConsumerEntry) -> None:
        """The group is a classic one again."""
        members = entry.group.members
        records = [group_record(entry.tenant, entry.name, None)]
        records += [member_record(entry.tenant, entry.name, member_id, None) for member_id in members]
        self._drop(entry)
        self._put_state(records, None, None)
        self._give_back(entry.tenant, entry.name, entry.group, entry.is_ours)

    # decision 183: what changed, in one frame, before anybody hears of it
    def _write(self, entry: _ConsumerEntry, changes: Changes) -> None:
        records = [member_record(entry.tenant, entry.name, member_id, entry.group.members.get(member_id))
                   for member_id in changes.members]
        if changes.group:
            records.append(group_record(entry.tenant, entry.name, entry.group, entry.is_ours))
        writing = _GroupWriting(entry, changes.held, changes.members)
        try:
            self._put_state(records, self, writing)
        except Stopping as refusal:
            self._written(writing, refusal)
        else:
            entry.writing = writing

    def on_stored(self, stored: list[Stored]) -> None:
        """Records are durable, or were refused."""
        for writing, error in answered(stored):
            assert isinstance(writing, _GroupWriting)
            self._written(writing, error)

    def _written(self, writing: _GroupWriting, error: KernelError | None) -> None:
        entry = writing.entry
        if entry.writing is writing:
            entry.writing = None
        if error is not None:
            entry.group.store_all(writing.members)
        self._tell([(waiting, answer if error is None else error) for waiting, answer in writing.held])

    def _go_on(self, entry: _ConsumerEntry, now_ms: int) -> None:
        entry.group.on_time(now_ms, lambda topic: self._ranges(entry.tenant, topic))
        self._settle(entry)


# --- from one protocol to the other -------------------------------------------------------------------------------

# Of a group while it has members:
#
#     classic members ── one joins by the consumer protocol ──► a consumer group, with their epoch and what they have
#     consumer group ── the last of that protocol leaves ──► a classic group, which is shared out anew

# decision 185: members go on with what they have
def consumers_of(classic: ClassicGroup, now_ms: int, partition_ids: Callable[[Parts], frozenset[int]]) -> ConsumerGroup:
    """The consumer group that a classic group with members becomes. Raises InconsistentProtocol where the hub does not
    understand what its members say to each other."""
    members: list[tuple[ConsumerMember, frozenset[int]]] = []
    held: set[int] = set()
    epoch = max(classic.generation, 1)
    for each in classic.members.values():
        protocol, subscription = understood(each.joining.protocol_type, each.joining.protocols)
        if protocol is None or subscription is None:
            raise InconsistentProtocol("members of the group follow a protocol that the hub does not understand")
        member = ConsumerMember(each.id)
        member.instance_id, member.client_id, member.client_host = \
            each.instance_id, each.joining.client_id, each.joining.client_host
        member.rebalance_ms, member.topics = each.joining.rebalance_ms, subscription.topics
        member.classic = ClassicSide(each.joining.protocols, each.joining.session_ms)
        if each.join is None and classic.state is not GroupState.COMPLETING:
            member.assigned = partition_ids(read_assignment(each.assignment)) - held
            held |= member.assigned
        member.epoch = member.previous_epoch = epoch
        members.append((member, partition_ids(subscription.owned)))
    for member, owned in members:            # it may read these still: it has not heard of its part, or joins again
        member.assigned = member.target = member.assigned | owned - held
        held |= owned
    group = ConsumerGroup()
    group.restore(now_ms, epoch, epoch, group.assignor, b"", [member for member, _ in members], ConsumerRules())
    return group


def classic_of(group: ConsumerGroup, now_ms: int, named: Callable[[frozenset[int]], Parts]) -> ClassicGroup:
    """The classic group that is left of a consumer group: its members are told to join again."""
    classic = ClassicGroup()
    members = []
    for each in group.members.values():
        assert each.classic is not None, "all follow the classic protocol"
        joining = Joining(PROTOCOL_TYPE, each.classic.protocols, each.id, each.instance_id, each.client_id,
                          each.client_host, each.classic.session_ms, each.rebalance_ms)
        member = GroupMember(each.id, joining)
        member.assignment = encode_assignment(named(each.assigned))
        members.append(member)
    sets = [set(member.joining.protocol_names) for member in members]
    common = [name for name in members[0].joining.protocol_names if all(name in names for names in sets)]
    generation = max([each.epoch for each in group.members.values()])
    classic.restore(now_ms, generation, PROTOCOL_TYPE, common[0] if common else "", members[0].id, members)
    classic.share_out_anew(now_ms)
    return classic


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
