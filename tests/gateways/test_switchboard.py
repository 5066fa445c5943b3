"""What a door remembers does not grow with the topics that come and go."""
from __future__ import annotations

from gatehouse.gateways.door_side import TOPICS_MIN, Delivery, Switchboard
from gatehouse.gateways.kit import FakeHub
from gatehouse.kernel.settings import KernelSettings


class Listener:
    def __init__(self) -> None:
        self.values: list[bytes | None] = []

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        self.values += [message[1] for _, messages, _, _ in deliveries for message in messages]


def test_topics_that_are_gone_are_forgotten_and_others_are_not() -> None:
    hub = FakeHub(settings=KernelSettings(default_partitions=1))
    kernel, listener = hub.kernel, Listener()
    switchboard = Switchboard(kernel, None, "mqtt")
    switchboard.subscribe("#", listener, 0, "/")

    def publish(topic: str) -> int:
        placement = kernel.place(f"{topic}/k")
        kernel.append([(placement, b"x", b"\0", 0, 0)], None)
        kernel.flush()
        existing = kernel.topic(topic)
        assert existing is not None
        return existing.partition_id(0)

    kept = publish("kept")
    for number in range(3 * TOPICS_MIN):
        publish(f"t{number % 10}")
        kernel.delete_topic(f"t{number % 10}")
        kernel.flush()
    last = publish("t0")
    assert len(listener.values) == 3 * TOPICS_MIN + 2
    assert len(switchboard._topics) <= TOPICS_MIN + 1
    assert switchboard.topic_of(kept, "/") == "kept" and switchboard.topic_of(last, "/") == "t0"
    assert switchboard.topic_of(kept, "other") is None
