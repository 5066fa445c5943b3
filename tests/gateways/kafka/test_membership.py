"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, commits of members, and what tools ask about groups: every version."""
from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from kafka.protocol.admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.producer import TxnOffsetCommitRequest, TxnOffsetCommitResponse

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.api import APIS
from gatehouse.gateways.kafka.mapping import subscribed_topics
from gatehouse.kernel.errors import StorageFull
from tests.gateways.kafka.fakes import FakeKernel, Peer
from tests.gateways.kafka.judge import decoded, framed

SESSION_MS = 10_000
PLANT = b"\0\1" + b"\0\0\0\1" + b"\0\5plant" + b"\xff\xff\xff\xff"           # a subscription, as consumers write it


def versions(key: int) -> range:
    return range(APIS[key].first_version, APIS[key].last_version + 1)


def ask(peer: Peer, request: Any, kind: Any) -> Any:
    """Its answer, once everything that it wrote is durable; None where it waits."""
    frames = peer.send(framed(request, 5))
    if not frames:
        peer.kernel.flush()
        frames = peer.link.frames()
    return decoded(kind, request.version, frames[0], 5) if frames else None


def joining(version: int, member_id: str = "", group: str = "g", protocols: tuple[tuple[str, bytes], ...] =
            (("range", PLANT),), **fields: Any) -> Any:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    more = {"rebalance_timeout_ms": 60_000} if version >= 1 else {}
    return JoinGroupRequest(version=version, group_id=group, member_id=member_id, protocol_type=fields.pop(
        "protocol_type", "consumer"), protocols=[protocol(version=version, name=name, metadata=metadata)
                                                 for name, metadata in protocols],
        **{"session_timeout_ms": SESSION_MS, **more, **fields})


def syncing(version: int, member_id: str, generation: int, assignments: dict[str, bytes], **fields: Any) -> Any:
    assignment = SyncGroupRequest.SyncGroupRequestAssignment
    protocol = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return SyncGroupRequest(version=version, generation_id=generation, member_id=member_id, assignments=[
        assignment(version=version, member_id=member, assignment=part) for member, part in assignments.items()],
        **{"group_id": "g", **protocol, **fields})


def consumer(kernel: FakeKernel | None = None, **settings: Any) -> Peer:
    peer = Peer(kernel, **{"group_initial_rebalance_delay_ms": 0, **settings})
    if kernel is None:
        peer.kernel.create_topic("plant", partitions=2)
        peer.kernel.create_topic("other", partitions=1)
        peer.kernel.flush()
        peer.link.take()
    return peer


def join(peer: Peer, version: int = 9, **fields: Any) -> Any:
    """Join as a client does: again, with the id that it was given."""
    answer = ask(peer, joining(version, **fields), JoinGroupResponse)
    if answer is not None and answer.error_code == 79:
        assert version >= 4 and answer.member_id and answer.generation_id == -1 and answer.members == []
        answer = ask(peer, joining(version, answer.member_id, **fields), JoinGroupResponse)
    return answer


def stable(**settings: Any) -> tuple[Peer, str]:
    """A group of one member, and its member id."""
    peer = consumer(**settings)
    answer = join(peer)
    assert ask(peer, syncing(5, answer.member_id, 1, {answer.member_id: b"mine"}), SyncGroupResponse).error_code == 0
    return peer, answer.member_id


def frames_of(peer: Peer) -> list[bytes]:
    peer.kernel.flush()
    return peer.link.frames()


# ---- JoinGroup

def test_a_rebalance_timeout_of_none_is_the_sessions() -> None:
    peer = consumer()
    member_id = join(peer, rebalance_timeout_ms=0).member_id
    peer.wait(SESSION_MS - 1)
    assert ask(peer, syncing(5, member_id, 1, {member_id: b"mine"}), SyncGroupResponse).error_code == 0


