"""Topics are deleted, grown, cut and configured: what is refused, and what is durable before it is answered."""
from __future__ import annotations

import uuid
from types import SimpleNamespace as Row
from typing import Any

import pytest

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.api import APIS
from gatehouse.gateways.kafka.configs import TOPIC_CONFIGS, checked, configs_of, settings_of
from gatehouse.gateways.kafka.kept_configs import OF_TOPICS
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.kernel.errors import StorageFull, TooManyTopics
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.topics import TopicSettings
from tests.gateways.kafka.calls import message, plant
from tests.gateways.kafka.fakes import Peer
from tests.gateways.kafka.judge import decoded, framed

KEYS = {api.name: key for key, api in APIS.items()}
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def asking(api: str, **fields: Any) -> bytes:
    key = KEYS[api]
    return framed(message(key, "Request")(version=APIS[key].last_version, **fields), 5)


def ask(peer: Peer, api: str, error: Exception | None = None, **fields: Any) -> Any:
    """The answer in the newest version, once what it writes is durable, or could not be stored."""
    key = KEYS[api]
    version = APIS[key].last_version
    frames = peer.send(asking(api, **fields))
    if not frames:
        peer.kernel.flush(error)
        frames = peer.link.frames()
    return decoded(message(key, "Response"), version, frames[0], 5)


def without(operation: Operation) -> Peer:
    """A client that may do everything but one thing."""
    peer = Peer(decision=lambda principal, asked, address: asked is not operation)
    peer.kernel.create_topic("plant", partitions=2)
    peer.kernel.flush()
    return peer


# ---- DeleteTopics

def deleted(peer: Peer, *topics: tuple[str | None, uuid.UUID], error: Exception | None = None) -> list[Any]:
    rows = [Row(name=name, topic_id=topic_id) for name, topic_id in topics]
    return list(ask(peer, "DeleteTopics", error, topics=rows, timeout_ms=1000).responses)


NO_ID = uuid.UUID(int=0)


def test_a_topic_is_deleted_by_its_name_or_its_id() -> None:
    peer = plant()
    other = uuid.UUID(bytes=peer.kernel.create_topic("other").uuid)
    rows = deleted(peer, ("plant", NO_ID), (None, other), (None, uuid.UUID(int=7)), ("nope", NO_ID))
    assert [(row.error_code, row.name) for row in rows] == [(0, "plant"), (0, "other"), (100, None), (3, "nope")]
    assert peer.kernel.by_name == {}
    assert [record for record in peer.kernel.kept if record[0] == OF_TOPICS] == []


def test_a_deletion_is_answered_when_it_is_durable() -> None:
    assert deleted(plant(), ("plant", NO_ID), error=StorageFull("the disk is full"))[0].error_code == 56


def test_what_is_named_twice_or_not_at_all_is_not_deleted() -> None:
    peer = plant()
    own = uuid.UUID(bytes=peer.kernel.by_name["plant"].uuid)
    assert [row.error_code for row in deleted(peer, ("plant", NO_ID), ("plant", NO_ID))] == [42]
    assert [row.error_code for row in deleted(peer, ("plant", own), (None, NO_ID))] == [42, 42]
    assert list(peer.kernel.by_name) == ["plant"]


def test_deleting_takes_the_right_to_alter() -> None:
    peer = without(Operation.ALTER)
    own = uuid.UUID(bytes=peer.kernel.by_name["plant"].uuid)
    rows = deleted(peer, ("plant", NO_ID), ("nope", NO_ID), (None, own))
    assert [row.error_code for row in rows] == [29, 29, 29]
    assert list(peer.kernel.by_name) == ["plant"]


# ---- CreatePartitions

def grown(peer: Peer, count: int, assignments: Any = None, name: str = "plant", **fields: Any) -> int:
    answer = ask(peer, "CreatePartitions", topics=[Row(name=name, count=count, assignments=assignments)],
                 **{"timeout_ms": 1000, "validate_only": False, **fields})
    row, = answer.results
    return int(row.error_code)


