"""Members of assigned groups: they join, assign, beat and commit over crashes, and what they may find afterwards.

A member that was told its part of an assignment holds it for true: after a crash the group is in that generation, with
these very parts, or in a later one. No generation has two assignments, however often the hub ends in between. Offsets
are as those that anybody commits.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gatehouse.kernel.assigned.assigned_values import Assigned, GroupRules, Joined, Joining
from gatehouse.kernel.errors import (
    FencedMember,
    KernelError,
    MemberIdRequired,
    Rebalancing,
    StaleGeneration,
    UnknownGroup,
    UnknownMember,
)
from gatehouse.kernel.message import Stored
from tests.simulation.checker import Broken
from tests.simulation.definitions import History

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

GROUPS: Final = ("members-0", "members-1")
RULES: Final = GroupRules(initial_delay_ms=500, max_members=4)
SESSION_MS: Final = 40_000
REBALANCE_MS: Final = 5_000


class GroupMember:
    """A client as it sees itself."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.group = GROUPS[number % len(GROUPS)]
        self.instance_id = f"instance-{number}" if number == 0 else None
        self.forget()

    def forget(self) -> None:
        """It begins anew, as after a start of its own."""
        self.member_id = ""
        self.joined: Joined | None = None
        self.part: bytes | None = None
        self.asks = 0                          # the call whose answer it waits for; 0: none
        self.calls = getattr(self, "calls", 0)


class AssignedMembers:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._members = [GroupMember(number) for number in range(6)]
        self._tokens = 0
        self._parts: dict[tuple[str, int], dict[str, bytes]] = {}           # told, by group and generation
        self._offsets: dict[tuple[str, int], History[tuple[int, bytes] | None]] = {}
        self._empty: set[str] = set()                  # groups that had no members when they were last looked at

    def note(self) -> None:
        """A group that nobody uses may be forgotten, with its generation."""
        for name in GROUPS:
            entry = self._kernel._entries.get(("/", name))
            if entry is not None:
                (self._empty.discard if entry.group.members else self._empty.add)(name)
            elif name in self._empty:
                self._parts = {key: parts for key, parts in self._parts.items() if key[0] != name}

    # ---- steps

    def join_member(self, who: int, again: int, *_: int) -> None:
        member = self._members[who % len(self._members)]
        if member.asks and again % 4:
            return
        if member.instance_id is not None and again % 8 == 0:
            member.forget()
        call = self._begin(member)

        def told(answer: Any) -> None:
            if member.asks != call:
                return
            member.asks = 0
            if isinstance(answer, Joined):
                member.joined, member.part, member.member_id = answer, None, answer.member_id
            else:
                self._refused(member, answer)

        joining = Joining("consumer", (("range", b"%d" % (again % 3)), ("sticky", b"")), member.member_id,
                          member.instance_id, "client", "/", SESSION_MS, REBALANCE_MS, again % 2 == 0)
        self._ask(member, lambda: self._kernel.join(member.group, joining, RULES, told))

    def sync_member(self, who: int, *_: int) -> None:
        member = self._members[who % len(self._members)]
        joined = member.joined
        if member.asks or joined is None:
            return
        call = self._begin(member)
        self._tokens += 1
        parts = {member_id: b"%d of %d" % (self._tokens, joined.generation) for member_id, _, _ in joined.members}

        def told(answer: Any) -> None:
            if isinstance(answer, Assigned) and answer.assignment:
                self._told(member.group, joined.generation, member.instance_id or joined.member_id,
                           answer.assignment)
            if member.asks != call:
                return
            member.asks = 0
            if isinstance(answer, Assigned):
                member.part = answer.assignment
            else:
                self._refused(member, answer)

        self._ask(member, lambda: self._kernel.sync(member.group, member.member_id, member.instance_id,
                                                    joined.generation, (None, None), parts, told))

    def beat_member(self, who: int, *_: int) -> None:
        member = self._members[who % len(self._members)]
        if member.joined is not None:
            generation = member.joined.generation
            self._ask(member, lambda: self._kernel.heartbeat(member.group, member.member_id, member.instance_id,
                                                             generation))

    def commit_member(self, who: int, topic: int, partition: int, number: int) -> None:
        member = self._members[who % len(self._members)]
        partition_id = self._simulation.reading.some_partition(topic, partition)
        if partition_id is None or member.joined is None or member.part is None:
            return
        client, offset, generation = self._simulation.clients[who % 3], (number, b"%d" % who), member.joined.generation
        history = self._offsets.setdefault(
            (member.group, partition_id), History(f"offset of {member.group} in {partition_id}", None))
        mark = history.mark + (offset != history.now)

        def stored(answer: Stored) -> None:
            if answer.error is None:
                history.acknowledged(mark)

        asking = client.ask(None, stored)
        if self._ask(member, lambda: self._kernel.commit_offsets(member.group, {partition_id: offset}, client, asking,
                                                                 member.member_id, member.instance_id, generation)):
            history.note(offset)
        else:
            client.take_back(asking)

    def leave_member(self, who: int, *_: int) -> None:
        member = self._members[who % len(self._members)]
        self._kernel.leave(member.group, [(member.member_id, member.instance_id)])
        member.forget()

    # ---- what they are told

    @property
    def _kernel(self) -> Any:
        return self._simulation.hub.kernel.assigned

    def _begin(self, member: GroupMember) -> int:
        member.calls += 1
        member.asks = member.calls
        return member.calls

    def _ask(self, member: GroupMember, call: Any) -> bool:
        """Whether it was not refused at once."""
        try:
            call()
        except KernelError as refusal:
            member.asks = 0
            self._refused(member, refusal)
            return False
        return True

    @staticmethod
    def _refused(member: GroupMember, refusal: KernelError) -> None:
        """What a client makes of a refusal."""
        if isinstance(refusal, MemberIdRequired):
            member.member_id = refusal.member_id
        elif isinstance(refusal, UnknownGroup | UnknownMember | FencedMember):
            member.member_id, member.joined, member.part = "", None, None
        elif isinstance(refusal, StaleGeneration | Rebalancing):
            member.joined = None

    def _told(self, group: str, generation: int, who: str, part: bytes) -> None:
        """Static members are known by their instance ids: who takes the place of one finds its part."""
        parts = self._parts.setdefault((group, generation), {})
        parts[who] = part
        if len(set(parts.values())) > 1:
            raise Broken(f"{group} has two assignments in generation {generation}: {parts}")

    # ---- lives

    def crashed(self) -> None:
        """Their connections are gone; they are not."""
        for member in self._members:
            member.asks = 0

    def found(self) -> None:
        """A new life, or the disk was full and what was not durable is taken back."""
        there = self._simulation.reading.partition_ids()
        committed = self._simulation.hub.kernel.groups.committed
        for (group, partition_id), history in self._offsets.items():
            if partition_id in there:
                history.found(committed(group).get(partition_id))

    def check(self) -> None:
        """Whoever was told its part finds it, or a later generation."""
        self.note()
        for name in GROUPS:
            told = [generation for group, generation in self._parts if group == name]
            if not told:
                continue
            entry = self._kernel._entries.get(("/", name))
            if entry is None or entry.group.generation < max(told):
                raise Broken(f"{name} was in generation {max(told)}, and is in {entry and entry.group.generation}")
            there = {member.instance_id or member.id: member.assignment for member in entry.group.members.values()}
            for who, part in self._parts[name, max(told)].items():
                if entry.group.generation == max(told) and there.get(who) != part:
                    raise Broken(f"{who} was told {part!r} in generation {max(told)}, and finds {there.get(who)!r}")
