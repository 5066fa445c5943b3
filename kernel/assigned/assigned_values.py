"""The plain values of assigned groups that cross between doors and kernel."""
from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class GroupState(Enum):
    """What a group of members is doing. The values are Kafka's words."""

    EMPTY = "Empty"                       # it has no members; offsets, perhaps
    PREPARING = "PreparingRebalance"      # members join
    COMPLETING = "CompletingRebalance"    # all have joined, the leader assigns
    ASSIGNING = "Assigning"               # members of a consumer group have changed, the hub has yet to assign
    RECONCILING = "Reconciling"           # members of a consumer group are on their way to what they are to have
    STABLE = "Stable"                     # everybody has partitions
    DEAD = "Dead"                         # it is forgotten


class GroupRules(NamedTuple):
    """What may be set about groups of members."""

    initial_delay_ms: int = 0
    """How long the first member of an empty group waits for others before partitions are shared out."""

    max_members: int = 1_000


class Joining(NamedTuple):
    """What a client says of itself when it joins a group."""

    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Ways to share partitions out that it knows, the best first, each with what its leader is to know."""

    member_id: str = ""
    """As the group gave it; "" where it has none yet."""

    instance_id: str | None = None
    """The name of a static member: whoever comes under it takes the place of the one before, with its partitions."""

    client_id: str = ""
    client_host: str = ""
    session_ms: int = 45_000
    """A member that says nothing for so long is one no more."""

    rebalance_ms: int = 300_000
    """How long the member may take to join again, and to tell or to take the assignment."""

    comes_again: bool = True
    """A new client can be told to come again with its member id."""

    may_skip: bool = True
    """A leader that has come back under its instance id can be told to assign nothing."""

    @property
    def said_bytes(self) -> int:
        """What it says of itself, names included."""
        return len(self.protocol_type) + sum([len(name) + len(metadata) for name, metadata in self.protocols])

    @property
    def protocol_names(self) -> list[str]:
        """What it knows, the best first, each once."""
        return list(dict.fromkeys([name for name, _ in self.protocols]))


class Joined(NamedTuple):
    """The answer to who has joined."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """For the leader: (member id, instance id, what it says under the chosen protocol) of everybody."""

    skip_assignment: bool = False


class Assigned(NamedTuple):
    """A member's part of the assignment, as its leader wrote it."""

    protocol_type: str
    protocol: str
    assignment: bytes


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    """What it says under the chosen protocol; while none is chosen, under its own best one."""

    assignment: bytes


class DescribedGroup(NamedTuple):
    """A group of members as it is now."""

    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


# ---- for people: groups of either protocol

class MemberLook(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    generation: int
    partition_ids: frozenset[int]
    """That it may read, as far as the hub understands its assignment."""


class GroupLook(NamedTuple):
    state: GroupState
    protocol: str
    """`classic` or `consumer`."""

    assignor: str
    generation: int
    members: tuple[MemberLook, ...]


# ---- consumer groups: the hub assigns

class ConsumerRules(NamedTuple):
    """What may be set about consumer groups."""

    session_ms: int = 45_000
    """A member that says nothing for so long is one no more."""

    heartbeat_ms: int = 3_000
    """How often a member is to say that it is there."""

    max_members: int = 1_000


class ClassicSide(NamedTuple):
    """What a member of a consumer group says that follows the classic protocol, for when all others do again."""

    protocols: tuple[tuple[str, bytes], ...]
    session_ms: int


class Beat(NamedTuple):
    """A heartbeat of a member of a consumer group: what it says of itself, and what it has. None: as it said before."""

    member_id: str
    epoch: int
    """As the group gave it; 0 joins."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_ms: int | None = None
    """How long the member may take to give partitions up."""

    topics: frozenset[str] | None = None
    pattern: str | None = None
    """A regular expression of more topics; "" for none."""

    assignor: str | None = None
    owned: frozenset[int] | None = None
    """The partition ids that it has now."""

    classic: ClassicSide | None = None
    """What it said where it follows the classic protocol."""

    @property
    def said_bytes(self) -> int:
        """What it says of itself."""
        return sum([len(name) + 64 for name in self.topics or ()]) + len(self.pattern or "")

    @property
    def is_full(self) -> bool:
        """Whether it says everything: then it is told everything, too."""
        return (self.rebalance_ms is not None and self.owned is not None
                and (self.topics is not None or self.pattern is not None))


class Beaten(NamedTuple):
    """The answer to a heartbeat."""

    member_id: str
    epoch: int
    heartbeat_ms: int
    assigned: frozenset[int] | None
    """The partition ids that it may have; None: as it was told before."""


class DescribedConsumer(NamedTuple):
    """A member of a consumer group."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: frozenset[str]
    """That it named."""

    pattern: str
    matched: frozenset[str]
    """The topics that its regular expression matches."""

    assigned: frozenset[int]
    target: frozenset[int]
    is_classic: bool = False
    """It follows the classic protocol."""


class DescribedConsumers(NamedTuple):
    """A consumer group as it is now."""

    state: GroupState
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]
