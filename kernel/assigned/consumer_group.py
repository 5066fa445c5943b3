"""One consumer group: the hub assigns, and every member follows at its own pace (KIP-848). Pure.

    who is in the group, and what they want ──changes──► group epoch ──the assignor──► target of every member
                                                                                         │
    a member's heartbeat: what it has ──► what it may have: without what it is to give up ◄┘
                                          first, then with what others have given up

Each member has an *epoch* of its own. It stays in its epoch until it has given up what is not in its target any more
(`UNREVOKED`); then it is given the target's epoch, and of its target whatever nobody else holds (`UNRELEASED` while
somebody does). A partition has one holder at any time: who may read it, or has yet to say that it does not any more.
Who is unheard of for too long, or does not give up in time, is taken out: its next heartbeat is told so.

Time is an argument: hub time in ms. Who waits is a token; `take` gives the answers, and what of the group is to be
written down before those that are held are told. Refusals are raised, with nothing changed.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum
from hashlib import blake2b
from typing import Final, NamedTuple

from gatehouse.kernel.assigned.assigned_values import (
    Beat,
    Beaten,
    ClassicSide,
    ConsumerRules,
    DescribedConsumer,
    DescribedConsumers,
    GroupState,
)
from gatehouse.kernel.assigned.assignors import ASSIGNORS, UNIFORM, Wish
from gatehouse.kernel.errors import (
    FencedEpoch,
    FencedMember,
    GroupFull,
    InstanceTaken,
    KernelError,
    Rebalancing,
    StaleEpoch,
    StaleGeneration,
    UnknownAssignor,
    UnknownMember,
)

JOINS: Final = 0           # epochs that mean something
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2

SOON_MS: Final = 500
"""A member that waits for others to give up partitions asks again after so long, or sooner if the rules say so."""

BATCHED_FROM: Final = 50
"""Members of a group from which on they are not assigned anew for each of them: who comes meanwhile waits."""

BATCH_MS: Final = 2
"""How long, for each member: with a thousand of them two seconds."""

REBALANCE_MS: Final = 300_000
"""Of members that do not say."""

PARTITION_BYTES: Final = 96
"""Of memory for a partition in a member's target."""

Waiting = object
Answer = Beaten | KernelError
Ranges = tuple[tuple[int, int], ...]
RangesOf = Callable[[str], Ranges]
"""(first partition id, count) of a topic in its order; () where there is none of this name."""

NONE: Final[frozenset[int]] = frozenset()
NO_TOPICS: Final[frozenset[str]] = frozenset()


def check_assignor(name: str | None) -> None:
    """Raises UnknownAssignor."""
    if name is not None and name not in ASSIGNORS:
        raise UnknownAssignor(f"there is no assignor {name!r}; there are {', '.join(ASSIGNORS)}")


class Pace(Enum):
    """Where a member is on its way to its target."""

    STABLE = "stable"
    UNREVOKED = "unrevoked"          # it has to give up partitions
    UNRELEASED = "unreleased"        # others have to


class ConsumerMember:
    """One member, as it is stored; `expires_ms` and `revoke_until_ms` are not."""

    __slots__ = ("id", "instance_id", "rack_id", "client_id", "client_host", "rebalance_ms", "topics", "pattern",
                 "matched", "assignor", "epoch", "previous_epoch", "pace", "assigned", "revoking", "target", "is_away",
                 "classic", "expires_ms", "revoke_until_ms")

    def __init__(self, member_id: str) -> None:
        self.id = member_id
        self.instance_id: str | None = None
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_ms = REBALANCE_MS
        self.topics = NO_TOPICS
        self.pattern = ""
        self.matched = NO_TOPICS               # by its pattern
        self.assignor: str | None = None
        self.epoch = 0
        self.previous_epoch = 0
        self.pace = Pace.STABLE
        self.assigned = NONE                 # what it may read
        self.revoking = NONE                 # what it has to give up, and has not
        self.target = NONE
        self.is_away = False                 # a static member that is to come back
        self.classic: ClassicSide | None = None        # it follows the classic protocol
        self.expires_ms = 0
        self.revoke_until_ms = 0             # 0: nothing to give up

    @property
    def wanted(self) -> frozenset[str]:
        return self.topics | self.matched if self.matched else self.topics

    @property
    def rank(self) -> str:
        return self.instance_id or self.id

    @property
    def said_bytes(self) -> int:
        names = sum([len(name) + 64 for each in (self.topics, self.matched) for name in each])
        classic = sum([len(metadata) for _, metadata in self.classic.protocols]) if self.classic else 0
        return names + classic + len(self.pattern) + 500 + PARTITION_BYTES * len(self.target)