@pytest.mark.parametrize("version", versions(11))
def test_members_join_and_the_leader_hears_of_all(version: int) -> None:
    first = consumer()
    answer = join(first, version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name, answer.leader) == (0, 1, "range",
                                                                                             answer.member_id)
    assert [(member.member_id, member.metadata) for member in answer.members] == [(answer.member_id, PLANT)]
    if version >= 7:
        assert answer.protocol_type == "consumer"
    second = consumer(first.kernel)
    assert join(second, version) is None                        # it waits for the first one to join again
    again = ask(first, joining(version, answer.member_id), JoinGroupResponse)
    waited = decoded(JoinGroupResponse, version, *frames_of(second), 5)
    assert again.generation_id == waited.generation_id == 2
    assert len(again.members) == 2 and waited.members == [] and waited.leader == again.member_id == answer.member_id
    assert waited.member_id not in ("", again.member_id)


@pytest.mark.parametrize("version", versions(11))
def test_a_join_is_refused_in_kafkas_words(version: int) -> None:
    peer, full = stable()[0], stable(group_max_size=1)[0]
    peer.kernel.leased.add("leased")

    def code(peer: Peer = peer, **fields: Any) -> int:
        answer = ask(peer, joining(version, **fields), JoinGroupResponse)
        assert (answer.generation_id, answer.members, answer.leader) == (-1, [], "")
        assert answer.protocol_name == (None if version >= 7 else "")
        return int(answer.error_code)

    assert code(group="") == 24 and code(group="x" * 256) == 24 and code(group="", session_timeout_ms=0) == 24
    assert code(group="leased") == 23
    assert code(session_timeout_ms=999) == 26 and code(session_timeout_ms=1_800_001) == 26
    assert code(member_id="stranger") == 25 and code(group="new", member_id="stranger") == 25
    assert code(protocols=()) == 23 and code(group="new", protocols=()) == 23
    assert code(protocols=(("sticky", b""),)) == 23 and code(protocol_type="connect") == 23
    assert code(group="new", protocol_type="") == 23
    assert code(full) == 81
    if version >= 5:
        assert code(group="new", group_instance_id="x" * 256) == 24
    guest = consumer(peer.kernel, decision=lambda principal, operation, name: False)
    assert ask(guest, joining(version), JoinGroupResponse).error_code == 30


def test_a_connection_that_ends_does_not_end_its_member() -> None:
    peer, member_id = stable()
    peer.session.handle_closed()
    other = consumer(peer.kernel)
    heartbeat = HeartbeatRequest(version=4, group_id="g", generation_id=1, member_id=member_id)
    assert ask(other, heartbeat, HeartbeatResponse).error_code == 0
    other.wait(SESSION_MS)
    assert ask(other, heartbeat, HeartbeatResponse).error_code == 25


def test_a_client_that_is_gone_is_answered_nothing() -> None:
    first, member_id = stable()
    second = consumer(first.kernel)
    assert join(second) is None
    second.session.handle_closed()
    assert ask(first, joining(9, member_id), JoinGroupResponse).generation_id == 2
    assert second.link.frames() == []


def test_what_is_asked_behind_a_join_is_answered_behind_it() -> None:
    first, member_id = stable()
    second = consumer(first.kernel)
    assert join(second) is None
    assert second.send(framed(ApiVersionsRequest(version=2), 6)) == []
    ask(first, joining(9, member_id), JoinGroupResponse)
    assert [struct.unpack_from(">i", frame)[0] for frame in frames_of(second)] == [5, 6]


def test_whoever_waits_is_answered_when_the_hub_stops() -> None:
    first, member_id = stable()
    second, third = consumer(first.kernel), consumer(first.kernel)
    assert join(second) is None
    assert join(third, group="h").generation_id == 1
    second.session.handle_stopping()
    answer = decoded(JoinGroupResponse, 9, *second.link.frames(), 5)
    assert answer.error_code == 16 and second.link.closed
    ask(first, joining(9, member_id), JoinGroupResponse)
    assert second.link.frames() == []


def test_the_first_member_waits_for_others() -> None:
    peer = consumer(group_initial_rebalance_delay_ms=3_000)
    assert join(peer) is None
    assert peer.wait(2_999) == []
    assert decoded(JoinGroupResponse, 9, *peer.wait(1), 5).generation_id == 1


# ---- SyncGroup

