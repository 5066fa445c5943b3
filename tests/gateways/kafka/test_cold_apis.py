"""Metadata, CreateTopics, ListOffsets and InitProducerId: what they answer, in every version."""
from __future__ import annotations

import uuid
from typing import Any

import pytest
from kafka.protocol.admin import CreateTopicsRequest, CreateTopicsResponse
from kafka.protocol.consumer import ListOffsetsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import EndTxnRequest, EndTxnResponse, InitProducerIdRequest, InitProducerIdResponse

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.api import APIS
from gatehouse.kernel.errors import (
    FencedProducer,
    GroupIsLeased,
    InvalidAddress,
    InvalidGroup,
    InvalidRecord,
    InvalidTimeout,
    NoTransaction,
    OtherProducer,
    QueueFull,
    Stopping,
    StorageFull,
    TooManyTopics,
    TooManyTransactions,
    TransactionEnding,
)
from gatehouse.kernel.state.topics import TopicSettings
from tests.gateways.kafka.batches import batch
from tests.gateways.kafka.fakes import EPOCH, Peer
from tests.gateways.kafka.judge import decoded, framed, list_offsets


def versions(key: int) -> range:
    return range(APIS[key].first_version, APIS[key].last_version + 1)


# ---- Metadata

def metadata(version: int, names: list[str | uuid.UUID] | None, **fields: Any) -> Any:
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(version=version, **fields, topics=None if names is None else [
        topic(version=version, name=None, topic_id=name) if isinstance(name, uuid.UUID)
        else topic(version=version, name=name) for name in names])


def ask(peer: Peer, version: int, names: list[str | uuid.UUID] | None, **fields: Any) -> list[Any]:
    answer = decoded(MetadataResponse, version, *peer.send(framed(metadata(version, names, **fields), 5)), 5)
    return list(answer.topics)


@pytest.mark.parametrize("version", versions(3))
def test_metadata_describes_topics(version: int) -> None:
    peer = Peer()
    made = peer.kernel.create_topic("plant", partitions=2)
    topic, = ask(peer, version, ["plant"])
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "plant", False)
    if version >= 10:
        assert topic.topic_id == uuid.UUID(bytes=made.uuid)
    assert [(part.error_code, part.partition_index, part.leader_id, part.replica_nodes, part.isr_nodes)
            for part in topic.partitions] == [(0, 0, 1, [1], [1]), (0, 1, 1, [1], [1])]
    if version >= 7:
        assert {part.leader_epoch for part in topic.partitions} == {EPOCH}


def test_what_the_hub_writes_about_itself_is_internal() -> None:
    """A consumer of `.*` leaves it out, as Kafka's own topics."""
    peer = Peer()
    for name in ("audit", "journeys", "plant"):
        peer.kernel.create_topic(name)
    assert {topic.name: topic.is_internal for topic in ask(peer, 12, None)} == {
        "audit": True, "journeys": True, "plant": False}


@pytest.mark.parametrize("version", versions(3))
def test_metadata_of_all_topics_and_of_none(version: int) -> None:
    peer = Peer()
    for name in ("a", "b"):
        peer.kernel.create_topic(name)
    everything = ask(peer, version, None if version else [])
    assert [topic.name for topic in everything] == ["a", "b"]
    if version:
        assert ask(peer, version, []) == []


@pytest.mark.parametrize("version", versions(3))
def test_metadata_makes_a_topic_where_it_may(version: int) -> None:
    peer = Peer()
    if version >= 4:
        topic, = ask(peer, version, ["plant"], allow_auto_topic_creation=False)
        assert (topic.error_code, topic.name, topic.partitions) == (3, "plant", [])
        assert peer.kernel.by_name == {}
    topic, = ask(peer, version, ["plant"])
    assert (topic.error_code, len(topic.partitions)) == (0, 4)


def test_metadata_makes_nothing_without_the_right() -> None:
    peer = Peer(decision=lambda principal, operation, address: operation in (Operation.CONSUME, Operation.PUBLISH))
    assert ask(peer, 5, ["plant"])[0].error_code == 29
    peer = Peer(decision=lambda principal, operation, address: operation is Operation.CONSUME)
    assert ask(peer, 5, ["plant"])[0].error_code == 29
    assert peer.kernel.by_name == {}


