"""What holds for the whole hub, in the words of a broker's settings: shown to administrators. Pure."""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.kafka.config import KafkaConfig
from gatehouse.gateways.kafka.topic_configs import BOOLEAN, INT, LONG, STRING
from gatehouse.kernel.settings import KernelSettings

ONE: Final = "1"


def broker_configs(hub: KernelSettings, door: KafkaConfig) -> list[tuple[str, int, str, str]]:
    """(name, type, value, what it says here)."""
    return [
        ("advertised.listeners", STRING, f"PLAINTEXT://{door.advertise}", "`advertise` of the Kafka door"),
        ("auto.create.topics.enable", BOOLEAN, str(hub.auto_create_topics).lower(), "`auto_create_topics`"),
        ("broker.id", INT, ONE, "there is one node"),
        ("connections.max.idle.ms", LONG, str(door.idle_timeout_ms), "`idle_timeout_ms` of the Kafka door"),
        ("default.replication.factor", INT, ONE, "there is one replica"),
        ("delete.topic.enable", BOOLEAN, "true", "who may alter a topic may delete it"),
        ("fetch.max.bytes", INT, str(door.fetch_max_bytes), "`fetch_max_bytes` of the Kafka door"),
        ("group.initial.rebalance.delay.ms", INT, str(door.group_initial_rebalance_delay_ms),
         "`group_initial_rebalance_delay_ms` of the Kafka door"),
        ("group.max.session.timeout.ms", INT, str(door.group_max_session_timeout_ms),
         "`group_max_session_timeout_ms` of the Kafka door"),
        ("group.max.size", INT, str(door.group_max_size), "`group_max_size` of the Kafka door"),
        ("group.min.session.timeout.ms", INT, str(door.group_min_session_timeout_ms),
         "`group_min_session_timeout_ms` of the Kafka door"),
        ("log.retention.bytes", LONG, str(hub.retention_bytes), "`retention_bytes`: of the whole log"),
        ("log.retention.ms", LONG, str(hub.retention_ms), "`retention_hours`"),
        ("log.segment.bytes", INT, str(hub.segment_bytes), "`segment_bytes`: of the whole log"),
        ("message.max.bytes", INT, str(hub.max_message_bytes), "`max_message_bytes`"),
        ("min.insync.replicas", INT, ONE, "there is one replica"),
        ("node.id", INT, ONE, "there is one node"),
        ("num.partitions", INT, str(hub.default_partitions), "`default_partitions`"),
        ("socket.request.max.bytes", INT, str(door.max_request_bytes), "`max_request_bytes` of the Kafka door"),
    ]
