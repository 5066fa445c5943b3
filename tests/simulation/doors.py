"""The steps that go through real doors: MQTT publishers and subscribers, Kafka producers and consumers."""
from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.contract import Services
from tests.simulation.checker import Attempt, Sent, value_of
from tests.simulation.kafka_peer import KafkaPeer
from tests.simulation.mqtt_peer import MqttPeer
from tests.simulation.traffic import ADDRESSES, SIZES
from tests.simulation.wire import Wire, services_of

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

PUBLISHERS: Final = 2
SUBSCRIBERS_MAX: Final = 3
PRODUCERS: Final = 2
MQTT_ATTRIBUTES: Final = 1                  # the door's number, nothing else: QoS 1


class Doors:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._services: Services | None = None
        self._wires: list[Wire] = []
        self._publishers: dict[int, MqttPeer] = {}
        self._subscribers: list[MqttPeer] = []
        self._kafka: dict[int, KafkaPeer] = {}
        self._named = 0

    def begin(self) -> None:
        """A new life of the hub."""
        self._services = None

    def end(self) -> None:
        """The hub is gone, and every connection with it."""
        for wire in self._wires:
            wire.forget()
        self._wires.clear()
        self._publishers.clear()
        self._subscribers.clear()
        self._kafka.clear()

    def step(self, random: Random) -> bool:
        """Move some bytes on some connection; False where there are none to move."""
        wires = list(self._wires)
        random.shuffle(wires)
        return any(wire.step(random) for wire in wires)

    def arrive(self) -> None:
        """Everything that is on its way."""
        while self.step(Random(1)):
            pass

    def sent(self, attempt: Attempt) -> None:
        for subscriber in self._subscribers:
            if subscriber.listening:
                subscriber.owed.append(attempt)

    def check(self) -> None:
        """At rest."""
        self._wires = [wire for wire in self._wires if wire.open]
        there = self._simulation.reading.partition_ids()
        for subscriber in self._subscribers:
            if subscriber.wire.open:
                subscriber.check(there)

    def _mqtt(self) -> MqttPeer:
        return MqttPeer(self._wire(MqttPeer), self._simulation.ledger)

    def _wire(self, kind: type[MqttPeer] | type[KafkaPeer]) -> Wire:
        if self._services is None:
            self._services = services_of(self._simulation.hub)
        wire = Wire(self._simulation.hub, self._services, kind.spec)
        self._wires.append(wire)
        return wire

    # ---- steps

    def mqtt_publish(self, who: int, address: int, count: int, size: int) -> None:
        """A burst of single messages; sent on even if the connection has ended unnoticed meanwhile."""
        publisher = self._publishers.get(who % PUBLISHERS)
        if publisher is None or not publisher.wire.open:
            publisher = self._publishers[who % PUBLISHERS] = self._mqtt()
            self._named += 1
        hub, ledger = self._simulation.hub, self._simulation.ledger
        for i in range(1 + count % 4):
            attempt = ledger.attempt("mqtt", f"mqtt-{who % PUBLISHERS}-{self._named}", hub.world.loop.now_ms())
            to = ADDRESSES[(address + i * size) % len(ADDRESSES)]
            placement = hub.kernel.place(to)
            headers = ((b"address", to.encode()),) if placement.address_header else ()
            value = value_of(attempt.number, 0, SIZES[size % len(SIZES)])
            attempt.messages.append(Sent(to, placement.partition_id, placement.key, value, headers, MQTT_ATTRIBUTES))
            publisher.publish(attempt)
            self._simulation.reading.sent(attempt)

    def mqtt_subscribe(self, _: int, which: int, *__: int) -> None:
        self._subscribers = [subscriber for subscriber in self._subscribers if subscriber.wire.open]
        if len(self._subscribers) < SUBSCRIBERS_MAX:
            subscriber = self._mqtt()
            subscriber.subscribe(which)
            self._subscribers.append(subscriber)

    def kafka_peer(self, number: int) -> KafkaPeer:
        """The connection that a producer with this id, or a consumer, uses now."""
        peer = self._kafka.get(number % PRODUCERS)
        if peer is None or not peer.wire.open:
            peer = self._kafka[number % PRODUCERS] = KafkaPeer(self._wire(KafkaPeer), self._simulation.ledger)
        return peer

    def kafka_fetch(self, topic: int, partition: int, from_start: int, max_bytes: int) -> None:
        topics = self._simulation.hub.kernel.topics()
        if topics:
            found = topics[topic % len(topics)]
            partition = partition % found.partitions
            partition_id = found.partition_id(partition)
            start, high = self._simulation.hub.kernel.bounds(partition_id)
            self.kafka_peer(topic).fetch(found.name, partition, partition_id, start + from_start % (high - start + 1),
                                         1 + max_bytes)

    def cut_wire(self, which: int, *_: int) -> None:
        """The network fails between two."""
        wires = [wire for wire in self._wires if wire.open]
        if wires:
            wires[which % len(wires)].cut()
