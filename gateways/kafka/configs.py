"""Settings of topics, of the hub and of groups in Kafka's words: which there are, what each does here, how a topic's
become the kernel's, and where a group's are kept.

A topic's setting is *honoured* (it is one of the kernel's), or *taken*: it changes nothing that a client can see, and
is remembered so that whoever has set it reads it back. Any other setting or value is refused with INVALID_CONFIG.
"""
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.kafka.config import KafkaConfig
from gatehouse.gateways.kafka.error_codes import INVALID_CONFIG, POLICY_VIOLATION
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.kernel.assigned.assigned_values import ConsumerRules
from gatehouse.kernel.message import Stored, tell
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.topics import TopicSettings

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services
    from gatehouse.kernel.message import Owner


# --- topics -------------------------------------------------------------------------------------------------------

BOOLEAN: Final = 1
STRING: Final = 2
INT: Final = 3
LONG: Final = 5
DOUBLE: Final = 6
LIST: Final = 7
"""How DescribeConfigs names the types of values."""

MAX_DIGITS: Final = 18                   # of a number: every such number fits 64 bits
MAX_LIST_CHARACTERS: Final = 1000        # of the replicas that a throttle names
FOREVER: Final = "-1"
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
    if config.type == LIST:
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if len(value) > MAX_LIST_CHARACTERS or config.values and (not parts or not set(parts) <= set(config.values)):
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
        delete_retention_ms=None if delete_retention_ms is None else max(1, int(delete_retention_ms)),
        max_message_bytes=None if max_message_bytes is None else int(max_message_bytes))


def _limit(value: str) -> int | None:
    """None: as the hub."""
    return None if int(value) < 0 else max(1, int(value))


def configs_of(settings: TopicSettings, remembered: Mapping[str, str]) -> dict[str, str]:
    """What is set for a topic, whoever did it: the kernel's settings, and what is remembered of those that say nothing
    to it."""
    configs = {name: value for name, value in remembered.items() if _stands(name, value, settings)}
    if settings.compact and configs.get("cleanup.policy") is None:
        configs["cleanup.policy"] = f"{COMPACT},{DELETE}" if settings.keeps_less else COMPACT
    if settings.log_append_time:
        configs["message.timestamp.type"] = LOG_APPEND_TIME
    for name, value in (("retention.ms", settings.retention_ms), ("retention.bytes", settings.retention_bytes),
                        ("delete.retention.ms", settings.delete_retention_ms),
                        ("max.message.bytes", settings.max_message_bytes)):
        if value is not None:
            configs[name] = str(value)
    return configs


def _stands(name: str, value: str, settings: TopicSettings) -> bool:
    """Whether what was remembered is still so: the settings of the kernel may have been changed by another door."""
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


# --- settings that this door keeps in the hub ---------------------------------------------------------------------

# A JSON object for each thing that has any settings: they hold once they are durable.
#
# What is on its way to the disk is what the next change begins from, so two changes that come together are both made. A
# change that the disk refuses leaves everything as it was.

Name = tuple[str, str]
"""(tenant, name)"""

NOTHING: Final[Mapping[str, str]] = {}


class Change(NamedTuple):
    """The token of settings on their way to the disk, and who else is to be told."""

    name: Name
    configs: Mapping[str, str]
    owner: Owner | None
    token: object


class KeptConfigs:
    """The settings in one space of definitions, by tenant and name."""

    def __init__(self, services: Services, space: str) -> None:
        self._kernel = services.kernel
        self._space = space
        self._of: dict[Name, Mapping[str, str]] = {}
        self._coming: dict[Name, list[Change]] = {}
        self._first: set[Name] = set()       # those that have nothing yet, and will have

    def load(self, name: Name, value: bytes) -> None:
        """What the hub had when the door opened."""
        self._of[name] = json.loads(value)

    def get(self, name: Name) -> Mapping[str, str]:
        """What holds."""
        return self._of.get(name, NOTHING)

    def latest(self, name: Name) -> Mapping[str, str]:
        """What will hold when everything that was changed is durable."""
        coming = self._coming.get(name)
        return coming[-1].configs if coming else self.get(name)

    def names(self) -> set[Name]:
        """All that have settings, or will have."""
        return {*self._of, *self._first}

    def __len__(self) -> int:
        """How many `names` there are."""
        return len(self._of) + len(self._first)

    def put(self, name: Name, configs: Mapping[str, str], owner: Owner | None = None, token: object = None) -> None:
        """Set these, and no others; the owner is told when they hold. Raises Stopping."""
        change = Change(name, dict(configs), owner, token)
        value = json.dumps(change.configs).encode() if configs else None
        self._kernel.put_definition(self._space, name[1], value, name[0], self, change)
        self._coming.setdefault(name, []).append(change)
        self._look(name)

    def on_stored(self, stored: list[Stored]) -> Iterator[None] | None:
        """Changes are durable, or are not; they come in their order."""
        for answer in stored:
            change = answer.token
            assert isinstance(change, Change), "nothing else is told"
            coming = self._coming[change.name]
            assert coming[0] is change, "in their order"
            del coming[0]
            if not coming:
                del self._coming[change.name]
            if answer.error is None:
                self._of.pop(change.name, None)
                if change.configs:
                    self._of[change.name] = change.configs
            self._look(change.name)
            if change.owner is not None:
                tell(change.owner, [Stored(change.token, answer.error, answer.append_ms, answer.positions)])
        return None

    def _look(self, name: Name) -> None:
        """Whether it will have its first settings, after something has changed."""
        if name not in self._of and self.latest(name):
            self._first.add(name)
        else:
            self._first.discard(name)


