"""Settings of topics and of the hub in Kafka's words: which there are, what each does here, and how a topic's become
the kernel's. Pure.

A topic's setting is *honoured* (it is one of the kernel's), or *taken*: it changes nothing that a client can see, and
is remembered so that whoever has set it reads it back. Any other setting or value is refused with INVALID_CONFIG.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.kafka.config import KafkaConfig
from gatehouse.gateways.kafka.error_codes import INVALID_CONFIG
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.topics import TopicSettings

if TYPE_CHECKING:
    pass


# --- topics -------------------------------------------------------------------------------------------------------

BOOLEAN: Final = 1
STRING: Final = 2
INT: Final = 3
LONG: Final = 5
DOUBLE: Final = 6
LIST: Final = 7
"""How DescribeConfigs names the types of values."""

MAX_DIGITS: Final = 18                   # of a number: every such number fits 64 bits
MAX_CHARACTERS: Final = 1000             # of a value: the replicas that a throttle names
FOREVER: Final = "-1"
ZERO: Final = "0"
LEAST: Final = 1                         # that the kernel keeps for a 0
DELETE: Final = "delete"
COMPACT: Final = "compact"
BOTH: Final = frozenset((DELETE, COMPACT))
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
DAY_MS: Final = 86_400_000
MAX_I64: Final = str((1 << 63) - 1)


class TopicConfig(NamedTuple):
    """One setting that Kafka's topics have."""

    type: int
    default: str
    about: str
    values: tuple[str, ...] | None = None
    """What is taken; None: any value of the type."""

    server_name: str = ""
    """What a broker calls its default; "": as the topic does."""