def test_partitions_are_added_and_never_taken_away() -> None:
    peer = plant()
    assert [grown(peer, count) for count in (1, 2, 20_001)] == [37, 37, 37]
    assert grown(peer, 4, name="nope") == 3
    assert grown(peer, 4, [Row(broker_ids=[1])]) == grown(peer, 3, [Row(broker_ids=[2])]) == 39
    assert grown(peer, 4, validate_only=True) == 0
    assert peer.kernel.by_name["plant"].partitions == 2
    assert grown(peer, 4, [Row(broker_ids=[1]), Row(broker_ids=[1])]) == 0
    assert peer.kernel.by_name["plant"].partitions == 4


def test_adding_partitions_takes_the_right_to_alter() -> None:
    assert grown(without(Operation.ALTER), 4) == 29


# ---- DeleteRecords

def cut(peer: Peer, offset: int, partition: int = 0, error: Exception | None = None) -> tuple[int, int]:
    answer = ask(peer, "DeleteRecords", error, timeout_ms=1000, topics=[
        Row(name="plant", partitions=[Row(partition_index=partition, offset=offset)])])
    row, = answer.topics[0].partitions
    return row.error_code, row.low_watermark


def test_records_before_an_offset_go() -> None:
    peer = plant()
    assert cut(peer, 1) == (0, 1)
    assert cut(peer, -1) == (0, 3)
    assert cut(peer, 2, error=StorageFull("full")) == (56, -1)
    assert [cut(peer, offset) for offset in (4, -2)] == [(1, -1), (1, -1)]
    assert cut(peer, 0, partition=9) == (3, -1)


def test_records_of_a_compacted_topic_go_by_their_keys() -> None:
    peer = plant()
    peer.kernel.change_topic("plant", settings=TopicSettings(compact=True))
    assert cut(peer, 1) == (44, -1)


def test_deleting_records_takes_the_right_to_alter() -> None:
    assert cut(without(Operation.ALTER), 0) == (29, -1)


# ---- DescribeConfigs

def described(peer: Peer, kind: int = TOPIC, name: str = "plant", **fields: Any) -> tuple[int, dict[str, Any]]:
    answer = ask(peer, "DescribeConfigs", resources=[
        Row(resource_type=kind, resource_name=name, configuration_keys=None)],
        **{"include_synonyms": False, "include_documentation": False, **fields})
    result, = answer.results
    return result.error_code, {config.name: config for config in result.configs}


def test_settings_of_a_topic_are_what_was_set_and_the_defaults_of_the_hub() -> None:
    peer = plant()
    peer.kernel.change_topic("plant", settings=TopicSettings(retention_ms=5000))
    code, configs = described(peer, include_synonyms=True, include_documentation=True)
    assert code == 0 and set(configs) == set(TOPIC_CONFIGS)
    retention, size = configs["retention.ms"], configs["max.message.bytes"]
    assert (retention.value, retention.config_source, retention.config_type) == ("5000", 1, 5)
    assert not retention.read_only
    assert [(row.name, row.value, row.source) for row in retention.synonyms] == [
        ("retention.ms", "5000", 1), ("log.retention.ms", "259200000", 5)]
    assert (size.value, size.config_source) == (str(16 << 20), 5)
    assert all(config.documentation for config in configs.values())


def test_settings_are_shown_to_who_may_see_the_topic() -> None:
    peer = Peer(decision=lambda principal, operation, address: not address.startswith("secret"))
    peer.kernel.create_topic("secret")
    assert described(peer, name="secret")[0] == described(peer, name="secrets")[0] == 29
    assert described(peer, name="nope")[0] == 3


