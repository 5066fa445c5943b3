"""The console tools of the table in gateways/kafka/README.md: each works, or fails in these words."""
from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.apache_kafka import fetch_jars
from scripts.stock_clients import java_client
from tests.interop.test_kafka_groups import address
from tests.running_hub import DEADLINE_S, ROOT, RunningHub, config_of, sound_hub

LIMIT_S: Final = 240
RECORDS: Final = 10
WAY: Final = "org.apache.kafka.tools."
PROGRAMS: Final = {
    "kafka-topics": "TopicCommand", "kafka-acls": "AclCommand", "kafka-delete-records": "DeleteRecordsCommand",
    "kafka-get-offsets": "GetOffsetShell", "kafka-log-dirs": "LogDirsCommand", "kafka-cluster": "ClusterTool",
    "kafka-broker-api-versions": "BrokerApiVersionsCommand", "kafka-groups": "GroupsCommand",
    "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand", "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-leader-election": "LeaderElectionCommand", "kafka-features": "FeatureCommand",
    "kafka-reassign-partitions": "reassign.ReassignPartitionsCommand", "kafka-transactions": "TransactionsCommand",
    "kafka-delegation-tokens": "DelegationTokenCommand", "kafka-client-metrics": "ClientMetricsCommand",
    "kafka-share-groups": "consumer.group.ShareGroupCommand", "kafka-streams-groups": "streams.StreamsGroupCommand",
    "kafka-streams-application-reset": "StreamsResetter", "kafka-verifiable-producer": "VerifiableProducer",
    "kafka-verifiable-consumer": "VerifiableConsumer", "kafka-producer-perf-test": "ProducerPerformance",
    "kafka-consumer-perf-test": "ConsumerPerformance", "kafka-e2e-latency": "EndToEndLatency"}
"""By the tool's name; `kafka-configs` is another jar's. The console producer and consumer are in the first hour."""

FILES: Final[dict[str, Any]] = {
    "delete": {"partitions": [{"topic": "orders", "partition": 0, "offset": 3}], "version": 1},
    "move": {"topics": [{"topic": "orders"}], "version": 1},
    "here": {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1], "log_dirs": ["any"]}]},
    "there": {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2]}]}}
"""What tools are given as files: `@NAME` in a row."""

