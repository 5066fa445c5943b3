"""What was set for topics and says nothing to the kernel: kept, so that whoever has set it reads it back.

    space "kafka-topics", name: the topic's id in hex, value: a JSON object of settings

It travels in the frame that makes or changes the topic, and is forgotten with it; what a topic leaves behind that
another door has deleted goes when the door opens.
"""
from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services
    from gatehouse.kernel.state.topics import Topic

SPACE: Final = "kafka-topics"
NOTHING: Final[Mapping[str, str]] = {}


class RememberedConfigs:
    """Of all topics, by their ids."""

    def __init__(self, services: Services) -> None:
        self._kernel = services.kernel
        self._of: dict[str, dict[str, str]] = {}
        for _, name, value in services.kernel.definitions(SPACE):
            if services.door("kafka").port.topic_by_uuid(bytes.fromhex(name)) is None:
                services.kernel.put_definition(SPACE, name, None)
            else:
                self._of[name] = json.loads(value)

    @staticmethod
    def of(services: Services) -> RememberedConfigs:
        """Those of the hub, read at the first use."""
        shared = services.shared.get(SPACE)
        if not isinstance(shared, RememberedConfigs):
            shared = services.shared[SPACE] = RememberedConfigs(services)
        return shared

    def get(self, topic: Topic) -> Mapping[str, str]:
        """What was set for a topic."""
        return self._of.get(topic.uuid.hex(), NOTHING)

    def put(self, topic: Topic, configs: Mapping[str, str]) -> None:
        """Remember these, and no others. To be called in the turn in which the topic is changed: so both are durable,
        or neither is."""
        name = topic.uuid.hex()
        if dict(configs) != self._of.get(name, {}):
            self._kernel.put_definition(SPACE, name, json.dumps(dict(configs)).encode() if configs else None)
            self._of[name] = dict(configs)

    def forget(self, topic: Topic) -> None:
        """The topic is gone."""
        if self._of.pop(topic.uuid.hex(), None) is not None:
            self._kernel.put_definition(SPACE, topic.uuid.hex(), None)
