"""Members of both protocols in one group: it becomes a consumer group and a classic one again, over crashes too."""
from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.assigned.assigned_values import Assigned, Beat, Beaten, GroupRules, GroupState, Joined, Joining
from gatehouse.kernel.assigned.consumer_protocol import encode_assignment, read_assignment, read_subscription
from gatehouse.kernel.errors import (
    FencedMember,
    GroupFull,
    InconsistentProtocol,
    KernelError,
    MemberIdRequired,
    Rebalancing,
    StaleGeneration,
    UnknownMember,
)
from gatehouse.kernel.state.state import Kind
from tests.kernel.assigned.test_consumer_groups import GROUP, RULES, Consumer, numbers, rig_of, state_of
from tests.kernel.rig import Rig

SESSION_MS = 20_000


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def subscription(owned: list[int], version: int = 1, topic: str = "t") -> bytes:
    return struct.pack(">hi", version, 1) + text(topic) + struct.pack(">i", -1) + struct.pack(">i", 1) + text(topic) \
        + struct.pack(f">i{len(owned)}i", len(owned), *owned)


class Old:
    """A member of the classic protocol that keeps what it may (`cooperative`) or gives all up when it joins."""

    def __init__(self, rig: Rig, instance_id: str | None = None, is_cooperative: bool = False) -> None:
        self.rig = rig
        self.instance_id = instance_id
        self.is_cooperative = is_cooperative
        self.member_id = ""
        self.generation = -1
        self.owned: list[int] = []
        self.told: list[Any] = []

    def join(self, member_id: str | None = None) -> Any:
        owned = self.owned if self.is_cooperative else []
        joining = Joining("consumer", (("cooperative", subscription(owned)),), self.member_id if member_id is None
                          else member_id, self.instance_id, "old", "/10.0.0.2", SESSION_MS, 30_000, comes_again=False)
        self.rig.kernel.assigned.join(GROUP, joining, GroupRules(max_members=4), self.told.append)
        self.rig.run()
        answer = self.told[-1]
        if isinstance(answer, Joined):
            self.member_id, self.generation = answer.member_id, answer.generation
        return answer

    def sync(self, assignments: dict[str, bytes] | None = None) -> Any:
        self.rig.kernel.assigned.sync(GROUP, self.member_id, self.instance_id, self.generation,
                                      ("consumer", "cooperative"), assignments or {}, self.told.append)
        self.rig.run()
        answer = self.told[-1]
        if isinstance(answer, Assigned):
            self.owned = [number for _, parts in read_assignment(answer.assignment) for number in parts]
        return answer

    def beat(self) -> bool:
        """Whether all stays as it is; else it has joined again."""
        try:
            self.rig.kernel.assigned.heartbeat(GROUP, self.member_id, self.instance_id, self.generation)
            return True
        except Rebalancing:
            self.join()
            self.sync()
            return False

    def leave(self) -> list[KernelError | None]:
        refusals: list[KernelError | None] = self.rig.kernel.assigned.leave(GROUP, [(self.member_id, None)])
        self.rig.run()
        return refusals


def one_old(folder: Path | None = None, **fields: Any) -> Old:
    """A classic group of one member that has all of a topic."""
    old = Old(rig_of(folder=folder), **fields)
    joined = old.join()
    assert isinstance(joined, Joined)
    old.sync({joined.member_id: encode_assignment([("t", [0, 1, 2, 3])])})
    assert old.owned == [0, 1, 2, 3]
    return old


def rest(*members: Old | Consumer) -> None:
    for _ in range(6):
        for member in members:
            member.beat()


def read(rig: Rig, *members: Old | Consumer) -> list[int]:
    """Every partition that a member reads, of the topic `t`."""
    found: list[int] = []
    for member in members:
        found += member.owned if isinstance(member, Old) else numbers(rig, member.owned).get("t", [])
    return sorted(found)


# ---- there

@pytest.mark.parametrize("is_cooperative", [False, True])
def test_a_classic_group_becomes_a_consumer_group_when_one_joins_by_that(is_cooperative: bool) -> None:
    old = one_old(is_cooperative=is_cooperative)
    rig = old.rig
    new = Consumer(rig, "new")
    answer = new.beat()
    assert isinstance(answer, Beaten) and (answer.epoch, answer.assigned) == (2, frozenset())
    assert rig.kernel.assigned.describe(GROUP) is None and state_of(rig) is GroupState.RECONCILING
    described = rig.kernel.assigned.describe_consumers(GROUP)
    assert described is not None and {member.member_id: member.is_classic for member in described.members} \
        == {old.member_id: True, "new": False}
    assert not old.beat()
    rest(old, new)
    assert read(rig, old, new) == [0, 1, 2, 3] and len(old.owned) == 2 and state_of(rig) is GroupState.STABLE
    commit = rig.kernel.assigned.commit_offsets
    commit(GROUP, {}, None, None, old.member_id, None, old.generation)
    with pytest.raises(StaleGeneration):
        commit(GROUP, {}, None, None, old.member_id, None, old.generation - 1)
    rig.kernel.assigned.require_member(GROUP, old.member_id)


