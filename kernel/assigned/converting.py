"""A group that goes from one protocol to the other while it has members.

    classic members ── one joins by the consumer protocol ──► a consumer group, with their epoch and what they have
    consumer group ── the last of that protocol leaves ──► a classic group, which is shared out anew
"""
from __future__ import annotations

from collections.abc import Callable

from gatehouse.kernel.assigned.assigned_values import ClassicSide, ConsumerRules, GroupState, Joining
from gatehouse.kernel.assigned.classic_group import ClassicGroup, GroupMember
from gatehouse.kernel.assigned.consumer_group import ConsumerGroup, ConsumerMember
from gatehouse.kernel.assigned.consumer_groups import understood
from gatehouse.kernel.assigned.consumer_protocol import PROTOCOL_TYPE, Parts, encode_assignment, read_assignment
from gatehouse.kernel.errors import InconsistentProtocol


# decision 185: members go on with what they have
def consumers_of(classic: ClassicGroup, now_ms: int, partition_ids: Callable[[Parts], frozenset[int]]) -> ConsumerGroup:
    """The consumer group that a classic group with members becomes. Raises InconsistentProtocol where the hub does not
    understand what its members say to each other."""
    members = []
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
        assignment = each.assignment if classic.state is GroupState.STABLE else b""
        member.assigned = member.target = partition_ids(read_assignment(assignment)) - held
        held |= member.assigned
        member.epoch = member.previous_epoch = epoch
        members.append(member)
    group = ConsumerGroup()
    group.restore(now_ms, epoch, epoch, group.assignor, b"", members, ConsumerRules())
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
