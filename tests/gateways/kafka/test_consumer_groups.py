"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, in both versions, with bytes that are put together here."""
from __future__ import annotations

import struct
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
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.producer import TxnOffsetCommitResponse

from gatehouse.gateways.admission.decision import Operation
from gatehouse.kernel.errors import StorageFull
from tests.gateways.kafka.fakes import Peer
from tests.gateways.kafka.judge import decoded, framed
from tests.gateways.kafka.test_membership import ask, consumer, in_transaction

INTERVAL_MS = 3_000


# ---- bytes

def text(value: str | None) -> bytes:
    return b"\0" if value is None else bytes((len(value) + 1,)) + value.encode()


def array(rows: list[bytes] | None) -> bytes:
    return b"\0" if rows is None else bytes((len(rows) + 1,)) + b"".join(rows)


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def parts(of: dict[bytes, list[int]] | None) -> bytes:
    return array(None if of is None else [topic + array([int32(each) for each in numbers]) + b"\0"
                                          for topic, numbers in of.items()])


def request(key: int, version: int, body: bytes) -> bytes:
    whole = struct.pack(">hhi", key, version, 5) + b"\0\5judge" + b"\0" + body
    return int32(len(whole)) + whole


def heartbeat(version: int = 1, member: str = "m", epoch: int = 0, instance: str | None = None,
              rack: str | None = None, rebalance_ms: int = -1, names: list[str] | None = None,
              pattern: str | None = None, assignor: str | None = None, owned: dict[bytes, list[int]] | None = None,
              group: str = "g") -> bytes:
    regex = text(pattern) if version >= 1 else b""
    return request(68, version, text(group) + text(member) + int32(epoch) + text(instance) + text(rack)
                   + int32(rebalance_ms) + array(None if names is None else [text(name) for name in names]) + regex
                   + text(assignor) + parts(owned) + b"\0")


JOINING: dict[str, Any] = {"rebalance_ms": 60_000, "names": ["plant"], "owned": {}}


class Reader:
    """Reads an answer's fields in turn."""

    def __init__(self, frame: bytes) -> None:
        self.data, self.at = frame, 0
        assert self.take(5) == int32(5) + b"\0"

    def take(self, count: int) -> bytes:
        self.at += count
        assert self.at <= len(self.data), "cut off"
        return self.data[self.at - count:self.at]

    def int(self, shape: str) -> int:
        value: int = struct.unpack(">" + shape, self.take(struct.calcsize(shape)))[0]
        return value

    def text(self) -> str | None:
        size = self.int("B")
        if size >= 128:
            size = size - 128 + 128 * self.int("B")
        return None if size == 0 else self.take(size - 1).decode()

    def rows(self, read: Any) -> list[Any]:
        return [read() for _ in range(self.int("B") - 1)]

    def parts(self, named: bool) -> dict[Any, list[int]]:
        def topic() -> tuple[Any, list[int]]:
            uuid = self.take(16)
            name = self.text() if named else None
            numbers = self.rows(lambda: self.int("i"))
            assert self.take(1) == b"\0"
            return name or uuid, numbers

        found = dict(self.rows(topic))
        assert self.take(1) == b"\0"
        return found

    def end(self) -> None:
        assert self.data[self.at:] == b"\0"


class Beaten:
    def __init__(self, frame: bytes) -> None:
        read = Reader(frame)
        assert read.int("i") == 0
        self.error, self.message, self.member = read.int("h"), read.text(), read.text()
        self.epoch, self.interval_ms = read.int("i"), read.int("i")
        self.parts = read.parts(named=False) if read.int("b") == 1 else None
        read.end()


def beat(peer: Peer, **fields: Any) -> Beaten:
    frames = peer.send(heartbeat(**fields))
    if not frames:
        peer.kernel.flush()
        frames = peer.link.frames()
    frame, = frames
    return Beaten(frame)


