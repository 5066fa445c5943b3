"""Settings of consumer groups in Kafka's words (resource kind GROUP), kept by the hub for each group that has any.

    space "kafka-groups", name: the group, value: a JSON object of settings

They hold for groups of the newer protocol (`group.protocol=consumer`); what is not set is as the door's settings say.
They outlive the group, as with Kafka: a tool may set them before the first member comes.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.kafka.config import KafkaConfig
from gatehouse.gateways.kafka.error_codes import INVALID_CONFIG, POLICY_VIOLATION
from gatehouse.gateways.kafka.kept_configs import KeptConfigs
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.kernel.assigned.assigned_values import ConsumerRules

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services
    from gatehouse.kernel.message import Owner

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