def test_metadata_hides_what_one_may_not_see() -> None:
    peer = Peer(decision=lambda principal, operation, address: not address.startswith("secret"))
    for name in ("plant", "secret"):
        peer.kernel.create_topic(name)
    assert [topic.name for topic in ask(peer, 9, None)] == ["plant"]
    topic, = ask(peer, 9, ["secret"])
    assert (topic.error_code, topic.partitions) == (29, [])
    topic, = ask(peer, 12, [uuid.UUID(bytes=peer.kernel.by_name["secret"].uuid)])
    assert (topic.error_code, topic.name) == (29, None)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250, "__consumer_offsets", "\N{SNOWMAN}"])
def test_metadata_of_names_that_cannot_be(name: str) -> None:
    peer = Peer()
    assert ask(peer, 9, [name])[0].error_code == 17
    assert peer.kernel.by_name == {}


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_by_topic_id(version: int) -> None:
    peer = Peer()
    topic_id = uuid.UUID(bytes=peer.kernel.create_topic("plant").uuid)
    known, unknown = ask(peer, version, [topic_id, uuid.UUID(int=9)])
    assert (known.error_code, known.name) == (0, "plant")
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (100, None, uuid.UUID(int=9))


def test_an_id_counts_where_there_is_also_a_name() -> None:
    """Java's admin client says an empty name beside it."""
    peer = Peer()
    topic_id = uuid.UUID(bytes=peer.kernel.create_topic("plant").uuid)
    kind = MetadataRequest.MetadataRequestTopic
    wanted = [kind(version=13, topic_id=each, name="") for each in (topic_id, uuid.UUID(int=9))]
    request = MetadataRequest(version=13, allow_auto_topic_creation=True, include_topic_authorized_operations=False,
                              topics=wanted)
    there, missing = decoded(MetadataResponse, 13, *peer.send(framed(request, 5)), 5).topics
    assert (there.error_code, there.name, there.topic_id) == (0, "plant", topic_id)
    assert (missing.error_code, missing.name, missing.topic_id) == (100, None, uuid.UUID(int=9))


# ---- CreateTopics

def creation(version: int, *topics: dict[str, Any], validate_only: bool = False) -> Any:
    kind = CreateTopicsRequest.CreatableTopic
    extra = {"validate_only": validate_only} if version >= 1 else {}
    rows = []
    for topic in topics:
        fields = {"num_partitions": 3, "replication_factor": 1, "assignments": [], "configs": [], **topic}
        fields["configs"] = [kind.CreatableTopicConfig(version=version, name=name, value=value)
                             for name, value in fields["configs"]]
        fields["assignments"] = [kind.CreatableReplicaAssignment(version=version, partition_index=index, broker_ids=ids)
                                 for index, ids in fields["assignments"]]
        rows.append(kind(version=version, **fields))
    return CreateTopicsRequest(version=version, topics=rows, timeout_ms=1000, **extra)


def create(peer: Peer, version: int, *topics: dict[str, Any], **fields: Any) -> list[Any]:
    frames = peer.send(framed(creation(version, *topics, **fields), 5))
    peer.kernel.flush()
    answer = decoded(CreateTopicsResponse, version, *(frames or peer.link.frames()), 5)
    return list(answer.topics)


@pytest.mark.parametrize("version", versions(19))
def test_creates_topics(version: int) -> None:
    peer = Peer()
    topic, = create(peer, version, {"name": "plant"})
    assert (topic.error_code, topic.name) == (0, "plant")
    made = peer.kernel.by_name["plant"]
    assert made.partitions == 3
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (3, 1)
        assert ("retention.ms", "259200000", 5) in [(config.name, config.value, config.config_source)
                                                    for config in topic.configs]
    if version >= 7:
        assert topic.topic_id == uuid.UUID(bytes=made.uuid)
    again, = create(peer, version, {"name": "plant"})
    assert again.error_code == 36
    assert bool(again.error_message) == (version >= 1)


def test_a_created_topic_is_answered_when_it_is_durable() -> None:
    peer = Peer()
    assert peer.send(framed(creation(5, {"name": "a"}, {"name": "b"}), 5)) == []
    peer.kernel.flush(StorageFull("the disk is full"))
    answer = decoded(CreateTopicsResponse, 5, *peer.link.frames())
    assert [(topic.error_code, topic.error_message) for topic in answer.topics] == [(56, "the disk is full")] * 2