def test_one_that_waits_is_told_to_ask_again() -> None:
    old = one_old()
    rig, told = old.rig, list[Any]()
    joining = Joining("consumer", (("cooperative", subscription([])),), comes_again=False)
    rig.kernel.assigned.join(GROUP, joining, GroupRules(), told.append)        # until the first joins again
    assert not told
    Consumer(rig, "new").beat()
    assert isinstance(told[-1], Rebalancing)


def test_who_joins_again_when_the_group_goes_over_keeps_what_it_reads() -> None:
    old = one_old(is_cooperative=True)
    rig = old.rig
    joining = Joining("consumer", (("cooperative", subscription([])),), comes_again=False)
    rig.kernel.assigned.join(GROUP, joining, GroupRules(), [].append)          # so that everybody has to join again
    new = Consumer(rig, "new")
    new.beat()
    assert read(rig, old, new) == [0, 1, 2, 3]
    rest(old, new)
    assert len(set(read(rig, old, new))) == len(read(rig, old, new))


def test_who_has_not_heard_of_its_part_when_the_group_goes_over_keeps_what_it_said() -> None:
    old = one_old(is_cooperative=True)
    rig = old.rig
    joining = Joining("consumer", (("cooperative", subscription([])),), comes_again=False)
    rig.kernel.assigned.join(GROUP, joining, GroupRules(), [].append)
    old.join()                                                                 # everybody has, and the leader assigns
    rig.kernel.assigned.join(GROUP, joining, GroupRules(), [].append)          # and is not waited for
    new = Consumer(rig, "new")
    new.beat()
    assert read(rig, old, new) == [0, 1, 2, 3]
    old.join()
    old.sync()
    rest(old, new)
    assert len(set(read(rig, old, new))) == len(read(rig, old, new))


def test_more_classic_members_come_and_are_assigned_by_the_hub() -> None:
    old = one_old()
    rig = old.rig
    new, more = Consumer(rig, "new"), Old(rig)
    new.beat()
    joined = more.join()
    assert isinstance(joined, Joined) and joined.leader == "" and not joined.members
    assert isinstance(more.sync(), Assigned)
    rest(old, new, more)
    assert read(rig, old, new, more) == [0, 1, 2, 3] and state_of(rig) is GroupState.STABLE
    with pytest.raises(UnknownMember):
        Old(rig).join("stranger")
    with pytest.raises(MemberIdRequired) as required:
        rig.kernel.assigned.join(GROUP, Joining("consumer", (("cooperative", subscription([])),)), GroupRules(), print)
    assert isinstance(Old(rig).join(required.value.member_id), Joined)
    with pytest.raises(InconsistentProtocol):
        rig.kernel.assigned.join(GROUP, Joining("connect", (("range", subscription([])),)), GroupRules(), print)


def test_a_member_that_does_not_join_again_in_time_is_taken_out() -> None:
    old = one_old()
    rig = old.rig
    new = Consumer(rig, "new")
    new.beat()
    for _ in range(6):
        with pytest.raises(Rebalancing):
            rig.kernel.assigned.heartbeat(GROUP, old.member_id, None, old.generation)
        rig.world.loop.advance(5_000)
        rig.run()
        new.beat()
    rest(new)
    with pytest.raises(UnknownMember):
        rig.kernel.assigned.heartbeat(GROUP, old.member_id, None, old.generation)
    assert read(rig, new) == [0, 1, 2, 3]


def test_a_static_member_goes_over_in_its_place() -> None:
    old = one_old(instance_id="one")
    rig = old.rig
    new = Consumer(rig, "new", instance_id="one")
    assert numbers(rig, new.beat().assigned) == {"t": [0, 1, 2, 3]}
    with pytest.raises(FencedMember):
        rig.kernel.assigned.heartbeat(GROUP, old.member_id, "one", old.generation)


def test_a_static_member_whose_place_another_has_does_not_join_again() -> None:
    rig = rig_of()
    Consumer(rig, "new").beat()
    before, after = Old(rig, "one"), Old(rig, "one")
    before.join()
    after.join()
    with pytest.raises(FencedMember):
        before.join()


def test_members_that_the_hub_does_not_understand_stay_as_they_are() -> None:
    rig = rig_of()
    told: list[Any] = []
    rig.kernel.assigned.join(GROUP, Joining("connect", (("eager", b"\0"),), comes_again=False), GroupRules(),
                             told.append)
    with pytest.raises(InconsistentProtocol):
        Consumer(rig, "new").send()
    rig.run()
    assert isinstance(told[-1], Joined)


@pytest.mark.parametrize("says", [
    {"pattern": "("}, {"assignor": "magic"}, {"topics": frozenset(map(str, range(10_001)))}])
