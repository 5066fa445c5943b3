"""Settings that this door keeps in the hub, a JSON object for each thing that has any: they hold once they are durable.

    space "kafka-groups", name: the group             settings of consumer groups (resource kind GROUP)
    space "kafka-topics", name: the topic's id in hex   what was set for topics and says nothing to the kernel: kept, so
                                                      that whoever has set it reads it back

What is on its way to the disk is what the next change begins from, so two changes that come together are both made. A
change that the disk refuses leaves everything as it was.

Settings of groups hold for those of the newer protocol (`group.protocol=consumer`) and for share groups; what is not
set is as the door's settings say. They outlive the group, as with Kafka: a tool may set them before the first member
comes. Those of a topic travel in the frame that makes or changes it, and are forgotten with it; what a topic leaves
behind that another door has deleted goes when the door opens.
"""
from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.kafka.config import KafkaConfig
from gatehouse.gateways.kafka.error_codes import INVALID_CONFIG, POLICY_VIOLATION
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.gateways.kafka.share_members import ShareRules
from gatehouse.kernel.assigned.assigned_values import ConsumerRules
from gatehouse.kernel.groups.group_settings import GroupSettings
from gatehouse.kernel.message import Stored, tell

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services
    from gatehouse.gateways.kafka.api.parts import AskedPart
    from gatehouse.gateways.kafka.session import KafkaSession
    from gatehouse.kernel.message import Owner
    from gatehouse.kernel.state.topics import Topic

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


OF_TOPICS: Final = "kafka-topics"
TENANT: Final = "/"                  # a topic's id is that of no other tenant's


class RememberedConfigs:
    """What was set for topics and says nothing to the kernel: of all topics, by their ids."""

    def __init__(self, services: Services) -> None:
        self._kept = KeptConfigs(services, OF_TOPICS)
        for _, name, value in services.kernel.definitions(OF_TOPICS):
            if services.door("kafka").port.topic_by_uuid(bytes.fromhex(name)) is None:
                self._kept.put((TENANT, name), {})
            else:
                self._kept.load((TENANT, name), value)

    @staticmethod
    def of(services: Services) -> RememberedConfigs:
        """Those of the hub, read at the first use."""
        return services.share(OF_TOPICS, lambda: RememberedConfigs(services))

    def get(self, topic: Topic) -> Mapping[str, str]:
        """What was set for a topic."""
        return self._kept.get((TENANT, topic.uuid.hex()))

    def latest(self, topic: Topic) -> Mapping[str, str]:
        """What was set, with what is on its way to the disk: what a change begins from."""
        return self._kept.latest((TENANT, topic.uuid.hex()))

    def put(self, topic: Topic, configs: Mapping[str, str], session: KafkaSession, part: AskedPart) -> None:
        """Remember these, and no others; the part waits for that too. To be called in the turn in which the topic is
        changed: so both are durable, or neither is."""
        name = (TENANT, topic.uuid.hex())
        if dict(configs) != self._kept.latest(name):
            self._kept.put(name, configs, session, part)
            part.also()

    def forget(self, topic: Topic) -> None:
        """The topic is gone."""
        name = (TENANT, topic.uuid.hex())
        if self._kept.latest(name):
            self._kept.put(name, {})


OF_GROUPS: Final = "kafka-groups"
MAX_GROUPS: Final = 10_000
"""That have settings of their own."""

HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
SESSION: Final = "consumer.session.timeout.ms"
SHARE_HEARTBEAT: Final = "share.heartbeat.interval.ms"
SHARE_SESSION: Final = "share.session.timeout.ms"
SHARE_LOCK: Final = "share.record.lock.duration.ms"
SHARE_RESET: Final = "share.auto.offset.reset"
SHARE_ISOLATION: Final = "share.isolation.level"
BY_DURATION: Final = "by_duration:"      # SHARE_RESET: so long before now, as ISO 8601 has it in days, hours, and below
DURATION: Final = re.compile(r"P(?=[\dT])(?:(\d{1,6})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?"
                             r"(?:(\d{1,9})(?:\.(\d{0,9}))?S)?)?", re.ASCII | re.IGNORECASE)
MAX_MS: Final = 86_400_000


class GroupConfig(NamedTuple):
    """A setting that a group can have, for people."""

    about: str
    server_name: str
    """What a broker calls its default."""

    values: tuple[str, ...] = ()
    """What it may be, the default first; none: a whole number of ms."""


