"""Ten thousand groups of one member each: all work, survive a crash, and go when nobody is heard of any more."""
from __future__ import annotations

from typing import Any, Final

from gatehouse.kernel.assigned.assigned_values import GroupState, Joined
from gatehouse.kernel.state.state import Kind
from tests.kernel.assigned.test_assigned_groups import RULES, SESSION_MS, joining
from tests.kernel.rig import Rig

GROUPS: Final = 10_000


def test_ten_thousand_groups_of_one_member() -> None:
    rig = Rig()
    names = [f"group-{number}" for number in range(GROUPS)]
    joined: dict[str, Joined] = {}

    def remember(name: str, answer: Any) -> None:
        if isinstance(answer, Joined):
            joined[name] = answer

    for name in names:
        rig.kernel.assigned.join(name, joining(), RULES, lambda answer, name=name: remember(name, answer))
    rig.run()
    assert len(joined) == GROUPS
    for name in names:
        member_id = joined[name].member_id
        rig.kernel.assigned.sync(name, member_id, None, 1, (None, None), {member_id: b"all"}, lambda answer: None)
    rig.run()
    assert len(dict(rig.kernel._state.scan(Kind.MEMBERS))) == GROUPS
    rig.restart()
    for name in names:
        rig.kernel.assigned.heartbeat(name, joined[name].member_id, None, 1)
    described = rig.kernel.assigned.describe(names[-1])
    assert described is not None and described.state is GroupState.STABLE
    rig.world.loop.advance(SESSION_MS)
    rig.run()
    described = rig.kernel.assigned.describe(names[0])
    assert described is not None and described.state is GroupState.EMPTY
