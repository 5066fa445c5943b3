"""Assigned groups in the kernel alone: how long a rebalance takes, and what ten thousand groups that commit cost.

    python -m bench.assigned_groups [--members 100] [--groups 10000] [--rounds 20]

A rebalance is from the leave of one member to the last part of the new assignment: all others join and ask for their
part at once, as if no client took time; the assignment is durable before anybody hears it. In the second figure each
group has one member, which commits the offset of one partition; the clock stops when the last commit is durable.
"""
from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from bench.kernel_rig import Answered, KernelRig, run_on_kernel
from gatehouse.kernel.assigned.assigned_values import Assigned, GroupRules, Joined, Joining

RULES = GroupRules(0, 10_000)
METADATA = b"\0\1\0\0\0\1\0\5plant" + b"\xff" * 4
PART = b"\0\1\0\0\0\1\0\5plant" + bytes(20)


class GroupClient:
    """One member; `joined` is what it was told last."""

    def __init__(self, rig: KernelRig, group: str) -> None:
        self._groups = rig.kernel.assigned
        self.group = group
        self.joined: Any = None

    def join(self) -> None:
        protocols = (("range", METADATA), ("cooperative-sticky", METADATA))
        member_id = self.joined.member_id if self.joined else ""
        self._groups.join(self.group, Joining("consumer", protocols, member_id, comes_again=False), RULES,
                          partial(setattr, self, "joined"))

    def sync(self, on_part: Callable[[Any], None]) -> None:
        assert isinstance(self.joined, Joined), self.joined
        parts = {member_id: PART for member_id, _, _ in self.joined.members}
        self._groups.sync(self.group, self.joined.member_id, None, self.joined.generation, (None, None), parts,
                          on_part)


async def sync_all(clients: list[GroupClient]) -> None:
    """Everybody asks for its part, and has it."""
    waiting, all_told = len(clients), asyncio.Event()

    def on_part(part: Any) -> None:
        nonlocal waiting
        assert isinstance(part, Assigned), part
        waiting -= 1
        if not waiting:
            all_told.set()

    for client in clients:
        client.sync(on_part)
    await all_told.wait()


async def rebalances(rig: KernelRig, members: int, rounds: int) -> list[float]:
    """Seconds of each."""
    clients = [GroupClient(rig, "workers") for _ in range(members)]
    for client in clients:
        client.join()
    clients[0].join()                      # the first was alone in its generation
    await sync_all(clients)
    took = []
    for _ in range(rounds):
        begun = time.perf_counter()
        rig.kernel.assigned.leave("workers", [(clients[-1].joined.member_id, None)])
        clients[-1] = GroupClient(rig, "workers")
        for client in reversed(clients):   # the new one first: the others would go on without it
            client.join()
        await sync_all(clients)
        took.append(time.perf_counter() - begun)
    return took


async def commits(rig: KernelRig, groups: int, rounds: int) -> list[float]:
    """Commits a second, in each round."""
    partition_id = rig.kernel.create_topic("plant").partition_id(0)
    clients = [GroupClient(rig, f"group-{number}") for number in range(groups)]
    for client in clients:
        client.join()
    await sync_all(clients)
    rates, stored = [], Answered()
    for number in range(rounds):
        begun = time.perf_counter()
        for client in clients:
            rig.kernel.assigned.commit_offsets(client.group, {partition_id: (number, b"")}, stored, None,
                                               client.joined.member_id, None, client.joined.generation)
        await stored.wait((number + 1) * groups)
        rates.append(groups / (time.perf_counter() - begun))
    return rates


async def measure(options: argparse.Namespace, rig: KernelRig) -> None:
    took = await rebalances(rig, options.members, options.rounds)
    print(f"a rebalance of {options.members} members: {median(took) * 1000:.1f} ms, at most {max(took) * 1000:.1f} ms")
    rates = await commits(rig, options.groups, options.rounds)
    print(f"{options.groups} groups commit: {median(rates):,.0f} a second, at least {min(rates):,.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.assigned_groups", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=100, help="of the group that is rebalanced")
    parser.add_argument("--groups", type=int, default=10_000, help="of one member, which commits")
    parser.add_argument("--rounds", type=int, default=20)
    run_on_kernel(measure, parser.parse_args())


if __name__ == "__main__":
    main()