ROWS: Final = """
0 | kafka-topics --create --topic lines --partitions 3 | Created topic lines
0 | kafka-topics --describe --topic orders | Leader: 1
0 | kafka-topics --alter --topic lines --partitions 5 |
0 | kafka-topics --delete --topic lines |
1 | kafka-topics --create --topic three --replication-factor 3 --partitions 1 | the replication factor is 1
0 | kafka-configs --alter --entity-type topics --entity-name orders --add-config retention.ms=10000000 | Completed
0 | kafka-configs --describe --entity-type topics --entity-name orders | retention.ms=10000000
0 | kafka-configs --alter --entity-type groups --entity-name g --add-config consumer.session.timeout.ms=50000 | Compl
0 | kafka-configs --describe --entity-type groups --entity-name g | consumer.session.timeout.ms=50000
0 | kafka-configs --alter --entity-type users --entity-name ada --add-config SCRAM-SHA-256=[password=secret] | Completed
0 | kafka-configs --describe --entity-type users --entity-name ada | SCRAM-SHA-256=iterations=
0 | kafka-configs --alter --entity-type clients --entity-name app --add-config producer_byte_rate=20000 | Compl
0 | kafka-configs --alter --entity-type users --entity-default --add-config consumer_byte_rate=1000 | Completed
0 | kafka-configs --describe --entity-type clients | client-id 'app' are producer_byte_rate=20000.0
0 | kafka-configs --describe --entity-type users --entity-default | default user-principal are consumer_byte_rate=1000.0
0 | kafka-configs --describe --entity-type brokers --entity-name 1 --all | broker.id=1
1 | kafka-configs --alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2 | in its config
1 | kafka-configs --describe --entity-type broker-loggers --entity-name 1 | nothing of that kind
0 | kafka-configs --describe --entity-type ips |
1 | kafka-configs --alter --entity-type ips --entity-name ::1 --add-config connection_creation_rate=9 | not of an addr
0 | kafka-acls --add --allow-principal User:ada --producer --topic orders | Adding ACLs
0 | kafka-acls --list --topic orders | (principal=User:ada, host=*, operation=WRITE, permissionType=ALLOW)
0 | kafka-acls --remove --force --allow-principal User:ada --producer --topic orders |
0 | kafka-delete-records --offset-json-file @delete | low_watermark: 3
0 | kafka-get-offsets --topic orders | orders:0:10
0 | kafka-get-offsets --topic orders --time -2 | orders:0:3
0 | kafka-log-dirs --describe --topic-list orders | "logDir":"log"
0 | kafka-broker-api-versions | Produce(0): 0 to 13
0 | kafka-cluster cluster-id | Cluster ID: gatehouse
0 | kafka-cluster list-endpoints | unfenced
0 | kafka-cluster unregister --id 1 | does not support the broker unregistration
0 | kafka-groups --list | billing
0 | kafka-consumer-groups --list --state | Empty
0 | kafka-consumer-groups --describe --group billing | orders
0 | kafka-consumer-groups --describe --group nobody | Group nobody not found
0 | kafka-consumer-groups --group billing --reset-offsets --to-offset 5 --topic orders:0 --execute | 5
0 | kafka-consumer-groups --group billing --delete-offsets --topic orders | Successful
0 | kafka-consumer-groups --delete --group billing | was successful
0 | kafka-metadata-quorum describe --status | LeaderId: 1
1 | kafka-metadata-quorum remove-controller --controller-id 1 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ | not sup
0 | kafka-leader-election --election-type unclean --topic orders --partition 0 | Valid replica already elected
0 | kafka-reassign-partitions --topics-to-move-json-file @move --broker-list 1 --generate | Proposed
0 | kafka-reassign-partitions --reassignment-json-file @here --execute | Successfully started
0 | kafka-reassign-partitions --reassignment-json-file @here --verify | is completed
1 | kafka-reassign-partitions --reassignment-json-file @there --execute | Unknown broker id 2
0 | kafka-features describe | group.version
1 | kafka-features upgrade --feature transaction.version=2 | does not support UPDATE_FEATURES
0 | kafka-transactions describe-producers --topic orders --partition 0 | ProducerId
0 | kafka-producer-perf-test --topic orders --num-records 9 --record-size 10 --throughput -1 --transactional-id t | 9
0 | kafka-transactions list | CompleteCommit
0 | kafka-transactions describe --transactional-id t | CompleteCommit
0 | kafka-transactions forceTerminateTransaction --transactionalId t |
0 | kafka-transactions find-hanging --topic orders | StartOffset
1 | kafka-delegation-tokens --create --max-life-time-period -1 --command-config /dev/null | CREATE_DELEGATION
0 | kafka-client-metrics --list |
1 | kafka-client-metrics --alter --name m --metrics org.apache --interval 1000 | nothing of that kind has settings here
0 | kafka-share-groups --list |
0 | kafka-streams-groups --list |
0 | kafka-streams-application-reset --application-id app --input-topics orders | Topic: orders Partition: 0 Offset: 3
0 | kafka-verifiable-producer --topic verified --max-messages 5 | "sent":5,"acked":5
0 | kafka-verifiable-consumer --topic verified --group-id v --max-messages 5 --reset-policy earliest | "success":true
0 | kafka-producer-perf-test --topic orders --num-records 100 --record-size 100 --throughput -1 | 100 records sent
0 | kafka-consumer-perf-test --topic orders --num-records 50 | rebalance.time.ms
0 | kafka-e2e-latency --topic latency --num-records 5 --producer-acks all --record-size 100 | Avg latency
"""
"""Exit code, what is run, what it says; in this order, each beside `--bootstrap-server`."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    with sound_hub(tmp_path, config_of(("kafka",)) + "group_initial_rebalance_delay_ms = 100\n") as running:
        yield running


def fill(hub: RunningHub) -> None:
    """A topic with some records, and a group that has read them."""
    settings = {"bootstrap.servers": address(hub)}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(DEADLINE_S)
    producer = Producer(settings)
    for number in range(RECORDS):
        producer.produce("orders", b"%d" % number)
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer({**settings, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert len(consumer.consume(RECORDS, DEADLINE_S)) == RECORDS
    consumer.commit(asynchronous=False)
    consumer.close()


def test_each_console_tool_works_or_fails_in_words(hub: RunningHub, tmp_path: Path) -> None:
    fill(hub)
    for name, document in FILES.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    jars = {True: f"{java_client('4.2.0')}/*", False: f"{fetch_jars()}/*{os.pathsep}{java_client('4.2.0')}/*"}
    others = []
    for row in ROWS.strip().splitlines():
        code, command, words = [part.strip() for part in row.split("|")]
        name, *arguments = re.sub(r"@(\w+)", rf"{tmp_path}/\1.json", command).split()
        is_newer = name in PROGRAMS
        server = ["--bootstrap-server", address(hub)]
        arguments = [*arguments, *server] if name == "kafka-cluster" else [*server, *arguments]
        done = subprocess.run(
            ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp",
             jars[is_newer], WAY + PROGRAMS[name] if is_newer else "kafka.admin.ConfigCommand",
             *arguments],
            capture_output=True, text=True, timeout=LIMIT_S, check=False)
        said = re.sub(r"[ \t]+", " ", done.stdout + done.stderr)
        if done.returncode != int(code) or words not in said:
            others.append(f"{command}: {done.returncode}, {said[:600]}")
    assert not others, "\n".join(others)


def test_the_readme_names_every_tool_that_is_tried() -> None:
    text = (ROOT / "gateways" / "kafka" / "README.md").read_text().partition("### Kafka's console tools")[2]
    table = text.partition("\n### ")[0]
    assert [name for name in (*PROGRAMS, "kafka-configs") if f"`{name}" not in table] == []