def test_only_checking_creates_nothing() -> None:
    peer = Peer()
    peer.kernel.create_topic("old")
    codes = [topic.error_code for topic in create(
        peer, 5, {"name": "plant"}, {"name": "old"}, {"name": "a/b"}, {"name": "none", "num_partitions": 0},
        validate_only=True)]
    assert codes == [0, 36, 17, 37]
    assert list(peer.kernel.by_name) == ["old"]


@pytest.mark.parametrize(("fields", "code"), [
    ({"name": "a/b"}, 17), ({"name": ""}, 17), ({"name": "__internal"}, 17),
    ({"num_partitions": 0}, 37), ({"num_partitions": -2}, 37), ({"num_partitions": 20_001}, 37),
    ({"replication_factor": 3}, 38), ({"replication_factor": 0}, 38),
    ({"assignments": [(0, [1])]}, 42),
    ({"assignments": [(0, [2])], "num_partitions": -1, "replication_factor": -1}, 39),
    ({"assignments": [(1, [1])], "num_partitions": -1, "replication_factor": -1}, 39),
    ({"assignments": [(0, [1]), (0, [1])], "num_partitions": -1, "replication_factor": -1}, 39),
    ({"configs": [("min.compaction.lag.ms", str(73 * 3_600_000))]}, 40),
    ({"configs": [("delete.retention.ms", "-1")]}, 40), ({"configs": [("retention.ms", "-2")]}, 40),
    ({"configs": [("retention.ms", "soon")]}, 40), ({"configs": [("retention.ms", None)]}, 40),
    ({"configs": [("max.message.bytes", "9" * 19)]}, 40), ({"configs": [("no.such", "1")]}, 40),
    ({"configs": [("segment.bytes", "many")]}, 40), ({"configs": [("segment.ms", None)]}, 40),
    ({"configs": [("compression.type", "brotli")]}, 40), ({"configs": [("retention.bytes", "-2")]}, 40)])
def test_topics_that_are_refused(fields: dict[str, Any], code: int) -> None:
    peer = Peer()
    topic, good = create(peer, 7, {"name": "plant", **fields}, {"name": "good"})
    assert (topic.error_code, topic.topic_id, topic.configs) == (code, None, None)
    assert topic.error_message
    assert good.error_code == 0
    assert list(peer.kernel.by_name) == ["good"]


def test_what_is_taken_beside_the_plain_numbers() -> None:
    peer = Peer()
    codes = [topic.error_code for topic in create(
        peer, 7, {"name": "defaults", "num_partitions": -1, "replication_factor": -1},
        {"name": "assigned", "num_partitions": -1, "replication_factor": -1, "assignments": [(1, [1]), (0, [1])]},
        {"name": "settings", "configs": [("retention.ms", "60000"), ("max.message.bytes", "1000"),
                                         ("cleanup.policy", "delete"), ("compression.type", "gzip"),
                                         ("segment.bytes", "1048576"), ("segment.ms", "60000"),
                                         ("min.cleanable.dirty.ratio", "0.5"), ("retention.bytes", "-1")]},
        {"name": "compacted", "configs": [("cleanup.policy", "compact"), ("delete.retention.ms", "60000")]})]
    assert codes == [0, 0, 0, 0]
    assert peer.kernel.by_name["compacted"].settings == TopicSettings(compact=True, delete_retention_ms=60_000)
    assert {name: topic.partitions for name, topic in peer.kernel.by_name.items()} == {
        "defaults": 4, "assigned": 2, "settings": 3, "compacted": 3}
    assert peer.kernel.by_name["settings"].settings == TopicSettings(retention_ms=60_000, max_message_bytes=1000)


def test_a_topic_named_twice() -> None:
    peer = Peer()
    assert [topic.error_code for topic in create(peer, 5, {"name": "a"}, {"name": "a"})] == [42, 42]
    assert peer.kernel.by_name == {}


def test_without_the_right_to_create() -> None:
    peer = Peer(decision=lambda principal, operation, address: operation is not Operation.CREATE)
    assert create(peer, 5, {"name": "plant"})[0].error_code == 29


