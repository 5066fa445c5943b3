"""Assigned groups in a kernel: their names, what is durable of them, and what is bounded."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gatehouse.kernel.assigned import assigned_groups, named_groups
from gatehouse.kernel.assigned.assigned_values import Assigned, GroupRules, GroupState, Joined, Joining
from gatehouse.kernel.errors import (
    AssignedGroup,
    GroupFull,
    GroupHasMembers,
    GroupIsLeased,
    InconsistentProtocol,
    InvalidGroup,
    KernelError,
    MemberIdRequired,
    StaleGeneration,
    Stopping,
    UnknownGroup,
    UnknownMember,
)
from gatehouse.kernel.groups.group_settings import ASSIGNED, GroupSettings
from gatehouse.kernel.state.state import Kind
from tests.kernel.full_log import FullLog
from tests.kernel.rig import Rig

RULES = GroupRules(max_members=10)
SESSION_MS = 10_000
GROUP = "workers"


def joining(member_id: str = "", **fields: Any) -> Joining:
    return Joining("consumer", (("range", b"topics"),), member_id, **{
        "client_id": "app", "client_host": "/10.0.0.1", "comes_again": False, "session_ms": SESSION_MS,
        "rebalance_ms": 60_000, **fields})


class Client:
    """One member: joins, syncs, and remembers what it was told."""

    def __init__(self, rig: Rig, group: str = GROUP, tenant: str = "/", **fields: Any) -> None:
        self.rig = rig
        self.group = group
        self.tenant = tenant
        self.fields = fields
        self.told: list[Any] = []

    def join(self) -> Client:
        self.rig.kernel.assigned.join(self.group, joining(self.member_id, **self.fields), RULES, self.told.append,
                                      self.tenant)
        self.rig.run()
        return self

    @property
    def joined(self) -> list[Joined]:
        return [answer for answer in self.told if isinstance(answer, Joined)]

    @property
    def member_id(self) -> str:
        return self.joined[-1].member_id if self.joined else ""

    @property
    def generation(self) -> int:
        return self.joined[-1].generation

    @property
    def instance_id(self) -> str | None:
        return self.fields.get("instance_id")

    def sync(self, **assignments: bytes) -> Any:
        self.rig.kernel.assigned.sync(self.group, self.member_id, self.instance_id, self.generation, (None, None),
                                      assignments or {self.member_id: b"all"}, self.told.append, self.tenant)
        self.rig.run()
        return self.told[-1]

    def heartbeat(self, rig: Rig | None = None) -> None:
        (rig or self.rig).kernel.assigned.heartbeat(self.group, self.member_id, self.instance_id, self.generation,
                                                    self.tenant)

    def commit(self, partition_id: int, offset: int, rig: Rig | None = None) -> None:
        rig = rig or self.rig
        rig.kernel.assigned.commit_offsets(self.group, {partition_id: (offset, b"")}, rig.witness, "committed",
                                           self.member_id, self.instance_id, self.generation, self.tenant)
        rig.run()

    def leave(self) -> None:
        assert self.rig.kernel.assigned.leave(self.group, [(self.member_id, None)], self.tenant) == [None]
        self.rig.run()


def state_of(rig: Rig, group: str = GROUP, tenant: str = "/") -> GroupState | None:
    described = rig.kernel.assigned.describe(group, tenant)
    return None if described is None else described.state


def records(rig: Rig) -> dict[bytes, bytes]:
    return dict(rig.kernel._state.scan(Kind.MEMBERS))


def partition_of(rig: Rig) -> int:
    topic = rig.kernel.topic("t") or rig.kernel.create_topic("t")
    return topic.partition_id(0)


# ---- what is durable

def test_an_assignment_is_told_when_it_is_durable() -> None:
    rig = Rig()
    client = Client(rig).join()
    rig.kernel.assigned.sync(GROUP, client.member_id, None, 1, (None, None), {client.member_id: b"all"},
                             client.told.append)
    assert len(client.told) == 1 and not records(rig)
    rig.run()
    assert client.told[-1] == Assigned("consumer", "range", b"all") and len(records(rig)) == 1


@pytest.mark.parametrize("lose_index", [False, True])
def test_members_go_on_with_their_generation_after_a_crash(tmp_path: Path, lose_index: bool) -> None:
    rig = Rig(tmp_path)
    partition_id = partition_of(rig)
    first, second = Client(rig).join(), Client(rig, instance_id="two").join()
    first.join()
    assert first.generation == second.generation == 2
    rig.kernel.assigned.sync(GROUP, second.member_id, "two", 2, (None, None), {}, second.told.append)
    first.sync(**{first.member_id: b"1", second.member_id: b"2"})
    assert second.told[-1].assignment == b"2"
    before = rig.kernel.assigned.describe(GROUP)
    rig.restart(lose_index=lose_index)
    assert rig.kernel.assigned.describe(GROUP) == before
    first.heartbeat(rig)
    second.commit(partition_id, 7, rig)
    assert rig.witness.stored[-1].error is None and rig.kernel.groups.committed(GROUP) == {partition_id: (7, b"")}
    with pytest.raises(GroupHasMembers):
        rig.kernel.groups.delete(GROUP)
    rig.world.loop.advance(SESSION_MS)
    rig.run()
    assert state_of(rig) is GroupState.EMPTY


def test_a_generation_that_was_not_stored_is_unknown_after_a_crash() -> None:
    rig = Rig()
    client = Client(rig).join()
    client.sync()
    client.join()
    assert client.generation == 2
    rig.restart()
    with pytest.raises(StaleGeneration):
        client.heartbeat(rig)
    described = rig.kernel.assigned.describe(GROUP)
    assert described is not None and described.state is GroupState.STABLE


def test_a_static_member_that_came_back_is_durable_before_it_is_told() -> None:
    rig = Rig()
    old = Client(rig, instance_id="one").join()
    old.sync()
    new = Client(rig, instance_id="one")
    rig.kernel.assigned.join(GROUP, joining("", instance_id="one"), RULES, new.told.append)
    assert not new.told
    rig.run()
    assert new.told[0].generation == 1 and new.told[0].member_id != old.member_id
    rig.restart()
    described = rig.kernel.assigned.describe(GROUP)
    assert described is not None and [member.member_id for member in described.members] == [new.told[0].member_id]


def test_a_full_disk_refuses_the_assignment_and_the_group_goes_on() -> None:
    log = FullLog()
    rig = Rig(log=log)
    client = Client(rig).join()
    log.full = True
    assert isinstance(client.sync(), KernelError)
    log.full = False
    client.join()
    assert client.sync() == Assigned("consumer", "range", b"all")
    settings = rig.kernel.groups.settings(GROUP)
    assert settings is not None and settings.kind == ASSIGNED


def test_offsets_are_committed_by_members_of_this_generation_alone() -> None:
    rig = Rig()
    partition_id = partition_of(rig)
    client = Client(rig).join()
    client.sync()
    client.commit(partition_id, 3)
    for ask in (("", -1), ("stranger", -1), ("stranger", 1)):
        with pytest.raises(UnknownMember):
            rig.kernel.assigned.commit_offsets(GROUP, {partition_id: (9, b"")}, None, None, ask[0], None, ask[1])
    with pytest.raises(StaleGeneration):
        rig.kernel.assigned.commit_offsets(GROUP, {partition_id: (9, b"")}, None, None, client.member_id, None, 0)
    with pytest.raises(UnknownGroup):
        rig.kernel.assigned.commit_offsets("other", {partition_id: (9, b"")}, None, None, "", None, 0)
    rig.kernel.assigned.commit_offsets("other", {partition_id: (9, b"")}, None, None, "stranger", None, -1)
    rig.run()
    with pytest.raises(UnknownMember):                         # the group is there now
        rig.kernel.assigned.commit_offsets("other", {partition_id: (9, b"")}, None, None, "", None, 0)
    with pytest.raises(GroupHasMembers):
        rig.kernel.groups.commit_offsets(GROUP, {partition_id: (9, b"")}, None)
    client.leave()
    rig.kernel.groups.commit_offsets(GROUP, {partition_id: (1, b"")}, None)
    rig.kernel.assigned.commit_offsets("other", {partition_id: (9, b"")}, None, None)
    rig.run()
    assert rig.kernel.groups.committed(GROUP) == {partition_id: (1, b"")}
    assert rig.kernel.groups.committed("other") == {partition_id: (9, b"")}
    rig.kernel.assigned.delete_offsets(GROUP, [partition_id], None, None)
    rig.run()
    assert rig.kernel.groups.committed(GROUP) == {}


# ---- names

def test_a_name_is_of_members_or_of_leases() -> None:
    rig = Rig()
    partition_id = partition_of(rig)
    Client(rig).join()
    with pytest.raises(AssignedGroup):
        rig.kernel.groups.group(GROUP, "t")
    with pytest.raises(AssignedGroup):
        rig.kernel.groups.share(f"$share/{GROUP}/t/#", rig.witness, 1)
    with pytest.raises(AssignedGroup):
        rig.kernel.groups.share(f"$share/{GROUP}/t/+", rig.witness, 1)
    rig.kernel.groups.group("leased", "t")
    rig.kernel.groups.share("$share/shared/t/+", rig.witness, 1)
    rig.run()
    with pytest.raises(GroupIsLeased):
        Client(rig, "shared").join()
    for ask in (lambda: Client(rig, "leased").join(),
                lambda: rig.kernel.assigned.join("leased", joining("x"), RULES, print),
                lambda: rig.kernel.assigned.commit_offsets("leased", {partition_id: (1, b"")}, None, None),
                lambda: rig.kernel.assigned.delete_offsets("leased", [partition_id], None, None)):
        with pytest.raises(GroupIsLeased):
            ask()
    Client(rig, "leased", tenant="elsewhere").join()
    for name in ("", "x" * 256, "a\0b"):
        for call in (lambda name=name: Client(rig, name).join(),
                     lambda name=name: rig.kernel.assigned.heartbeat(name, "", None, 1)):
            with pytest.raises(InvalidGroup):
                call()


def test_groups_of_tenants_are_strangers() -> None:
    rig = Rig()
    here, there = Client(rig).join(), Client(rig, tenant="there").join()
    assert here.generation == there.generation == 1
    rig.run()
    assert [name for name, _ in rig.kernel.groups.all("there")] == [GROUP]
    with pytest.raises(UnknownMember):
        rig.kernel.assigned.heartbeat(GROUP, here.member_id, None, 1, "there")


def test_a_group_with_members_is_listed_and_deleted_once_they_are_gone() -> None:
    rig = Rig()
    client = Client(rig).join()
    client.sync()
    assert rig.kernel.groups.all() == [(GROUP, GroupSettings(kind=ASSIGNED))]
    with pytest.raises(GroupHasMembers):
        rig.kernel.groups.delete(GROUP)
    client.leave()
    rig.kernel.groups.delete(GROUP)
    rig.run()
    assert rig.kernel.groups.all() == []
    client = Client(rig).join()
    client.sync()
    rig.run()
    assert [name for name, _ in rig.kernel.groups.all()] == [GROUP]


def test_what_was_just_committed_is_deleted_with_its_group() -> None:
    rig = Rig()
    topic = rig.kernel.create_topic("t", partitions=2)
    partition_id, other = topic.partition_ids()
    commit = rig.kernel.assigned.commit_offsets
    commit(GROUP, {partition_id: (1, b"")}, None, None)
    rig.run()
    commit(GROUP, {other: (1, b"")}, None, None)
    rig.kernel.groups.delete(GROUP)
    rig.run()
    assert rig.kernel.groups.committed(GROUP) == {} and rig.kernel.groups.all() == []


def test_a_group_without_members_and_offsets_is_forgotten_after_a_while() -> None:
    rig = Rig()
    partition_id = partition_of(rig)
    rig.kernel.groups.define("made", GroupSettings(kind=ASSIGNED))
    clients = [Client(rig, name).join() for name in ("made", "used", "unused")]
    for client in clients:
        client.sync()
    clients[1].commit(partition_id, 4)
    for client in clients:
        client.leave()
    assert state_of(rig, "unused") is GroupState.EMPTY and len(records(rig)) == 3
    rig.restart()
    assert state_of(rig, "unused") is GroupState.EMPTY
    rig.world.loop.advance(named_groups.UNUSED_MS)
    rig.run()
    assert not records(rig) and [name for name, _ in rig.kernel.groups.all()] == ["made", "used"]
    assert [state_of(rig, name) for name in ("made", "used", "unused")] == [None] * 3
    assert rig.kernel.groups.committed("used") == {partition_id: (4, b"")}


def test_a_name_that_was_taken_since_is_left_alone() -> None:
    rig = Rig()
    partition_of(rig)
    client = Client(rig).join()
    client.sync()
    client.leave()
    rig.kernel.groups.delete(GROUP)
    rig.kernel.groups.group(GROUP, "t")
    rig.run()
    with pytest.raises(GroupIsLeased):
        Client(rig).join()
    rig.world.loop.advance(named_groups.UNUSED_MS)
    rig.run()
    assert not records(rig) and [settings.kind for _, settings in rig.kernel.groups.all()] == ["leased"]


def test_what_is_told_of_a_group_that_was_forgotten_is_not_told_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    monkeypatch.setattr(named_groups, "MAX_GROUPS", 1)
    first = Client(rig).join()
    first.sync()
    rig.kernel.assigned.leave(GROUP, [(first.member_id, None)])        # its record is on its way
    for name in ("other", GROUP):                                      # each in place of the one before
        with pytest.raises(MemberIdRequired):
            rig.kernel.assigned.join(name, joining(comes_again=True), RULES, print)
    rig.kernel.assigned.join(GROUP, joining(), RULES, first.told.append)
    rig.run()
    with pytest.raises(GroupHasMembers):
        rig.kernel.groups.delete(GROUP)


def test_times_that_count_no_more_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    monkeypatch.setattr(named_groups, "MAX_STALE", 10)
    Client(rig, session_ms=1_000_000).join().sync()
    for _ in range(100):                               # each an earlier time, and then the late one anew
        with pytest.raises(MemberIdRequired):
            rig.kernel.assigned.join(GROUP, joining(session_ms=2, comes_again=True), RULES, print)
        rig.world.loop.advance(2)
        rig.run()
    assert len(rig.kernel.assigned._due) <= 2 + 10 + 1
    assert state_of(rig) is GroupState.STABLE


def test_member_ids_are_never_given_twice() -> None:
    rig = Rig()
    ids = set()
    for _ in range(3):
        for number in range(3):
            with pytest.raises(MemberIdRequired) as given:
                rig.kernel.assigned.join(f"g{number}", joining(comes_again=True), RULES, print)
            ids.add(given.value.member_id)
        rig.run()
        rig.restart()
    assert len(ids) == 9 and all(member_id.startswith("app-") for member_id in ids)


# ---- time

def test_heartbeats_keep_a_member_and_silence_ends_it() -> None:
    rig = Rig()
    loud, quiet = Client(rig).join(), Client(rig, "quiet").join()
    loud.sync()
    quiet.sync()
    for _ in range(6):
        rig.world.loop.advance(SESSION_MS // 3)
        loud.heartbeat()
        rig.run()
    assert state_of(rig) is GroupState.STABLE and state_of(rig, "quiet") is GroupState.EMPTY
    with pytest.raises(UnknownMember):
        quiet.heartbeat()


# ---- bounds

def test_groups_and_what_members_say_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    monkeypatch.setattr(named_groups, "MAX_GROUPS", 2)
    first = Client(rig, "one").join()
    Client(rig, "two").join()
    with pytest.raises(GroupFull):
        Client(rig, "three").join()
    first.leave()
    with pytest.raises(MemberIdRequired):
        Client(rig, "three", comes_again=True).join()  # in place of the one that nobody uses
    assert state_of(rig, "one") is None
    Client(rig, "four").join()                         # in place of the one that nobody has joined
    assert state_of(rig, "three") is None
    monkeypatch.setattr(named_groups, "MAX_GROUPS", 100)
    said = tuple((f"p{number}", b"x" * 1_000) for number in range(100))
    rig.kernel.assigned.join("wide", Joining("consumer", said, comes_again=False), RULES, print)
    with pytest.raises(InconsistentProtocol):
        rig.kernel.assigned.join("wider", Joining("consumer", (*said, ("x", b"")), comes_again=False), RULES, print)
    with pytest.raises(InvalidGroup):
        Client(rig, "static", instance_id="x" * 256).join()
    monkeypatch.setattr(assigned_groups, "MAX_GROUP_BYTES", 150_000)
    with pytest.raises(GroupFull):
        rig.kernel.assigned.join("wide", Joining("consumer", said, comes_again=False), RULES, print)
    client = Client(rig, "long").join()
    with pytest.raises(GroupFull):
        client.sync(**{client.member_id: b"x" * 150_000})
    monkeypatch.setattr(assigned_groups, "MAX_BYTES", 100_500)
    with pytest.raises(GroupFull):
        Client(rig, "more", client_id="y").join().sync(y=b"x" * 1_000)


def test_whoever_waits_is_told_that_the_hub_stops() -> None:
    rig = Rig()
    first = Client(rig).join()
    waits = Client(rig).join()
    syncs = Client(rig, "other").join()
    rig.kernel.assigned.sync("other", syncs.member_id, None, 1, (None, None), {}, syncs.told.append)
    rig.kernel.close(lambda: None)
    assert isinstance(waits.told[-1], Stopping) and isinstance(syncs.told[-1], Stopping)
    with pytest.raises(Stopping):
        first.join()
    rig.run()
