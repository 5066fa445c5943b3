"""The real port of a door, over a fake kernel: each part that a port asks is a face of the fake."""
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from gatehouse.kernel.delivery.deliveries import Watches
from gatehouse.kernel.ids import Identity
from gatehouse.kernel.message import Speaker
from gatehouse.kernel.port import Port


class Face:
    """What the fake has of the same name and form is asked of it as it is."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)


class Part:
    """A part of the fake, as it is when it is asked: a test may have set another one."""

    def __init__(self, kernel: Any, part: str) -> None:
        self._kernel = kernel
        self._part = part

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(self._kernel, self._part), name)


class FakeTopicTable(Face):
    def get(self, name: str, tenant: str) -> Any:
        return self.kernel.topic(name, tenant)

    def by_uuid(self, uuid: bytes) -> Any:
        return self.kernel.topic_by_uuid(uuid)

    def of(self, tenant: str) -> Any:
        return self.kernel.topics(tenant)

    @property
    def version(self) -> Any:
        return self.kernel.topics_version


class FakePlaces(Face):
    @property
    def routes(self) -> Any:
        return SimpleNamespace(entries=getattr(self.kernel, "route_entries", ()), address_of=self.kernel.address_of)

    def place(self, address: str, tenant: str, may_create: bool, maker: str) -> Any:
        return self.kernel.place(address, tenant=tenant, may_create=may_create, maker=maker)

    def place_in(self, topic: str, key: bytes | None, partition: int | None, tenant: str, may_create: bool, maker: str
                 ) -> Any:
        return self.kernel.place_in(topic, key, partition=partition, tenant=tenant, may_create=may_create, maker=maker)


class FakeAppending(Face):
    def append(self, messages: Any, owner: Any, token: object, positions: bool, given: Any = None, judge: Any = None
               ) -> None:
        placed = messages if given is None else [(given[place], *rest) for place, *rest in messages]
        self.kernel.append(placed, owner, token, positions=positions)

    def append_once(self, messages: Any, owner: Any, token: object, key: str, add: Any, judge: Any) -> None:
        self.kernel.append(messages, owner, token, idempotency_key=key)


class FakeBatches(Face):
    def append(self, partition_id: int, batch: bytes, owner: Any, token: object, divert: Any, judge: Any) -> None:
        self.kernel.append_batch(partition_id, batch, owner, token, divert, judge)


class FakeReader(Face):
    def fetch_public(self, wants: Any, max_bytes: int, on_done: Any, kept: bool, stored: bool, max_records: int
                     ) -> None:
        self.kernel.fetch(wants, max_bytes, on_done, stored=stored, max_records=max_records)

    def find(self, partition_id: int, on_done: Callable[[Any], None]) -> None:
        self.kernel.producers_of(partition_id, on_done)


class FakeFeeds(Face):
    """Idempotency keys, retained values, and what live subscribers hear: nothing here."""

    def knows(self, idempotency_key: str) -> Any:
        return self.kernel.is_repeated(idempotency_key)

    @property
    def idle(self) -> Any:
        return self.kernel.delivered

    def subscribe(self, filter: str, subscriber: Any, options: int, tenant: str) -> None:
        self.kernel.subscribe(filter, subscriber, tenant=tenant)

    def unsubscribe(self, filter: str, subscriber: Any, tenant: str) -> None:
        self.kernel.unsubscribe(filter, subscriber, tenant=tenant)

    def look_up(self, filter: str, tenant: str, max_values: int, start: str, on_done: Any) -> None:
        self.kernel.retained(filter, tenant, on_done, max_values=max_values, start=start)

    def note(self, partition_id: int, spans: Any) -> None:
        """Nobody counts what is unreadable here."""


def port_over(kernel: Any, door: Any, transactions: Any, watches: Watches) -> Port:
    """The port of a door whose kernel is this fake."""
    face: Any = Face(kernel)
    identity = Identity(getattr(kernel, "hub", bytes(16)), bytes(32), 0)
    identity.begin(hub=identity.hub, secret=bytes(32), shard=0, epoch=kernel.epoch, first_id=0)
    topics: Any = FakeTopicTable(kernel)
    groups: Any = Part(kernel, "groups")
    assigned: Any = Part(kernel, "assigned")
    places: Any = FakePlaces(kernel)
    reader: Any = FakeReader(kernel)
    feeds: Any = FakeFeeds(kernel)
    return Port(
        door, transactions, kernel=kernel, identity=identity, backpressure=face, topics=topics,
        places=places, subscriptions=feeds, speaker=Speaker(), journeys=None, committer=face,
        appending=FakeAppending(kernel), batches=FakeBatches(kernel), idempotency=feeds, receipts=face, scheduling=face,
        reader=reader, unreadable=feeds, watches=watches, deliveries=feeds, retained=feeds, known_producers=reader,
        groups=groups, assigned=assigned)