@pytest.mark.parametrize(("version", "wait_ms", "code", "told_ms"), [
    (5, 1_500, 44, 0), (6, 1_500, 89, 1_500), (7, 1_500, 89, 1_500), (7, 0, 44, 0)])
def test_who_makes_topics_too_fast_is_told_when_to_come_again(version: int, wait_ms: int, code: int, told_ms: int,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer()

    def refuse(name: str, **more: Any) -> Any:
        raise TooManyTopics("too fast", wait_ms)

    monkeypatch.setattr(peer.kernel, "create_topic", refuse)
    answer = decoded(CreateTopicsResponse, version, *peer.send(framed(creation(version, {"name": "new"}), 5)), 5)
    assert ([row.error_code for row in answer.topics], answer.throttle_time_ms) == ([code], told_ms)


# ---- ListOffsets

def peer_with_records() -> Peer:
    peer = Peer()
    topic = peer.kernel.create_topic("plant", partitions=2)
    peer.kernel.append_batch(topic.partition_id(0), batch(b"a", b"b", b"c", timestamp_ms=1000), None)
    peer.kernel.flush()
    peer.kernel.starts[topic.partition_id(0)] = 1
    return peer


def offsets(peer: Peer, version: int, wants: dict[tuple[str, int], int], **fields: Any) -> list[tuple[int, int, int]]:
    frames = peer.send(framed(list_offsets(version, wants, **fields), 5))
    peer.kernel.read()
    answer = decoded(ListOffsetsResponse, version, *(frames or peer.link.frames()), 5)
    return [(part.error_code, part.offset, part.timestamp) for topic in answer.topics for part in topic.partitions]


@pytest.mark.parametrize("version", versions(2))
@pytest.mark.parametrize("late", [False, True])
def test_lists_offsets(version: int, late: bool) -> None:
    peer = peer_with_records()
    peer.kernel.late = late
    for timestamp, since, expected in [
            (-1, 1, (0, 3, -1)), (-2, 1, (0, 1, -1)), (1001, 1, (0, 1, 1001)), (1500, 1, (0, -1, -1)),
            (-3, 7, (0, 2, 1002)), (-4, 8, (0, 1, -1)), (-5, 9, (0, -1, -1)), (-6, 11, (0, -1, -1)), (-7, 99, None)]:
        assert offsets(peer, version, {("plant", 0): timestamp}) == [expected if version >= since else (35, -1, -1)]
    assert offsets(peer, version, {("plant", 1): -1, ("plant", 0): -1, ("plant", 2): -1, ("other", 0): -1}) == [
        (0, 0, -1), (0, 3, -1), (3, -1, -1), (3, -1, -1)]


def test_listed_offsets_carry_the_leader_epoch() -> None:
    answer = decoded(ListOffsetsResponse, 7, *peer_with_records().send(framed(list_offsets(7, {("plant", 0): -1}), 5)))
    assert answer.topics[0].partitions[0].leader_epoch == EPOCH


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (EPOCH, 0), (EPOCH - 1, 74), (EPOCH + 1, 75)])
def test_listing_checks_the_leader_epoch(epoch: int, code: int) -> None:
    assert offsets(peer_with_records(), 4, {("plant", 0): -1}, epoch=epoch)[0][0] == code


def test_listing_without_the_right_to_consume() -> None:
    peer = Peer(decision=lambda principal, operation, address: operation is not Operation.CONSUME)
    peer.kernel.create_topic("plant")
    assert offsets(peer, 5, {("plant", 0): -1})[0][0] == 29


# ---- InitProducerId

@pytest.mark.parametrize("version", versions(22))
def test_gives_producer_ids(version: int) -> None:
    peer = Peer()
    ids = []
    for _ in range(2):
        request = InitProducerIdRequest(version=version, transactional_id=None, transaction_timeout_ms=1000)
        assert peer.send(framed(request, 5)) == []
        peer.kernel.flush()
        answer = decoded(InitProducerIdResponse, version, *peer.link.frames(), 5)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        ids.append(answer.producer_id)
    assert ids[0] != ids[1] and min(ids) >= 0