class Changes(NamedTuple):
    """What a call of the group leads to."""

    answers: list[tuple[Waiting, Answer]]
    """Now, or behind what is on its way to the disk."""

    held: list[tuple[Waiting, Answer]]
    """Once what has changed is stored."""

    members: list[str]
    """Member ids that are to be stored as they are, or forgotten where the group has none of the name."""

    group: bool
    """Whether the group itself is to be stored."""


# decision 180: no loop, no clock, no disk; one machine for the group and every member
class ConsumerGroup:
    """One consumer group: the hub assigns, and every member follows at its own pace."""

    def __init__(self) -> None:
        self.epoch = 0
        self.target_epoch = 0                              # of the group, for which targets were computed
        self.assignor = UNIFORM
        self.topics_digest = b""                           # of the wanted topics' partitions
        self.members: dict[str, ConsumerMember] = {}
        self.size_bytes = 0
        self._instances: dict[str, str] = {}
        self._holders: dict[int, str] = {}                 # member ids by partition id
        self._wanted: Counter[str] = Counter()             # how many members want a topic
        self._assignors: Counter[str] = Counter()          # how many members ask for an assignor
        self._topics_version = -1                          # that was looked at last
        self._assigned_ms = 0
        self._assign_at_ms = 0                             # 0: targets are those of the group's epoch
        self._answers: list[tuple[Waiting, Answer]] = []
        self._held: list[tuple[Waiting, Answer]] = []
        self._changed: dict[str, None] = {}
        self._group_changed = False

    # ---- what members ask for

    def beat(self, now_ms: int, beat: Beat, matched: frozenset[str] | None, rules: ConsumerRules, version: int,
             ranges_of: RangesOf, waiting: Waiting) -> None:
        """Join, or be there still. `matched` is what the member's pattern finds among the topics of `version`; None:
        what it matched before.

        Raises UnknownMember, FencedMember, FencedEpoch, InstanceTaken, GroupFull, UnknownAssignor.
        """
        check_assignor(beat.assignor)
        member = self._joining(beat, rules) if beat.epoch == JOINS else self._beating(beat)
        before = member.assigned
        wants_anew = self._hear(member, beat, matched)
        sees_anew = self._see(version, ranges_of)
        if wants_anew or sees_anew:
            self._advance(now_ms)
        self._assign_when_due(now_ms, ranges_of)
        self._reconcile(now_ms, member, beat.owned if beat.epoch != JOINS else NONE)
        if member.pace is not Pace.UNREVOKED:
            member.revoke_until_ms = 0
        member.expires_ms = now_ms + (rules.session_ms if member.classic is None else member.classic.session_ms)
        tell = beat.epoch == JOINS or beat.is_full or member.assigned != before
        # decision 182: who waits for others asks soon
        behind = member.pace is Pace.UNRELEASED or member.epoch != self.epoch
        answer = Beaten(member.id, member.epoch, min(rules.heartbeat_ms, SOON_MS) if behind else rules.heartbeat_ms,
                        member.assigned if tell else None)
        (self._held if self._changed or self._group_changed else self._answers).append((waiting, answer))

    def leave(self, now_ms: int, member_id: str, instance_id: str | None, for_a_while: bool, ranges_of: RangesOf,
              waiting: Waiting) -> None:
        """Be a member no more; a static one may say that it comes back. Raises UnknownMember, FencedMember."""
        if instance_id is not None:
            member = self._static(member_id, instance_id)
        else:
            member = self._require(member_id)
        if for_a_while and instance_id is not None:
            member.is_away = True
            self._changed[member.id] = None
        else:
            self._remove(member)
            self._advance(now_ms)
            self._assign_when_due(now_ms, ranges_of)
        epoch = LEAVES_FOR_A_WHILE if for_a_while else LEAVES
        self._held.append((waiting, Beaten(member_id, epoch, 0, None)))

    def require_commit(self, member_id: str, instance_id: str | None, epoch: int) -> None:
        """Whether these offsets are for this member to commit; without an epoch, for somebody who is no member.

        Raises UnknownMember, StaleEpoch.
        """
        if epoch < 0 and not self.members:
            return
        if epoch < 0 and not member_id and instance_id is None:
            raise UnknownMember("the group has members: only they commit its offsets")
        self.require_epoch(member_id, epoch)

    def require_epoch(self, member_id: str, epoch: int) -> None:
        """Raises UnknownMember, StaleEpoch, of a member of the classic protocol StaleGeneration."""
        member = self._require(member_id)
        if member.classic is not None:
            self._require_generation(member, epoch)
        elif epoch != member.epoch:
            raise StaleEpoch(f"the member is in epoch {member.epoch}, not {epoch}")

    def describe(self) -> DescribedConsumers:
        return DescribedConsumers(self.state, self.epoch, self.target_epoch, self.assignor, tuple(
            DescribedConsumer(member.id, member.instance_id, member.rack_id, member.epoch, member.client_id,
                              member.client_host, member.topics, member.pattern, member.matched, member.assigned,
                              member.target, member.classic is not None) for member in self.members.values()))

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        stable = all(member.epoch == self.target_epoch and member.pace is Pace.STABLE
                     for member in self.members.values())
        return GroupState.STABLE if stable else GroupState.RECONCILING

    # ---- members of the classic protocol, for which a member's epoch is the generation

    def heartbeat(self, now_ms: int, member_id: str, instance_id: str | None, generation: int) -> None:
        """Be there still. Raises UnknownMember, FencedMember, StaleGeneration; Rebalancing where the member is to join
        again, and it is there all the same."""
        member = self._classic(member_id, instance_id, generation)
        assert member.classic is not None
        member.expires_ms = now_ms + member.classic.session_ms
        waits = member.pace is Pace.UNRELEASED and not any(
            partition_id not in self._holders for partition_id in member.target - member.assigned)
        if member.epoch < self.target_epoch or member.pace is Pace.UNREVOKED \
                or member.pace is Pace.UNRELEASED and not waits:
            member.revoke_until_ms = member.revoke_until_ms or now_ms + member.rebalance_ms
            raise Rebalancing("there is another assignment for this member: it joins again")

    def sync(self, now_ms: int, member_id: str, instance_id: str | None, generation: int) -> frozenset[int]:
        """What the member may have. Raises UnknownMember, FencedMember, StaleGeneration."""
        member = self._classic(member_id, instance_id, generation)
        assert member.classic is not None
        member.expires_ms = now_ms + member.classic.session_ms
        return member.assigned

    def member_id(self, member_id: str, instance_id: str | None) -> str:
        """"" with an instance id is whoever has it."""
        return self._instances.get(instance_id, "") if instance_id is not None and not member_id else member_id

    @property
    def is_all_classic(self) -> bool:
        """Whether it has members, and all follow the classic protocol: then it need be no consumer group."""
        return bool(self.members) and all(member.classic is not None for member in self.members.values())

    def shares_protocol(self, member_id: str, names: list[str]) -> bool:
        """Whether all others that follow the classic protocol know one of these: by that they go on without the hub."""
        common = set(names)
        for member in self.members.values():
            if member.classic is not None and member.id != member_id:
                common.intersection_update([name for name, _ in member.classic.protocols])
        return bool(common)

    def _classic(self, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
        member = self._require(member_id) if instance_id is None else self._static(member_id, instance_id)
        if member.classic is None:
            raise UnknownMember(f"the member {member_id!r} follows the consumer protocol")
        self._require_generation(member, generation)
        return member

    @staticmethod
    def _require_generation(member: ConsumerMember, generation: int) -> None:
        if generation not in (-1, member.epoch):
            raise StaleGeneration(f"the member is in generation {member.epoch}, not {generation}")

    # ---- what the clock says

    def next_ms(self) -> int | None:
        """When `on_time` is to be called; None: never."""
        times = [member.expires_ms for member in self.members.values()]
        times += [member.revoke_until_ms for member in self.members.values() if member.revoke_until_ms]
        if self._assign_at_ms:
            times.append(self._assign_at_ms)
        return min(times, default=None)

    def on_time(self, now_ms: int, ranges_of: RangesOf) -> None:
        """Do what has fallen due."""
        gone = [member for member in self.members.values() if member.expires_ms <= now_ms
                or 0 < member.revoke_until_ms <= now_ms]
        for member in gone:
            self._remove(member)
        if gone:
            self._advance(now_ms)
        self._assign_when_due(now_ms, ranges_of)

    def restore(self, now_ms: int, epoch: int, target_epoch: int, assignor: str, topics_digest: bytes,
                members: list[ConsumerMember], rules: ConsumerRules) -> None:
        """Be as it was stored: its members have a session's time to be heard of."""
        self.epoch, self.target_epoch, self.assignor, self.topics_digest = epoch, target_epoch, assignor, topics_digest
        for member in members:
            member.expires_ms = now_ms + (rules.session_ms if member.classic is None else member.classic.session_ms)
            if member.revoking:
                member.revoke_until_ms = now_ms + member.rebalance_ms
            self._enter(member)
            for partition_id in member.assigned | member.revoking:
                self._holders.setdefault(partition_id, member.id)
        if self.epoch > self.target_epoch:
            self._assign_at_ms = now_ms

    def store_all(self, refused: Iterable[str] = ()) -> None:
        """What was to be stored is not: everything is, with the next change. Of the `refused` some have left."""
        self._changed.update(dict.fromkeys([*self.members, *refused], None))
        self._group_changed = True

    def take(self) -> Changes:
        """What is to be done, once."""
        changes = Changes(self._answers, self._held, list(self._changed), self._group_changed)
        self._answers, self._held, self._changed, self._group_changed = [], [], {}, False
        return changes

    # ---- who asks

    def _joining(self, beat: Beat, rules: ConsumerRules) -> ConsumerMember:
        """The member that joins: new, in the place of the one before, or once more."""
        holder = None if beat.instance_id is None else self._instances.get(beat.instance_id)
        if holder is not None and holder != beat.member_id:
            return self._replaced(self.members[holder], beat)
        member = self.members.get(beat.member_id)
        if member is None:
            if len(self.members) >= rules.max_members:
                raise GroupFull(f"the group has {rules.max_members} members, as many as may be")
            member = ConsumerMember(beat.member_id)
            member.instance_id, member.classic = beat.instance_id, beat.classic
            self._enter(member)
        elif member.instance_id != beat.instance_id:
            raise FencedMember(f"the member {beat.member_id!r} has another instance id")
        member.is_away = False
        self._release(member, member.assigned | member.revoking)
        member.assigned = member.revoking = NONE
        member.pace, member.epoch, member.revoke_until_ms = Pace.STABLE, 0, 0
        return member

    def _replaced(self, old: ConsumerMember, beat: Beat) -> ConsumerMember:
        """A static member has come back under another member id: it takes its old place."""
        if not old.is_away and old.classic is None and beat.classic is None:
            raise InstanceTaken(f"a member with the instance id {beat.instance_id!r} is in the group")
        self._leave_quietly(old)
        self._release(old, old.assigned | old.revoking)
        member = ConsumerMember(beat.member_id)
        for name in ("instance_id", "rack_id", "client_id", "client_host", "rebalance_ms", "topics", "pattern",
                     "matched", "assignor", "target"):
            setattr(member, name, getattr(old, name))
        self._enter(member)
        return member

    def _beating(self, beat: Beat) -> ConsumerMember:
        """The member whose heartbeat this is, in its epoch, or in the one before where it has not heard of the new
        one."""
        if beat.instance_id is not None:
            member = self._static(beat.member_id, beat.instance_id)
        else:
            member = self._require(beat.member_id)
        missed = (beat.epoch == member.previous_epoch and beat.owned is not None
                  and beat.owned <= member.assigned | member.revoking)
        if beat.epoch != member.epoch and not missed or member.is_away:
            raise FencedEpoch(f"the member is in epoch {member.epoch}, not {beat.epoch}")
        return member

    def _static(self, member_id: str, instance_id: str) -> ConsumerMember:
        holder = self._instances.get(instance_id)
        if holder is None:
            raise UnknownMember(f"the group has no static member {instance_id!r}")
        if holder != member_id:
            raise FencedMember(f"another member has the instance id {instance_id!r}")
        return self.members[holder]

    def _require(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"the group has no member {member_id!r}")
        return member

    # ---- who is in it, and what they want

    def _enter(self, member: ConsumerMember) -> None:
        self.members[member.id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.id
        self._changed[member.id] = None

    def _leave_quietly(self, member: ConsumerMember) -> None:
        self._count(member, -1)
        del self.members[member.id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._changed[member.id] = None

    def _remove(self, member: ConsumerMember) -> None:
        self._leave_quietly(member)
        self._release(member, member.assigned | member.revoking)

    def _count(self, member: ConsumerMember, by: int) -> None:
        """What it says counts, by 1, or does not any more, by -1."""
        self.size_bytes += by * member.said_bytes
        counted = [(self._wanted, name) for name in member.wanted]
        counted += [] if member.assignor is None else [(self._assignors, member.assignor)]
        for counter, name in counted:
            counter[name] += by
            if not counter[name]:
                del counter[name]

    def _hear(self, member: ConsumerMember, beat: Beat, matched: frozenset[str] | None) -> bool:
        """Take down what it says; whether the group has to be assigned anew for it."""
        says = {"rack_id": beat.rack_id, "rebalance_ms": beat.rebalance_ms, "topics": beat.topics,
                "pattern": beat.pattern, "matched": NO_TOPICS if beat.pattern == "" else matched,
                "assignor": beat.assignor, "classic": beat.classic}
        if beat.epoch == JOINS:
            says |= {"client_id": beat.client_id, "client_host": beat.client_host}
        news = {name: value for name, value in says.items() if value is not None and value != getattr(member, name)}
        is_new = not member.epoch and not member.previous_epoch and not member.target
        if news:
            before = (member.wanted, member.assignor)
            self._count(member, -1)
            for name, value in news.items():
                setattr(member, name, value)
            self._count(member, 1)
            self._changed[member.id] = None
            return is_new or before != (member.wanted, member.assignor)
        return is_new

    def _see(self, version: int, ranges_of: RangesOf) -> bool:
        """Look at the topics that members want; whether their partitions are others than before."""
        if version == self._topics_version:
            return False
        self._topics_version = version
        return self._digest(ranges_of) != self.topics_digest

    def _digest(self, ranges_of: RangesOf) -> bytes:
        digest = blake2b(digest_size=16)
        for name in sorted(self._wanted):
            digest.update(repr((name, ranges_of(name))).encode())
        return digest.digest()

    # ---- targets

    def _advance(self, now_ms: int) -> None:
        """The group is in its next epoch, for which targets are to be computed."""
        self.epoch += 1
        self._group_changed = True
        if not self._assign_at_ms:
            batch_ms = BATCH_MS * len(self.members) if len(self.members) >= BATCHED_FROM else 0
            self._assign_at_ms = max(now_ms, self._assigned_ms + batch_ms)

    # decision 181: from fifty members on, not once for each of them
    def _assign_when_due(self, now_ms: int, ranges_of: RangesOf) -> None:
        if not self._assign_at_ms or self._assign_at_ms > now_ms:
            return
        self._assign_at_ms, self._assigned_ms, self.target_epoch = 0, now_ms, self.epoch
        self._group_changed, self.topics_digest = True, self._digest(ranges_of)
        asked = self._assignors.most_common(1)
        self.assignor = asked[0][0] if asked else UNIFORM
        wishes = {member.id: Wish(member.wanted, member.target, member.rank) for member in self.members.values()}
        partitions = {name: [each for first, count in ranges_of(name) for each in range(first, first + count)]
                      for name in self._wanted}
        for member_id, target in ASSIGNORS[self.assignor](wishes, partitions).items():
            member = self.members[member_id]
            if target != member.target:
                self.size_bytes += PARTITION_BYTES * (len(target) - len(member.target))
                member.target = target
                self._changed[member_id] = None

    def _reconcile(self, now_ms: int, member: ConsumerMember, owned: frozenset[int] | None) -> None:
        """Take a member on towards its target, as far as it has given up what it was to, and others have."""
        if member.pace is Pace.UNREVOKED:
            if owned is None or owned & member.revoking:
                return
            self._release(member, member.revoking)
            member.revoking, member.revoke_until_ms = NONE, 0
        elif member.pace is Pace.STABLE and member.epoch == self.target_epoch:
            return
        kept = member.assigned & member.target
        revoking = member.assigned - member.target
        if revoking and (owned is None or owned & revoking):
            self._place(member, member.epoch, kept, Pace.UNREVOKED)
            member.revoking, member.revoke_until_ms = revoking, now_ms + member.rebalance_ms
            return
        self._release(member, revoking)
        free = {partition_id for partition_id in member.target - kept if partition_id not in self._holders}
        for partition_id in free:
            self._holders[partition_id] = member.id
        assigned = kept | free
        self._place(member, self.target_epoch, assigned,
                    Pace.STABLE if assigned == member.target else Pace.UNRELEASED)

    def _place(self, member: ConsumerMember, epoch: int, assigned: frozenset[int], pace: Pace) -> None:
        if (member.epoch, member.assigned, member.pace) != (epoch, assigned, pace):
            if epoch != member.epoch:
                member.previous_epoch, member.epoch = member.epoch, epoch
            member.assigned, member.pace = assigned, pace
            self._changed[member.id] = None

    def _release(self, member: ConsumerMember, partition_ids: frozenset[int]) -> None:
        """Others may hold these now."""
        for partition_id in partition_ids:
            if self._holders.get(partition_id) == member.id:
                del self._holders[partition_id]
