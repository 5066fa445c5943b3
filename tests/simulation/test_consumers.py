"""Members of consumer groups in the simulator, and whether it would notice a promise to them that is not kept."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gatehouse.kernel.assigned.consumer_group import NONE, ConsumerGroup
from gatehouse.kernel.assigned.consumer_groups import ConsumerGroups
from tests.simulation.rounds import Failure, crash_at_every_write, simulate

SEEDS_TO_NOTICE = range(1, 31)


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_random_plan_of_consumers(seed: int) -> None:
    simulate(seed, 200, about="consumers")


@pytest.mark.parametrize("seed", [2])
def test_consumers_and_a_crash_at_every_write(seed: int) -> None:
    assert crash_at_every_write(seed, 60, about="consumers") > 20


# ---- with a promise taken out

Patch = Callable[[pytest.MonkeyPatch], None]


def telling_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    real = ConsumerGroups._write

    def write(groups: Any, entry: Any, changes: Any) -> None:
        groups._tell(changes.held)
        real(groups, entry, changes._replace(held=[]))

    patch.setattr(ConsumerGroups, "_write", write)


def forgetting_what_is_to_be_given_up_at_a_start(patch: pytest.MonkeyPatch) -> None:
    real = ConsumerGroup.restore

    def restore(group: Any, now_ms: int, epoch: int, target_epoch: int, assignor: str, digest: bytes,
                members: list[Any], rules: Any) -> None:
        for member in members:
            member.revoking = NONE
        real(group, now_ms, epoch, target_epoch, assignor, digest, members, rules)

    patch.setattr(ConsumerGroup, "restore", restore)


def storing_the_first_member_that_changed_alone(patch: pytest.MonkeyPatch) -> None:
    real = ConsumerGroups._write

    def write(groups: Any, entry: Any, changes: Any) -> None:
        real(groups, entry, changes._replace(members=changes.members[:1]))

    patch.setattr(ConsumerGroups, "_write", write)


@pytest.mark.parametrize("mutant", [
    telling_before_it_is_durable, forgetting_what_is_to_be_given_up_at_a_start,
    storing_the_first_member_that_changed_alone])
def test_a_promise_that_is_not_kept_is_noticed(mutant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(Failure):
        for seed in SEEDS_TO_NOTICE:
            simulate(seed, 250, about="consumers")
