"""The plain values of assigned groups that cross between doors and kernel."""
from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class GroupState(Enum):
    """What a group of members is doing. The values are Kafka's words."""

    EMPTY = "Empty"                       # it has no members; offsets, perhaps
    PREPARING = "PreparingRebalance"      # members join
    COMPLETING = "CompletingRebalance"    # all have joined, the leader assigns
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
