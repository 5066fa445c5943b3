"""Administration with stock clients against a real hub: librdkafka's and kafka-python's, and over `kill -9`."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import TopicPartition as Partition
from kafka.admin import KafkaAdminClient

from tests.running_hub import RunningHub, config_of, sound_hub

WAIT_S = 60


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with sound_hub(tmp_path_factory.mktemp("administration"), config_of(("http", "kafka"))) as running:
        yield running


def address(hub: RunningHub) -> str:
    return f"127.0.0.1:{hub.port('kafka')}"


def admin_of(hub: RunningHub) -> AdminClient:
    return AdminClient({"bootstrap.servers": address(hub)})


def make(admin: AdminClient, name: str, partitions: int = 2, **configs: str) -> None:
    topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in configs.items()})
    admin.create_topics([topic])[name].result(WAIT_S)


def set_of(admin: AdminClient, name: str) -> dict[str, str | None]:
    resource = ConfigResource(ResourceType.TOPIC, name)
    configs = admin.describe_configs([resource])[resource].result(WAIT_S)
    return {entry.name: entry.value for entry in configs.values() if not entry.is_default}


def start_of(admin: AdminClient, name: str, partition: int = 0) -> int:
    wanted = TopicPartition(name, partition)
    offset: int = admin.list_offsets({wanted: OffsetSpec.earliest()})[wanted].result(WAIT_S).offset
    return offset


def fill(hub: RunningHub, name: str, count: int = 10) -> None:
    producer = Producer({"bootstrap.servers": address(hub)})
    for i in range(count):
        producer.produce(name, b"%d" % i, partition=0)
    assert producer.flush(WAIT_S) == 0


def test_librdkafka_configures_a_topic_and_reads_it_back(hub: RunningHub) -> None:
    admin = admin_of(hub)
    make(admin, "set-rd", retention_ms="60000", segment_bytes="1048576")
    assert set_of(admin, "set-rd") == {"retention.ms": "60000", "segment.bytes": "1048576"}
    resource = ConfigResource(ResourceType.TOPIC, "set-rd", incremental_configs=[
        ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)])
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
    assert set_of(admin, "set-rd") == {"cleanup.policy": "compact", "segment.bytes": "1048576"}
    wrong = ConfigResource(ResourceType.TOPIC, "set-rd", incremental_configs=[
        ConfigEntry("min.insync.replicas", "3", incremental_operation=AlterConfigOpType.SET)])
    with pytest.raises(KafkaException, match="not offered"):
        admin.incremental_alter_configs([wrong])[wrong].result(WAIT_S)


def test_librdkafka_grows_cuts_and_deletes_a_topic(hub: RunningHub) -> None:
    admin = admin_of(hub)
    make(admin, "grown-rd")
    admin.create_partitions([NewPartitions("grown-rd", 5)])["grown-rd"].result(WAIT_S)
    described = admin.describe_topics(TopicCollection(["grown-rd"]))["grown-rd"].result(WAIT_S)
    assert len(described.partitions) == 5
    fill(hub, "grown-rd")
    wanted = TopicPartition("grown-rd", 0, 7)
    assert admin.delete_records([wanted])[wanted].result(WAIT_S).low_watermark == 7
    assert start_of(admin, "grown-rd") == 7
    admin.delete_topics(["grown-rd"])["grown-rd"].result(WAIT_S)
    assert "grown-rd" not in admin.list_topics(timeout=WAIT_S).topics


def test_librdkafka_describes_the_cluster(hub: RunningHub) -> None:
    admin = admin_of(hub)
    cluster = admin.describe_cluster(include_authorized_operations=True).result(WAIT_S)
    assert cluster.controller.id == 1 and len(cluster.nodes) == 1
    assert cluster.authorized_operations


def test_kafka_python_administers(hub: RunningHub) -> None:
    make(admin_of(hub), "python")
    fill(hub, "python")
    admin = KafkaAdminClient(bootstrap_servers=address(hub))
    try:
        described, = admin.describe_topics(["python"])
        assert len(described["partitions"]) == 2
        admin.delete_topics(["python"])
        assert "python" not in admin.list_topics()
    finally:
        admin.close()


def test_kafka_python_sees_the_producers_of_a_partition(hub: RunningHub) -> None:
    make(admin_of(hub), "producers")
    producer = Producer({"bootstrap.servers": address(hub), "enable.idempotence": True})
    for value in range(3):
        producer.produce("producers", b"%d" % value, partition=1)
    assert producer.flush(WAIT_S) == 0
    admin = KafkaAdminClient(bootstrap_servers=address(hub))
    try:
        partitions = [Partition("producers", number) for number in range(2)]
        described = admin.describe_producers(partitions)
    finally:
        admin.close()
    assert described[partitions[0]].active_producers == []
    state, = described[partitions[1]].active_producers
    assert (state.producer_epoch, state.last_sequence) == (0, 2) and state.producer_id >= 0


def test_librdkafka_gives_rights_and_takes_them_away(hub: RunningHub) -> None:
    admin = admin_of(hub)
    own = AclBinding(ResourceType.TOPIC, "rights-", ResourcePatternType.PREFIXED, "User:bob", "*", AclOperation.READ,
                     AclPermissionType.ALLOW)
    admin.create_acls([own])[own].result(WAIT_S)
    asked = AclBindingFilter(ResourceType.TOPIC, "rights-1", ResourcePatternType.MATCH, None, None, AclOperation.ANY,
                             AclPermissionType.ANY)
    assert admin.describe_acls(asked).result(WAIT_S) == [own]
    assert admin.delete_acls([asked])[asked].result(WAIT_S) == [own]
    assert admin.describe_acls(asked).result(WAIT_S) == []


def test_a_user_that_librdkafka_has_made_logs_in_by_scram(hub: RunningHub) -> None:
    admin = admin_of(hub)
    change = UserScramCredentialUpsertion("scram-rd", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096),
                                          b"lovelace-1815")
    admin.alter_user_scram_credentials([change])["scram-rd"].result(WAIT_S)
    described = admin.describe_user_scram_credentials(["scram-rd"])["scram-rd"].result(WAIT_S)
    assert [info.mechanism for info in described.scram_credential_infos] == [ScramMechanism.SCRAM_SHA_512]
    for password, rights in ((b"lovelace-1815".decode(), True), ("wrong", False)):
        user = AdminClient({"bootstrap.servers": address(hub), "security.protocol": "SASL_PLAINTEXT",
                            "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "scram-rd", "sasl.password": password})
        if rights:
            assert user.describe_cluster().result(WAIT_S).controller.id == 1
        else:
            with pytest.raises(KafkaException):
                user.list_topics(timeout=3)


def test_what_was_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    config = config_of(("kafka",), 'fsync = "commit"')
    hub = RunningHub(tmp_path, config)
    try:
        hub.wait_ready()
        admin = admin_of(hub)
        make(admin, "kept", cleanup_policy="delete", segment_ms="5000")
        make(admin, "gone")
        fill(hub, "kept")
        admin.create_partitions([NewPartitions("kept", 3)])["kept"].result(WAIT_S)
        wanted = TopicPartition("kept", 0, 4)
        admin.delete_records([wanted])[wanted].result(WAIT_S)
        admin.delete_topics(["gone"])["gone"].result(WAIT_S)
        hub.kill()
        hub = RunningHub(tmp_path, config)
        hub.wait_ready()
        admin = admin_of(hub)
        topics = admin.list_topics(timeout=WAIT_S).topics
        assert "gone" not in topics and len(topics["kept"].partitions) == 3
        assert start_of(admin, "kept") == 4
        assert set_of(admin, "kept") == {"cleanup.policy": "delete", "segment.ms": "5000"}
    finally:
        hub.kill()
