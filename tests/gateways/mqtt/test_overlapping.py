"""Overlapping filters of one MQTT 5 client, by chance, against what the specification says of each message: one copy,
with the highest QoS, the identifiers and RETAIN as published of the filters that want it, no-local ones apart."""
from __future__ import annotations

import random
from typing import Any, Final, NamedTuple

import pytest

from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import properties as P
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.packets import NO_LOCAL, RETAIN_AS_PUBLISHED
from gatehouse.gateways.mqtt.properties import Packet
from gatehouse.kernel.addresses.address import levels_of
from gatehouse.kernel.addresses.filters import matches, parse_filter
from tests.gateways.mqtt.five import Client, Seen, ack_packet, publish_packet, subscribe_packet, unsubscribe_packet
from tests.gateways.mqtt.test_durable import KEEPS, leave, rest

FILTERS: Final = "a/#", "a/+", "a/1", "+/1", "#", "a/1/2", "b/#"
TOPICS: Final = "a/1", "a/2", "b/1", "a/1/2", "b"
ANSWERS: Final[dict[int, int]] = {Packet.PUBREC: 0x62, Packet.PUBREL: 0x70}

Copy = tuple[str, bytes, int, bool, tuple[int, ...]]
"""Topic, value, QoS, RETAIN, identifiers."""


class Filter(NamedTuple):
    qos: int
    no_local: bool
    as_published: bool
    identifier: int


class World:
    """One client with filters, and others that publish."""

    def __init__(self, seed: int, durable: bool) -> None:
        self.chance = random.Random(seed)
        self.hub = FakeHub()
        self.durable = durable
        self.config = MqttConfig(max_inflight=self.chance.choice((1, 3, 100)))
        self.other = Client(self.hub, "other")
        self.filters: dict[str, Filter] = {}
        self.retained: dict[str, tuple[bytes, int]] = {}
        self.expected: list[Copy] = []
        self.got: list[Copy] = []
        self.number = 0
        self.connect()

    def connect(self) -> None:
        said: list[tuple[int, Any]] = [(P.ALIAS_MAXIMUM, self.chance.choice((0, 3)))]
        self.client = Client(self.hub, "c", self.config, clean=not self.durable,
                             properties=said + (KEEPS if self.durable else []))
        self.aliases: dict[int, str] = {}

    def next(self) -> int:
        self.number += 1
        return self.number

    def take(self) -> None:
        """Everything that comes, acknowledged."""
        self.hub.kernel.flush()
        while seen := rest(self.client):
            self.client.send(*[ack for each in seen for ack in self.answer(each)])
            self.hub.kernel.flush()

    def answer(self, seen: Seen) -> list[bytes]:
        if seen.kind is not Packet.PUBLISH:
            return [ack_packet(ANSWERS[seen.kind], seen.packet_id)] if seen.kind in ANSWERS else []
        alias = seen.properties.values.get(P.ALIAS, 0)
        topic = self.aliases[alias] = seen.topic or self.aliases[alias]
        self.got.append((topic, seen.value, seen.qos, seen.retain, tuple(sorted(seen.properties.subscription_ids))))
        return [ack_packet(0x40 if seen.qos == 1 else 0x50, seen.packet_id)] if seen.qos else []

    def subscribe(self) -> None:
        chance, name = self.chance, self.chance.choice(FILTERS)
        is_new, handling = name not in self.filters, chance.choice((0, 1, 2))
        wanted = self.filters[name] = Filter(chance.choice((0, 1, 2)), chance.random() < 0.3, chance.random() < 0.4,
                                             chance.choice((0, chance.randint(1, 9))))
        options = wanted.qos | NO_LOCAL * wanted.no_local | RETAIN_AS_PUBLISHED * wanted.as_published | handling << 4
        identifiers = (wanted.identifier,) if wanted.identifier else ()
        self.client.send(subscribe_packet(self.next(), (name, options),
                                          properties=[(P.SUBSCRIPTION_ID, each) for each in identifiers]))
        if handling == 0 or handling == 1 and is_new:
            self.expected += [(topic, value, min(qos, wanted.qos), True, identifiers)
                              for topic, (value, qos) in self.retained.items()
                              if matches(parse_filter(name), levels_of(topic))]

    def unsubscribe(self) -> None:
        if self.filters:
            name = self.chance.choice(list(self.filters))
            del self.filters[name]
            self.client.send(unsubscribe_packet(self.next(), name))

    def publish(self) -> None:
        chance, is_own = self.chance, self.chance.random() < 0.4
        sender = self.client if is_own else self.other
        for _ in range(chance.choice((1, 1, 4))):
            topic, qos, retain = chance.choice(TOPICS), chance.choice((0, 1, 2)), chance.random() < 0.3
            number = self.next()
            value = b"" if retain and chance.random() < 0.1 else b"%d" % number
            sender.send(publish_packet(topic, value, number if qos else 0, qos=qos, retain=retain))
            if retain:
                self.retained.pop(topic, None)
                if value:
                    self.retained[topic] = value, qos
            wanting = [each for name, each in self.filters.items() if matches(parse_filter(name), levels_of(topic))
                       and not (is_own and each.no_local)]
            if wanting:
                self.expected.append((topic, value, min(qos, max([each.qos for each in wanting])),
                                      retain and any(each.as_published for each in wanting),
                                      tuple(sorted([each.identifier for each in wanting if each.identifier]))))
        self.hub.kernel.flush()
        self.other.send(*[ack_packet(0x62, seen.packet_id) for seen in self.other.take() if seen.kind is Packet.PUBREC])

    def come_back(self) -> None:
        if self.durable:
            leave(self.client)
            self.connect()


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_each_message_comes_once_and_as_the_filters_that_want_it_say(seed: int, durable: bool) -> None:
    world = World(seed, durable)
    for _ in range(60):
        world.chance.choices((world.subscribe, world.unsubscribe, world.come_back, world.publish), (20, 8, 6, 66))[0]()
        world.take()
    assert sorted(world.got) == sorted(world.expected)
