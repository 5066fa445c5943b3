"""Who is in a share group (KIP-932): its members by their ids, what each reads, and when it was last heard of.

Members are known while the hub runs, and forgotten when they are silent: a client whose member nobody knows joins
again, as Kafka's do. What a group has taken and settled is the kernel's, and lasts. Every member is given every
partition of its topics: messages are shared out one by one, so nobody needs a partition for himself.

Pure: time is an argument.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.kafka.error_codes import FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID
from gatehouse.gateways.kafka.mapping import Refused

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services

MAX_MEMBERS: Final = 20_000              # of all groups: each holds a client id and names of topics
MAX_BYTES: Final = 256 << 20             # that they take for their topics, by this reckoning:
TOPIC_BYTES: Final = 250                 # of one, with its name
LOOK_MS: Final = 1_000                   # between two looks at all of them, where there are as many

Assignment = tuple[tuple[str, bytes, int], ...]
"""(name, uuid, how many partitions) of each topic that is there."""


class ShareRules(NamedTuple):
    """What holds for the members of a group."""

    heartbeat_ms: int
    session_ms: int
    max_members: int


class ShareMember:
    """One client."""

    __slots__ = ("member_id", "rack", "client_id", "client_host", "topics", "epoch", "epoch_before", "assigned",
                 "heard_ms")

    def __init__(self, member_id: str, rack: str | None, client_id: str, client_host: str,
                 topics: frozenset[str]) -> None:
        self.member_id = member_id
        self.rack = rack
        self.client_id = client_id
        self.client_host = client_host
        self.topics = topics             # changed by `ShareGroups.subscribe`
        self.epoch = 0                   # rises with each assignment
        self.epoch_before = 0            # the one before: its client may not have heard of this one
        self.assigned: Assignment = ()
        self.heard_ms = 0

    @property
    def size_bytes(self) -> int:
        """What it takes for its topics."""
        return size_of(self.topics)


def size_of(topics: frozenset[str]) -> int:
    return TOPIC_BYTES * len(topics) + sum(map(len, topics))


class ShareGroup:
    """The members of one group; the epoch rises with each change of theirs."""

    __slots__ = ("members", "epoch", "session_ms")

    def __init__(self, session_ms: int) -> None:
        self.members: dict[str, ShareMember] = {}
        self.epoch = 0
        self.session_ms = session_ms     # how long a member may be silent, as was asked for last

    def silent(self, now_ms: int, session_ms: int | None = None) -> list[str]:
        """Members that have been silent for too long."""
        if session_ms is not None:
            self.session_ms = session_ms
        return [member.member_id for member in self.members.values() if member.heard_ms + self.session_ms <= now_ms]

    def first(self, topic: str) -> str:
        """The member that has been there for longest of those that read a topic; "" where none does."""
        return next((member.member_id for member in self.members.values() if topic in member.topics), "")

    def remove(self, member_id: str) -> ShareMember | None:
        """A member goes; None where it was not there."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self.epoch += 1
        return member

    def assign(self, member: ShareMember, assigned: Assignment) -> None:
        """What the member reads from now on."""
        self.epoch += 1
        member.epoch_before, member.epoch = member.epoch, self.epoch
        member.assigned = assigned


class ShareGroups:
    """All that have members, by tenant and name. One per hub."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], ShareGroup] = {}
        self._count = 0                  # of members
        self._bytes = 0                  # that they take for their topics
        self._looked_ms = 0              # when there were too many, and it was looked who is silent

    @staticmethod
    def of(services: Services) -> ShareGroups:
        """Those of the hub."""
        groups: ShareGroups = services.share(__name__, ShareGroups)
        return groups

    def get(self, tenant: str, name: str, now_ms: int, rules: ShareRules) -> ShareGroup | None:
        """A group without those that have been silent for too long; None where it has no members."""
        group = self._groups.get((tenant, name))
        if group is None:
            return None
        for member_id in group.silent(now_ms, rules.session_ms):
            self.leave(tenant, name, member_id)
        return group if group.members else None

    def _make_room(self, now_ms: int) -> None:
        """Forget those of all groups who are silent: nobody else asks for some of these any more."""
        if now_ms < self._looked_ms + LOOK_MS:
            return
        self._looked_ms = now_ms
        for (tenant, name), group in list(self._groups.items()):
            for member_id in group.silent(now_ms):
                self.leave(tenant, name, member_id)

    def join(self, tenant: str, name: str, member: ShareMember, now_ms: int, rules: ShareRules) -> ShareGroup:
        """A member comes, or comes again under the same id. Raises Refused where there are too many."""
        group = self.get(tenant, name, now_ms, rules)
        before = None if group is None else group.members.get(member.member_id)
        count = 0 if group is None else len(group.members)
        more_bytes = member.size_bytes - (0 if before is None else before.size_bytes)
        if self._is_full(before is None, more_bytes):
            self._make_room(now_ms)
        if before is None and count >= rules.max_members or self._is_full(before is None, more_bytes):
            raise Refused(GROUP_MAX_SIZE_REACHED, f"the group has {count} members, and all groups {self._count}: "
                                                  "as many as may be, or with as many topics")
        if group is None:
            group = self._groups[tenant, name] = ShareGroup(rules.session_ms)
        if before is None:
            self._count += 1
        else:
            member.epoch = before.epoch
        self._bytes += more_bytes
        group.members[member.member_id] = member
        member.heard_ms = now_ms
        return group

    def _is_full(self, one_more: bool, more_bytes: int) -> bool:
        return one_more and self._count >= MAX_MEMBERS or more_bytes > 0 and self._bytes + more_bytes > MAX_BYTES

    def subscribe(self, tenant: str, name: str, member: ShareMember, topics: frozenset[str], now_ms: int) -> None:
        """A member reads these from now on. Raises Refused where that is too much."""
        more_bytes = size_of(topics) - member.size_bytes
        if self._is_full(False, more_bytes):
            self._make_room(now_ms)
            if self._is_full(False, more_bytes):
                raise Refused(GROUP_MAX_SIZE_REACHED, "members of all groups read as many topics as may be")
        group = self._groups.get((tenant, name))
        if group is not None and group.members.get(member.member_id) is member:      # it may have gone meanwhile
            self._bytes += more_bytes
        member.topics = topics

    def find(self, tenant: str, name: str, member_id: str, epoch: int, now_ms: int, rules: ShareRules
             ) -> tuple[ShareGroup, ShareMember]:
        """A member that says it is there. Raises Refused where nobody knows it, or not at this epoch."""
        group = self.get(tenant, name, now_ms, rules)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            raise Refused(UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {name}.")
        if epoch not in (member.epoch, member.epoch_before):
            raise Refused(FENCED_MEMBER_EPOCH, f"the member is at epoch {member.epoch}, not at {epoch}")
        member.heard_ms = now_ms
        return group, member

    def leave(self, tenant: str, name: str, member_id: str) -> bool:
        """A member goes; whether it was there."""
        group = self._groups.get((tenant, name))
        member = None if group is None else group.remove(member_id)
        if group is None or member is None:
            return False
        self._count -= 1
        self._bytes -= member.size_bytes
        if not group.members:
            del self._groups[tenant, name]
        return True