TOPIC_CONFIGS: Final[dict[str, TopicConfig]] = {
    "cleanup.policy": TopicConfig(
        LIST, DELETE, "delete: messages go by age; compact: the newest of every key stays; compact,delete: it goes by "
        "age, too.", (DELETE, COMPACT), "log.cleanup.policy"),
    "compression.gzip.level": TopicConfig(INT, "-1", "Taken: a batch stays as its producer compressed it."),
    "compression.lz4.level": TopicConfig(INT, "9", "Taken: a batch stays as its producer compressed it."),
    "compression.type": TopicConfig(
        STRING, "producer", "Taken: a batch stays as its producer compressed it.",
        ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"), "compression.type"),
    "compression.zstd.level": TopicConfig(INT, "3", "Taken: a batch stays as its producer compressed it."),
    "delete.retention.ms": TopicConfig(
        LONG, str(DAY_MS), "How long a compacted topic keeps a key's deletion.", None,
        "log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": TopicConfig(LONG, "60000", "Taken: there are no files of a topic."),
    "flush.messages": TopicConfig(LONG, MAX_I64, "Taken: every message that is acknowledged is flushed."),
    "flush.ms": TopicConfig(LONG, MAX_I64, "Taken: every message that is acknowledged is flushed."),
    "follower.replication.throttled.replicas": TopicConfig(LIST, "", "Taken: there is one replica."),
    "index.interval.bytes": TopicConfig(INT, "4096", "Taken: there are no files of a topic."),
    "leader.replication.throttled.replicas": TopicConfig(LIST, "", "Taken: there is one replica."),
    "local.retention.bytes": TopicConfig(LONG, "-2", "Nothing is tiered.", ("-2",)),
    "local.retention.ms": TopicConfig(LONG, "-2", "Nothing is tiered.", ("-2",)),
    "max.compaction.lag.ms": TopicConfig(LONG, MAX_I64, "Superseded records go with their segment.", (MAX_I64,)),
    "max.message.bytes": TopicConfig(INT, "", "The largest batch that is taken.", None, "message.max.bytes"),
    "message.downconversion.enable": TopicConfig(
        BOOLEAN, "true", "Taken: there is one message format.", ("true", "false")),
    "message.format.version": TopicConfig(STRING, "3.0-IV1", "Taken: there is one message format."),
    "message.timestamp.after.max.ms": TopicConfig(LONG, MAX_I64, "Times up to the year 9999 are taken.", (MAX_I64,)),
    "message.timestamp.before.max.ms": TopicConfig(LONG, MAX_I64, "Times from 1970 on are taken.", (MAX_I64,)),
    "message.timestamp.difference.max.ms": TopicConfig(LONG, MAX_I64, "Any time is taken.", (MAX_I64,)),
    "message.timestamp.type": TopicConfig(
        STRING, CREATE_TIME, "Whose time a producer's record has: its own, or that of the append.",
        (CREATE_TIME, LOG_APPEND_TIME),
        "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": TopicConfig(DOUBLE, "0.5", "Taken: superseded records go with their segment."),
    "min.compaction.lag.ms": TopicConfig(
        LONG, "0", "Superseded records stay for as long as the hub keeps anything: no more can be asked for."),
    "min.insync.replicas": TopicConfig(INT, "1", "There is one replica.", ("1",)),
    "preallocate": TopicConfig(BOOLEAN, "false", "Taken: there are no files of a topic.", ("true", "false")),
    "remote.log.copy.disable": TopicConfig(BOOLEAN, "false", "Nothing is tiered.", ("true", "false")),
    "remote.log.delete.on.disable": TopicConfig(BOOLEAN, "false", "Nothing is tiered.", ("true", "false")),
    "remote.storage.enable": TopicConfig(BOOLEAN, "false", "Nothing is tiered.", ("false",)),
    "retention.bytes": TopicConfig(
        LONG, FOREVER, "How much of a partition is kept; -1: as much as the hub keeps of everything."),
    "retention.ms": TopicConfig(
        LONG, "", "How long messages are kept; -1: as long as the hub keeps any.", None, "log.retention.ms"),
    "segment.bytes": TopicConfig(INT, "1073741824", "Taken: there are no files of a topic."),
    "segment.index.bytes": TopicConfig(INT, "10485760", "Taken: there are no files of a topic."),
    "segment.jitter.ms": TopicConfig(LONG, "0", "Taken: there are no files of a topic."),
    "segment.ms": TopicConfig(LONG, "604800000", "Taken: there are no files of a topic."),
    "unclean.leader.election.enable": TopicConfig(BOOLEAN, "false", "Taken: there is one replica.", ("true", "false")),
}


def checked(name: str, value: str | None) -> str:
    """The value of a setting as it is kept. Raises Refused (INVALID_CONFIG) for what is not honoured here."""
    config = TOPIC_CONFIGS.get(name)
    if config is None:
        raise Refused(INVALID_CONFIG, f"Unknown topic config name: {name[:100]}")
    if value is None:
        raise Refused(INVALID_CONFIG, f"{name} has no value")
    value = value.strip()
    if len(value) > MAX_CHARACTERS:
        raise _refused(name, value)
    if config.type == LIST:
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if config.values and (not parts or not set(parts) <= set(config.values)):
            raise _refused(name, value)
        value = ",".join(dict.fromkeys(parts))
    elif config.type == BOOLEAN:
        value = value.lower()
    elif config.type in (INT, LONG, DOUBLE):
        _check_number(name, value, config.type)
    if config.values is not None and config.type != LIST and value not in config.values:
        raise _refused(name, value)
    if name == "max.message.bytes" and int(value) < 1 or name == "delete.retention.ms" and int(value) < 0 \
            or name == "min.compaction.lag.ms" and int(value) < 0 \
            or name in ("retention.ms", "retention.bytes") and int(value) < -1:
        raise Refused(INVALID_CONFIG, f"Invalid value {value} for configuration {name}")
    return value


def _check_number(name: str, value: str, type: int) -> None:
    digits = value.removeprefix("-")
    if type == DOUBLE:
        digits = digits.replace(".", "", 1)
    if not digits.isascii() or not digits.isdecimal() or len(digits) > MAX_DIGITS and value != MAX_I64:
        raise Refused(INVALID_CONFIG, f"Invalid value {value[:40]} for configuration {name}: Not a number")


def _refused(name: str, value: str) -> Refused:
    return Refused(INVALID_CONFIG, f"{name}={value[:100]} is not offered here")


def settings_of(configs: Mapping[str, str], hub: KernelSettings, before: TopicSettings | None = None) -> TopicSettings:
    """The kernel's settings of a topic that has these (`checked`), as far as Kafka has words for them; what else there
    is stays as before. Raises Refused for what this hub cannot keep."""
    lag_ms = int(configs.get("min.compaction.lag.ms", "0"))
    if lag_ms > hub.retention_ms:
        raise Refused(INVALID_CONFIG, f"min.compaction.lag.ms={lag_ms}: this hub keeps nothing for longer than "
                                      f"{hub.retention_ms} ms")
    policies = set(configs.get("cleanup.policy", DELETE).split(","))
    retention_ms, retention_bytes = (_limit(configs.get(name, FOREVER)) for name in ("retention.ms", "retention.bytes"))
    if policies == BOTH and "retention.ms" not in configs:
        retention_ms = hub.retention_ms
    goes = DELETE in policies            # by age and size, too
    delete_retention_ms = configs.get("delete.retention.ms")
    max_message_bytes = configs.get("max.message.bytes")
    return replace(
        before or TopicSettings(), compact=COMPACT in policies, retention_ms=retention_ms if goes else None,
        retention_bytes=retention_bytes if goes else None,
        log_append_time=configs.get("message.timestamp.type") == LOG_APPEND_TIME,
        delete_retention_ms=None if delete_retention_ms is None else max(LEAST, int(delete_retention_ms)),
        max_message_bytes=None if max_message_bytes is None else int(max_message_bytes))


def _limit(value: str) -> int | None:
    """None: as the hub."""
    return None if int(value) < 0 else max(LEAST, int(value))


def configs_of(settings: TopicSettings, remembered: Mapping[str, str]) -> dict[str, str]:
    """What is set for a topic, whoever did it: the kernel's settings, and what is remembered of those that say nothing
    to it."""
    kept = {"retention.ms": settings.retention_ms, "retention.bytes": settings.retention_bytes,
            "delete.retention.ms": settings.delete_retention_ms, "max.message.bytes": settings.max_message_bytes}
    configs = {name: value for name, value in remembered.items() if _stands(name, value, settings, kept.get(name))}
    if settings.compact and configs.get("cleanup.policy") is None:
        configs["cleanup.policy"] = f"{COMPACT},{DELETE}" if settings.keeps_less else COMPACT
    if settings.log_append_time:
        configs["message.timestamp.type"] = LOG_APPEND_TIME
    for name, amount in kept.items():
        if amount is not None and not (amount == LEAST and configs.get(name) == ZERO):
            configs[name] = str(amount)
    return configs


def _stands(name: str, value: str, settings: TopicSettings, amount: int | None) -> bool:
    """Whether what was remembered is still so: the settings of the kernel may have been changed by another door.
    `amount` is what the kernel keeps of it; it knows no 0, and has `LEAST` instead."""
    if value == ZERO and amount == LEAST:
        return True
    if name in ("retention.ms", "retention.bytes"):
        return value == FOREVER or settings.compact and not settings.keeps_less
    if name == "cleanup.policy":
        policies = set(value.split(","))
        return (COMPACT in policies) is settings.compact and (DELETE in policies or not settings.keeps_less)
    if name == "message.timestamp.type":
        return value == CREATE_TIME and not settings.log_append_time
    return name not in ("delete.retention.ms", "max.message.bytes")


def default_of(name: str, hub: KernelSettings) -> str:
    """What a topic has that says nothing."""
    if name == "retention.ms":
        return str(hub.retention_ms)
    if name == "max.message.bytes":
        return str(hub.max_message_bytes)
    return TOPIC_CONFIGS[name].default


# --- the hub ------------------------------------------------------------------------------------------------------

# What holds for the whole hub, in the words of a broker's settings: shown to administrators.

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