GROUP_CONFIGS: Final[dict[str, GroupConfig]] = {
    HEARTBEAT: GroupConfig("How often a member is to say that it is there.",
                           "group.consumer.heartbeat.interval.ms"),
    SESSION: GroupConfig("How long a member may be silent.", "group.consumer.session.timeout.ms"),
    SHARE_HEARTBEAT: GroupConfig("How often a member of a share group is to say that it is there.",
                                 "group.share.heartbeat.interval.ms"),
    SHARE_SESSION: GroupConfig("How long a member of a share group may be silent.", "group.share.session.timeout.ms"),
    SHARE_LOCK: GroupConfig("How long a message stays with the member that it was given to. What is set here holds "
                            "before the group's own invisible time.", "group.share.record.lock.duration.ms"),
    SHARE_RESET: GroupConfig("Where a share group begins that nobody has used yet.", "group.share.auto.offset.reset",
                             ("latest", "earliest")),
    SHARE_ISOLATION: GroupConfig("Nobody sees what is not committed, whatever this says.",
                                 "group.share.isolation.level", ("read_uncommitted", "read_committed")),
}


def checked_of_group(name: str, value: str | None) -> str:
    """The value of a setting as it is kept. Raises Refused (INVALID_CONFIG)."""
    config = GROUP_CONFIGS.get(name)
    if config is None:
        raise Refused(INVALID_CONFIG, f"Unknown group config name: {name[:100]}")
    text = (value or "").strip()
    if config.values:
        if text not in config.values and not (name == SHARE_RESET and _back_ms(text) is not None):
            values = [*config.values, BY_DURATION + "PT1H or so"] if name == SHARE_RESET else config.values
            raise Refused(INVALID_CONFIG, f"{name} is {' or '.join(values)}, not {text[:100]!r}")
        return text
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= MAX_MS:
        raise Refused(INVALID_CONFIG, f"{name} is a whole number of 1 to {MAX_MS} ms")
    return str(int(text))


def _back_ms(start: str) -> int | None:
    """For how long before now a start is; None where it says no time."""
    match = DURATION.fullmatch(start.removeprefix(BY_DURATION)) if start.startswith(BY_DURATION) else None
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:4])
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000 + int((match[5] or "0").ljust(9, "0")[:3])


def default_of_group(name: str, config: KafkaConfig) -> str:
    values = GROUP_CONFIGS[name].values
    return values[0] if values else str({
        HEARTBEAT: config.group_consumer_heartbeat_interval_ms, SESSION: config.group_consumer_session_timeout_ms,
        SHARE_HEARTBEAT: config.group_share_heartbeat_interval_ms, SHARE_SESSION: config.group_share_session_timeout_ms,
        SHARE_LOCK: GroupSettings().invisible_ms}[name])


class GroupConfigs:
    """The settings of all groups, by tenant and name."""

    def __init__(self, services: Services) -> None:
        self._kept = KeptConfigs(services, OF_GROUPS)
        for tenant, name, value in services.kernel.definitions(OF_GROUPS):
            self._kept.load((tenant, name), value)

    @staticmethod
    def of(services: Services) -> GroupConfigs:
        """The settings of the hub's groups, read at the first use."""
        return services.share(OF_GROUPS, lambda: GroupConfigs(services))

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

    def share_rules(self, tenant: str, name: str, config: KafkaConfig) -> ShareRules:
        """What holds for the members of a share group."""
        configs = self._kept.get((tenant, name))
        return ShareRules(int(configs.get(SHARE_HEARTBEAT, config.group_share_heartbeat_interval_ms)),
                          int(configs.get(SHARE_SESSION, config.group_share_session_timeout_ms)),
                          config.group_max_size)

    def check(self, tenant: str, name: str, configs: Mapping[str, str], config: KafkaConfig) -> None:
        """Raises Refused for settings that cannot be together, or too many groups with settings."""
        for session, heartbeat in ((SESSION, HEARTBEAT), (SHARE_SESSION, SHARE_HEARTBEAT)):
            session_ms, heartbeat_ms = (int(configs.get(each, default_of_group(each, config)))
                                        for each in (session, heartbeat))
            if configs and heartbeat_ms >= session_ms:
                raise Refused(INVALID_CONFIG,
                              f"{session} is longer than {heartbeat}: {session_ms} and {heartbeat_ms} ms")
        if configs and not self.latest(tenant, name) and len(self._kept) >= MAX_GROUPS:
            raise Refused(POLICY_VIOLATION, f"{MAX_GROUPS} groups have settings of their own, as many as may")

    def put(self, tenant: str, name: str, configs: Mapping[str, str], owner: Owner, token: object) -> None:
        """Set these, and no others; the owner is told when they hold. Raises Stopping."""
        self._kept.put((tenant, name), configs, owner, token)


def start_of(session: KafkaSession, name: str) -> str | int:
    """Where a share group begins that nobody has used yet; a number: with what came since then, by the wall clock."""
    start = GroupConfigs.of(session.services).get(session.principal.tenant, name).get(
        SHARE_RESET, default_of_group(SHARE_RESET, session.config))
    back_ms = _back_ms(start)
    return start if back_ms is None else max(0, session.services.wall_ms() - back_ms)