def test_the_broker_shows_what_the_hub_is_configured_with() -> None:
    code, configs = described(plant(), BROKER, "1")
    assert code == 0
    assert (configs["num.partitions"].value, configs["num.partitions"].read_only) == ("4", True)
    assert described(plant(), BROKER, "") == (0, {})
    assert described(plant(), BROKER, "2")[0] == described(plant(), 8, "1")[0] == 42
    assert described(without(Operation.ADMINISTER), BROKER, "1")[0] == 31


# ---- AlterConfigs, IncrementalAlterConfigs

def altered(peer: Peer, *steps: tuple[int, str, str | None], kind: int = TOPIC, name: str = "plant",
            validate_only: bool = False, error: Exception | None = None) -> tuple[int, str | None]:
    answer = ask(peer, "IncrementalAlterConfigs", error, validate_only=validate_only, resources=[
        Row(resource_type=kind, resource_name=name,
            configs=[Row(name=config, config_operation=operation, value=value) for operation, config, value in steps])])
    row, = answer.responses
    return row.error_code, row.error_message


def set_of(peer: Peer) -> dict[str, str]:
    return {name: config.value for name, config in described(peer)[1].items() if config.config_source == 1}


def test_settings_change_step_by_step_and_are_read_back() -> None:
    peer = plant()
    assert altered(peer, (SET, "retention.ms", "1000"), (SET, "segment.bytes", "1048576")) == (0, None)
    assert set_of(peer) == {"retention.ms": "1000", "segment.bytes": "1048576"}
    assert peer.kernel.by_name["plant"].settings.retention_ms == 1000
    assert altered(peer, (DELETE, "retention.ms", None), (SET, "cleanup.policy", "compact")) == (0, None)
    assert set_of(peer) == {"cleanup.policy": "compact", "segment.bytes": "1048576"}
    assert peer.kernel.by_name["plant"].settings == TopicSettings(compact=True)
    assert altered(peer, (SUBTRACT, "leader.replication.throttled.replicas", "0:1"))[0] == 0
    assert altered(peer, (SET, "retention.ms", "-1"), (SET, "cleanup.policy", "delete"))[0] == 0
    assert set_of(peer)["retention.ms"] == "-1"
    again = Peer(peer.kernel)
    assert set_of(again) == set_of(peer), "it is kept by the hub, not by the connection"


def test_what_no_client_may_set_changes_nothing() -> None:
    peer = plant()
    for steps, code in ((((SET, "no.such", "1"),), 40), (((SET, "retention.ms", "soon"),), 40),
                        (((SET, "retention.ms", None),), 40), (((DELETE, "no.such", None),), 40),
                        (((APPEND, "retention.ms", "1"),), 40), (((SET, "segment.ms", "1"), (9, "flush.ms", "1")), 42),
                        (((SET, "flush.ms", "1"), (SET, "flush.ms", "2")), 42),
                        (((SET, "cleanup.policy", ""),), 40), (((APPEND, "cleanup.policy", "shrink"),), 40)):
        refused, text = altered(peer, *steps)
        assert refused == code and text, steps
    assert altered(peer, (SET, "retention.ms", "1"), validate_only=True) == (0, None)
    assert set_of(peer) == {}


def test_what_the_kernel_has_no_words_for_stays_as_it_is() -> None:
    peer = plant()
    peer.kernel.change_topic("plant", settings=TopicSettings(message_ttl_ms=7, interpret_headers=True))
    assert altered(peer, (SET, "retention.ms", "1000"))[0] == 0
    assert peer.kernel.by_name["plant"].settings == TopicSettings(retention_ms=1000, message_ttl_ms=7,
                                                                  interpret_headers=True)


def test_all_settings_at_once() -> None:
    peer = plant()
    altered(peer, (SET, "retention.ms", "1000"), (SET, "segment.ms", "5"))
    answer = ask(peer, "AlterConfigs", validate_only=False, resources=[
        Row(resource_type=TOPIC, resource_name="plant", configs=[Row(name="max.message.bytes", value="500")])])
    assert [row.error_code for row in answer.responses] == [0]
    assert set_of(peer) == {"max.message.bytes": "500"}


