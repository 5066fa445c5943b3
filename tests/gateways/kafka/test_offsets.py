"""FindCoordinator, OffsetCommit, OffsetFetch: what they answer where a group has no members, in every version."""
from __future__ import annotations

import uuid
from types import SimpleNamespace as Row
from typing import Any

import pytest
from kafka.protocol.admin import DeleteRecordsRequest
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.consumer.group import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.api import APIS
from gatehouse.kernel.errors import StorageFull
from tests.gateways.kafka.batches import batch
from tests.gateways.kafka.fakes import Peer
from tests.gateways.kafka.judge import decoded, framed


def versions(key: int) -> range:
    return range(APIS[key].first_version, APIS[key].last_version + 1)


def plant() -> Peer:
    peer = Peer()
    peer.kernel.create_topic("plant", partitions=2)
    peer.kernel.flush()
    peer.link.take()
    return peer


def said(peer: Peer, version: int, name: str) -> dict[str, Any]:
    """How a request says a topic: from version 10 on by its id."""
    topic = peer.kernel.by_name.get(name)
    return {"name": name} if version < 10 else {"topic_id": uuid.UUID(bytes=topic.uuid) if topic else uuid.uuid5(
        uuid.NAMESPACE_OID, name)}


def heard(peer: Peer, version: int, row: Any, names: Any) -> str:
    """The name of a topic of an answer."""
    return row.name if version < 10 else {said(peer, 10, name)["topic_id"]: name for name in names}[row.topic_id]


# ---- FindCoordinator

def find(peer: Peer, version: int, key: str, key_type: int = 0) -> Any:
    fields: dict[str, Any] = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
    if version >= 1:
        fields["key_type"] = key_type
    request = FindCoordinatorRequest(version=version, **fields)
    answer = decoded(FindCoordinatorResponse, version, *peer.send(framed(request, 5)), 5)
    return answer.coordinators[0] if version >= 4 else answer


@pytest.mark.parametrize("version", versions(10))
def test_this_node_coordinates_every_group(version: int) -> None:
    answer = find(Peer(advertise="[::1]:9192"), version, "workers")
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "::1", 9192)


@pytest.mark.parametrize(("key", "key_type", "code"), [("", 0, 24), ("t", 2, 42), ("t", -1, 42)])
def test_nobody_coordinates_anything_else(key: str, key_type: int, code: int) -> None:
    for version in (1, 3, 4, 5, 6):
        answer = find(Peer(), version, key, key_type)
        assert (answer.error_code, answer.node_id, answer.host) == (code, -1, "")
        assert answer.error_message


def test_this_node_coordinates_the_transactions_of_who_may_have_them() -> None:
    peer = Peer(decision=lambda principal, operation, name: (operation, name) == (Operation.TRANSACT, "mine"))
    for version in (1, 3, 4, 5, 6):
        assert (find(peer, version, "mine", 1).error_code, find(peer, version, "other", 1).error_code) == (0, 53)


@pytest.mark.parametrize(("version", "code"), [(6, 0), (7, 88), (9, 88), (10, 88)])
def test_an_offset_that_a_transaction_moves_is_not_given_to_who_wants_it_to_stay(version: int, code: int) -> None:
    peer = Peer()
    topic = peer.kernel.create_topic("plant", partitions=2)
    peer.kernel.offsets["g"] = {topic.partition_id(0): (3, b""), topic.partition_id(1): (4, b"")}
    peer.kernel.producing.moves = {topic.partition_id(1)}
    peer.kernel.flush()
    for only_stable in (False, True):
        if version < 8:
            fields = {"group_id": "g", "topics": None}
        else:
            fields = {"groups": [Row(group_id="g", member_id=None, member_epoch=-1, topics=None)]}
        request = OffsetFetchRequest(version=version, require_stable=only_stable, **fields)
        answer = decoded(OffsetFetchResponse, version, *peer.send(framed(request, 5)), 5)
        topics = answer.topics if version < 8 else answer.groups[0].topics
        stable, moved = sorted(topics[0].partitions, key=lambda part: int(part.partition_index))
        assert (stable.error_code, stable.committed_offset) == (0, 3)
        expected = (code, -1) if only_stable and code else (0, 4)
        assert (moved.error_code, moved.committed_offset) == expected


def test_a_partition_of_a_share_group_is_refused_in_words() -> None:
    assert "share groups have no coordinator here" in find(Peer(), 6, "g:topic:0", 2).error_message


