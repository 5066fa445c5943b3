"""Ways to share partitions out among the members of a group: uniform and range. Pure.

`uniform` gives every member as many partitions as any other, as far as members want the same topics, and moves as few
as possible: what a member has it keeps, but for what it has too many of. `range` gives every member the same slice of
each topic, so that equal keys of two topics are with one member.

Both give every partition of a wanted topic to exactly one member that wants the topic, and are the same for the same
arguments in any order.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple

MAX_ROUNDS: Final = 10
"""In which pools of partitions with different members are balanced again."""

Partitions = Mapping[str, Sequence[int]]
"""Partition ids by topic, in the topic's order."""

Parts = dict[str, frozenset[int]]
"""Partition ids by member."""


class Wish(NamedTuple):
    """What one member wants, and what it has."""

    topics: frozenset[str]
    has: frozenset[int]
    rank: str
    """Members are taken in this order where the order matters: the instance id of a static member, which outlives a
    member id."""


def uniform(wishes: Mapping[str, Wish], partitions: Partitions) -> Parts:
    parts: dict[str, set[int]] = {}
    wanted: dict[str, list[str]] = {}                        # members by topic
    for member in sorted(wishes, key=lambda each: (wishes[each].rank, each)):
        parts[member] = set()
        for topic in wishes[member].topics:
            wanted.setdefault(topic, []).append(member)
    pools: dict[tuple[str, ...], list[int]] = {}             # partitions of topics that the same members want
    for topic in sorted(wanted):
        pools.setdefault(tuple(wanted[topic]), []).extend(partitions.get(topic, ()))
    holders = {partition: member for member, wish in wishes.items() for partition in wish.has}
    taken = 0
    for members, pool in sorted(pools.items(), key=lambda row: len(row[0])):
        taken += len(pool)
        may_have = set(members)
        free = []
        for partition in pool:
            holder = holders.get(partition)
            if holder in may_have and holder is not None:
                parts[holder].add(partition)
            else:
                free.append(partition)
        _hand_out(members, free, parts)
    for _ in range(MAX_ROUNDS if len(pools) > 1 else 1):
        if not sum([_balance(members, pool, parts) for members, pool in pools.items()]):
            break
    assert sum(map(len, parts.values())) == taken, "every partition has one member"
    return {member: frozenset(part) for member, part in parts.items()}


def _hand_out(members: tuple[str, ...], free: list[int], parts: dict[str, set[int]]) -> None:
    """Each to whoever has fewest."""
    heap = [(len(parts[member]), number) for number, member in enumerate(members)]
    heapify(heap)
    for partition in free:
        count, number = heap[0]
        parts[members[number]].add(partition)
        heapreplace(heap, (count + 1, number))


def _balance(members: tuple[str, ...], pool: list[int], parts: dict[str, set[int]]) -> int:
    """Move partitions of the pool from who has most to who has fewest, while they differ by more than one; says how
    many were moved."""
    if len(members) < 2:
        return 0
    inside = set(pool)
    least = [(len(parts[member]), number) for number, member in enumerate(members)]
    heapify(least)
    most = [(-len(parts[member]), number) for number, member in enumerate(members)]
    heapify(most)
    movable: dict[int, list[int]] = {}
    moved = 0
    while most:
        count, giver = most[0]
        while least[0][0] != len(parts[members[least[0][1]]]):         # it has got or given since
            heapreplace(least, (len(parts[members[least[0][1]]]), least[0][1]))
        taker = least[0][1]
        if -count != len(parts[members[giver]]):
            heappop(most)
            heappush(most, (-len(parts[members[giver]]), giver))
            continue
        if -count - least[0][0] < 2:
            break
        if giver not in movable:
            movable[giver] = sorted(parts[members[giver]] & inside)
        if not movable[giver]:
            heappop(most)                                              # what it has is not of this pool
            continue
        partition = movable[giver].pop()
        parts[members[giver]].discard(partition)
        parts[members[taker]].add(partition)
        movable.pop(taker, None)
        moved += 1
    return moved


def ranged(wishes: Mapping[str, Wish], partitions: Partitions) -> Parts:
    parts: dict[str, list[int]] = {member: [] for member in wishes}
    wanted: dict[str, list[str]] = {}
    for member in sorted(wishes, key=lambda each: (wishes[each].rank, each)):
        for topic in wishes[member].topics:
            wanted.setdefault(topic, []).append(member)
    for topic, members in wanted.items():
        there = list(partitions.get(topic, ()))
        each, more = divmod(len(there), len(members))
        begin = 0
        for number, member in enumerate(members):
            end = begin + each + (number < more)
            parts[member] += there[begin:end]
            begin = end
    return {member: frozenset(part) for member, part in parts.items()}


UNIFORM: Final = "uniform"
RANGE: Final = "range"

ASSIGNORS: Final[dict[str, Callable[[Mapping[str, Wish], Partitions], Parts]]] = {UNIFORM: uniform, RANGE: ranged}
"""By name, the one that is taken where nobody says first."""