# --- groups -------------------------------------------------------------------------------------------------------

# Settings of consumer groups (resource kind GROUP), kept by the hub for each group that has any.
#
#     space "kafka-groups", name: the group, value: a JSON object of settings
#
# They hold for groups of the newer protocol (`group.protocol=consumer`); what is not set is as the door's settings say.
# They outlive the group, as with Kafka: a tool may set them before the first member comes.

SPACE: Final = "kafka-groups"
MAX_GROUPS: Final = 10_000
"""That have settings of their own."""

HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
SESSION: Final = "consumer.session.timeout.ms"
MAX_MS: Final = 86_400_000


class GroupConfig(NamedTuple):
    about: str
    server_name: str
    """What a broker calls its default."""


GROUP_CONFIGS: Final[dict[str, GroupConfig]] = {
    HEARTBEAT: GroupConfig("How often a member is to say that it is there.",
                           "group.consumer.heartbeat.interval.ms"),
    SESSION: GroupConfig("How long a member may be silent.", "group.consumer.session.timeout.ms"),
}


def checked_of_group(name: str, value: str | None) -> str:
    """The value of a setting as it is kept. Raises Refused (INVALID_CONFIG)."""
    if name not in GROUP_CONFIGS:
        raise Refused(INVALID_CONFIG, f"Unknown group config name: {name[:100]}")
    text = (value or "").strip()
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= MAX_MS:
        raise Refused(INVALID_CONFIG, f"{name} is a whole number of 1 to {MAX_MS} ms")
    return str(int(text))


def default_of_group(name: str, config: KafkaConfig) -> str:
    return str(config.group_consumer_heartbeat_interval_ms if name == HEARTBEAT
               else config.group_consumer_session_timeout_ms)


class GroupConfigs:
    """The settings of all groups, by tenant and name."""

    def __init__(self, services: Services) -> None:
        self._kept = KeptConfigs(services, SPACE)
        for tenant, name, value in services.kernel.definitions(SPACE):
            self._kept.load((tenant, name), value)

    @staticmethod
    def of(services: Services) -> GroupConfigs:
        """The settings of the hub's groups, read at the first use."""
        return services.share(SPACE, lambda: GroupConfigs(services))

    def get(self, tenant: str, name: str) -> Mapping[str, str]:
        """What was set for a group."""
        return self._kept.get((tenant, name))

    def latest(self, tenant: str, name: str) -> Mapping[str, str]:
        """What was set, with what is on its way to the disk: what a change begins from."""
        return self._kept.latest((tenant, name))

    def names(self, tenant: str) -> list[str]:
        """Groups that something was set for."""
        return sorted([name for of, name in self._kept.names() if of == tenant])

    def rules(self, tenant: str, name: str, config: KafkaConfig) -> ConsumerRules:
        """What holds for the members of a group."""
        configs = self._kept.get((tenant, name))
        session_ms, heartbeat_ms = config.group_consumer_session_timeout_ms, config.group_consumer_heartbeat_interval_ms
        if configs:
            session_ms, heartbeat_ms = int(configs.get(SESSION, session_ms)), int(configs.get(HEARTBEAT, heartbeat_ms))
        return ConsumerRules(session_ms, heartbeat_ms, config.group_max_size)

    def check(self, tenant: str, name: str, configs: Mapping[str, str], config: KafkaConfig) -> None:
        """Raises Refused for settings that cannot be together, or too many groups with settings."""
        session_ms, heartbeat_ms = (int(configs.get(each, default_of_group(each, config)))
                                    for each in (SESSION, HEARTBEAT))
        if configs and heartbeat_ms >= session_ms:
            raise Refused(INVALID_CONFIG, f"{SESSION} is longer than {HEARTBEAT}: {session_ms} and {heartbeat_ms} ms")
        if configs and not self.latest(tenant, name) and len(self._kept) >= MAX_GROUPS:
            raise Refused(POLICY_VIOLATION, f"{MAX_GROUPS} groups have settings of their own, as many as may")

    def put(self, tenant: str, name: str, configs: Mapping[str, str], owner: Owner, token: object) -> None:
        """Set these, and no others; the owner is told when they hold. Raises Stopping."""
        self._kept.put((tenant, name), configs, owner, token)