@pytest.mark.parametrize("version", versions(14))
def test_an_assignment_is_told_to_everybody_once_it_is_durable(version: int) -> None:
    first = consumer()
    leader = join(first).member_id
    second = consumer(first.kernel)
    join(second)
    ask(first, joining(9, leader), JoinGroupResponse)
    follower = decoded(JoinGroupResponse, 9, *frames_of(second), 5).member_id
    assert second.send(framed(syncing(version, follower, 2, {}), 5)) == []
    assert first.send(framed(syncing(version, leader, 2, {leader: b"1", follower: b"2"}), 5)) == []
    first.kernel.flush()
    answers = [decoded(SyncGroupResponse, version, *peer.link.frames(), 5) for peer in (first, second)]
    assert [(answer.error_code, answer.assignment) for answer in answers] == [(0, b"1"), (0, b"2")]
    if version >= 5:
        assert (answers[1].protocol_type, answers[1].protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", versions(14))
def test_a_sync_is_refused_in_kafkas_words(version: int) -> None:
    peer, member_id = stable()

    def code(member_id: str = member_id, generation: int = 1, **fields: Any) -> int:
        return int(ask(peer, syncing(version, member_id, generation, {}, **fields), SyncGroupResponse).error_code)

    assert code("stranger") == 25 and code(generation=2) == 22 and code(group_id="nobody") == 25
    assert code(group_id="") == 24
    if version >= 3:
        assert code(group_instance_id="i") == 25
    if version >= 5:
        assert code(protocol_name="sticky") == code(protocol_type="connect") == code(protocol_name=None) == 23
    guest = consumer(peer.kernel, decision=lambda principal, operation, name: False)
    assert ask(guest, syncing(version, member_id, 1, {}), SyncGroupResponse).error_code == 30
    ask(peer, joining(9, member_id), JoinGroupResponse)
    assert peer.send(framed(syncing(version, member_id, 2, {member_id: b"x"}), 5)) == []
    peer.kernel.flush(StorageFull("full"))
    assert decoded(SyncGroupResponse, version, *peer.link.frames(), 5).error_code == 15


# ---- Heartbeat, LeaveGroup

@pytest.mark.parametrize("version", versions(12))
def test_a_heartbeat_keeps_a_member(version: int) -> None:
    peer, member_id = stable()

    def code(member_id: str = member_id, generation_id: int = 1, group_id: str = "g", **fields: Any) -> int:
        request = HeartbeatRequest(version=version, group_id=group_id, member_id=member_id,
                                   generation_id=generation_id, **fields)
        return int(ask(peer, request, HeartbeatResponse).error_code)

    for _ in range(4):
        peer.wait(SESSION_MS // 2)
        assert code() == 0
    assert code("stranger") == 25 and code(generation_id=2) == 22
    assert code(group_id="h") == 25 and code(group_id="") == 24
    guest = consumer(peer.kernel, decision=lambda principal, operation, name: False)
    assert ask(guest, HeartbeatRequest(version=version, group_id="g"), HeartbeatResponse).error_code == 30
    other = consumer(peer.kernel)
    assert join(other) is None
    assert code() == 27
    peer.wait(SESSION_MS)
    assert code() == 25


@pytest.mark.parametrize("version", versions(13))
def test_members_leave(version: int) -> None:
    peer, member_id = stable()
    identity = LeaveGroupRequest.MemberIdentity if version >= 3 else None

    def leaving(group: str, *members: str) -> Any:
        if identity is None:
            return LeaveGroupRequest(version=version, group_id=group, member_id=members[0])
        return LeaveGroupRequest(version=version, group_id=group, members=[
            identity(version=version, member_id=member) for member in members])

    unknown = ask(peer, leaving("g", "stranger"), LeaveGroupResponse)
    nobody = ask(peer, leaving("h", "stranger"), LeaveGroupResponse)
    if version < 3:
        assert unknown.error_code == nobody.error_code == 25
        assert ask(peer, leaving("g", member_id), LeaveGroupResponse).error_code == 0
    else:
        assert unknown.error_code == nobody.error_code == 0
        assert [row.error_code for row in (*unknown.members, *nobody.members)] == [25, 25]
        answer = ask(peer, leaving("g", "stranger", member_id), LeaveGroupResponse)
        assert [(row.member_id, row.error_code) for row in answer.members] == [("stranger", 25), (member_id, 0)]
    assert ask(peer, leaving("", "x"), LeaveGroupResponse).error_code == 24
    heartbeat = HeartbeatRequest(version=4, group_id="g", generation_id=1, member_id=member_id)
    assert ask(peer, heartbeat, HeartbeatResponse).error_code == 25
    guest = consumer(peer.kernel, decision=lambda principal, operation, name: False)
    assert ask(guest, leaving("g", member_id), LeaveGroupResponse).error_code == 30


# ---- static members

@pytest.mark.parametrize("version", range(5, APIS[11].last_version + 1))
def test_a_static_member_comes_back_to_what_it_had(version: int) -> None:
    peer = consumer()
    first = join(peer, version, group_instance_id="one")
    assert first.members[0].group_instance_id == "one"
    assert ask(peer, syncing(3, first.member_id, 1, {first.member_id: b"mine"}, group_instance_id="one"),
               SyncGroupResponse).error_code == 0
    back = consumer(peer.kernel)
    second = ask(back, joining(version, group_instance_id="one"), JoinGroupResponse)
    assert (second.error_code, second.generation_id) == (0, 1) and second.member_id != first.member_id
    assert (second.skip_assignment if version >= 9 else second.leader == first.member_id)
    sync = ask(back, syncing(3, second.member_id, 1, {}, group_instance_id="one"), SyncGroupResponse)
    assert sync.assignment == b"mine"
    for request, kind in ((HeartbeatRequest(version=3, group_id="g", generation_id=1, member_id=first.member_id,
                                            group_instance_id="one"), HeartbeatResponse),
                          (syncing(3, first.member_id, 1, {}, group_instance_id="one"), SyncGroupResponse),
                          (joining(version, first.member_id, group_instance_id="one"), JoinGroupResponse)):
        assert ask(peer, request, kind).error_code == 82
    identity = LeaveGroupRequest.MemberIdentity
    leave = LeaveGroupRequest(version=5, group_id="g", members=[
        identity(version=5, member_id=first.member_id, group_instance_id="one"),
        identity(version=5, member_id="", group_instance_id="one", reason="removed by a tool")])
    assert [row.error_code for row in ask(peer, leave, LeaveGroupResponse).members] == [82, 0]


# ---- offsets of members

def committing(version: int, member_id: str, generation: int, **fields: Any) -> Any:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    named = {"name": "plant"} if version < 10 else {"topic_id": uuid.uuid5(uuid.NAMESPACE_OID, "plant")}
    return OffsetCommitRequest(version=version, group_id="g", member_id=member_id,
                               generation_id_or_member_epoch=generation, topics=[topic(
                                   version=version, **named, partitions=[topic.OffsetCommitRequestPartition(
                                       version=version, partition_index=0, committed_offset=7)])], **fields)


@pytest.mark.parametrize("version", versions(8))
def test_a_member_commits_in_its_generation(version: int) -> None:
    peer, member_id = stable()

    def code(member_id: str = member_id, generation: int = 1, **fields: Any) -> int:
        answer = ask(peer, committing(version, member_id, generation, **fields), OffsetCommitResponse)
        return int(answer.topics[0].partitions[0].error_code)

    assert code("stranger") == 25 and code(generation=0) == 22 and code("", -1) == 25
    assert peer.kernel.offsets == {}
    assert code() == 0
    assert [offset for offset, _ in peer.kernel.offsets["g"].values()] == [7]
    if version >= 7:
        assert code(group_instance_id="i") == 25
    ask(peer, joining(9, member_id), JoinGroupResponse)
    assert code(generation=2) == 27                              # before the assignment is told


def in_transaction(version: int, **fields: Any) -> Any:
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    return TxnOffsetCommitRequest(version=version, transactional_id="t", group_id="g", producer_id=7, producer_epoch=2,
                                  topics=[topic(version=version, name="plant", partitions=[
                                      topic.TxnOffsetCommitRequestPartition(version=version, partition_index=0,
                                                                            committed_offset=7)])], **fields)


@pytest.mark.parametrize("version", versions(28))
def test_a_transaction_that_names_no_member_moves_a_group_that_has_some(version: int) -> None:
    """Clients before version 3 cannot name one, and later ones need not: Kafka takes both."""
    peer, member_id = stable()

    def code(**fields: Any) -> int:
        answer = ask(peer, in_transaction(version, **fields), TxnOffsetCommitResponse)
        return int(answer.topics[0].partitions[0].error_code)

    assert code() == 0
    assert [call[:1] + call[4:] for call in peer.kernel.producing.asked] == [
        ("offsets", "g", {peer.kernel.by_name["plant"].partition_id(0): (7, b"")})]
    if version >= 3:
        assert code(member_id=member_id, generation_id=1) == 0
        assert code(member_id=member_id, generation_id=0) == 22 and code(member_id=member_id) == 22
        assert code(member_id="stranger", generation_id=1) == 25 and code(generation_id=1) == 25
        assert code(group_instance_id="i") == 25
    peer.kernel.leased.add("g")
    assert code() != 0


def test_a_member_is_shown_its_groups_offsets() -> None:
    peer, member_id = stable()
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    often = OffsetFetchRequest(version=8, groups=[group(version=8, group_id="g", topics=None)] * 50_000)
    assert len(ask(peer, often, OffsetFetchResponse).groups) == 1
    for who, code in ((member_id, 0), ("stranger", 25), (None, 0)):
        request = OffsetFetchRequest(version=9, groups=[group(version=9, group_id="g", member_id=who, member_epoch=1,
                                                              topics=None)])
        assert ask(peer, request, OffsetFetchResponse).groups[0].error_code == code


# ---- what tools ask

@pytest.mark.parametrize("version", versions(15))
def test_groups_are_described(version: int) -> None:
    peer, member_id = stable()
    peer.kernel.leased.add("leased")
    peer.kernel.offsets["simple"] = {1_000_000: (3, b"")}
    rights = {"include_authorized_operations": True} if version >= 3 else {}
    request = DescribeGroupsRequest(version=version, groups=["g", "nobody", "leased", "simple"], **rights)
    group, nobody, leased, simple = ask(peer, request, DescribeGroupsResponse).groups
    assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (0, "Stable", "consumer",
                                                                                             "range")
    member, = group.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "judge", "/203.0.113.7")
    assert (member.member_metadata, member.member_assignment) == (PLANT, b"mine")
    if version >= 3:
        assert set(group.authorized_operations) == {3, 6, 8}
    assert {(row.error_code, row.group_state) for row in (nobody, leased)} == {(69 if version >= 6 else 0, "Dead")}
    assert (simple.group_state, simple.protocol_type, simple.members) == ("Empty", "", [])
    often = DescribeGroupsRequest(version=version, groups=["g"] * 100_000)
    assert len(ask(peer, often, DescribeGroupsResponse).groups) == 1
    ask(peer, joining(9, member_id), JoinGroupResponse)
    group = ask(peer, request, DescribeGroupsResponse).groups[0]
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert (group.members[0].member_metadata, group.members[0].member_assignment) == (b"", b"")
    guest = consumer(peer.kernel, decision=lambda principal, operation, name: name == "simple"
                     and operation is Operation.CONSUME)
    rows = ask(guest, request, DescribeGroupsResponse).groups
    assert [row.error_code for row in rows] == [30, 30, 30, 0]
    if version >= 3:
        assert set(rows[3].authorized_operations) == {3, 8}


@pytest.mark.parametrize("version", versions(16))
def test_groups_are_listed(version: int) -> None:
    peer, _ = stable()
    peer.kernel.leased.add("leased")
    peer.kernel.offsets["simple"] = {1_000_000: (3, b"")}

    def listed(peer: Peer = peer, **filters: Any) -> list[Any]:
        answer = ask(peer, ListGroupsRequest(version=version, **filters), ListGroupsResponse)
        assert answer.error_code == 0
        return [(row.group_id, row.protocol_type, *([row.group_state] if version >= 4 else []),
                 *([row.group_type] if version >= 5 else [])) for row in answer.groups]

    group, simple = (("g", "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic"))
    leased = [("leased", "share", "Empty", "share")] if version >= 5 else []       # before, a tool knows no kinds
    shown = 4 if version >= 5 else 3 if version >= 4 else 2
    assert listed() == [group[:shown], *leased, simple[:shown]]
    if version >= 4:
        assert listed(states_filter=["stable", "Dead"]) == [group[:shown]]
        assert listed(states_filter=["Empty"]) == [*leased, simple[:shown]]
    if version >= 5:
        assert len(listed(types_filter=["Classic"])) == 2 and listed(types_filter=["consumer"]) == []
        assert listed(types_filter=["Share"]) == leased
    guest = consumer(peer.kernel, decision=lambda principal, operation, name: name == "simple")
    assert listed(guest) == [simple[:shown]]


@pytest.mark.parametrize("version", versions(42))
def test_groups_are_deleted(version: int) -> None:
    peer, member_id = stable()
    peer.kernel.leased.add("leased")
    peer.kernel.offsets["simple"] = {1_000_000: (3, b"")}

    def delete(*names: str, peer: Peer = peer) -> list[tuple[str, int]]:
        answer = ask(peer, DeleteGroupsRequest(version=version, groups_names=list(names)), DeleteGroupsResponse)
        return [(row.group_id, row.error_code) for row in answer.results]

    guest = consumer(peer.kernel, decision=lambda principal, operation, name: operation is Operation.CONSUME)
    assert delete("simple", peer=guest) == [("simple", 30)]
    assert delete("g", "simple", "nobody", "leased", "") == [
        ("g", 68), ("simple", 0), ("nobody", 69), ("leased", 0), ("", 24)]
    assert peer.kernel.offsets.get("simple", {}) == {}
    assert [action for _, action, _ in peer.services.admission.audited] == ["group.deleted"] * 2
    ask(peer, LeaveGroupRequest(version=0, group_id="g", member_id=member_id), LeaveGroupResponse)
    assert peer.send(framed(DeleteGroupsRequest(version=version, groups_names=["g"]), 5)) == []
    peer.kernel.flush(StorageFull("full"))
    assert decoded(DeleteGroupsResponse, version, *peer.link.frames(), 5).results[0].error_code == 15


def test_offsets_are_deleted_where_nobody_reads() -> None:
    peer, member_id = stable()
    peer.kernel.leased.add("leased")
    ids = {name: peer.kernel.by_name[name].partition_id(0) for name in ("plant", "other")}
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    part = topic.OffsetDeleteRequestPartition

    def delete(group: str, *names: str, peer: Peer = peer) -> Any:
        answer = ask(peer, OffsetDeleteRequest(version=0, group_id=group, topics=[
            topic(version=0, name=name, partitions=[part(version=0, partition_index=index) for index in (0, 9)])
            for name in names]), OffsetDeleteResponse)
        return answer.error_code or [row.error_code for rows in answer.topics for row in rows.partitions]

    peer.kernel.offsets["g"] = dict.fromkeys(ids.values(), (5, b""))
    assert delete("g", "plant", "other", "nowhere") == [86, 86, 0, 3, 3, 3]
    assert list(peer.kernel.offsets["g"]) == [ids["plant"]]
    assert delete("nobody", "plant") == 69 and delete("leased", "plant") == 23 and delete("", "plant") == 24
    guest = consumer(peer.kernel, decision=lambda principal, operation, name: operation is Operation.CONSUME)
    assert delete("g", "plant", peer=guest) == 30
    guest = consumer(peer.kernel, decision=lambda principal, operation, name: name in ("g", "other/#"))
    assert delete("g", "plant", "other", peer=guest) == [29, 29, 0, 3]
    ask(peer, LeaveGroupRequest(version=0, group_id="g", member_id=member_id), LeaveGroupResponse)
    assert delete("g", "plant") == [0, 3] and peer.kernel.offsets["g"] == {}
    connect = join(peer, group="c", protocol_type="connect")
    assert connect.error_code == 0 and delete("c", "plant") == 68


def test_what_members_say_they_read_is_believed_where_it_is_understood() -> None:
    assert subscribed_topics(PLANT) == {"plant"}
    for cut in range(len(PLANT) - 4):
        assert subscribed_topics(PLANT[:cut]) is None or subscribed_topics(PLANT[:cut]) == set()
    for metadata in (b"", b"\0\1\x7f\xff\xff\xff", b"\0\1\0\0\0\1\0\5plan", b"\0\1\0\0\0\1\0\1\xff"):
        assert subscribed_topics(metadata) is None


def test_the_apis_of_groups_are_listed() -> None:
    answer = ask(Peer(), ApiVersionsRequest(version=2), ApiVersionsResponse)
    ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert {key: ranges[key] for key in (10, 11, 12, 13, 14, 15, 16, 42, 47)} == {
        10: (0, 6), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 42: (0, 2), 47: (0, 0)}