def test_a_coordinator_takes_the_right_to_consume_with_the_group() -> None:
    peer = Peer(decision=lambda principal, operation, name: (operation, name) == (Operation.CONSUME, "mine"))
    assert find(peer, 4, "mine").error_code == 0
    assert find(peer, 4, "theirs").error_code == 30


# ---- OffsetCommit

def commit(peer: Peer, version: int, group: str, offsets: dict[tuple[str, int], tuple[int, str | None]],
           error: Exception | None = None, **fields: Any) -> dict[tuple[str, int], int]:
    """Error codes by topic and partition."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    part = topic.OffsetCommitRequestPartition
    topics: dict[str, list[Any]] = {}
    for (name, index), (offset, metadata) in offsets.items():
        topics.setdefault(name, []).append(part(version=version, partition_index=index, committed_offset=offset,
                                                committed_metadata=metadata))
    request = OffsetCommitRequest(version=version, group_id=group, topics=[
        topic(version=version, partitions=parts, **said(peer, version, name)) for name, parts in topics.items()],
        **fields)
    frames = peer.send(framed(request, 5))
    peer.kernel.flush(error)
    answer = decoded(OffsetCommitResponse, version, *(frames or peer.link.frames()), 5)
    return {(heard(peer, version, row, topics), each.partition_index): each.error_code
            for row in answer.topics for each in row.partitions}


@pytest.mark.parametrize("version", versions(8))
def test_a_commit_is_answered_when_it_is_durable(version: int) -> None:
    peer = plant()
    partition_id = peer.kernel.by_name["plant"].partition_id
    assert commit(peer, version, "g", {("plant", 0): (7, "so far"), ("plant", 1): (9, None)}) \
        == {("plant", 0): 0, ("plant", 1): 0}
    assert peer.kernel.offsets == {"g": {partition_id(0): (7, b"so far"), partition_id(1): (9, b"")}}
    assert commit(peer, version, "g", {("plant", 0): (8, None)}, StorageFull("full")) == {("plant", 0): 15}
    assert peer.kernel.offsets["g"][partition_id(0)] == (7, b"so far")


def test_a_commit_says_for_each_partition_what_is_wrong_and_keeps_the_others() -> None:
    peer = plant()
    asked = {("plant", 0): (7, None), ("plant", 2): (1, None), ("plant", 1): (1, "x" * 4097), ("other", 0): (1, None)}
    assert commit(peer, 8, "g", asked) == {
        ("plant", 0): 0, ("plant", 2): 3, ("plant", 1): 12, ("other", 0): 3}
    assert commit(peer, 8, "g", {("plant", 1): (-3, None)}) == {("plant", 1): 42}
    assert peer.kernel.offsets == {"g": {peer.kernel.by_name["plant"].partition_id(0): (7, b"")}}


def test_a_commit_by_id_says_what_is_not_there() -> None:
    peer = plant()
    assert commit(peer, 10, "g", {("plant", 0): (7, None), ("plant", 2): (1, None), ("other", 0): (1, None)}) \
        == {("plant", 0): 0, ("plant", 2): 3, ("other", 0): 100}


def test_a_commit_of_no_offset_forgets_it() -> None:
    peer = plant()
    commit(peer, 8, "g", {("plant", 0): (7, None), ("plant", 1): (8, None)})
    assert commit(peer, 8, "g", {("plant", 0): (-1, None)}) == {("plant", 0): 0}
    assert fetch(peer, 8, "g", {"plant": [0, 1]})[1] == {("plant", 0): (-1, "", 0), ("plant", 1): (8, "", 0)}


def test_a_commit_of_the_beginning_is_of_where_the_partition_begins() -> None:
    """KafkaJS resets a group to the earliest so."""
    peer = plant()
    peer.kernel.starts[peer.kernel.by_name["plant"].partition_id(1)] = 5
    assert set(commit(peer, 8, "g", {("plant", 0): (-2, None), ("plant", 1): (-2, "why")}).values()) == {0}
    assert fetch(peer, 8, "g", {"plant": [0, 1]})[1] == {("plant", 0): (0, "", 0), ("plant", 1): (5, "why", 0)}


@pytest.mark.parametrize("version", versions(8))
def test_who_says_no_generation_commits_while_there_are_no_members_whoever_it_is(version: int) -> None:
    """Clients that have left keep their names, and commit without a generation."""
    peer = plant()
    named = {"group_instance_id": "one"} if version >= 7 else {}
    assert commit(peer, version, "g", {("plant", 0): (7, None)}, member_id="m", **named) == {("plant", 0): 0}


def test_a_commit_by_a_member_or_of_a_leased_group_is_refused() -> None:
    peer = plant()
    peer.kernel.leased.add("workers")
    asked: dict[tuple[str, int], tuple[int, str | None]] = {("plant", 0): (7, None)}
    for version in (8, 9):
        peer.kernel.offsets["old"] = {7: (1, b"")}
        assert commit(peer, version, "old", asked, member_id="m", generation_id_or_member_epoch=3) == {("plant", 0): 25}
        assert commit(peer, version, "g", asked, member_id="m", generation_id_or_member_epoch=3) \
            == {("plant", 0): 69 if version >= 9 else 22}
    del peer.kernel.offsets["old"]
    assert commit(peer, 8, "workers", asked) == {("plant", 0): 23}
    assert commit(peer, 8, "", asked) == {("plant", 0): 24}
    assert peer.kernel.offsets == {}


def test_a_commit_takes_the_rights_to_the_group_and_to_the_topic() -> None:
    peer = Peer(decision=lambda principal, operation, name: name.startswith(("g", "plant")))
    for name in ("plant", "secret"):
        peer.kernel.create_topic(name)
    asked: dict[tuple[str, int], tuple[int, str | None]] = {("plant", 0): (7, None), ("secret", 0): (7, None)}
    assert commit(peer, 8, "g", asked) == {("plant", 0): 0, ("secret", 0): 29}
    assert commit(peer, 8, "other", asked) == {("plant", 0): 30, ("secret", 0): 30}


# ---- OffsetFetch

def fetch(peer: Peer, version: int, group: str, wants: dict[str, list[int]] | None, **fields: Any) -> Any:
    """Error code of the group, and (offset, metadata, error) by topic and partition."""
    if version >= 8:
        kind = OffsetFetchRequest.OffsetFetchRequestGroup
        inner = kind.OffsetFetchRequestTopics
    else:
        inner = OffsetFetchRequest.OffsetFetchRequestTopic
    topics = None if wants is None else [inner(version=version, partition_indexes=indexes, **said(peer, version, name))
                                         for name, indexes in wants.items()]
    if version >= 8:
        request = OffsetFetchRequest(version=version, groups=[
            kind(version=version, group_id=group, topics=topics, **fields)])
    else:
        request = OffsetFetchRequest(version=version, group_id=group, topics=topics)
    answer = decoded(OffsetFetchResponse, version, *peer.send(framed(request, 5)), 5)
    if version >= 8:
        answer = answer.groups[0]
    names = wants or ["plant"]
    return answer.error_code if version >= 2 else 0, {
        (heard(peer, version, row, names), each.partition_index):
            (each.committed_offset, each.metadata, each.error_code)
        for row in answer.topics for each in row.partitions}


@pytest.mark.parametrize("version", versions(9))
def test_committed_offsets_are_shown(version: int) -> None:
    peer = plant()
    assert commit(peer, 8, "g", {("plant", 0): (7, "so far")}) == {("plant", 0): 0}
    assert fetch(peer, version, "g", {"plant": [0, 1, 5], "other": [0]}) == (0, {
        ("plant", 0): (7, "so far", 0), ("plant", 1): (-1, "", 0), ("plant", 5): (-1, "", 0),
        ("other", 0): (-1, "", 0 if version < 10 else 100)})
    if version >= 2:
        assert fetch(peer, version, "g", None) == (0, {("plant", 0): (7, "so far", 0)})
    assert fetch(peer, version, "nobody", {"plant": [0]}) == (0, {("plant", 0): (-1, "", 0)})


@pytest.mark.parametrize("version", versions(9))
def test_offsets_of_a_group_without_the_right_or_that_is_leased_are_not_shown(version: int) -> None:
    peer = Peer(decision=lambda principal, operation, name: name.startswith(("leased", "plant")))
    peer.kernel.create_topic("plant")
    peer.kernel.leased.add("leased")
    for group, code in (("theirs", 30), ("leased", 23)):
        error, rows = fetch(peer, version, group, {"plant": [0]})
        if version >= 2:
            assert (error, rows) == (code, {})
        else:
            assert rows == {("plant", 0): (-1, "", code)}


def test_topics_without_the_right_are_refused_by_name_and_left_out_of_everything() -> None:
    peer = plant()
    peer.kernel.create_topic("secret")
    commit(peer, 8, "g", {("plant", 0): (7, None), ("secret", 0): (8, None)})
    guest = Peer(peer.kernel, decision=lambda principal, operation, name: not name.startswith("secret"))
    assert fetch(guest, 8, "g", {"secret": [0]}) == (0, {("secret", 0): (-1, "", 29)})
    assert fetch(guest, 8, "g", None) == (0, {("plant", 0): (7, "", 0)})
    assert fetch(peer, 9, "g", None, member_id="m") == (25, {})


# ---- one request behind the other

def list_offsets(offset_of: int) -> Any:
    kind = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(version=1, replica_id=-1, topics=[kind(version=1, name="plant", partitions=[
        kind.ListOffsetsPartition(version=1, partition_index=0, timestamp=offset_of)])])


def delete_records(before: int) -> Any:
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    return DeleteRecordsRequest(version=1, timeout_ms=1000, topics=[kind(version=1, name="plant", partitions=[
        kind.DeleteRecordsPartition(version=1, partition_index=0, offset=before)])])


@pytest.mark.parametrize("earlier", [1, 3])
def test_what_a_request_shows_is_as_those_before_it_have_left_it(earlier: int) -> None:
    """As in Kafka, which takes a connection's requests one after the other; here the disk is waited for in between."""
    peer = plant()
    topic = peer.kernel.by_name["plant"]
    peer.kernel.append_batch(topic.partition_id(0), batch(*[b"v"] * 5), None)
    peer.kernel.flush()
    sent = b"".join([framed(delete_records(offset), 5) for offset in range(1, earlier + 1)])
    assert peer.send(sent + framed(list_offsets(-2), 5)) == []
    while not (frames := peer.link.frames()) or len(frames) < earlier + 1:
        assert peer.kernel.pending, "something is waited for"
        peer.kernel.flush()
    answer = decoded(ListOffsetsResponse, 1, frames[-1], 5)
    assert answer.topics[0].partitions[0].offset == earlier