def describe(peer: Peer, version: int, *groups: str, with_rights: bool = False) -> list[dict[str, Any]]:
    frame, = peer.send(request(69, version, array([text(group) for group in groups]) + bytes((with_rights,)) + b"\0"))
    read = Reader(frame)
    assert read.int("i") == 0

    def member() -> dict[str, Any]:
        row: dict[str, Any] = {"id": read.text(), "instance": read.text(), "rack": read.text(), "epoch": read.int("i"),
                               "client": read.text(), "host": read.text(), "topics": read.rows(read.text),
                               "pattern": read.text(), "assigned": read.parts(True), "target": read.parts(True)}
        if version >= 1:
            row["type"] = read.int("b")
        assert read.take(1) == b"\0"
        return row

    def group() -> dict[str, Any]:
        row: dict[str, Any] = {"error": read.int("h"), "message": read.text(), "name": read.text(),
                               "state": read.text(), "epoch": read.int("i"), "assigned": read.int("i"),
                               "assignor": read.text(), "members": read.rows(member), "rights": read.int("i")}
        assert read.take(1) == b"\0"
        return row

    rows = read.rows(group)
    read.end()
    return rows


def topic_id(peer: Peer, name: str = "plant") -> bytes:
    topic = peer.kernel.topic(name)
    assert topic is not None
    return topic.uuid


def guest() -> Peer:
    """Somebody who may consume of `plant`, with groups other than `other`."""
    return Peer(decision=lambda _, operation, name: operation is Operation.CONSUME and not name.startswith("other"))


# ---- heartbeats

@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_gives_up_and_leaves(version: int) -> None:
    first = consumer()
    plant = topic_id(first)
    answer = beat(first, version=version, **JOINING)
    assert (answer.error, answer.member, answer.epoch, answer.interval_ms, answer.parts) \
        == (0, "m", 1, INTERVAL_MS, {plant: [0, 1]})
    assert beat(first, version=version, epoch=1).parts is None
    second = consumer(first.kernel)
    answer = beat(second, version=version, member="n", **JOINING)
    assert (answer.epoch, answer.parts) == (2, {}) and answer.interval_ms < INTERVAL_MS
    answer = beat(first, version=version, epoch=1, owned={plant: [0, 1]})
    assert answer.epoch == 1 and answer.parts is not None
    kept, = answer.parts[plant]
    assert beat(first, version=version, epoch=1, owned={plant: [kept]}).epoch == 2
    assert beat(second, version=version, member="n", epoch=2).parts == {plant: [1 - kept]}
    left = beat(first, version=version, epoch=-1)
    assert (left.error, left.member, left.epoch) == (0, "m", -1)
    assert beat(first, version=version, epoch=2).error == 25


def test_a_member_of_the_first_version_is_given_an_id() -> None:
    answer = beat(consumer(), version=0, member="", **JOINING)
    assert answer.error == 0 and answer.member is not None and len(answer.member) == 36


def test_a_change_is_answered_when_it_is_durable() -> None:
    peer = consumer()
    assert peer.send(heartbeat(**JOINING)) == []
    peer.kernel.flush(StorageFull("full"))
    frame, = peer.link.frames()
    assert Beaten(frame).error == 15
    assert beat(peer, **JOINING).error == 0


@pytest.mark.parametrize(("fields", "error"), [
    ({**JOINING, "member": ""}, 42), ({**JOINING, "group": ""}, 42), ({**JOINING, "instance": ""}, 42),
    ({**JOINING, "rack": ""}, 42), ({**JOINING, "epoch": -3}, 42), ({**JOINING, "epoch": -2}, 42),
    ({**JOINING, "rebalance_ms": 0}, 42), ({**JOINING, "owned": None}, 42),
    ({**JOINING, "owned": {bytes(16): [1]}}, 42),
    ({**JOINING, "names": None}, 42), ({**JOINING, "names": None, "pattern": ""}, 42),
    ({**JOINING, "assignor": "magic"}, 112), ({**JOINING, "pattern": "("}, 128), ({"epoch": 1}, 69),
    ({"epoch": -1}, 69), ({**JOINING, "group": "leased"}, 23),
])
def test_what_no_member_says_is_refused(fields: dict[str, Any], error: int) -> None:
    peer = consumer()
    peer.kernel.leased.add("leased")
    answer = beat(peer, **fields)
    assert answer.error == error and answer.message
    assert peer.kernel.assigned.describe_consumers("g") is None


