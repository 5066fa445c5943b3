"""What was set for topics and says nothing to the kernel: kept, so that whoever has set it reads it back.

    space "kafka-topics", name: the topic's id in hex, value: a JSON object of settings

It travels in the frame that makes or changes the topic, and is forgotten with it; what a topic leaves behind that
another door has deleted goes when the door opens.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.kafka.kept_configs import KeptConfigs

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services
    from gatehouse.gateways.kafka.api.parts import AskedPart
    from gatehouse.gateways.kafka.session import KafkaSession
    from gatehouse.kernel.state.topics import Topic

SPACE: Final = "kafka-topics"
TENANT: Final = "/"                  # a topic's id is that of no other tenant's


class RememberedConfigs:
    """Of all topics, by their ids."""

    def __init__(self, services: Services) -> None:
        self._kept = KeptConfigs(services, SPACE)
        for _, name, value in services.kernel.definitions(SPACE):
            if services.door("kafka").port.topic_by_uuid(bytes.fromhex(name)) is None:
                self._kept.put((TENANT, name), {})
            else:
                self._kept.load((TENANT, name), value)

    @staticmethod
    def of(services: Services) -> RememberedConfigs:
        """Those of the hub, read at the first use."""
        return services.share(SPACE, lambda: RememberedConfigs(services))

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
