"""Consumer groups in a kernel: what is durable of them, their names, what patterns find, and what is bounded."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gatehouse.kernel.assigned import consumer_groups, named_groups
from gatehouse.kernel.assigned.assigned_values import (
    Beat,
    Beaten,
    ConsumerRules,
    GroupRules,
    GroupState,
    Joined,
    Joining,
)
from gatehouse.kernel.errors import (
    AssignedGroup,
    GroupFull,
    GroupHasMembers,
    GroupIsLeased,
    InconsistentProtocol,
    InvalidGroup,
    InvalidPattern,
    KernelError,
    StaleEpoch,
    Stopping,
    StorageFull,
    UnknownGroup,
    UnknownMember,
)
from gatehouse.kernel.state.state import Kind
from tests.kernel.full_log import FullLog
from tests.kernel.rig import Rig

RULES = ConsumerRules(session_ms=10_000, max_members=10)
GROUP = "workers"


class Consumer:
    """One member; it gives up at once what it is to."""

    def __init__(self, rig: Rig, name: str, group: str = GROUP, tenant: str = "/", **fields: Any) -> None:
        self.rig = rig
        self.name = name
        self.group = group
        self.tenant = tenant
        self.fields = {"topics": frozenset({"t"}), "rebalance_ms": 5_000, **fields}
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self.told: list[Any] = []
        self.may_read = lambda topic: not topic.startswith("secret")

    def send(self, **fields: Any) -> Consumer:
        says = {**({} if self.epoch else self.fields), "instance_id": self.fields.get("instance_id"), **fields}
        self.rig.kernel.assigned.beat(self.group, Beat(self.name, self.epoch, owned=self.owned, **says), RULES,
                                      self.may_read, self.told.append, self.tenant)
        return self

    def beat(self, **fields: Any) -> Any:
        self.send(**fields)
        self.rig.run()
        return self.hear()

    def hear(self) -> Any:
        answer = self.told[-1]
        if isinstance(answer, Beaten):
            self.epoch = answer.epoch
            self.owned = self.owned if answer.assigned is None else answer.assigned
        return answer

    def leave(self, epoch: int = -1) -> Any:
        self.rig.kernel.assigned.leave_consumers(
            self.group, Beat(self.name, epoch, self.fields.get("instance_id")), self.told.append, self.tenant)
        self.rig.run()
        return self.told[-1]


def rig_of(*topics: str, folder: Path | None = None, **rest: Any) -> Rig:
    rig = Rig(folder, **rest)
    for topic in topics or ("t",):
        rig.kernel.create_topic(topic, partitions=4)
    rig.run()
    return rig


def state_of(rig: Rig, group: str = GROUP) -> GroupState | None:
    described = rig.kernel.assigned.describe_consumers(group)
    return None if described is None else described.state


def records(rig: Rig) -> int:
    return sum(1 for kind in (Kind.CONSUMER_GROUP, Kind.CONSUMER_MEMBER) for _ in rig.kernel._state.scan(kind))


def numbers(rig: Rig, partition_ids: frozenset[int]) -> dict[str, list[int]]:
    return {topic.name: found for topic, found in rig.kernel.assigned.topics_of(partition_ids)}


# ---- what is durable

def test_what_changed_is_told_when_it_is_durable_and_nothing_overtakes_it() -> None:
    rig = rig_of()
    consumer = Consumer(rig, "a").send()
    assert not consumer.told and not records(rig)
    consumer.send()                                            # once more: its answer was lost
    rig.run()
    assert len(consumer.told) == 2 and records(rig) == 2
    assert numbers(rig, consumer.hear().assigned) == {"t": [0, 1, 2, 3]}
    consumer.send()
    assert len(consumer.told) == 3, "nothing has changed"
    second = Consumer(rig, "b").send()
    consumer.send()                                            # gives up, behind what the other has begun
    consumer.send()
    assert len(consumer.told) == 3 and not second.told
    rig.run()
    assert len(consumer.told) == 5 and len(second.told) == 1


@pytest.mark.parametrize("lose_index", [False, True])
def test_members_go_on_where_they_were_after_a_crash(tmp_path: Path, lose_index: bool) -> None:
    rig = rig_of("t", "u1", folder=tmp_path)
    first = Consumer(rig, "a", pattern="u.*", assignor="range", rack_id="r")
    second = Consumer(rig, "b", instance_id="two", client_id="app", client_host="/10.0.0.1")
    third = Consumer(rig, "c")
    for _ in range(4):
        for consumer in (first, second):
            consumer.beat()
    third.beat()
    first.beat()                                               # it has to give up something, and has not said so yet
    before = rig.kernel.assigned.describe_consumers(GROUP)
    assert before is not None and before.state is GroupState.RECONCILING
    rig.restart(lose_index=lose_index)
    after = rig.kernel.assigned.describe_consumers(GROUP)
    assert after is not None and after._replace(members=()) == before._replace(members=())
    assert sorted(after.members) == sorted(before.members)
    for _ in range(4):
        for consumer in (first, second, third):
            consumer.beat()
    assert state_of(rig) is GroupState.STABLE
    owned = [each for consumer in (first, second, third) for each in consumer.owned]
    assert len(owned) == len(set(owned)) == 8
    partition_id = min(second.owned)
    rig.kernel.assigned.commit_offsets(GROUP, {partition_id: (7, b"")}, rig.witness, "c", "b", "two", second.epoch)
    rig.run()
    assert rig.kernel.groups.committed(GROUP) == {partition_id: (7, b"")}
    with pytest.raises(StaleEpoch):
        rig.kernel.assigned.commit_offsets(GROUP, {partition_id: (7, b"")}, rig.witness, "c", "b", "two", 1)
    with pytest.raises(StaleEpoch):
        rig.kernel.assigned.require_member(GROUP, "b", 1)
    rig.kernel.assigned.require_member(GROUP, "b", second.epoch)
    with pytest.raises(GroupHasMembers):
        rig.kernel.groups.delete(GROUP)
    rig.world.loop.advance(RULES.session_ms)
    rig.run()
    assert state_of(rig) is GroupState.EMPTY and records(rig) == 1


def test_who_could_not_be_stored_is_told_so_and_is_stored_with_the_next_change() -> None:
    log = FullLog()
    rig = rig_of(log=log)
    consumer = Consumer(rig, "a")
    log.full = True
    assert isinstance(consumer.beat(), KernelError) and not records(rig)
    log.full = False
    assert isinstance(consumer.beat(), Beaten)
    rig.restart()
    assert state_of(rig) is GroupState.STABLE
    assert isinstance(consumer.beat(), Beaten)


def test_a_member_whose_leaving_a_full_disk_refused_is_gone_all_the_same() -> None:
    log = FullLog()
    rig = rig_of(log=log)
    first, second = Consumer(rig, "a"), Consumer(rig, "b")
    for _ in range(3):
        first.beat()
        second.beat()
    log.full = True
    assert isinstance(second.leave(), StorageFull)
    log.full = False
    first.beat()
    rig.restart()
    described = rig.kernel.assigned.describe_consumers(GROUP)
    assert described is not None and [member.member_id for member in described.members] == ["a"]


def test_of_a_group_that_is_forgotten_no_member_is_left() -> None:
    log = FullLog()
    rig = rig_of(log=log)
    consumer = Consumer(rig, "a")
    consumer.beat()
    log.full = True
    assert isinstance(consumer.leave(), StorageFull)
    log.full = False
    rig.world.advance(named_groups.UNUSED_MS + 1_000)
    assert rig.kernel.assigned.describe_consumers(GROUP) is None and not records(rig)


def test_members_of_no_group_are_forgotten_at_a_start() -> None:
    rig = rig_of()
    Consumer(rig, "a").beat()
    rig.kernel.append_with([], [consumer_groups.group_record("/", GROUP, None)], rig.witness)
    rig.run()
    rig.restart()
    rig.run()
    assert not records(rig)


def test_a_group_without_members_and_offsets_is_forgotten_after_a_while() -> None:
    rig = rig_of()
    consumer = Consumer(rig, "a")
    consumer.beat()
    assert consumer.leave().epoch == -1 and state_of(rig) is GroupState.EMPTY
    rig.restart()
    rig.world.loop.advance(named_groups.UNUSED_MS)
    rig.run()
    assert not records(rig) and rig.kernel.groups.all() == [] and state_of(rig) is None
    consumer.epoch = 1
    with pytest.raises(UnknownGroup):
        consumer.send()
    with pytest.raises(UnknownGroup):
        consumer.leave()


def test_a_member_that_slept_is_told_to_join_again_where_its_group_has_committed() -> None:
    rig = rig_of()
    consumer = Consumer(rig, "a")
    consumer.beat()
    rig.kernel.assigned.commit_offsets(GROUP, {min(consumer.owned): (0, b"")}, None, None, "a", None, consumer.epoch)
    rig.run()
    for span_ms in (RULES.session_ms, named_groups.UNUSED_MS):
        rig.world.loop.advance(span_ms)
        rig.run()
    assert state_of(rig) is None
    with pytest.raises(UnknownMember):
        consumer.send()


# ---- names

def join_classic(rig: Rig, told: list[Any]) -> None:
    joining = Joining("consumer", (("range", b""),), comes_again=False)
    rig.kernel.assigned.join(GROUP, joining, GroupRules(), told.append)
    rig.run()


def test_a_group_whose_members_have_gone_may_follow_the_other_protocol() -> None:
    rig = rig_of()
    told: list[Any] = []
    join_classic(rig, told)
    assert isinstance(told[-1], Joined)
    rig.kernel.assigned.leave(GROUP, [(told[-1].member_id, None)])
    consumer = Consumer(rig, "a")
    consumer.beat()
    assert rig.kernel.assigned.describe(GROUP) is None and state_of(rig) is GroupState.STABLE
    with pytest.raises(GroupHasMembers):
        rig.kernel.groups.delete(GROUP)
    consumer.leave()
    join_classic(rig, told)
    assert isinstance(told[-1], Joined) and state_of(rig) is None
    rig.kernel.assigned.leave(GROUP, [(told[-1].member_id, None)])
    rig.world.loop.advance(named_groups.UNUSED_MS)
    rig.run()
    assert rig.kernel.groups.all() == []


def test_a_group_that_was_deleted_has_its_name_again_with_its_next_member() -> None:
    rig = rig_of()
    consumer = Consumer(rig, "a")
    consumer.beat()
    consumer.leave()
    rig.kernel.groups.delete(GROUP)
    rig.run()
    assert isinstance(Consumer(rig, "b").beat(), Beaten)
    assert [name for name, _ in rig.kernel.groups.all()] == [GROUP]
    with pytest.raises(AssignedGroup):
        rig.kernel.groups.claim(GROUP)


def test_names_are_checked_and_leased_groups_refuse() -> None:
    rig = rig_of()
    with pytest.raises(InvalidGroup):
        Consumer(rig, "a", group="").send()
    rig.kernel.groups.group("leased", "t")
    with pytest.raises(GroupIsLeased):
        Consumer(rig, "a", group="leased").send()


def test_a_hub_that_stops_takes_no_members() -> None:
    rig = rig_of()
    consumer = Consumer(rig, "a")
    rig.kernel.assigned.stop()
    with pytest.raises(Stopping):
        consumer.send()
    with pytest.raises(Stopping):
        consumer.leave()


# ---- topics

def test_a_pattern_finds_what_may_be_read_and_what_comes_later() -> None:
    rig = rig_of("plant", "planet", "secret-plan")
    consumer = Consumer(rig, "a", topics=None, pattern=".*plan.*")
    assert numbers(rig, consumer.beat().assigned) == {"plant": [0, 1, 2, 3], "planet": [0, 1, 2, 3]}
    rig.kernel.create_topic("plan", partitions=1)
    rig.run()
    assert numbers(rig, consumer.beat().assigned)["plan"] == [0]
    assert consumer.beat().assigned is None
    consumer.may_read = lambda topic: topic == "plant"
    rig.kernel.create_topic("x", partitions=1)
    rig.run()
    assert numbers(rig, consumer.beat().assigned) == {"plant": [0, 1, 2, 3]}
    with pytest.raises(InvalidPattern):
        consumer.send(pattern="(")
    assert consumer.beat(pattern="", topics=frozenset({"plan"})).epoch == consumer.epoch
    consumer.beat()
    assert numbers(rig, consumer.owned) == {"plan": [0]}


def test_a_pattern_that_is_none_makes_no_group() -> None:
    rig = rig_of()
    with pytest.raises(InvalidPattern):
        Consumer(rig, "a", pattern="(").send()
    assert state_of(rig) is None and rig.kernel.groups.all() == []


def test_more_partitions_are_assigned_with_the_next_heartbeat() -> None:
    rig = rig_of()
    consumer = Consumer(rig, "a")
    consumer.beat()
    rig.kernel.change_topic("t", partitions=6)
    rig.run()
    assert numbers(rig, consumer.beat().assigned) == {"t": [0, 1, 2, 3, 4, 5]}


# ---- bounds

def test_groups_and_what_members_say_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_of()
    monkeypatch.setattr(named_groups, "MAX_GROUPS", 2)
    consumers = [Consumer(rig, "a", group) for group in ("one", "two", "three")]
    for consumer in consumers[:2]:
        consumer.beat()
    with pytest.raises(GroupFull):
        consumers[2].send()
    consumers[0].leave()
    assert isinstance(consumers[2].beat(), Beaten)
    with pytest.raises(GroupFull):
        Consumer(rig, "b" * 256, "two").send()
    with pytest.raises(GroupFull):
        Consumer(rig, "b", "two", topics=frozenset(map(str, range(consumer_groups.MAX_TOPICS + 1)))).send()
    monkeypatch.setattr(consumer_groups, "MAX_GROUP_BYTES", 1_500)
    with pytest.raises(GroupFull):
        Consumer(rig, "b", "two", topics=frozenset(map(str, range(20)))).send()
    monkeypatch.setattr(consumer_groups, "MAX_BYTES", 1_500)
    with pytest.raises(GroupFull):
        consumers[2].send(topics=frozenset(map(str, range(10))))
    for consumer in consumers[1:]:
        consumer.leave()
    assert rig.kernel.assigned._consumers._size_bytes == 0


def test_patterns_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_groups, "MAX_PATTERNS", 3)
    rig = rig_of()
    for number in range(6):
        Consumer(rig, f"m{number}", topics=None, pattern=f"t{{{number + 1}}}").beat()
    assert len(rig.kernel.assigned._consumers._patterns) == 3


def test_only_members_of_a_group_with_members_commit() -> None:
    rig = rig_of()
    Consumer(rig, "a").beat()
    for member, epoch in (("", -1), ("b", 1)):
        with pytest.raises(UnknownMember):
            rig.kernel.assigned.commit_offsets(GROUP, {}, None, None, member, None, epoch)


def test_a_group_of_the_other_protocol_with_members_refuses() -> None:
    rig = rig_of()
    told: list[Any] = []
    join_classic(rig, told)
    with pytest.raises(InconsistentProtocol):
        Consumer(rig, "a").send()