def test_a_null_among_the_names_of_topics_is_malformed() -> None:
    peer = guest()
    asked = heartbeat(**JOINING | {"names": [None]})
    assert peer.send(asked) == []
    assert peer.link.reason == "malformed: subscribed_topic_names may not be null"


def test_epochs_and_instances_are_fenced() -> None:
    peer = consumer()
    beat(peer, **JOINING, instance="i")
    assert beat(peer, epoch=7, instance="i").error == 110
    assert beat(peer, member="n", instance="i", **JOINING).error == 111
    assert beat(peer, member="n", instance="i", epoch=1).error == 82
    assert beat(peer, epoch=-2, instance="i").epoch == -2
    assert beat(peer, member="n", instance="i", **JOINING).parts == {topic_id(peer): [0, 1]}


def test_partitions_of_topics_that_are_gone_are_nobodys() -> None:
    peer = consumer()
    assert beat(peer, **JOINING).error == 0
    assert beat(peer, epoch=1, owned={bytes(16): [0], topic_id(peer): [0, 9]}).error == 0


def test_a_pattern_finds_what_the_client_may_read() -> None:
    peer = guest()
    peer.kernel.create_topic("plant", partitions=1)
    peer.kernel.create_topic("other", partitions=1)
    peer.kernel.flush()
    answer = beat(peer, **{**JOINING, "names": None}, pattern=".*")
    assert answer.parts == {topic_id(peer): [0]}
    assert beat(peer, member="n", **{**JOINING, "names": ["other"]}).error == 29


def test_a_pattern_finds_what_the_client_may_read_by_now() -> None:
    allowed = {"plant"}
    peer = Peer(decision=lambda _, operation, name: name.split("/")[0] in allowed | {"g"})
    for name in ("plant", "other"):
        peer.kernel.create_topic(name, partitions=1)
    peer.kernel.flush()
    assert beat(peer, **{**JOINING, "names": None}, pattern=".*").parts == {topic_id(peer): [0]}
    allowed.add("other")
    peer.services.admission.version = object()
    both = {topic_id(peer): [0], topic_id(peer, "other"): [0]}
    assert beat(peer, epoch=1, owned={topic_id(peer): [0]}).parts == both
    allowed.remove("plant")
    peer.services.admission.version = object()
    assert beat(peer, epoch=2, owned=both).parts == {topic_id(peer, "other"): [0]}


def test_a_pattern_does_not_find_what_the_hub_writes_about_itself() -> None:
    peer = consumer()
    peer.kernel.create_topic("journeys", partitions=1)
    peer.kernel.flush()
    assert beat(peer, **{**JOINING, "names": None}, pattern="plant|journeys").parts == {topic_id(peer): [0, 1]}


# ---- what tools see

@pytest.mark.parametrize("version", [0, 1])
def test_a_group_is_described_with_its_members(version: int) -> None:
    peer = consumer()
    beat(peer, **JOINING, instance="i", rack="r", pattern="pl.*", assignor="range")
    row, missing = describe(peer, version, "g", "nobody", "g", with_rights=True)
    member = row["members"][0]
    assert (row["error"], row["state"], row["epoch"], row["assigned"], row["assignor"]) == (0, "Stable", 1, 1, "range")
    assert row["rights"] == 1 << 3 | 1 << 6 | 1 << 8 and member.pop("type", 1) == 1
    assert member == {"id": "m", "instance": "i", "rack": "r", "epoch": 1, "client": "judge", "host": member["host"],
                      "topics": ["plant"], "pattern": "pl.*", "assigned": {"plant": [0, 1]},
                      "target": {"plant": [0, 1]}}
    assert (missing["error"], missing["rights"]) == (69, -1 << 31) and missing["message"]