def test_settings_that_cannot_be_stored() -> None:
    assert altered(plant(), (SET, "retention.ms", "1"), error=StorageFull("full"))[0] == 56


def test_altering_takes_the_right_to_alter() -> None:
    peer = without(Operation.ALTER)
    assert altered(peer, (SET, "retention.ms", "1"))[0] == altered(peer, (SET, "x", "1"), name="nope")[0] == 29
    assert altered(plant(), (SET, "retention.ms", "1"), name="nope")[0] == 3


def test_the_hubs_own_settings_are_changed_in_its_file() -> None:
    assert altered(plant(), (SET, "num.partitions", "9"), kind=BROKER, name="1")[0] == 40
    assert altered(without(Operation.ADMINISTER), (SET, "num.partitions", "9"), kind=BROKER, name="1")[0] == 31
    assert altered(plant(), (DELETE, "leader.replication.throttled.rate", None), kind=BROKER, name="1")[0] == 0
    assert altered(plant(), (SET, "x", "9"), kind=16, name="metrics")[0] == 42


def test_what_another_door_has_deleted_is_forgotten_at_the_next_start() -> None:
    peer = plant()
    altered(peer, (SET, "segment.ms", "5"))
    assert peer.kernel.definitions(OF_TOPICS)
    del peer.kernel.by_name["plant"]
    peer.kernel.create_topic("plant2")
    assert described(Peer(peer.kernel), name="plant2")[0] == 0
    assert peer.kernel.definitions(OF_TOPICS) == []


# ---- the table

@pytest.mark.parametrize("name", sorted(TOPIC_CONFIGS))
def test_a_default_can_be_set_and_says_nothing_to_the_kernel(name: str) -> None:
    default = TOPIC_CONFIGS[name].default
    if default:
        assert checked(name, default) == default
        assert configs_of(settings_of({name: default}, KernelSettings()), {name: default}).get(name) == default


@pytest.mark.parametrize(("name", "value"), [("retention.ms", "9" * 20), ("retention.ms", "\N{SUPERSCRIPT TWO}"),
                                             ("preallocate", "perhaps"), ("min.cleanable.dirty.ratio", "1.2.3"),
                                             ("max.message.bytes", "0"), ("min.insync.replicas", "2"),
                                             ("message.format.version", "3" * 1_001)])
def test_values_that_cannot_be(name: str, value: str) -> None:
    with pytest.raises(Refused):
        checked(name, value)


def test_a_policy_of_both_goes_by_the_topics_own_time_or_the_hubs() -> None:
    hub = KernelSettings()
    both = {"cleanup.policy": "compact,delete"}
    assert settings_of(both, hub) == TopicSettings(compact=True, retention_ms=hub.retention_ms)
    assert settings_of({**both, "retention.ms": "5", "retention.bytes": "6"}, hub) == TopicSettings(
        compact=True, retention_ms=5, retention_bytes=6)
    assert settings_of({**both, "retention.ms": "-1"}, hub) == TopicSettings(compact=True)
    assert settings_of({"cleanup.policy": "compact", "retention.ms": "5"}, hub) == TopicSettings(compact=True)
    assert configs_of(TopicSettings(compact=True, retention_ms=5), {}) == {"cleanup.policy": "compact,delete",
                                                                           "retention.ms": "5"}


@pytest.mark.parametrize("configs", [
    {"cleanup.policy": "compact,delete", "retention.ms": "-1"}, {"cleanup.policy": "delete,compact"},
    {"cleanup.policy": "compact", "retention.ms": "5", "retention.bytes": "7"},
    {"message.timestamp.type": "CreateTime"},
    {"message.timestamp.type": "LogAppendTime", "retention.bytes": "1000"}, {"min.compaction.lag.ms": "60000"},
    {"cleanup.policy": "delete", "retention.ms": "-1"}, {"compression.type": "zstd", "compression.zstd.level": "5"},
    {"compression.gzip.level": "9", "compression.lz4.level": "17"},
    {"cleanup.policy": "compact", "delete.retention.ms": "0"}, {"retention.ms": "0", "retention.bytes": "0"}])
