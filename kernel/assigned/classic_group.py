"""One group whose members share partitions out among themselves, by Kafka's classic protocol. Pure.

    EMPTY ──join──► PREPARING ──all have joined, or time is up──► COMPLETING ──the assignment is stored──► STABLE
      ▲                │  ▲                                            │                                     │
      └─nobody is left─┘  └────────────── join, leave, silence ────────┴─────────────────────────────────────┘

Members join, each with the protocols it knows. When all have, the group has a new *generation*: it follows the protocol
that most prefer, and its leader, the oldest member, hears what everybody said. The leader tells each member's part,
every member takes its own, and from then on all send heartbeats. Whatever changes the members begins this anew.

Time is an argument: hub time in ms. Who waits is a token; `take` gives the answers that became due in a call, and
whether the group is to be written down. Refusals are raised, with nothing changed.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from gatehouse.kernel.assigned.assigned_values import (
    Assigned,
    DescribedGroup,
    DescribedMember,
    GroupRules,
    GroupState,
    Joined,
    Joining,
)
from gatehouse.kernel.errors import (
    FencedMember,
    GroupFull,
    InconsistentProtocol,
    KernelError,
    MemberIdRequired,
    Rebalancing,
    StaleGeneration,
    UnknownMember,
)

NEW_MEMBER_MS: Final = 300_000
"""A member whose first join waits sends no heartbeat yet: it is forgotten after this time."""

MAX_GENERATION: Final = (1 << 31) - 1

Answer = Joined | Assigned | KernelError
Waiting = object
"""Whoever waits for an answer; the group only keeps it."""


class Effects(NamedTuple):
    """What a call of the group leads to."""

    answers: list[tuple[Waiting, Answer]]
    """Now."""

    held: list[tuple[Waiting, Answer]]
    """Once the group is stored as it is."""

    store: bool


class GroupMember:
    """One member. It is silent for too long at `expires_ms`, unless it waits for an answer."""

    __slots__ = ("id", "joining", "is_new", "expires_ms", "join", "sync", "assignment")

    def __init__(self, member_id: str, joining: Joining) -> None:
        self.id = member_id
        self.joining = joining
        self.is_new = True                         # since its first join, until that is answered
        self.expires_ms = 0
        self.join: Waiting | None = None           # who waits for the next generation
        self.sync: Waiting | None = None           # who waits for the assignment
        self.assignment = b""

    @property
    def instance_id(self) -> str | None:
        return self.joining.instance_id

    def expiry_ms(self) -> int | None:
        """When it has been silent for too long; None while it waits for the group."""
        waits = self.sync is not None or self.join is not None and not self.is_new
        return None if waits else self.expires_ms

    def metadata(self, protocol: str) -> bytes:
        """What it says under a protocol; under its own best one where it does not know that."""
        protocols = self.joining.protocols
        return next((metadata for name, metadata in protocols if name == protocol), protocols[0][1])


# decision 157: no loop, no clock, no disk
class ClassicGroup:
    """One group whose members share partitions out among themselves, by Kafka's classic protocol."""

    def __init__(self) -> None:
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        self.leader = ""
        self.members: dict[str, GroupMember] = {}          # by member id, the oldest first
        self._instances: dict[str, str] = {}               # member ids of static members
        self._known: Counter[str] = Counter()              # how many members know a protocol
        self._said_bytes = 0                               # by all members
        self._promised: dict[str, int] = {}                # member ids that were given to who has yet to join: until
        self._unsynced: set[str] = set()                   # who has not asked for its part of this generation
        self._storing = False                              # the assignment is on its way to the disk
        self._join_until_ms = 0
        self._sync_until_ms = 0
        self._initial_delay_ms = 0                         # more than 0: an empty group waits for more members
        self._initial_left_ms = 0                          # of the time that the first members may wait
        self._came_since = False                           # the wait began
        self._lost = False                                 # a member has gone
        self._answers: list[tuple[Waiting, Answer]] = []
        self._held: list[tuple[Waiting, Answer]] = []
        self._store = False

    # ---- what members ask for

    def join(self, now_ms: int, joining: Joining, rules: GroupRules, new_id: str, waiting: Waiting) -> None:
        """Be a member of the next generation. `new_id` is for one that has no member id yet.

        Raises GroupFull, InconsistentProtocol, MemberIdRequired, UnknownMember, FencedMember.
        """
        if not self._has_room(joining.member_id, rules.max_members):
            self._leave(joining.member_id, UnknownMember("the group is full"))
            self._go_on(now_ms)
            raise GroupFull(f"the group has {rules.max_members} members, as many as may be")
        if not self._supports(joining):
            raise InconsistentProtocol("a member offers a protocol that all members of the group know, of its type: "
                                       f"{self.protocol_type or 'any'}")
        if joining.member_id:
            self._join_again(now_ms, joining, rules, waiting)
        elif joining.instance_id is not None and joining.instance_id in self._instances:
            self._replace(now_ms, joining, rules, new_id, waiting)
        elif joining.comes_again and joining.instance_id is None:
            while len(self._promised) >= rules.max_members:
                del self._promised[next(iter(self._promised))]
            self._promised[new_id] = now_ms + joining.session_ms
            raise MemberIdRequired("join again, with this member id", new_id)
        else:
            self._add(now_ms, joining, rules, new_id, waiting)

    def sync(self, now_ms: int, member_id: str, instance_id: str | None, generation: int,
             protocol: tuple[str | None, str | None], assignments: dict[str, bytes], waiting: Waiting) -> None:
        """Tell the assignment, as the leader, and ask for one's own part of it. `protocol` is (type, name) as the
        member believes them to be.

        Raises UnknownMember, FencedMember, StaleGeneration, InconsistentProtocol, Rebalancing.
        """
        member = self._require(member_id, instance_id, generation)
        if protocol[0] not in (None, self.protocol_type) or protocol[1] not in (None, self.protocol):
            raise InconsistentProtocol(f"the group follows {self.protocol_type}/{self.protocol}")
        if self.state is GroupState.PREPARING:
            raise Rebalancing("the group is being shared out anew")
        self._unsynced.discard(member_id)
        if self.state is GroupState.STABLE:
            member.expires_ms = now_ms + member.joining.session_ms
            self._answers.append((waiting, self._part(member)))
            return
        self._answer_sync(now_ms, member, Rebalancing("another request has come for this member"))
        member.sync = waiting
        if member_id == self.leader and not self._storing:
            for each in self.members.values():
                each.assignment = assignments.get(each.id, b"")
            self._storing = self._store = True

    def heartbeat(self, now_ms: int, member_id: str, instance_id: str | None, generation: int) -> None:
        """Be there still. Raises UnknownMember, FencedMember, StaleGeneration; Rebalancing, and it is there all the
        same."""
        member = self._require(member_id, instance_id, generation)
        member.expires_ms = now_ms + member.joining.session_ms
        if self.state is GroupState.PREPARING:
            raise Rebalancing("the group is being shared out anew")

    def leave(self, now_ms: int, leaving: Sequence[tuple[str, str | None]]) -> list[KernelError | None]:
        """Be members no more: (member id, instance id) of each; "" with an instance id is whoever has it. Answers for
        each why it is none."""
        refusals: list[KernelError | None] = []
        for member_id, instance_id in leaving:
            try:
                if instance_id is not None and not member_id:
                    member_id = self._instances.get(instance_id, "")
                if member_id not in self._promised:
                    self._member(member_id, instance_id)
            except KernelError as refusal:
                refusals.append(refusal)
            else:
                self._leave(member_id, UnknownMember("the member has left"))
                refusals.append(None)
        self._go_on(now_ms)
        return refusals

    def require_commit(self, now_ms: int, member_id: str, instance_id: str | None, generation: int) -> None:
        """Whether these offsets are for this member to commit; without a generation, for somebody who is no member.

        Raises UnknownMember, FencedMember, StaleGeneration, Rebalancing.
        """
        if generation < 0 and not self.members:
            return
        if generation < 0 and not member_id and instance_id is None:
            raise UnknownMember("the group has members: only they commit its offsets")
        member = self._require(member_id, instance_id, generation)
        if self.state is GroupState.COMPLETING:
            raise Rebalancing("the group is being shared out anew")
        member.expires_ms = now_ms + member.joining.session_ms

    def describe(self) -> DescribedGroup:
        return DescribedGroup(self.state, self.protocol_type, self.protocol, tuple(
            DescribedMember(member.id, member.instance_id, member.joining.client_id, member.joining.client_host,
                            member.metadata(self.protocol), member.assignment) for member in self.members.values()))

    # ---- what the disk and the clock say

    def stored(self, now_ms: int, generation: int, error: KernelError | None) -> None:
        """The assignment of this generation is on the disk, or why not; what is older counts no more."""
        if self.state is not GroupState.COMPLETING or not self._storing or generation != self.generation:
            return
        self._storing = False
        if error is None:
            self.state = GroupState.STABLE
        for member in self.members.values():
            if error is not None:
                member.assignment = b""
            self._answer_sync(now_ms, member, self._part(member) if error is None else error)

    def next_ms(self) -> int | None:
        """When `on_time` is to be called; None: never."""
        times = [*self._promised.values(), *[member.expires_ms for member in self.members.values()
                                             if member.expiry_ms() is not None]]
        if self.state is GroupState.PREPARING:
            times.append(self._join_until_ms)
        elif self._unsynced:
            times.append(self._sync_until_ms)
        return min(times, default=None)

    def on_time(self, now_ms: int) -> None:
        """Do what has fallen due."""
        for member_id in [member_id for member_id, until_ms in self._promised.items() if until_ms <= now_ms]:
            del self._promised[member_id]
        silent = [member.id for member in self.members.values()
                  if (expiry_ms := member.expiry_ms()) is not None and expiry_ms <= now_ms]
        if self._unsynced and self._sync_until_ms <= now_ms:
            silent += self._unsynced.difference(silent)
        for member_id in silent:
            self._leave(member_id, UnknownMember("the member was silent for too long"))
        self._go_on(now_ms)
        if self.state is GroupState.PREPARING and self._join_until_ms <= now_ms:
            self._end_join(now_ms)

    def restore(self, now_ms: int, generation: int, protocol_type: str, protocol: str, leader: str,
                members: list[GroupMember]) -> None:
        """Be as it was stored: its members have a session's time to be heard of."""
        self.generation, self.protocol_type, self.protocol, self.leader = generation, protocol_type, protocol, leader
        for member in members:
            member.is_new = False
            member.expires_ms = now_ms + member.joining.session_ms
            self._enter(member)
        self.state = GroupState.STABLE if members else GroupState.EMPTY

    def share_out_anew(self, now_ms: int) -> None:
        """Everybody joins again, though nobody has come or gone."""
        self._prepare(now_ms)

    def interrupt(self) -> None:
        """Whoever waits is told to ask again: the group goes on as another kind of group."""
        for member in self.members.values():
            waits = [waiting for waiting in (member.join, member.sync) if waiting is not None]
            self._answers += [(waiting, Rebalancing("the group follows another protocol now")) for waiting in waits]
            member.join = member.sync = None

    def end(self, error: KernelError) -> None:
        """Be forgotten; who waits is told why."""
        for member_id in list(self.members):
            self._leave(member_id, error)
        self._promised.clear()
        self.state = GroupState.DEAD

    @property
    def is_unused(self) -> bool:
        """Whether it has no members: who was promised an id and finds it forgotten asks for another."""
        return self.state is GroupState.EMPTY

    @property
    def size_bytes(self) -> int:
        """What its members say, and are told."""
        return self._said_bytes + sum([len(member.assignment) for member in self.members.values()])

    def take(self) -> Effects:
        """What has become due since the last call."""
        effects = Effects(self._answers, self._held, self._store)
        self._answers, self._held, self._store = [], [], False
        return effects

    # ---- joining

    def _has_room(self, member_id: str, max_members: int) -> bool:
        """Whether it may join. A group that has too many sheds who has not joined yet."""
        if self.state is GroupState.PREPARING:
            member = self.members.get(member_id)
            waiting = sum([each.join is not None for each in self.members.values()])
            return member is not None and member.join is not None or waiting < max_members
        return member_id in self.members or len(self.members) < max_members

    def _supports(self, joining: Joining) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(joining.protocol_type and joining.protocols)
        return joining.protocol_type == self.protocol_type and any(
            self._known[name] == len(self.members) for name, _ in joining.protocols)

    def _join_again(self, now_ms: int, joining: Joining, rules: GroupRules, waiting: Waiting) -> None:
        member_id, instance_id = joining.member_id, joining.instance_id
        if member_id in self._promised and instance_id is None:          # static members are promised none
            del self._promised[member_id]
            self._add(now_ms, joining, rules, member_id, waiting)
            return
        member = self._member(member_id, instance_id)
        joining = joining._replace(instance_id=member.instance_id)
        same = member.joining.protocols == joining.protocols
        if self.state is GroupState.COMPLETING and same \
                or self.state is GroupState.STABLE and same and member_id != self.leader:
            member.expires_ms = now_ms + joining.session_ms
            self._answers.append((waiting, self._joined(member)))          # it did not hear the first answer
            return
        self._wait_for_join(now_ms, member, joining, waiting)
        self._prepare_or_go_on(now_ms, rules)

    def _add(self, now_ms: int, joining: Joining, rules: GroupRules, member_id: str, waiting: Waiting) -> None:
        if not self.members:
            self.protocol_type = joining.protocol_type
        member = GroupMember(member_id, joining)
        self._enter(member)
        self.leader = self.leader or member_id
        self._came_since = True
        self._wait_for_join(now_ms, member, joining, waiting)
        self._prepare_or_go_on(now_ms, rules)

    def _enter(self, member: GroupMember) -> None:
        self.members[member.id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.id

    def _count(self, member: GroupMember, by: int) -> None:
        """What it says counts, by 1, or does not any more, by -1."""
        self._said_bytes += by * member.joining.said_bytes
        for name in member.joining.protocol_names:
            self._known[name] += by
            if not self._known[name]:
                del self._known[name]

    def _wait_for_join(self, now_ms: int, member: GroupMember, joining: Joining, waiting: Waiting) -> None:
        if member.join is not None:
            self._answers.append((member.join, Rebalancing("another request has come for this member")))
        self._count(member, -1)
        member.joining, member.join = joining, waiting
        self._count(member, 1)
        member.expires_ms = now_ms + (NEW_MEMBER_MS if member.is_new else joining.session_ms)

    def _prepare_or_go_on(self, now_ms: int, rules: GroupRules) -> None:
        if self.state is GroupState.PREPARING:
            self._end_join_when_all_have(now_ms)
        else:
            self._prepare(now_ms, rules.initial_delay_ms)

    def _replace(self, now_ms: int, joining: Joining, rules: GroupRules, new_id: str, waiting: Waiting) -> None:
        """A static member has come back: it takes its old place, under a new member id."""
        assert joining.instance_id is not None
        old = self.members[self._instances[joining.instance_id]]
        fenced = FencedMember(f"another process has come under the instance id {joining.instance_id!r}")
        was_leader, old_leader = old.id == self.leader, self.leader
        if old.join is not None:
            self._answers.append((old.join, fenced))
        self._answer_sync(now_ms, old, fenced)
        member = GroupMember(new_id, joining)
        member.is_new, member.assignment = False, old.assignment
        self.members = {each.id: each for each in [member if each is old else each for each in self.members.values()]}
        self._instances[joining.instance_id] = new_id
        self._count(old, -1)
        self._count(member, 1)
        self.leader = new_id if was_leader else self.leader
        if old.id in self._unsynced:
            self._unsynced.remove(old.id)
            self._unsynced.add(new_id)
        if self.state is GroupState.STABLE and self._vote() == self.protocol:
            member.expires_ms = now_ms + joining.session_ms
            joined = self._joined(member)
            if was_leader and joining.may_skip:
                joined = joined._replace(skip_assignment=True)
            elif was_leader:                       # told who leads, it would assign, and nobody would listen
                joined = joined._replace(leader=old_leader, members=())
            self._held.append((waiting, joined))
            self._store = True
            return
        self._wait_for_join(now_ms, member, joining, waiting)
        self._prepare_or_go_on(now_ms, rules)

    # ---- a new generation

    def _prepare(self, now_ms: int, initial_delay_ms: int = 0) -> None:
        """Everybody has to join again."""
        if self.state is GroupState.COMPLETING:
            for member in self.members.values():
                member.assignment = b""
                self._answer_sync(now_ms, member, Rebalancing("the group is being shared out anew"))
        self._unsynced.clear()
        self._storing = False
        is_first = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING
        if is_first and initial_delay_ms:
            self._initial_delay_ms, self._came_since = initial_delay_ms, False
            self._initial_left_ms = max(self._rebalance_ms() - initial_delay_ms, 0)
            self._join_until_ms = now_ms + initial_delay_ms
        else:
            self._join_until_ms = now_ms + self._rebalance_ms()
            self._end_join_when_all_have(now_ms)

    def _rebalance_ms(self) -> int:
        return max([member.joining.rebalance_ms for member in self.members.values()], default=0)

    def _end_join_when_all_have(self, now_ms: int) -> None:
        waits_on = self._initial_delay_ms or self._promised
        if not waits_on and all(member.join is not None for member in self.members.values()):
            self._end_join(now_ms)

    def _end_join(self, now_ms: int) -> None:
        if self._initial_delay_ms and self._came_since and self._initial_left_ms:
            delay_ms = min(self._initial_delay_ms, self._initial_left_ms)
            self._initial_left_ms -= delay_ms
            self._came_since = False
            self._join_until_ms = now_ms + delay_ms
            return
        self._initial_delay_ms = 0
        for member in [each for each in self.members.values() if each.join is None and each.instance_id is None]:
            self._leave(member.id, UnknownMember("the member did not join in time"))
        self._lost = False
        joined = [member for member in self.members.values() if member.join is not None]
        if self.members and not joined:            # static members that are away: their sessions decide
            self._join_until_ms = now_ms + self._rebalance_ms()
            return
        self.generation = self.generation % MAX_GENERATION + 1
        if not joined:
            self.state, self.protocol, self.leader = GroupState.EMPTY, "", ""
            self._store = True
            return
        if self.members[self.leader].join is None:
            self.leader = joined[0].id
        self.state, self.protocol = GroupState.COMPLETING, self._vote()
        self._sync_until_ms = now_ms + self._rebalance_ms()
        self._unsynced = {member.id for member in joined}
        for member in joined:
            waiting, member.join, member.is_new = member.join, None, False
            member.expires_ms = now_ms + member.joining.session_ms
            self._answers.append((waiting, self._joined(member)))

    def _vote(self) -> str:
        """Of the protocols that all know, the one that most like best; as the oldest member likes them, where several
        have as many votes."""
        oldest = next(iter(self.members.values()))
        votes = {name: 0 for name in oldest.joining.protocol_names if self._known[name] == len(self.members)}
        for member in self.members.values():
            votes[next(name for name in member.joining.protocol_names if name in votes)] += 1
        return max(votes, key=lambda name: votes[name])

    def _joined(self, member: GroupMember) -> Joined:
        members = tuple((each.id, each.instance_id, each.metadata(self.protocol)) for each in self.members.values()) \
            if member.id == self.leader else ()
        return Joined(member.id, self.generation, self.protocol_type, self.protocol, self.leader, members)

    def _part(self, member: GroupMember) -> Assigned:
        return Assigned(self.protocol_type, self.protocol, member.assignment)

    def _answer_sync(self, now_ms: int, member: GroupMember, answer: Answer) -> None:
        if member.sync is not None:
            self._answers.append((member.sync, answer))
            member.sync = None
            member.expires_ms = now_ms + member.joining.session_ms

    # ---- members that go

    def _leave(self, member_id: str, error: KernelError) -> None:
        """Take somebody out, and tell its requests why; `_go_on` is for the caller."""
        self._promised.pop(member_id, None)
        self._unsynced.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._lost = True
        self._count(member, -1)
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._answers += [(waiting, error) for waiting in (member.join, member.sync) if waiting is not None]
        if self.leader == member_id:
            self.leader = next(iter(self.members), "")

    def _go_on(self, now_ms: int) -> None:
        """Members may have gone, or those that were waited for."""
        if self.state is GroupState.PREPARING:
            self._end_join_when_all_have(now_ms)
        elif self._lost:
            self._prepare(now_ms)
        self._lost = False

    # ---- who asks

    def _require(self, member_id: str, instance_id: str | None, generation: int) -> GroupMember:
        member = self._member(member_id, instance_id)
        if generation != self.generation:
            raise StaleGeneration(f"the group is in generation {self.generation}, not {generation}")
        return member

    def _member(self, member_id: str, instance_id: str | None) -> GroupMember:
        if instance_id is not None:
            holder = self._instances.get(instance_id)
            if holder is None:
                raise UnknownMember(f"the group has no static member {instance_id!r}")
            if holder != member_id:
                raise FencedMember(f"another member has the instance id {instance_id!r}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"the group has no member {member_id!r}")
        return member
