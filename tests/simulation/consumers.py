"""Members of consumer groups, for which the hub assigns: they beat, give up, leave and are silent over crashes.

What a member was told that it may read is its own until it says that it has given it up: the hub keeps it for that
member, in the epoch that it was told or a later one, through every crash, and for nobody else. Only silence for a
session's time ends that.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gatehouse.kernel.assigned.assigned_values import Beat, Beaten, ConsumerRules
from gatehouse.kernel.errors import FencedEpoch, FencedMember, KernelError, UnknownGroup, UnknownMember
from tests.simulation.checker import Broken

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

GROUPS: Final = ("consumers-0", "consumers-1")
RULES: Final = ConsumerRules(session_ms=40_000, heartbeat_ms=1_000, max_members=4)
MAX_PARTITIONS: Final = 8
NOTHING: Final[frozenset[int]] = frozenset()


class GroupConsumer:
    """A client as it sees itself."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.group = GROUPS[number % len(GROUPS)]
        self.instance_id = f"instance-{number}" if number < 2 else None
        self.lives = 0
        self.calls = 0
        self.forget()

    def forget(self) -> None:
        """It begins anew, as after a start of its own."""
        self.lives += 1
        self.member_id = f"member-{self.number}-{self.lives}"
        self.fenced()

    def fenced(self) -> None:
        """It has nothing any more, and joins again."""
        self.epoch = 0
        self.owned = NOTHING
        self.heard_ms = 0
        self.asks = 0                          # the call whose answer it waits for; 0: none


class ConsumerMembers:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._members = [GroupConsumer(number) for number in range(6)]

    # ---- steps

    def beat_consumer(self, who: int, what: int, *_: int) -> None:
        """It says that it is there, and what it has; now and then that it wants other topics."""
        member = self._members[who % len(self._members)]
        if member.asks and what % 4:
            return
        names = [topic.name for topic in self._simulation.hub.kernel.topics()]
        topics = frozenset(names[what % 2:]) if not member.epoch or not what % 9 else None
        beat = Beat(member.member_id, member.epoch, member.instance_id, None, "client", "/", 5_000, topics,
                    "t.*" if what % 11 == 0 else None, ("uniform", "range", None)[what % 3], member.owned)
        member.calls += 1
        call = member.asks = member.calls

        def heard(answer: Beaten | KernelError) -> None:
            if member.asks != call:
                return
            member.asks = 0
            if isinstance(answer, Beaten):
                member.epoch, member.heard_ms = answer.epoch, self._now_ms()
                member.owned = member.owned if answer.assigned is None else answer.assigned
            else:
                self._refused(member, answer)

        self._ask(member, lambda: self._kernel.beat(member.group, beat, RULES, lambda topic: True, heard))

    def leave_consumer(self, who: int, for_a_while: int, *_: int) -> None:
        member = self._members[who % len(self._members)]
        epoch = -2 if member.instance_id is not None and for_a_while % 2 else -1
        beat = Beat(member.member_id, epoch, member.instance_id)
        self._ask(member, lambda: self._kernel.leave_consumers(member.group, beat, lambda answer: None))
        member.forget()

    def add_partitions(self, which: int, *_: int) -> None:
        kernel = self._simulation.hub.kernel
        topics = [topic for topic in kernel.topics() if topic.partitions < MAX_PARTITIONS]
        if topics:
            topic = topics[which % len(topics)]
            kernel.change_topic(topic.name, partitions=topic.partitions + 1)

    # ---- what they are told

    @property
    def _kernel(self) -> Any:
        return self._simulation.hub.kernel.assigned

    def _now_ms(self) -> int:
        return self._simulation.hub.world.loop.now_ms()

    def _ask(self, member: GroupConsumer, call: Any) -> None:
        try:
            call()
        except KernelError as refusal:
            member.asks = 0
            self._refused(member, refusal)

    @staticmethod
    def _refused(member: GroupConsumer, refusal: KernelError) -> None:
        """What a client makes of a refusal."""
        if isinstance(refusal, FencedMember):
            member.forget()
        elif isinstance(refusal, UnknownMember | UnknownGroup | FencedEpoch):
            member.fenced()

    # ---- lives

    def crashed(self) -> None:
        """Their connections are gone; they are not."""
        for member in self._members:
            member.asks = 0

    def check(self) -> None:
        """What a member has is kept for it, and nothing is kept for two."""
        for name in GROUPS:
            group = self._kernel._consumers.group("/", name)
            members = {} if group is None else group.members
            held = [each for member in members.values() for each in member.assigned | member.revoking]
            if len(held) != len(set(held)):
                raise Broken(f"{name} keeps a partition for two members")
            for member in self._members:
                if member.group == name and member.epoch:
                    self._check_member(member, members.get(member.member_id))

    def _check_member(self, member: GroupConsumer, kept: Any) -> None:
        if kept is None:
            if self._now_ms() - member.heard_ms < RULES.session_ms // 8:
                raise Broken(f"{member.member_id} was heard of, and is a member no more")
        elif kept.epoch < member.epoch:
            raise Broken(f"{member.member_id} was told epoch {member.epoch}, and is in {kept.epoch}")
        elif not member.owned <= kept.assigned | kept.revoking and not member.asks:
            raise Broken(f"{member.member_id} has {member.owned}, and is kept {kept.assigned | kept.revoking}")