def test_a_producer_that_names_its_id_gets_a_new_one() -> None:
    """As Kafka answers a producer without a transactional id (KIP-360)."""
    peer = Peer()
    request = InitProducerIdRequest(version=4, transactional_id=None, transaction_timeout_ms=1000, producer_id=5,
                                    producer_epoch=7)
    peer.send(framed(request, 5))
    peer.kernel.flush()
    answer = decoded(InitProducerIdResponse, 4, *peer.link.frames())
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 1001, 0)


@pytest.mark.parametrize("version", versions(22))
def test_a_producer_with_a_name_has_the_id_and_epoch_of_that_name(version: int) -> None:
    peer = Peer()
    request = InitProducerIdRequest(version=version, transactional_id="t", transaction_timeout_ms=1000)
    assert peer.send(framed(request, 5)) == []
    peer.kernel.flush()
    answer = decoded(InitProducerIdResponse, version, *peer.link.frames(), 5)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 7, 2)
    assert peer.kernel.producing.asked == [("identify", "t", 1000, -1, -1)]


@pytest.mark.parametrize(("version", "refusal", "code"), [
    (3, FencedProducer("x"), 47), (4, FencedProducer("x"), 90), (4, TransactionEnding("x"), 51),
    (4, InvalidTimeout("x"), 50), (4, Stopping("x"), 16), (4, StorageFull("x"), 15),
    (4, InvalidGroup("x"), 24), (4, TooManyTransactions("x"), 15), (4, QueueFull("x"), 15)])
def test_why_a_name_is_refused(version: int, refusal: Exception, code: int) -> None:
    peer = Peer()
    peer.kernel.producing.refusal = refusal
    request = InitProducerIdRequest(version=version, transactional_id="t", transaction_timeout_ms=1000)
    answer = decoded(InitProducerIdResponse, version, *peer.send(framed(request, 5)), 5)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


def test_a_name_without_a_letter_is_none() -> None:
    peer = Peer()
    request = InitProducerIdRequest(version=4, transactional_id="", transaction_timeout_ms=1000)
    assert decoded(InitProducerIdResponse, 4, *peer.send(framed(request, 5)), 5).error_code == 42


def test_a_name_takes_the_right_to_transact() -> None:
    peer = Peer(decision=lambda _, operation, name: operation is not Operation.TRANSACT)
    request = InitProducerIdRequest(version=4, transactional_id="t", transaction_timeout_ms=1000)
    assert decoded(InitProducerIdResponse, 4, *peer.send(framed(request, 5)), 5).error_code == 53
    assert peer.kernel.producing.asked == []


@pytest.mark.parametrize("version", versions(26))
@pytest.mark.parametrize("refusal", [InvalidRecord("x"), InvalidAddress("x"), GroupIsLeased("x")])
def test_a_commit_that_can_never_be_done_is_to_be_rolled_back(version: int, refusal: Exception) -> None:
    """Clients know how to go on from the version on that has a number for it."""
    peer = Peer()
    peer.kernel.producing.refusal = refusal
    codes = []
    for commits in (True, False):
        request = EndTxnRequest(version=version, transactional_id="t", producer_id=7, producer_epoch=2,
                                committed=commits)
        codes.append(decoded(EndTxnResponse, version, *peer.send(framed(request, 5)), 5).error_code)
    assert (codes[0] == 120) is (version >= 4) and codes[1] != 120


@pytest.mark.parametrize(("refusal", "code"), [
    (FencedProducer("x"), 90), (TransactionEnding("x"), 51), (NoTransaction("x"), 48), (OtherProducer("x"), 49),
    (Stopping("x"), 16), (StorageFull("x"), 15), (QueueFull("x"), 15)])
def test_a_commit_that_may_be_done_later_is_not_to_be_rolled_back(refusal: Exception, code: int) -> None:
    peer = Peer()
    peer.kernel.producing.refusal = refusal
    request = EndTxnRequest(version=4, transactional_id="t", producer_id=7, producer_epoch=2, committed=True)
    assert decoded(EndTxnResponse, 4, *peer.send(framed(request, 5)), 5).error_code == code


def test_an_id_that_cannot_be_stored() -> None:
    peer = Peer()
    peer.send(framed(InitProducerIdRequest(version=1, transactional_id=None, transaction_timeout_ms=1000), 5))
    peer.kernel.flush(StorageFull("full"))
    assert decoded(InitProducerIdResponse, 1, *peer.link.frames()).error_code == 56