def test_what_was_set_is_read_back(configs: dict[str, str]) -> None:
    assert {name: checked(name, value) for name, value in configs.items()} == configs
    shown = configs_of(settings_of(configs, KernelSettings()), configs)
    assert {name: shown[name] for name in configs} == configs


def test_what_another_door_has_set_shows() -> None:
    before = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime", "retention.ms": "5"}
    assert configs_of(TopicSettings(log_append_time=True), before) == {"message.timestamp.type": "LogAppendTime"}
    assert configs_of(TopicSettings(), {"retention.ms": "0"}) == {}
    assert configs_of(TopicSettings(retention_ms=9), {"retention.ms": "0"}) == {"retention.ms": "9"}


# ---- one node

def test_topics_are_described_a_page_at_a_time() -> None:
    peer = plant()
    peer.kernel.create_topic("queue", partitions=3)
    seen, cursor = [], None
    while True:
        answer = ask(peer, "DescribeTopicPartitions", topics=[], response_partition_limit=2, cursor=cursor)
        seen += [(topic.name, part.partition_index) for topic in answer.topics for part in topic.partitions]
        if answer.next_cursor is None:
            break
        cursor = Row(topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index)
    assert seen == [("plant", 0), ("plant", 1), ("queue", 0), ("queue", 1), ("queue", 2)]
    codes = [topic.error_code for topic in ask(peer, "DescribeTopicPartitions", topics=[
        Row(name="a/b"), Row(name="nope")], response_partition_limit=2, cursor=None).topics]
    assert codes == [17, 3]


def test_a_broker_is_no_controller() -> None:
    answer = ask(plant(), "DescribeCluster", include_cluster_authorized_operations=False, endpoint_type=2,
                 include_fenced_brokers=False)
    assert (answer.error_code, list(answer.brokers)) == (114, [])


def test_elections_and_reassignments_take_the_right_to_administer() -> None:
    peer = without(Operation.ADMINISTER)
    assert ask(peer, "ElectLeaders", election_type=0, timeout_ms=1, topic_partitions=None).error_code == 31
    assert ask(peer, "AlterPartitionReassignments", timeout_ms=1, allow_replication_factor_change=True,
               topics=[]).error_code == 31


# ---- how fast topics are changed

@pytest.mark.parametrize(("api", "version", "fields"), [
    ("DeleteTopics", 5, {"topic_names": ["plant"]}), ("DeleteTopics", 4, {"topic_names": ["plant"]}),
    ("CreatePartitions", 3, {"topics": [Row(name="plant", count=3, assignments=None)], "validate_only": False}),
    ("CreatePartitions", 2, {"topics": [Row(name="plant", count=3, assignments=None)], "validate_only": False})])
def test_who_changes_topics_too_fast_is_told_when_to_come_again(api: str, version: int, fields: dict[str, Any],
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    peer, key = without(Operation.ADMINISTER), KEYS[api]
    asked: list[str] = []

    def refuse(maker: str) -> None:
        asked.append(maker)
        raise TooManyTopics("too fast", 1_500)

    monkeypatch.setattr(peer.kernel, "pace_topics", refuse)
    request = message(key, "Request")(version=version, timeout_ms=1000, **fields)
    answer = decoded(message(key, "Response"), version, *peer.send(framed(request, 5)), 5)
    row, = answer.responses if api == "DeleteTopics" else answer.results
    is_known = version in (5, 3)
    assert (row.error_code, answer.throttle_time_ms) == ((89, 1_500) if is_known else (44, 0))
    assert asked == ["anonymous"] and peer.kernel.by_name["plant"].partitions == 2