def slow_clock(peer: Peer) -> None:
    """A request is gone through in some turns."""
    def now_ms() -> int:
        peer.now_ms += 3
        return peer.now_ms

    peer.services.now_ms = now_ms


@pytest.mark.parametrize("may_read", [True, False])
def test_rights_that_change_while_a_request_is_gone_through(may_read: bool) -> None:
    """In steps, between which anybody may look at the connection."""
    allowed = True
    peer = Peer(decision=lambda *asked: allowed)
    peer.kernel.create_topic("plant", partitions=100)
    peer.kernel.flush()
    slow_clock(peer)
    kind = ListOffsetsRequest.ListOffsetsTopic
    rows = [kind.ListOffsetsPartition(version=7, partition_index=index, timestamp=-3, current_leader_epoch=-1)
            for index in range(100)]
    asked = ListOffsetsRequest(version=7, replica_id=-1, isolation_level=0,
                               topics=[kind(version=7, name="plant", partitions=rows)])
    assert peer.send(framed(asked, 5)) == [], "there is more to do than in one turn"
    allowed = may_read
    peer.services.admission.version = object()
    peer.session.describe()
    frames = [frame for _ in range(100) for frame in peer.wait(10)]
    codes = [row.error_code for row in decoded(ListOffsetsResponse, 7, frames[0], 5).topics[0].partitions]
    assert len(codes) == 100 and codes[0] == 0 and codes[-1] == (0 if may_read else 29)