def test_tools_of_classic_groups_see_it_as_what_it_is() -> None:
    peer = consumer()
    beat(peer, **JOINING)

    def ask(message: Any, kind: Any) -> Any:
        frames = peer.send(framed(message, 5))
        if not frames:
            peer.kernel.flush()
            frames = peer.link.frames()
        return decoded(kind, message.version, frames[0], 5)

    for version in range(6):
        row, = ask(ListGroupsRequest(version=version), ListGroupsResponse).groups
        assert row.group_id == "g" and row.protocol_type == "consumer"
        assert version < 4 or row.group_state == "Stable"
        assert version < 5 or row.group_type == "consumer"
    for kinds, count in ((["classic"], 0), (["Consumer"], 1)):
        assert len(ask(ListGroupsRequest(version=5, states_filter=[], types_filter=kinds),
                       ListGroupsResponse).groups) == count
    assert ask(DescribeGroupsRequest(version=6, groups=["g"], include_authorized_operations=False),
               DescribeGroupsResponse).groups[0].error_code == 69
    assert ask(DescribeGroupsRequest(version=5, groups=["g"], include_authorized_operations=False),
               DescribeGroupsResponse).groups[0].group_state == "Dead"
    assert ask(DeleteGroupsRequest(version=2, groups_names=["g"]), DeleteGroupsResponse).results[0].error_code == 68
    deleting = OffsetDeleteRequest.OffsetDeleteRequestTopic
    answer = ask(OffsetDeleteRequest(version=0, group_id="g", topics=[
        deleting(version=0, name=name, partitions=[deleting.OffsetDeleteRequestPartition(version=0, partition_index=0)])
        for name in ("plant", "other")]), OffsetDeleteResponse)
    assert [row.partitions[0].error_code for row in answer.topics] == [86, 0]
    beat(peer, epoch=-1)
    assert ask(DeleteGroupsRequest(version=2, groups_names=["g"]), DeleteGroupsResponse).results[0].error_code == 0
    assert describe(peer, 1, "g")[0]["error"] == 69


def test_members_commit_and_fetch_in_their_epoch() -> None:
    peer = consumer()
    beat(peer, **JOINING)

    def commit(member: str, epoch: int) -> int:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        part = topic.OffsetCommitRequestPartition(version=9, partition_index=0, committed_offset=3,
                                                  committed_leader_epoch=-1, committed_metadata="")
        frames = peer.send(framed(OffsetCommitRequest(
            version=9, group_id="g", member_id=member, generation_id_or_member_epoch=epoch, group_instance_id=None,
            topics=[topic(version=9, name="plant", partitions=[part])]), 5))
        if not frames:
            peer.kernel.flush()
            frames = peer.link.frames()
        error: int = decoded(OffsetCommitResponse, 9, frames[0], 5).topics[0].partitions[0].error_code
        return error

    def fetch(member: str | None, epoch: int) -> int:
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        frame, = peer.send(framed(OffsetFetchRequest(version=9, require_stable=True, groups=[
            group(version=9, group_id="g", member_id=member, member_epoch=epoch, topics=None)]), 5))
        error: int = decoded(OffsetFetchResponse, 9, frame, 5).groups[0].error_code
        return error

    assert [commit(*who) for who in (("m", 1), ("m", 0), ("n", 1), ("", -1))] == [0, 113, 25, 25]
    answer = ask(peer, in_transaction(0), TxnOffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == 0        # a transaction may name no member
    assert [fetch(*who) for who in (("m", 1), ("m", 2), ("n", 1), (None, -1))] == [0, 113, 25, 0]
    beat(peer, epoch=-1)
    assert [commit(*who) for who in (("m", 1), ("m", -1), ("", -1))] == [25, 0, 0]   # nobody is left


def test_a_heartbeat_of_somebody_without_the_right_is_refused() -> None:
    peer = guest()
    answer = beat(peer, **JOINING, group="other")
    assert answer.error == 30
    assert describe(peer, 1, "other")[0]["error"] == 30


def test_the_feature_by_which_clients_choose_this_protocol_is_finalized() -> None:
    frame, = Peer().send(framed(ApiVersionsRequest(version=3, client_software_name="judge",
                                                   client_software_version="1"), 5))
    answer = ApiVersionsResponse.decode(frame, version=3, header=True)
    finalized, = answer.finalized_features
    assert (finalized.name, finalized.min_version_level, finalized.max_version_level) == ("group.version", 1, 1)
    supported, = answer.supported_features
    assert (supported.name, supported.min_version, supported.max_version) == ("group.version", 0, 1)
