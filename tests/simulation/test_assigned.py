"""Members of assigned groups in the simulator, and whether it would notice a promise to them that is not kept."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gatehouse.kernel.assigned import assigned_groups
from gatehouse.kernel.assigned.assigned_groups import AssignedGroups
from gatehouse.kernel.assigned.classic_group import ClassicGroup
from tests.simulation.rounds import Failure, crash_at_every_write, simulate

SEEDS_TO_NOTICE = range(1, 31)


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_random_plan_of_members(seed: int) -> None:
    simulate(seed, 150, about="assigned")


@pytest.mark.parametrize("seed", [7, 9])
def test_members_and_a_crash_at_every_write(seed: int) -> None:
    assert crash_at_every_write(seed, 40, about="assigned") > 20


# ---- with a promise taken out

Patch = Callable[[pytest.MonkeyPatch], None]


def telling_an_assignment_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    real = AssignedGroups._write

    def write(groups: Any, entry: Any, held: Any) -> None:
        real(groups, entry, held)
        entry.group.stored(groups._loop.now_ms(), entry.group.generation, None)
        groups._tell(entry.group.take().answers)

    patch.setattr(AssignedGroups, "_write", write)


def forgetting_the_generation_at_a_start(patch: pytest.MonkeyPatch) -> None:
    real = ClassicGroup.restore
    patch.setattr(ClassicGroup, "restore", lambda group, now_ms, generation, *rest: real(group, now_ms, 0, *rest))


def forgetting_assignments_at_a_start(patch: pytest.MonkeyPatch) -> None:
    real = assigned_groups.restore_members

    def restore(group: ClassicGroup, *arguments: Any) -> bool:
        is_ours = real(group, *arguments)
        for member in group.members.values():
            member.assignment = b""
        return is_ours

    patch.setattr(assigned_groups, "restore_members", restore)


@pytest.mark.parametrize("mutant", [
    telling_an_assignment_before_it_is_durable, forgetting_the_generation_at_a_start,
    forgetting_assignments_at_a_start])
def test_a_promise_that_is_not_kept_is_noticed(mutant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(Failure):
        for seed in SEEDS_TO_NOTICE:
            simulate(seed, 200, about="assigned")