def test_nothing_is_committed_in_a_topic_that_is_deleted_meanwhile() -> None:
    peer = Peer()
    for name in ("plant", "other"):
        peer.kernel.create_topic(name, partitions=100)
    peer.kernel.flush()
    slow_clock(peer)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    part = topic.OffsetCommitRequestPartition
    rows = [part(version=8, partition_index=index, committed_offset=7, committed_leader_epoch=-1, committed_metadata="")
            for index in range(100)]
    asked = OffsetCommitRequest(version=8, group_id="g", generation_id_or_member_epoch=-1, member_id="",
                                group_instance_id=None, topics=[topic(version=8, name=name, partitions=rows)
                                                                for name in ("plant", "other")])
    assert peer.send(framed(asked, 5)) == []
    gone = peer.kernel.by_name["plant"]
    peer.kernel.delete_topic("plant")
    peer.kernel.create_topic("plant", partitions=100)
    for _ in range(100):
        peer.wait(10)
    peer.kernel.flush()
    committed = peer.kernel.offsets["g"]
    assert len(committed) == 100 and not any(partition_id in committed for partition_id in gone.partition_ids())


def test_one_request_waits_undecoded_and_no_more() -> None:
    """What a client sends behind it is not read."""
    peer = plant()
    assert peer.send(framed(delete_records(0), 5) + framed(list_offsets(-1), 5) * 20) == []
    assert peer.link.paused
    peer.kernel.flush()
    assert len(peer.link.frames()) == 21 and not peer.link.paused