def test_who_is_refused_for_what_it_says_leaves_the_group_as_it_is(says: dict[str, Any]) -> None:
    old = one_old()
    assigned = old.rig.kernel.assigned
    with pytest.raises(KernelError):
        Consumer(old.rig, "new", **says).send()
    old.rig.run()
    described = assigned.describe(GROUP)
    assert described is not None and described.state is GroupState.STABLE and state_of(old.rig) is None
    assert old.beat(), "nobody joins again for it"


def test_a_full_group_does_not_go_over() -> None:
    old = one_old()
    beat = Beat("new", 0, topics=frozenset({"t"}), owned=frozenset(), rebalance_ms=1)
    with pytest.raises(GroupFull):
        old.rig.kernel.assigned.beat(GROUP, beat, RULES._replace(max_members=1), bool, print)
    assert old.beat()


# ---- and back

def test_when_the_last_of_the_new_protocol_goes_the_group_is_a_classic_one() -> None:
    old = one_old()
    rig = old.rig
    new = Consumer(rig, "new")
    rest(new, old)
    assert new.leave().epoch == -1
    assert rig.kernel.assigned.describe_consumers(GROUP) is None
    with pytest.raises(Rebalancing):
        rig.kernel.assigned.heartbeat(GROUP, old.member_id, None, old.generation)
    before = old.generation
    joined = old.join()
    assert isinstance(joined, Joined) and joined.leader == old.member_id and joined.generation > before
    old.sync({old.member_id: encode_assignment([("t", [0, 1, 2, 3])])})
    assert old.owned == [0, 1, 2, 3]
    kinds = [kind for kind in (Kind.CONSUMER_GROUP, Kind.CONSUMER_MEMBER, Kind.MEMBERS)
             for _ in rig.kernel._state.scan(kind)]
    assert kinds == [Kind.MEMBERS]
    assert old.leave() == [None]


def test_classic_members_among_others_have_a_protocol_that_all_of_them_know() -> None:
    old = one_old()
    rig = old.rig
    new = Consumer(rig, "new")
    rest(new, old)
    other = Joining("consumer", (("sticky", subscription([])),), comes_again=False)
    with pytest.raises(InconsistentProtocol):
        rig.kernel.assigned.join(GROUP, other, GroupRules(), print)
    new.leave()
    assert isinstance(old.join(), Joined), "by the classic protocol it goes on"


@pytest.mark.parametrize("lose_index", [False, True])
def test_both_kinds_go_on_after_a_crash(tmp_path: Path, lose_index: bool) -> None:
    old = one_old(tmp_path)
    rig = old.rig
    new = Consumer(rig, "new")
    rest(new, old)
    rig.restart(lose_index=lose_index)
    assert old.beat() and new.beat().assigned is None
    rig.world.loop.advance(RULES.session_ms)
    rig.run()
    old.beat()
    rig.world.loop.advance(SESSION_MS // 2)
    rig.run()
    described = rig.kernel.assigned.describe(GROUP)
    assert described is not None and [member.member_id for member in described.members] == [old.member_id]
    rig.restart(lose_index=lose_index)
    rig.kernel.assigned.heartbeat(GROUP, old.member_id, None, described and old.generation)


def test_what_the_last_of_the_new_protocol_had_is_shared_out_after_a_crash(tmp_path: Path) -> None:
    old = one_old(tmp_path)
    rig = old.rig
    new = Consumer(rig, "new")
    rest(new, old)
    new.leave()
    rig.restart()
    with pytest.raises(Rebalancing):
        rig.kernel.assigned.heartbeat(GROUP, old.member_id, None, old.generation)
    assert isinstance(old.join(), Joined)
    old.sync({old.member_id: encode_assignment([("t", [0, 1, 2, 3])])})
    rig.restart()
    assert old.beat(), "it is shared out once"


def test_members_that_leave_by_the_classic_protocol() -> None:
    old = one_old()
    rig = old.rig
    new = Consumer(rig, "new")
    rest(new, old)
    assert old.leave() == [None] and isinstance(old.leave()[0], UnknownMember)
    rest(new)
    assert read(rig, new) == [0, 1, 2, 3]


# ---- what members say to each other

PARTS = st.tuples(st.text("ab.", min_size=1, max_size=3), st.lists(st.integers(0, 99), max_size=4))


@given(st.lists(PARTS, max_size=4))
def test_assignments_are_read_as_they_are_written(parts: list[tuple[str, list[int]]]) -> None:
    assert read_assignment(encode_assignment(parts)) == parts


@given(st.binary(max_size=60))
def test_any_bytes_are_a_subscription_or_none(metadata: bytes) -> None:
    read_subscription(metadata)
    read_assignment(metadata)


def test_counts_that_lie_are_not_believed() -> None:
    for lie in (1 << 30, -5):
        metadata = struct.pack(">hi", 1, lie)
        found = read_subscription(metadata)
        assert found is None or not found.topics
    assert read_subscription(subscription([1, 2], version=0)) is not None
    owned = read_subscription(subscription([1, 2]))
    assert owned is not None and owned.owned == [("t", [1, 2])] and owned.topics == {"t"}
